//! Long runs: nothing grows without bound.

use host_sim::{CodeCache, Compiler, Host, Module, Plugin, Request};

use crate::{guests, host_of, ok};

#[test]
fn a_hundred_thousand_requests_leave_neither_contexts_nor_log_lines_beyond_the_bound() {
    let host = host_of("limiter", Host::builder().log_capacity(100), Plugin::default());
    let before = host.contexts();
    let request = Request::get("/k").header("authorization", "Bearer k").header("user-agent", "load");
    let admitted = (0..100_000).filter(|_| host.send(0, request.clone(), ok).status() == 200).count();
    assert_eq!((admitted, host.contexts()), (5, before));
    assert!(host.logs().lines().len() <= 100);
}

#[test]
fn a_module_that_was_compiled_before_is_hardly_compiled_again() {
    let folder =
        std::env::temp_dir().join(format!("host-sim-{}-{:x}", std::process::id(), fastrand::u64(..)));
    let cache = CodeCache::at(&folder);
    let compile = || Module::compile_cached(guests::guest("limiter"), Compiler::Plain, &cache).unwrap();
    let (_, first) = compile();
    let (module, second) = compile();
    let mut host = Host::builder().build();
    host.load(&module, Plugin::default()).unwrap();
    let outcome = host.send(0, Request::get("/k"), ok);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(first.error.is_none() && second.error.is_none(), "{first:?}, {second:?}");
    assert!(second.reused > first.reused && second.compiled < first.compiled, "{first:?}, {second:?}");
    assert_eq!(outcome.status(), 200);
}
