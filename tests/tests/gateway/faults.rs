//! Whatever a host call answers, the filter answers the request and its VM lives on.

use std::collections::BTreeSet;
use std::time::Duration;

use filter::decide::metric;
use filter::decide::outcome::Outcome;
use filter::event::Event;
use host_sim::{Fault, Host, LoadError, LogLevel, Plugin, Request, Response, Status};
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
                let outcome = host.send(request, &mut |_: &Request| Response::ok().header("x-cost", "1"));
                let what = format!("{name} with {call} answering {status:?}, on_error {on_error}");
                // A request whose reply is not taken waits for ever.
                let waits = call == "proxy_send_local_response" && outcome.status() == 0;
                assert!(waits || expected.contains(&outcome.status()), "{what}: {}", outcome.status());
                assert!(!waits || outcome.forwarded().is_none(), "{what}");
                assert_ne!(outcome.details(), "wasm_fail_stream", "{what}");
            }
            host.advance(std::time::Duration::from_secs(2));
            host.clear_faults();
            assert!(
                host.worker(0).vm_failure().is_none(),
                "{call} answering {status:?}: {:?}",
                host.worker(0).vm_failure()
            );
            let outcome = host.send(requests().remove(0).1, &mut |_: &Request| Response::ok());
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
            let outcome = host.send(requests().remove(0).1, &mut |_: &Request| Response::ok());
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
    let send = |host: &Host| host.send(requests().remove(0).1, &mut |_: &Request| Response::ok());
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
                let outcome = host.send(requests().remove(0).1, &mut |_: &Request| Response::ok());
                assert_eq!(outcome.status(), 200, "{call} answering {status:?}");
            }
            Err(error) => {
                assert!(matches!(error, LoadError::Refused { .. }), "{call} answering {status:?}: {error}");
                assert_eq!(call, "proxy_get_buffer_bytes", "{status:?}: {error}");
            }
        }
    }
}

/// Entries of counters as no version of the filter writes them. (An empty one has no counts.)
fn malformed() -> Vec<Vec<u8>> {
    vec![vec![0], b"garbage".to_vec(), vec![0xff; 1000], b"{}".to_vec(), vec![5; 25]]
}

/// A host of two workers with a key of 10 requests a month.
fn two_workers() -> Host {
    let policy = Policy::contract().unwrap().with_at("/plans/pro/standard", json!(["10/month"]));
    let mut host = Host::builder().workers(2).build();
    host.load(module(), plugin(&policy.subscriber("acme", "pro", "known"))).unwrap();
    host
}

fn known() -> Request {
    Request::get("/links").header("authorization", "Bearer known")
}

/// The one entry that counts, beside the header.
fn entry(host: &Host, header: &BTreeSet<Vec<u8>>) -> Vec<u8> {
    let names = host.shared_data().keys("weir").into_iter().filter(|name| !header.contains(name));
    let [name] = <[Vec<u8>; 1]>::try_from(names.collect::<Vec<_>>()).unwrap();
    name
}

/// Writes over the entry of the key after its first request.
fn break_entry(host: &Host, value: &[u8]) {
    assert_eq!(host.send(known(), |_| Response::ok()).header("x-ratelimit-remaining"), Some("9"));
    let names = host.shared_data().keys("weir");
    // The header's name is the one whose entry has the number 0.
    let header = names.into_iter().filter(|name| name.ends_with(b"AAAA")).collect();
    let name = entry(host, &header);
    assert_eq!(host.shared_data().set("weir", name, value, 0), Status::Ok);
}

#[test]
fn a_request_that_finds_a_malformed_entry_begins_it_again_and_is_counted() {
    const LINE: &str = "1 malformed entries of the counters in shared data were begun again";
    for value in malformed() {
        let host = two_workers();
        break_entry(&host, &value);
        // The first of them has a guess of the entry's number, the second has none.
        for (worker, left) in [(0, "9"), (1, "8"), (0, "7")] {
            let outcome = host.worker(worker).send(known(), |_| Response::ok());
            assert_eq!(
                (outcome.status(), outcome.header("x-ratelimit-remaining")),
                (200, Some(left)),
                "{value:?}"
            );
        }
        assert!(!host.logs().contains(LINE));
        host.advance(Duration::from_secs(1));
        let lines = host.logs().lines().into_iter().filter(|line| line.message.contains(LINE));
        assert_eq!(lines.map(|line| line.level).collect::<Vec<_>>(), [LogLevel::Error], "{value:?}");
        assert_eq!(host.metrics().counter(Event::CountersRepaired.metric()), 1, "{value:?}");
        assert_eq!(
            host.metrics().counter(&metric::requests("pro", "standard", Outcome::Error)),
            0,
            "{value:?}"
        );
    }
}

