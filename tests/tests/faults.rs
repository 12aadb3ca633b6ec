//! Whatever a host call answers, the filter answers the request and its VM lives on.

use filter::decide::metric;
use filter::decide::outcome::Outcome;
use host_sim::{Fault, Host, LoadError, Request, Response, Status};
use serde_json::{Value, json};
use tests::gateway::{module, plugin};
use tests::policy::Policy;

/// Quotas that no row uses up, and every part of the filter in use.
fn policy(on_error: &str) -> Policy {
    let quotas = json!(["1000000/month", "1000000/hour"]);
    let settled = |name: &str, actual: Value| {
        json!({
            "name": name,
            "cost": {"reserve": 2, "actual": actual},
            "refund": {"statuses": [500]},
            "match": [{"path": format!("/{name}")}],
        })
    };
    let classes = json!([
        {"name": "analytics", "match": [{"methods": ["GET"], "path": "/analytics"}]},
        settled("chat", json!({"response_header": "x-cost"})),
        settled("tokens", json!({"metadata": ["filter_metadata", "llm"]})),
    ]);
    Policy::contract()
        .unwrap()
        .with("classes", classes)
        .with_at("/plans/pro/chat", quotas.clone())
        .with_at("/plans/pro/tokens", quotas)
        .subscriber("acme", "pro", "known")
        .with_at("/plans/pro/standard", json!(["1000000/month", "1000000/hour"]))
        .with("unknown_key", json!({"action": "limit", "quotas": ["1000000/month"]}))
        .with("missing_key", json!({"action": "limit", "quotas": ["1000000/month"]}))
        .with("on_error", json!(on_error))
        .with("usage_path", json!("/quota"))
        .with("directory", json!({"cluster": "keys", "path": "/internal/keys", "interval": "1s"}))
}

