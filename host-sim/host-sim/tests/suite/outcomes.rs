//! What a test learns of a request: from its outcome, and from what is printed when the test fails.

use std::{env, process::Command, time::Duration};

use host_sim::{End, Host, LoadError, Module, ModuleError, Plugin, Request, Response};

use crate::{guests, host, host_of, ok};

/// What [`a_test_that_fails`] is asked to do.
const FAIL: &str = "HOST_SIM_TEST_FAILS";

/// A host whose filter asks the cluster "auth" about each request.
fn asking(answer: fn(&Request) -> Response) -> Host {
    let builder = Host::builder().workers(2).cluster("auth", answer).trace();
    host_of("callouts", builder, Plugin::default())
}

fn messages(outcome: &host_sim::Outcome) -> Vec<&str> {
    outcome.log().iter().map(|line| line.message.as_str()).collect()
}

#[test]
fn an_outcome_is_a_text_that_can_be_a_snapshot() {
    let send = || {
        let host = asking(|_| Response::new(401).body("who\nare you?"));
        host.send(Request::post("/").header("x", "1").body("hello"), ok)
    };
    let outcome = send();
    let text = format!("{outcome:?}");
    assert_eq!(text, format!("{outcome:#?}"), "both forms are alike");
    let parts = [
        "LocalReply, status 403, denied\n  cause: in proxy_on_http_call_response: proxy_set_effective_context(context: 999) → ",
        "\n  the client received:\n    :status: 403\n",
        "\n    body, 6 bytes:\n      denied\n  cluster `auth` received:\n    :path: /check\n",
        "\n  cluster `auth` answered:\n    :status: 401\n    body, 12 bytes:\n      who\n      are you?\n  log:\n",
        "\n    [info][worker 0] answer of 1 headers and 12 bytes under 1\n",
        "\n  trace:\n    worker 0: proxy_on_request_headers(context: 2, headers: 10, end_of_stream: false) → StopIteration\n",
    ];
    let mut rest = text.as_str();
    for part in parts {
        let found =
            rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing or out of order in {text}"));
        rest = &rest[found + part.len() - 1..];
    }
    assert!(!text.contains("µs"), "a time in {text}");
    assert_eq!(text, format!("{:?}", send()), "in each run");
}

#[test]
fn of_a_long_body_the_beginning_is_shown() {
    let outcome = host("limiter").send(Request::get("/k"), |_| Response::ok().body("b".repeat(5000)));
    let text = format!("{outcome:?}");
    assert!(text.contains("body, 5000 bytes:") && text.contains("b… and 3976 bytes more"), "{text}");
    assert!(text.len() < 2000, "{text}");
}

