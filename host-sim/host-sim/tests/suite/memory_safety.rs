//! Guests that lie, loop, trap and grow.

use std::time::Duration;

use host_sim::{End, FailurePolicy, Host, Module, ModuleError, Plugin, Request, Response, VmError};

use crate::{guests, host, host_of, lines, ok};

const INVALID_MEMORY_ACCESS: u32 = 6;

#[test]
fn pointers_outside_the_memory_are_refused() {
    let host = host("memory");
    assert_eq!(host.send(Request::get("/"), ok).status(), 200);
    let bad = |what: &str| format!("{what} {INVALID_MEMORY_ACCESS}");
    assert_eq!(
        lines(&host),
        [
            bad("name outside"),
            bad("name wraps"),
            bad("key outside"),
            bad("value outside"),
            "nothing at zero 0".to_owned(),
            "nothing at the end 0".to_owned(),
            bad("path outside"),
            bad("out pointer outside"),
            bad("time outside"),
            bad("metric outside"),
            bad("pairs outside"),
            bad("reply outside"),
            "value that needs memory 0".to_owned(),
            bad("log outside"),
            "level 2".to_owned(),
        ]
    );
}

#[test]
fn an_allocator_that_gives_nothing_or_lies_is_told_so() {
    for configuration in ["0", "h"] {
        let host = host_of("memory", Host::builder(), Plugin::default());
        // The lie begins with the configuration, which itself is handed over with an honest allocator.
        let mut host = host;
        host.update(configuration).unwrap();
        host.logs().take();
        assert_eq!(host.send(Request::get("/"), ok).status(), 200);
        assert!(lines(&host).contains(&"value that needs memory 6".to_owned()), "{configuration}");
    }
}

#[test]
fn an_allocator_may_not_call_the_host() {
    let mut host = host("memory");
    host.update("c").unwrap();
    assert_eq!(host.send(Request::get("/"), ok).status(), 503);
    let failure = host.worker(0).vm_failure().unwrap().to_string();
    assert!(
        failure.contains("not allowed while memory is allocated: proxy_get_current_time_nanoseconds"),
        "{failure}"
    );
}

#[test]
fn each_way_to_end_a_vm_is_told_by_its_name() {
    let short = || Host::builder().callback_limit(Duration::from_millis(50));
    //  path, the trap's words
    let rows = [
        (Host::builder(), "/unreachable", "unreachable"),
        (Host::builder(), "/overflow", "call stack exhausted"),
        (short(), "/loop", "it ran for more than 50ms"),
    ];
    for (builder, path, words) in rows {
        let host = host_of("traps", builder, Plugin::default());
        let outcome = host.send(Request::get(path), ok);
        assert_eq!((outcome.status(), outcome.text().as_str()), (503, ""), "{path}");
        assert_eq!(outcome.details(), "wasm_fail_stream");
        let failure = host.worker(0).vm_failure().unwrap().to_string();
        assert!(
            failure.starts_with("proxy_on_request_headers trapped: ") && failure.contains(words),
            "{failure}"
        );
        assert!(host.logs().contains(&failure));
    }
}

#[test]
fn a_memory_bomb_stops_at_the_limit() {
    let host = host_of("traps", Host::builder().memory_limit(8 << 20), Plugin::default());
    assert_eq!(host.send(Request::get("/grow"), ok).status(), 200);
    let said = lines(&host);
    let pages: u32 = said[0].strip_prefix("pages ").unwrap().parse().unwrap();
    assert!(pages <= 128, "{pages} pages of 64 KiB");
}

#[test]
fn a_trap_ends_the_vm_for_all_its_streams_and_no_log_is_written_for_them() {
    let host = host("traps");
    let mut in_flight = host.stream(&Request::get("/ok"), true);
    host.send(Request::get("/unreachable"), ok);
    in_flight.respond(Response::ok());
    let outcome = in_flight.finish();
    assert_eq!(
        (outcome.end(), outcome.status(), outcome.details()),
        (End::LocalReply, 503, "wasm_fail_stream")
    );
    assert!(!lines(&host).iter().any(|line| line.starts_with("log")));
}

