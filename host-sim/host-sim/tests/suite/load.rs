//! Long runs: nothing grows without bound.

use host_sim::{Host, Plugin, Request};

use crate::{host_of, ok};

#[test]
fn a_hundred_thousand_requests_leave_neither_contexts_nor_log_lines_beyond_the_bound() {
    let host = host_of("limiter", Host::builder().log_capacity(100), Plugin::default());
    let before = host.contexts();
    let request = Request::get("/k").header("authorization", "Bearer k").header("user-agent", "load");
    let admitted = (0..100_000).filter(|_| host.send(0, request.clone(), ok).status() == 200).count();
    assert_eq!((admitted, host.contexts()), (5, before));
    assert!(host.logs().lines().len() <= 100);
}
