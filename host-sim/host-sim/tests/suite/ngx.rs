//! What decides whether a module loads and counts in nginx with `ngx_wasm_module`.

use std::{error::Error as _, time::Duration};

use host_sim::{Flavour, Host, LoadError, Module, ModuleError, Outcome, Plugin, Request, Response};

use crate::{guests, ok};

/// What a guest exports for that gateway, with the parameters, the results and what it answers.
const EXPORTS: [(&str, usize, &str); 12] = [
    ("proxy_on_context_create", 2, ""),
    ("proxy_on_vm_start", 2, "1"),
    ("proxy_on_configure", 2, "1"),
    ("proxy_on_request_headers", 3, "0"),
    ("proxy_on_request_body", 3, "0"),
    ("proxy_on_response_headers", 3, "0"),
    ("proxy_on_response_body", 3, "0"),
    ("proxy_on_done", 1, "1"),
    ("proxy_on_log", 1, ""),
    ("proxy_on_delete", 1, ""),
    ("proxy_on_tick", 1, ""),
    ("proxy_on_http_call_response", 5, ""),
];

/// All of these exports but some, which log their names where `logged`.
fn exports_but(without: &[&str], logged: bool) -> String {
    let exports = EXPORTS.iter().filter(|(name, ..)| !without.contains(name));
    let written = exports.map(|(name, parameters, answer)| {
        let (parameters, result) =
            ("i32 ".repeat(*parameters), if answer.is_empty() { "" } else { "(result i32)" });
        let answer = if answer.is_empty() { String::new() } else { format!("(i32.const {answer})") };
        let log = if logged { format!("(call $note (str \"{name}\") (local.get 0))") } else { String::new() };
        format!("(func (export \"{name}\") (param {parameters}) {result} {log} {answer})\n")
    });
    written.collect()
}

/// A guest that does this to a request, on a host of each flavour.
fn both(body: &str) -> [(Host, Outcome); 2] {
    both_with(body, &Request::get("/"))
}