#[test]
fn a_trap_in_the_response_answers_503_before_headers_and_cuts_the_stream_after() {
    let answer = |_: &Request| Response::ok().body("x");
    assert_eq!(host("traps").send(Request::get("/response"), answer).status(), 503);
    assert_eq!(host("traps").send(Request::get("/body"), answer).end(), End::Reset);
}

#[test]
fn the_failure_policy_decides_about_later_requests() {
    use FailurePolicy::{DeprecatedFailOpen, FailClosed, FailOpen, FailReload};
    //  policy              trapping  next  after 2 s
    let rows = [
        (FailClosed, [503, 503, 503]),
        (FailOpen, [503, 200, 200]),
        (FailReload, [503, 503, 200]),
        (DeprecatedFailOpen, [200, 200, 200]),
    ];
    for (failure_policy, statuses) in rows {
        let plugin = Plugin::default().failure_policy(failure_policy);
        let host = host_of("traps", Host::builder().workers(2), plugin);
        let trapping = host.send(Request::get("/unreachable"), ok).status();
        let next = host.send(Request::get("/ok"), ok).status();
        host.advance(Duration::from_secs(2));
        let later = host.send(Request::get("/ok"), ok).status();
        assert_eq!([trapping, next, later], statuses, "{failure_policy:?}");
        assert_eq!(host.worker(1).send(Request::get("/ok"), ok).status(), 200, "the other worker's VM lives");
        let reloads = host.worker(0).reloads();
        let expected = if failure_policy == FailReload { (1, 1, 0) } else { (0, 0, 0) };
        assert_eq!((reloads.backoff, reloads.success, reloads.failure), expected, "{failure_policy:?}");
    }
}

#[test]
fn a_host_function_that_is_not_supported_traps_by_its_name() {
    let text = r#"(module
        (import "env" "envoy_resolve_dns" (func $call (param i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "proxy_abi_version_0_2_1"))
        (func (export "malloc") (param i32) (result i32) (i32.const 8))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
          (call $call (i32.const 0) (i32.const 0) (i32.const 0))))"#;
    let module = Module::compile(guests::assemble(text).unwrap()).unwrap();
    let error = Host::builder().build().load(&module, Plugin::default()).unwrap_err();
    assert!(error.to_string().contains("host function not supported: envoy_resolve_dns"), "{error}");
}

#[test]
fn what_is_no_proxy_wasm_module_is_refused_with_what_it_lacks() {
    let compile = |text: &str| Module::compile(wat::parse_str(text).unwrap()).unwrap_err();
    let memory = r#"(memory (export "memory") 1)"#;
    let abi = r#"(func (export "proxy_abi_version_0_2_1"))"#;
    assert!(matches!(Module::compile(b"not wasm").unwrap_err(), ModuleError::NotWasm));
    assert!(matches!(Module::compile(b"\0asm\x01").unwrap_err(), ModuleError::Invalid(_)));
    assert!(matches!(compile("(module)"), ModuleError::NoAbi));
    assert!(matches!(compile(r#"(module (func (export "proxy_abi_version_0_1_0")))"#), ModuleError::OldAbi));
    assert!(matches!(compile(&format!("(module {abi})")), ModuleError::NoMemory));
    assert!(matches!(compile(&format!("(module {memory} {abi})")), ModuleError::NoAllocator));
}

#[test]
fn a_start_that_calls_what_is_closed_to_it_is_refused() {
    let text = r#"(module
        (import "env" "proxy_set_tick_period_milliseconds" (func $period (param i32) (result i32)))
        ;; prelude
        (func (export "_initialize") (drop (call $period (i32.const 1)))))"#;
    let module = Module::compile(guests::assemble(text).unwrap()).unwrap();
    let error = Host::builder().build().load(&module, Plugin::default()).unwrap_err();
    let words = "host function not allowed while the module initialises: proxy_set_tick_period_milliseconds";
    assert!(error.to_string().contains(words), "{error}");
    let host_sim::LoadError::Refused {
        reason: VmError::Instantiate { .. }, vm: host_sim::VmName::Base, ..
    } = error
    else {
        panic!("{error:?}")
    };
}