#[test]
fn an_outcome_has_the_calls_log_and_trace_of_its_own_request() {
    let host = asking(|_| Response::ok());
    let first = host.send(Request::get("/"), ok);
    let other = host.worker(1).send(Request::get("/unknown"), ok);
    let second = host.send(Request::get("/empty"), ok);
    let calls = |outcome: &host_sim::Outcome| -> Vec<_> {
        let calls = outcome.callouts().iter();
        calls.map(|call| (call.cluster.clone(), call.request.method().to_owned())).collect()
    };
    assert_eq!(calls(&first), [("auth".to_owned(), "GET".to_owned())]);
    assert_eq!(calls(&second), [("auth".to_owned(), "POST".to_owned())]);
    assert_eq!((calls(&other), messages(&other)), (Vec::new(), vec!["unknown cluster 2", "response for 2"]));
    assert_eq!(messages(&first).first(), Some(&"call 0"));
    assert_eq!(messages(&second).first(), Some(&"empty 0"));
    for outcome in [&first, &second, &other] {
        let callbacks: Vec<_> = outcome.trace().iter().map(|callback| callback.callback).collect();
        let begins = callbacks.iter().filter(|callback| **callback == "proxy_on_request_headers");
        assert_eq!(
            (begins.count(), callbacks.last()),
            (1, Some(&"proxy_on_response_headers")),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_late_answer_belongs_to_its_call_and_one_that_never_comes_to_none() {
    let late = asking(|_| Response::new(204).after(Duration::from_secs(1)));
    let mut stream = late.stream(&Request::get("/"), true);
    late.advance(Duration::from_secs(2));
    stream.poll();
    let answer = |outcome: &host_sim::Outcome| outcome.callouts()[0].answer.as_ref().map(Response::status);
    assert_eq!(answer(&stream.finish()), Some(204));
    let outcome = asking(|_| Response::silence()).send(Request::get("/"), ok);
    assert_eq!((outcome.end(), answer(&outcome)), (End::Paused, None));
    assert!(format!("{outcome:?}").contains("\n  cluster `auth` has not answered\n"), "{outcome:?}");
}

#[test]
fn a_trap_is_in_the_outcome_of_its_request_and_known_in_later_ones() {
    let host = host("traps");
    assert_eq!(host.send(Request::get("/ok"), ok).failure(), None);
    let trapped = host.send(Request::get("/unreachable"), ok);
    let later = host.send(Request::get("/ok"), ok);
    for (outcome, title) in [
        (trapped, "\n  log:\n    [critical][worker 0] proxy_on"),
        (later, "\n  the VM has failed before:\n    proxy_on"),
    ] {
        let text = format!("{outcome:?}");
        assert!(text.contains(title), "{text}");
        assert_eq!(text.matches("wasm `unreachable` instruction executed").count(), 1, "{text}");
        assert!(text.contains("\n       0: "), "no backtrace in {text}");
        assert_eq!(outcome.failure(), host.worker(0).vm_failure().as_ref());
    }
}

#[test]
fn errors_are_shown_by_unwrap_as_text_with_their_sources() {
    let error = Module::compile(b"\0asm\x01").unwrap_err();
    assert!(format!("{error:?}").starts_with("not a valid WebAssembly module: "), "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
    let error = LoadError::from(ModuleError::NoAbi);
    assert_eq!(format!("{error:?}"), error.to_string());
    let trapping = r#"(module ;; prelude
        (func $deep (unreachable))
        (func (export "_initialize") (call $deep)))"#;
    let module = Module::compile(guests::assemble(trapping).unwrap()).unwrap();
    let text = format!("{:?}", Host::builder().build().load(&module, Plugin::default()).unwrap_err());
    assert!(
        text.starts_with("base VM: the module does not start: ") && text.contains("\n   0: deep\n"),
        "{text}"
    );
}

/// Fails where the tests below ask for it, in a process of its own.
#[test]
fn a_test_that_fails() {
    let Ok(how) = env::var(FAIL) else { return };
    let builder = if how == "traced" { Host::builder().trace() } else { Host::builder() };
    let host = host_of("traps", builder, Plugin::default());
    if how == "stream" {
        let stream = host.stream(&Request::get("/unreachable"), true);
        assert!(stream.is_forwarded());
    }
    assert_eq!(host.send(Request::get("/unreachable"), ok).status(), 200);
}

#[test]
fn a_test_that_fails_shows_the_last_request_without_being_asked() {
    let shown = |how: &str| {
        let program = env::current_exe().unwrap();
        let output = Command::new(program)
            .args(["outcomes::a_test_that_fails", "--exact"])
            .env(FAIL, how)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    for how in ["plain", "stream", "traced"] {
        let text = shown(how);
        let parts = [
            "host-sim, the last request: LocalReply, status 503, ",
            "[critical][worker 0] proxy_on_request_headers trapped: ",
            "\n       0: ",
        ];
        for part in parts {
            assert!(text.contains(part), "{how}: {part:?} is missing in {text}");
        }
        assert_eq!(text.contains("\n  trace:\n"), how == "traced", "{text}");
        assert_eq!(text.contains("Host::builder().trace() shows"), how != "traced", "{text}");
    }
}

#[test]
fn a_host_without_records_keeps_nothing_of_its_requests_but_the_log() {
    for kept in [true, false] {
        let builder = Host::builder().workers(2).trace().cluster("auth", ok);
        let builder = if kept { builder } else { builder.without_records() };
        let host = host_of("callouts", builder, Plugin::default());
        let outcomes = host.threads(|worker| host.worker(worker).send(Request::get("/"), ok));
        for outcome in outcomes {
            let found =
                [!outcome.log().is_empty(), !outcome.callouts().is_empty(), !outcome.trace().is_empty()];
            assert_eq!(found, [kept; 3], "{outcome:?}");
        }
        assert!(!host.logs().lines().is_empty());
    }
}