fn host() -> Host {
    let keys = |_: &Request| Response::ok().header("etag", "\"1\"").body(r#"{"keys": []}"#);
    Host::builder().workers(1).cluster("keys", keys).build()
}

/// One request for each way through the filter.
fn requests() -> Vec<(&'static str, Request)> {
    let known = |path: &'static str| Request::get(path).header("authorization", "Bearer known");
    vec![
        ("known", known("/links").header("origin", "https://app.example.test")),
        ("analytics", known("/analytics")),
        ("cost in a header", known("/chat")),
        ("cost in metadata", known("/tokens").property(["metadata", "filter_metadata", "llm"], 1.0)),
        ("usage", known("/quota")),
        ("unknown", Request::get("/links").header("authorization", "Bearer nobody")),
        ("keyless", Request::get("/links")),
        ("two keys", known("/links").header("authorization", "Bearer other")),
        ("exempt", Request::new("OPTIONS", "/links")),
    ]
}

/// The calls that the filter makes, with every status that is not Ok and that a host may return.
fn faults() -> Vec<(String, Status)> {
    let calls: Vec<String> = module()
        .imports()
        .iter()
        .filter_map(|import| import.strip_prefix("env.").map(str::to_owned))
        .collect();
    assert!(calls.len() > 10, "{calls:?}");
    let failures = Status::ALL.into_iter().filter(|status| *status != Status::Ok);
    let all = failures.flat_map(|status| calls.iter().map(move |call| (call.clone(), status)));
    all.filter(|(call, status)| is_possible(call, *status)).collect()
}

/// Whether the ABI names the status for the call. The SDK, which makes these two calls, ends the VM on any other status.
fn is_possible(call: &str, status: Status) -> bool {
    match call {
        "proxy_http_call" => [Status::BadArgument, Status::InternalFailure].contains(&status),
        // BadArgument is for a context that does not exist. The SDK enters only the context that made a call, and which it holds.
        "proxy_set_effective_context" => false,
        _ => true,
    }
}

#[test]
fn no_status_of_any_call_in_a_request_ends_the_vm_or_leaves_the_request_without_an_answer() {
    for (on_error, expected) in [("allow", &[200, 400, 401, 429][..]), ("deny", &[200, 400, 401, 429, 503])] {
        let mut host = host();
        host.load(module(), plugin(&policy(on_error))).unwrap();
        for (call, status) in faults() {
            host.inject(Fault::new(call.as_str(), status).every()).unwrap();
            for (name, request) in requests() {
                let outcome = host.send(0, request, &mut |_: &Request| Response::ok().header("x-cost", "1"));
                let what = format!("{name} with {call} answering {status:?}, on_error {on_error}");
                assert!(expected.contains(&outcome.status()), "{what}: {}", outcome.status());
                assert_ne!(outcome.details(), "wasm_fail_stream", "{what}");
            }
            host.advance(std::time::Duration::from_secs(2));
            host.clear_faults();
            assert!(host.vm_failure(0).is_none(), "{call} answering {status:?}: {:?}", host.vm_failure(0));
            let outcome = host.send(0, requests().remove(0).1, &mut |_: &Request| Response::ok());
            assert_eq!(outcome.status(), 200, "after {call} answered {status:?}");
            assert!(outcome.header("x-ratelimit-remaining").is_some(), "after {call} answered {status:?}");
        }
    }
}

#[test]
fn a_request_that_cannot_be_counted_passes_or_not_as_configured() {
    for (on_error, expected) in [("allow", 200), ("deny", 503)] {
        for call in [
            "proxy_get_header_map_pairs",
            "proxy_get_shared_data",
            "proxy_set_shared_data",
            "proxy_get_current_time_nanoseconds",
        ] {
            let mut host = host();
            host.load(module(), plugin(&policy(on_error))).unwrap();
            host.inject(Fault::new(call, Status::InternalFailure).every()).unwrap();
            let outcome = host.send(0, requests().remove(0).1, &mut |_: &Request| Response::ok());
            assert_eq!(outcome.status(), expected, "{call} failing, on_error {on_error}");
            host.clear_faults();
            host.advance(std::time::Duration::from_secs(1));
            let errors = ["pro", "none"]
                .map(|plan| host.metrics().counter(&metric::requests(plan, "standard", Outcome::Error)));
            assert_eq!(errors.iter().sum::<u64>(), 1, "{call} failing, on_error {on_error}");
        }
    }
}

#[test]
fn an_error_that_every_request_repeats_is_logged_once_a_second() {
    const CALL: &str = "proxy_add_header_map_value";
    let mut host = host();
    host.load(module(), plugin(&policy("allow"))).unwrap();
    host.inject(Fault::new(CALL, Status::InternalFailure).every()).unwrap();
    let send = |host: &Host| host.send(0, requests().remove(0).1, &mut |_: &Request| Response::ok());
    let lines = |host: &Host| {
        let lines = host.logs().lines().into_iter().map(|line| line.message);
        lines.filter(|line| line.contains(CALL)).collect::<Vec<_>>()
    };
    let first = format!("weir: {CALL}(response headers) answered status 10");
    let second = format!("{first} (49 more error lines were left out)");
    for _ in 0..50 {
        assert_eq!(send(&host).status(), 200);
    }
    assert_eq!(lines(&host), core::slice::from_ref(&first));
    host.advance(std::time::Duration::from_secs(1));
    send(&host);
    assert_eq!(lines(&host), [first, second]);
}

#[test]
fn no_status_of_any_call_while_configuring_ends_the_vm() {
    for (call, status) in faults() {
        let mut host = host();
        host.inject(Fault::new(call.as_str(), status).every()).unwrap();
        match host.load(module(), plugin(&policy("allow"))) {
            Ok(()) => {
                host.clear_faults();
                let outcome = host.send(0, requests().remove(0).1, &mut |_: &Request| Response::ok());
                assert_eq!(outcome.status(), 200, "{call} answering {status:?}");
            }
            Err(error) => {
                assert!(matches!(error, LoadError::Refused { .. }), "{call} answering {status:?}: {error}");
                assert_eq!(call, "proxy_get_buffer_bytes", "{status:?}: {error}");
            }
        }
    }
}
