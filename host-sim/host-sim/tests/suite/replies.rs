//! Local replies.

use host_sim::{End, Request, Response};

use crate::host;

fn never(_: &Request) -> Response {
    panic!("the upstream is not called")
}

#[test]
fn a_closed_stream_is_cut_and_says_why() {
    let outcome = host("replies").send(Request::get("/close"), never);
    assert_eq!((outcome.end(), outcome.details()), (End::Reset, "wasm_close_stream"));
}

#[test]
fn failures_of_the_upstream_are_replies_that_the_filter_sees() {
    for (failure, status, details) in [
        (Response::reset(), 503, "upstream_reset_before_response_started{connection_termination}"),
        (Response::silence(), 504, "response_timeout"),
    ] {
        let outcome = host("replies").send(Request::get("/"), |_| failure.clone());
        assert_eq!(
            (outcome.status(), outcome.details(), outcome.header("x-seen")),
            (status, details, Some("yes"))
        );
    }
}
