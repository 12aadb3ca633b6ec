//! What `ngx_wasm_module` does otherwise than Envoy.

use host_sim::{Clock, Flavour, Host, Module, Outcome, Plugin, Request};

use crate::{guests, ok};

/// A guest that does this to a request, on a host of each flavour.
fn both(body: &str) -> [(Host, Outcome); 2] {
    let source = format!(
        r#"(module
        (import "env" "proxy_get_status" (func $status (param i32 i32 i32) (result i32)))
        (import "env" "proxy_get_header_map_size" (func $size (param i32 i32) (result i32)))
        (import "env" "proxy_resolve_shared_queue" (func $resolve (param i32 i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_set_tick_period_milliseconds" (func $tick (param i32) (result i32)))
        (import "env" "proxy_define_metric" (func $define (param i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_record_metric" (func $record (param i32 i64) (result i32)))
        (import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
        (import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
        (import "env" "proxy_get_property" (func $property (param i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_get_current_time_nanoseconds" (func $time (param i32) (result i32)))
        (import "env" "proxy_send_local_response"
          (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
        ;; prelude
        (func $answer
          (drop (call $reply (i32.const 403) (i32.const 0) (i32.const 0) (str "no") (i32.const 0) (i32.const 0) (i32.const -1))))
        (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
          {body}
          (i32.const 0)))"#
    );
    let module = Module::compile(guests::assemble(&source).unwrap()).unwrap();
    [Flavour::Envoy, Flavour::Ngx].map(|flavour| {
        let clock =
            Clock::at(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_700_000_000_123_456_789));
        let mut host = Host::builder().flavour(flavour).clock(clock).build();
        host.load(&module, Plugin::default()).unwrap();
        let outcome = host.send(0, Request::get("/"), ok);
        (host, outcome)
    })
}

#[test]
fn calls_and_uses_that_it_does_not_have_end_the_guest() {
    let rows = [
        (
            "(drop (call $status (i32.const 16) (i32.const 20) (i32.const 24)))",
            "proxy_get_status is not implemented",
        ),
        ("(drop (call $size (i32.const 0) (i32.const 16)))", "proxy_get_header_map_size is not implemented"),
        (
            "(drop (call $resolve (str \"\") (str \"q\") (i32.const 16)))",
            "proxy_resolve_shared_queue is not implemented",
        ),
        ("(drop (call $tick (i32.const 10)))", "a tick period can only be set on a root context"),
        (
            "(drop (call $define (i32.const 0) (str \"c\") (i32.const 16)))
             (drop (call $record (i32.load (i32.const 16)) (i64.const 1)))",
            "a counter cannot be recorded",
        ),
        (
            "(drop (call $define (i32.const 1) (str \"g\") (i32.const 16)))
             (drop (call $increment (i32.load (i32.const 16)) (i64.const 1)))",
            "a gauge cannot be incremented",
        ),
        (
            "(drop (call $define (i32.const 0) (i32.const 4096) (i32.const 257) (i32.const 16)))",
            "a metric's name is too long",
        ),
        ("(call $answer) (call $answer)", "a response was already sent"),
    ];
    for (body, why) in rows {
        let [(envoy, _), (ngx, outcome)] = both(body);
        assert_eq!(envoy.vm_failure(0), None, "{why}");
        let failure = ngx.vm_failure(0).map(|failure| failure.to_string()).unwrap_or_default();
        assert!(failure.ends_with(&format!("ngx_wasm_module: {why}")), "{failure:?}, expected {why}");
        assert_eq!(outcome.status(), 503, "{why}");
    }
}

#[test]
fn a_root_sets_its_timer_once() {
    let source = r#"(module
        (import "env" "proxy_set_tick_period_milliseconds" (func $tick (param i32) (result i32)))
        ;; prelude
        (func (export "proxy_on_configure") (param $root i32) (param $size i32) (result i32)
          (drop (call $tick (i32.const 10)))
          (if (local.get $size) (then (drop (call $tick (i32.const 20)))))
          (i32.const 1)))"#;
    let module = Module::compile(guests::assemble(source).unwrap()).unwrap();
    let load = |configuration: &'static str| {
        let mut host = Host::builder().flavour(Flavour::Ngx).build();
        let plugin = Plugin { configuration: configuration.into(), ..Plugin::default() };
        host.load(&module, plugin).map_err(|error| error.to_string())
    };
    assert_eq!(load(""), Ok(()));
    let error = load("twice").unwrap_err();
    assert!(error.contains("the tick period is already set"), "{error}");
}

#[test]
fn properties_are_text_clocks_go_in_milliseconds_and_replies_end_a_line() {
    let [(_, envoy), (_, ngx)] = both("(call $answer)");
    assert_eq!((envoy.text().as_str(), ngx.text().as_str()), ("no", "no\n"));

    let length = "(drop (call $property (str \"source\\00port\") (i32.const 16) (i32.const 20)))
                  (call $note_result (str \"port\") (i32.const 0))";
    let [(envoy, _), (ngx, _)] = both(length);
    assert_eq!((envoy.logs().contains("port 50000"), ngx.logs().contains("port 50000")), (false, true));

    let time = "(drop (call $time (i32.const 16)))
                (call $note (str \"rest\") (i32.wrap_i64 (i64.rem_u (i64.load (i32.const 16)) (i64.const 1000000))))";
    let [(envoy, _), (ngx, _)] = both(time);
    assert_eq!((envoy.logs().contains("rest 456789"), ngx.logs().contains("rest 0")), (true, true));

    // The stream stays the context of its callback; in Envoy the reply is the root's, and the stream waits.
    let chosen = "(drop (call $effective (i32.const 1))) (call $answer)";
    let [(_, envoy), (_, ngx)] = both(chosen);
    assert_eq!((envoy.status(), ngx.status()), (0, 403));
}

#[test]
fn nobody_is_told_that_a_queue_is_ready() {
    let source = r#"(module
        (import "env" "proxy_register_shared_queue" (func $register (param i32 i32 i32) (result i32)))
        (import "env" "proxy_enqueue_shared_queue" (func $enqueue (param i32 i32 i32) (result i32)))
        (import "env" "proxy_dequeue_shared_queue" (func $dequeue (param i32 i32 i32) (result i32)))
        ;; prelude
        (func (export "proxy_on_configure") (param $root i32) (param $size i32) (result i32)
          (drop (call $register (str "q") (i32.const 512)))
          (i32.const 1))
        (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
          (call $note (str "enqueue") (call $enqueue (i32.load (i32.const 512)) (str "job")))
          (drop (call $dequeue (i32.load (i32.const 512)) (i32.const 16) (i32.const 20)))
          (call $note_result (str "dequeue") (i32.const 0))
          (i32.const 0))
        (func (export "proxy_on_queue_ready") (param $root i32) (param $token i32)
          (call $note (str "ready") (local.get $token))))"#;
    let module = Module::compile(guests::assemble(source).unwrap()).unwrap();
    for (flavour, told) in [(Flavour::Envoy, true), (Flavour::Ngx, false)] {
        let mut host = Host::builder().flavour(flavour).build();
        host.load(&module, Plugin::default()).unwrap();
        host.send(0, Request::get("/"), ok);
        let logs = host.logs();
        assert!(logs.contains("enqueue 0") && logs.contains("dequeue job"), "{:?}", logs.lines());
        assert_eq!(logs.contains("ready 1"), told, "{flavour:?}");
    }
}