#[test]
fn two_workers_that_find_a_malformed_entry_at_once_lose_no_request() {
    for seed in 0..100 {
        for value in malformed() {
            let host = two_workers();
            break_entry(&host, &value);
            let jobs = (0..24).map(|job| (job % 2, known()));
            let outcomes = host.interleave(seed, jobs, |_| Response::ok());
            let admitted = outcomes.iter().filter(|outcome| outcome.status() == 200).count();
            assert_eq!(admitted, 10, "seed {seed}, {value:?}");
            let lefts: BTreeSet<_> = outcomes
                .iter()
                .take_while(|outcome| outcome.status() == 200)
                .map(|outcome| outcome.header("x-ratelimit-remaining"))
                .collect();
            assert!(lefts.iter().all(Option::is_some), "seed {seed}, {value:?}: {lefts:?}");
            host.advance(Duration::from_secs(1));
            let errors = host.metrics().counter(&metric::requests("pro", "standard", Outcome::Error));
            assert_eq!(
                [host.metrics().counter(Event::CountersRepaired.metric()), errors],
                [1, 0],
                "seed {seed}, {value:?}"
            );
        }
    }
}

/// A filter whose host never hands it a configuration.
fn without_configuration() -> Plugin {
    let module = module();
    let imports = module.imports();
    let imports =
        imports.iter().filter_map(|import| import.rsplit_once('.')).map(|(_, name)| name.to_owned());
    let callbacks = [
        "proxy_on_context_create",
        "proxy_on_vm_start",
        "proxy_on_request_headers",
        "proxy_on_response_headers",
    ];
    let callbacks =
        callbacks.into_iter().chain(["proxy_on_done", "proxy_on_log", "proxy_on_delete"]).map(str::to_owned);
    plugin(&policy("allow")).allowed_capabilities(imports.chain(callbacks))
}

#[test]
fn without_a_configuration_a_request_is_answered_503_whatever_on_error_says() {
    const LINE: &str = "a request was refused, because the filter has no configuration";
    let mut host = Host::builder().workers(1).build();
    host.load(module(), without_configuration()).unwrap();
    let outcome = host.send(known(), |_| Response::ok());
    let found =
        (outcome.status(), outcome.details(), outcome.header("retry-after"), outcome.forwarded().is_some());
    assert_eq!(found, (503, "weir_no_configuration", Some("1"), false), "{outcome:?}");
    let grpc = host.send(known().header("content-type", "application/grpc"), |_| Response::ok());
    assert_eq!(
        (grpc.status(), grpc.header("grpc-status"), grpc.forwarded().is_some()),
        (200, Some("14"), false)
    );
    assert_eq!(host.logs().lines().iter().filter(|line| line.message.contains(LINE)).count(), 2);
    assert!(host.worker(0).vm_failure().is_none());
}

#[test]
fn a_request_whose_reply_the_host_refuses_waits_and_is_not_forwarded() {
    const LINE: &str = "a request waits without an answer: proxy_send_local_response answered status";
    let one = json!({"action": "limit", "quotas": ["1/month"]});
    let limited = Policy::contract().unwrap().with("missing_key", one);
    let token = tests::policy::hash("operator");
    let operators = json!({"path": "/weir", "tokens": [{"name": "on-call", "token": token}]});
    let rejecting = Policy::contract().unwrap().with("missing_key", json!({"action": "reject"}));
    let rows = [
        ("a 429", plugin(&limited)),
        ("a 401", plugin(&rejecting)),
        ("an operator's listener", plugin(&limited.clone().with("operators", operators))),
        ("no configuration", without_configuration()),
    ];
    for (what, plugin) in rows {
        for status in Status::ALL.into_iter().filter(|status| *status != Status::Ok) {
            let mut host = Host::builder().workers(1).build();
            host.load(module(), plugin.clone()).unwrap();
            let request = || Request::get("/links");
            if what == "a 429" {
                assert_eq!(host.send(request(), |_| Response::ok()).status(), 200);
            }
            host.fail_next("proxy_send_local_response", status).unwrap();
            let stream = host.stream(&request(), true);
            let found = (stream.is_forwarded(), stream.response().is_some(), stream.is_over());
            assert_eq!(found, (false, false, false), "{what}, {status:?}");
            let lines = || host.logs().lines().iter().filter(|line| line.message.contains(LINE)).count();
            assert_eq!(lines(), 1, "{what}, {status:?}");
            drop(stream.finish());
            assert_eq!(lines(), 1, "{what}, {status:?}");
            assert!(host.worker(0).vm_failure().is_none(), "{what}, {status:?}");
            // The next one is answered.
            assert!(host.send(request(), |_| Response::ok()).is_local_reply(), "{what}, {status:?}");
        }
    }
}