/// A guest that does this to a request like that one, on a host of each flavour.
fn both_with(body: &str, request: &Request) -> [(Host, Outcome); 2] {
    let source = format!(
        r#"(module
        (import "env" "proxy_get_status" (func $status (param i32 i32 i32) (result i32)))
        (import "env" "proxy_resolve_shared_queue" (func $resolve (param i32 i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_set_tick_period_milliseconds" (func $tick (param i32) (result i32)))
        (import "env" "proxy_define_metric" (func $define (param i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_record_metric" (func $record (param i32 i64) (result i32)))
        (import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
        (import "env" "proxy_get_property" (func $property (param i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_set_property" (func $set_property (param i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_get_header_map_pairs" (func $pairs (param i32 i32 i32) (result i32)))
        (import "env" "proxy_get_header_map_value" (func $value (param i32 i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_send_local_response"
          (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
        ;; prelude
        (func $answer
          (drop (call $reply (i32.const 403) (i32.const 0) (i32.const 0) (str "no") (i32.const 0) (i32.const 0) (i32.const -1))))
        (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
          {body}
          (i32.const 0))
        {})"#,
        exports_but(&["proxy_on_request_headers"], false)
    );
    let module = Module::compile(guests::assemble(&source).unwrap()).unwrap();
    [Flavour::default(), Flavour::Ngx].map(|flavour| {
        let mut host = Host::builder().flavour(flavour).build();
        host.load(&module, Plugin::default()).unwrap();
        let outcome = host.send(request.clone(), ok);
        (host, outcome)
    })
}

/// What is said of a guest that imports these when it is loaded there.
fn refusal(imports: &str) -> Result<(), String> {
    let exports = exports_but(&[], false);
    let source = format!(
        r#"(module {imports} (memory (export "memory") 1) (func (export "proxy_abi_version_0_2_1"))
        (func (export "malloc") (param i32) (result i32) (i32.const 64)) {exports})"#
    );
    let module = Module::compile(wat::parse_str(source).unwrap()).unwrap();
    assert!(module.taken_by(Flavour::default()).is_ok(), "{imports}");
    let mut host = Host::builder().flavour(Flavour::Ngx).build();
    let loaded = host.load(&module, Plugin::default());
    let Err(LoadError::Module(error)) = &loaded else {
        assert!(loaded.is_ok() && module.taken_by(Flavour::Ngx).is_ok(), "{imports}");
        return Ok(());
    };
    assert_eq!(module.taken_by(Flavour::Ngx).unwrap_err().to_string(), error.to_string(), "{imports}");
    Err(match error.source() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    })
}

#[test]
fn a_module_is_refused_whose_imports_that_gateway_declares_with_other_types_or_not_at_all() {
    let import =
        |module: &str, name: &str, kind: &str| format!("(import \"{module}\" \"{name}\" (func {kind}))");
    let level = "(param i32) (result i32)";
    assert_eq!(
        refusal(&import("env", "proxy_get_log_level", level)).unwrap_err(),
        "incompatible import type for `env::proxy_get_log_level`: expected (func (param i32) (result i32)), found (func \
         (param i32 i32) (result i32))"
    );
    let two = "(param i32 i32) (result i32)";
    let three = "(param i32 i32 i32) (result i32)";
    // What Envoy has and that gateway has not.
    let rows = [
        ("proxy_get_header_map_size", two),
        ("proxy_get_buffer_status", three),
        ("envoy_resolve_dns", three),
        ("pthread_equal", two),
    ];
    for (name, kind) in rows {
        let expected = format!("failed importing \"env.{name}\": missing host function");
        assert_eq!(refusal(&import("env", name, kind)), Err(expected));
    }
    assert_eq!(
        refusal(&import("wasi_unstable", "random_get", two)).unwrap_err(),
        "unknown import: `wasi_unstable::random_get` has not been defined"
    );
    let same = [
        import("env", "proxy_log", three),
        import("env", "proxy_record_metric", "(param i32 i64) (result i32)"),
        import("env", "proxy_get_status", three),
        import("wasi_snapshot_preview1", "random_get", two),
        import("wasi_snapshot_preview1", "clock_time_get", "(param i32 i64 i32) (result i32)"),
        import("wasi_snapshot_preview1", "proc_exit", "(param i32)"),
    ];
    assert_eq!(refusal(&same.concat()), Ok(()));
}

#[test]
fn names_of_headers_come_as_they_were_written_and_are_found_in_any_case() {
    let request = Request::get("/").header("Authorization", "Bearer k").header("x-lower", "1");
    let body = r#"
        (drop (call $pairs (i32.const 0) (i32.const 16) (i32.const 20)))
        (call $note_result (str "pairs") (i32.const 0))
        (drop (call $value (i32.const 0) (str "AUTHORIZATION") (i32.const 16) (i32.const 20)))
        (call $note_result (str "value") (i32.const 0))"#;
    let [(envoy, in_envoy), (ngx, in_ngx)] = both_with(body, &request);
    for (host, written) in [(&envoy, "authorization"), (&ngx, "Authorization")] {
        let lines = crate::lines(host);
        let shown = |text: &str| lines.iter().any(|line| line.contains(&format!("\0{text}\0Bearer k\0")));
        assert!(shown(written), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("value Bearer k")), "{lines:?}");
    }
    // An upstream behind nginx gets them so, too; a test finds them by any name.
    for outcome in [in_envoy, in_ngx] {
        let forwarded = outcome.forwarded().unwrap();
        assert_eq!(forwarded.header_str("authorization"), Some("Bearer k"));
        assert!(forwarded.headers().as_written().any(|(name, _)| name == "Authorization"));
    }
}

#[test]
fn a_reply_to_plain_http_with_a_grpc_status_ends_the_worker_as_a_debug_build_does() {
    let reply = |status: &str| {
        format!(
            "(drop (call $reply (i32.const 403) (i32.const 0) (i32.const 0) (str \"no\") (i32.const 0) (i32.const 0) \
             (i32.const {status})))"
        )
    };
    let plain = Request::get("/");
    let grpc = Request::post("/").header("Content-Type", "application/grpc+proto");
    //  the request, the reply's gRPC status, whether nginx's worker ends
    let rows = [(&plain, "-1", false), (&plain, "7", true), (&plain, "0", true), (&grpc, "7", false)];
    for (request, status, ends) in rows {
        let [(envoy, _), (ngx, outcome)] = both_with(&reply(status), request);
        assert_eq!(envoy.worker(0).vm_failure(), None, "{status}");
        let failure = ngx.worker(0).vm_failure().map(|failure| failure.to_string()).unwrap_or_default();
        let said =
            failure.contains("a reply to plain HTTP has a gRPC status: Assertion `grpc_status == -1' failed");
        assert_eq!((said, !failure.is_empty()), (ends, ends), "{status}: {failure}");
        assert_eq!(outcome.status() == 503, ends, "{status}");
    }
}

#[test]
fn the_path_is_decoded_and_a_property_has_what_was_sent() {
    let property = |name: &str| {
        format!(
            "(call $note (str \"{name} is\") (call $property (str \"{name}\") (i32.const 16) (i32.const 20)))
             (call $note_result (str \"{name}:\") (i32.const 0))"
        )
    };
    let names = ["ngx\\00request_uri", "ngx.request_uri", "request\\00path"];
    let mut body = "(drop (call $value (i32.const 0) (str \":path\") (i32.const 16) (i32.const 20)))
                    (call $note_result (str \"path:\") (i32.const 0))"
        .to_owned();
    body.extend(names.map(property));
    let sent = "/links/ext_a%2f..%2f..%2fr%2fx?a=%2f";
    let [(envoy, in_envoy), (ngx, in_ngx)] = both_with(&body, &Request::get(sent));

    let said = |host: &Host, line: &str| host.logs().contains(line);
    assert!(
        said(&envoy, &format!("path: {sent}")) && said(&ngx, "path: /r/x?a=%2f"),
        "{:?}",
        crate::lines(&ngx)
    );
    for name in ["ngx\0request_uri", "ngx.request_uri", "request\0path"] {
        assert!(said(&ngx, &format!("{name} is 0")), "{name}: {:?}", crate::lines(&ngx));
        assert!(said(&ngx, &format!("{name}: {sent}")), "{name}: {:?}", crate::lines(&ngx));
        let in_both = name == "request\0path";
        assert!(
            said(&envoy, &format!("{name} is {}", u32::from(!in_both))),
            "{name}: {:?}",
            crate::lines(&envoy)
        );
    }
    // `proxy_pass` without a path sends on what the client has sent.
    for outcome in [in_envoy, in_ngx] {
        assert_eq!(outcome.forwarded().unwrap().path(), sent);
    }
}

#[test]
fn at_most_a_hundred_pairs_of_headers_are_handed_over() {
    let request =
        (0..150).fold(Request::get("/"), |request, number| request.header(format!("x-{number}"), "1"));
    let body = r#"
        (drop (call $pairs (i32.const 0) (i32.const 16) (i32.const 20)))
        (call $note (str "pairs") (i32.load (i32.load (i32.const 16))))"#;
    let [envoy, ngx] = both_with(body, &request).map(|(host, outcome)| {
        assert_eq!(outcome.forwarded().unwrap().header_str("x-149"), Some("1"));
        crate::lines(&host)
    });
    assert_eq!(ngx, ["pairs 100"]);
    assert_ne!(envoy, ngx);
}

#[test]
fn one_property_is_not_there_and_a_filter_sets_none() {
    let body = r#"(call $note (str "set") (call $set_property (str "limits") (str "1")))
        (call $note (str "vm_id") (call $property (str "plugin_vm_id") (i32.const 16) (i32.const 20)))"#;
    let [(envoy, _), (ngx, _)] = both(body);
    for (host, answer) in [(envoy, 0), (ngx, 1)] {
        assert_eq!(crate::lines(&host), [format!("set {answer}"), format!("vm_id {answer}")]);
    }
}

#[test]
fn calls_and_uses_that_it_does_not_have_end_the_guest() {
    let rows = [
        (
            "(drop (call $status (i32.const 16) (i32.const 20) (i32.const 24)))",
            "proxy_get_status is not implemented",
        ),
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
        assert_eq!(envoy.worker(0).vm_failure(), None, "{why}");
        let failure = ngx.worker(0).vm_failure().map(|failure| failure.to_string()).unwrap_or_default();
        assert!(failure.contains(&format!("ngx_wasm_module: {why}, at ")), "{failure:?}, expected {why}");
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
          (i32.const 1))
        EXPORTS)"#;
    let source = source.replace("EXPORTS", &exports_but(&["proxy_on_configure"], false));
    let module = Module::compile(guests::assemble(&source).unwrap()).unwrap();
    let load = |configuration: &'static str| {
        let mut host = Host::builder().flavour(Flavour::Ngx).build();
        let plugin = Plugin::new(configuration);
        host.load(&module, plugin).map_err(|error| error.to_string())
    };
    assert_eq!(load(""), Ok(()));
    let error = load("twice").unwrap_err();
    assert!(error.contains("the tick period is already set"), "{error}");
}

/// A guest that exports all but some callbacks, each of which logs its name, on a host of this flavour.
fn without(flavour: Flavour, without: &[&str]) -> Result<Host, LoadError> {
    let source = format!("(module\n;; prelude\n{})", exports_but(without, true));
    let module = Module::compile(guests::assemble(&source).unwrap()).unwrap();
    let mut host = Host::builder().flavour(flavour).build();
    host.load(&module, Plugin::default()).map(|()| host)
}

#[test]
fn a_module_without_a_callback_of_the_start_is_refused() {
    for export in ["proxy_on_context_create", "proxy_on_vm_start", "proxy_on_configure"] {
        assert!(without(Flavour::default(), &[export]).is_ok(), "{export}");
        let error = without(Flavour::Ngx, &[export]).map(|_| ()).unwrap_err();
        let LoadError::Module(ModuleError::IncompatibleSdk { missing }) = &error else { panic!("{error}") };
        assert_eq!(*missing, [export]);
        assert_eq!(
            error.to_string(),
            "filter missing one of: on_context_create, on_vm_start, on_plugin_start (incompatible SDK interface)"
        );
    }
}

#[test]
fn an_export_that_is_absent_when_nginx_calls_it_crashes_the_worker() {
    let get = || Request::get("/");
    let post = || Request::post("/").body("a body");
    let (empty, full) = (Response::ok(), Response::ok().body("a body"));
    //  the absent export, a request, its response, whether nginx calls the export
    let rows = [
        ("proxy_on_request_headers", get(), &empty, true),
        ("proxy_on_request_body", get(), &full, false),
        ("proxy_on_request_body", post(), &empty, true),
        ("proxy_on_response_headers", get(), &empty, true),
        ("proxy_on_response_body", get(), &full, true),
        ("proxy_on_done", get(), &empty, true),
        ("proxy_on_log", get(), &empty, true),
        ("proxy_on_delete", get(), &empty, true),
        ("proxy_on_tick", get(), &empty, false),
        ("proxy_on_http_call_response", get(), &empty, false),
    ];
    for (export, request, response, crashes) in rows {
        for flavour in [Flavour::default(), Flavour::Ngx] {
            let host = without(flavour, &[export]).unwrap();
            host.send(request.clone(), |_| response.clone());
            let failure = host.worker(0).vm_failure().map(|failure| failure.to_string());
            let crash = format!(
                "{export} trapped: ngx_wasm_module: the module does not export {export}, and nginx's worker crashes here"
            );
            let expected = (crashes && flavour == Flavour::Ngx).then_some(crash);
            assert_eq!(
                failure,
                expected,
                "{flavour:?}, {export}, {} {}",
                request.method(),
                response.status()
            );
        }
    }
}

#[test]
fn an_answer_and_a_tick_that_the_guest_asked_for_are_called_without_a_check_too() {
    let source = r#"(module
        (import "env" "proxy_set_tick_period_milliseconds" (func $tick (param i32) (result i32)))
        (import "env" "proxy_http_call"
          (func $call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
        ;; prelude
        (func (export "proxy_on_configure") (param $root i32) (param $size i32) (result i32)
          (drop (call $tick (i32.const 10)))
          (i32.const 1))
        (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
          (drop (call $call (str "auth")
            (str "\03\00\00\00\05\00\00\00\06\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\04\00\00\00:path\00/check\00:method\00GET\00:authority\00auth\00")
            (str "") (str "") (i32.const 5000) (i32.const 24)))
          (i32.const 0))
        EXPORTS)"#;
    for export in ["proxy_on_tick", "proxy_on_http_call_response"] {
        let exports = exports_but(&["proxy_on_configure", "proxy_on_request_headers", export], false);
        let module =
            Module::compile(guests::assemble(&source.replace("EXPORTS", &exports)).unwrap()).unwrap();
        let builder = Host::builder().flavour(Flavour::Ngx).cluster("auth", |_| Response::ok());
        let mut host = builder.build();
        host.load(&module, Plugin::default()).unwrap();
        assert_eq!(host.worker(0).vm_failure(), None, "{export}");
        host.send(Request::get("/"), ok);
        host.advance(Duration::from_millis(10));
        let failure = host.worker(0).vm_failure().map(|failure| failure.to_string()).unwrap_or_default();
        assert!(failure.contains(&format!("does not export {export}")), "{failure:?}, expected {export}");
    }
}
