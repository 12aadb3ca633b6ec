//! What is left of the promises on a host that has less than Envoy, or other things. (The contract itself runs on all kinds of hosts.)

use std::sync::{Arc, Mutex};
use std::time::Duration;

use filter::decide::metric;
use filter::decide::outcome::Outcome;
use host_sim::{Flavour, Host, Request, Response};
use serde_json::json;
use tests::gateway::{module, plugin};
use tests::policy::Policy;
use tests::ratelimit;

#[test]
fn without_shared_data_each_vm_counts_by_itself_and_says_so() {
    const WORKERS: usize = 3;
    let policy = Policy::contract().unwrap().with_at("/plans/pro/standard", json!(["2/month"]));
    let mut host = Host::builder().workers(WORKERS).flavour(Flavour::NoSharedData).build();
    host.load(module(), plugin(&policy.subscriber("acme", "pro", "key"))).unwrap();
    for worker in 0..WORKERS {
        let request = || Request::get("/links").header("authorization", "Bearer key");
        let statuses = [(); 3].map(|()| host.worker(worker).send(request(), |_| Response::ok()).status());
        assert_eq!(statuses, [200, 200, 429], "worker {worker}");
    }
    let said = "this host has no shared data: each VM counts by itself, so a quota applies to each VM";
    let lines = host.logs().lines().into_iter().filter(|line| line.message.contains(said));
    let vms: Vec<_> = lines.map(|line| line.vm.to_string()).collect();
    assert_eq!(vms.len(), WORKERS, "once in each VM that counts: {vms:?}");
    host.advance(Duration::from_secs(1));
    assert_eq!(host.metrics().counter(&metric::requests("pro", "standard", Outcome::Error)), 0);
}

#[test]
fn without_shared_data_a_vm_goes_on_counting_under_a_new_configuration() {
    const WORKERS: usize = 2;
    let policy = Policy::contract().unwrap().with_at("/plans/pro/standard", json!(["3/month"]));
    let policy = policy.subscriber("acme", "pro", "key");
    let mut host = Host::builder().workers(WORKERS).flavour(Flavour::NoSharedData).build();
    host.load(module(), plugin(&policy)).unwrap();
    let status = |host: &Host, worker| {
        let request = Request::get("/links").header("authorization", "Bearer key");
        host.worker(worker).send(request, |_| Response::ok()).status()
    };
    for worker in 0..WORKERS {
        assert_eq!(status(&host, worker), 200, "worker {worker}");
    }
    //  what is new, and the statuses in each VM
    let another = policy.clone().with_at("/plans/another", json!({"standard": ["1/hour"]}));
    let raised = policy.clone().with_at("/plans/pro/standard", json!(["4/month"]));
    for (policy, statuses) in [(another, [200, 200, 429]), (raised, [200, 429, 429])] {
        host.update(policy.to_string()).unwrap();
        for worker in 0..WORKERS {
            assert_eq!([(); 3].map(|()| status(&host, worker)), statuses, "worker {worker}");
        }
    }
}

/// Where a request waits for a call, ngx_wasm_module ends its worker, or loops.
#[test]
fn nginx_does_not_take_a_fleet_and_says_why() {
    let alone = Policy::contract().unwrap().subscriber("acme", "pro", "key");
    let fleet = alone.clone().with("fleet", json!({"cluster": "ledger"}));
    //  the host, the policy, and whether it is taken
    let rows = [
        (Flavour::default(), &alone, true),
        (Flavour::default(), &fleet, true),
        (Flavour::Ngx, &alone, true),
        (Flavour::Ngx, &fleet, false),
    ];
    for (flavour, policy, is_taken) in rows {
        let mut host =
            Host::builder().workers(1).flavour(flavour).cluster("ledger", |_| Response::ok()).build();
        match host.load(module(), plugin(policy)) {
            Ok(()) => assert!(is_taken, "{flavour:?} takes {policy}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!is_taken, "{flavour:?}: {error}");
                for said in ["configuration refused: fleet", "ngx_wasm_module", "wait for calls"] {
                    assert!(error.contains(said), "{said} in {error}");
                }
            }
        }
    }
}

/// A class whose responses state a cost, beside the contract's, and keys in two headers.
fn policy_of_many_names() -> Policy {
    let chat = json!({
        "name": "chat",
        "cost": {"reserve": 10, "actual": {"response_header": "x-cost"}},
        "match": [{"path": "/chat"}],
    });
    Policy::contract()
        .unwrap()
        .with("classes", json!([chat]))
        .with("plans", json!({"pro": {"standard": ["1/month"], "chat": ["100/month"]}}))
        .with(
            "key_sources",
            json!([{"header": "authorization", "scheme": "Bearer"}, {"header": "x-api-key"}]),
        )
        .with("missing_key", json!({"action": "reject"}))
        .with_at("/headers/x_ratelimit_limit", json!("per_window"))
        .with_at("/headers/allow_origin", json!(["https://app.example.test"]))
        .subscriber("acme", "pro", "key")
}

/// ngx_wasm_module hands names over as the client, or the upstream, wrote them.
#[test]
fn names_of_headers_are_compared_without_regard_to_case() {
    for flavour in [Flavour::Ngx, Flavour::default()] {
        let start = || {
            let mut host = Host::builder().workers(1).flavour(flavour).build();
            host.load(module(), plugin(&policy_of_many_names())).unwrap();
            host
        };
        let keys = [
            ("authorization", "Bearer key"),
            ("Authorization", "Bearer key"),
            ("AUTHORIZATION", "bearer key"),
            ("X-Api-Key", "key"),
            ("x-API-key", "key"),
        ];
        for (name, value) in keys {
            let what = format!("{flavour:?}, {name}");
            let request = || Request::get("/links").header(name, value);
            let host = start();
            let admitted = host.send(request(), |_| Response::ok());
            assert_eq!((admitted.status(), admitted.header("x-ratelimit-limit")), (200, Some("1")), "{what}");
            // The names of a refusal's causes, too: its origin, and that it is gRPC.
            let refused =
                host.send(request().header("Origin", "https://app.example.test"), |_| Response::ok());
            let allowed = refused.header("access-control-allow-origin");
            assert_eq!((refused.status(), allowed), (429, Some("https://app.example.test")), "{what}");
            for cost in ["x-cost", "X-Cost", "X-COST"] {
                let chat = Request::get("/chat").header(name, value);
                let host = start();
                let answer = host.send(chat, |_| Response::ok().header(cost, "4"));
                let left = answer.header("ratelimit").and_then(|value| ratelimit::left(value, "chat"));
                assert_eq!(left, Some(96), "{what}, {cost}");
            }
        }
        for name in ["content-type", "Content-Type", "CONTENT-TYPE"] {
            let host = start();
            let request = || {
                Request::post("/links").header("Authorization", "Bearer key").header(name, "application/grpc")
            };
            assert_eq!(host.send(request(), |_| Response::ok()).status(), 200, "{flavour:?}, {name}");
            let refused = host.send(request(), |_| Response::ok());
            // The body of a refusal of gRPC is its message, and not the JSON that plain HTTP gets.
            assert!(!refused.text().starts_with('{'), "{flavour:?}, {name}: {refused:?}");
            assert_eq!(
                host.worker(0).vm_failure().map(|failure| failure.to_string()),
                None,
                "{flavour:?}, {name}"
            );
            if flavour == Flavour::default() {
                assert_eq!((refused.status(), refused.header("grpc-status")), (200, Some("8")), "{name}");
            }
        }
    }
}

/// The paths of properties that a VM is asked for while it serves requests.
fn properties(flavour: Flavour, policy: &Policy, requests: usize) -> Vec<String> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let host = Host::builder().workers(1).flavour(flavour).on_trace(move |callback| {
        let calls = callback.calls.iter().filter(|call| call.call.to_string().contains("proxy_get_property"));
        sink.lock().unwrap().extend(calls.map(|call| format!("{call:?}")));
    });
    let mut host = host.build();
    host.load(module(), plugin(policy)).unwrap();
    seen.lock().unwrap().clear();
    for _ in 0..requests {
        let request = Request::get("/links").header("authorization", "Bearer key");
        assert_eq!(host.send(request, |_| Response::ok()).status(), 200);
    }
    std::mem::take(&mut seen.lock().unwrap())
}

/// The path as it was sent is a property of nginx's alone.
#[test]
fn only_nginx_is_asked_for_each_path_as_it_was_sent() {
    const REQUESTS: usize = 20;
    let policy = Policy::contract().unwrap().subscriber("acme", "pro", "key");
    let by_default_class = policy.clone().with("plans", json!({"pro": {"standard": ["600/minute"]}}));
    let by_default_class = by_default_class.with("classes", json!([])).with("exempt", json!([]));
    //  the host, the policy, and how often it is asked
    let rows = [
        (Flavour::default(), &policy, 1),
        (Flavour::Ngx, &policy, REQUESTS),
        (Flavour::default(), &by_default_class, 1),
        (Flavour::Ngx, &by_default_class, REQUESTS),
    ];
    for (flavour, policy, expected) in rows {
        let asked = properties(flavour, policy, REQUESTS);
        assert_eq!(asked.len(), expected, "{flavour:?}: {asked:?}");
        assert!(asked.iter().all(|call| call.contains("request_uri")), "{flavour:?}: {asked:?}");
    }
}

/// nginx decodes and normalises `:path`, and sends the upstream what it got.
#[test]
fn in_nginx_no_path_is_exempt_that_the_upstream_serves_as_another() {
    const PATH: &str = "/links/ext_a%2f..%2f..%2fr%2fx";
    let policy = Policy::contract().unwrap().subscriber("acme", "pro", "key");
    let kept = policy.clone().with("upstream_paths", json!({"encoded_slash": "keep"}));
    //  the policy, the status of the path, and that of a path that is exempt
    for (policy, status) in [(policy, 400), (kept, 200)] {
        let mut host = Host::builder().workers(1).flavour(Flavour::Ngx).build();
        host.load(module(), plugin(&policy)).unwrap();
        let send = |path: &'static str| {
            let request = Request::get(path).header("Authorization", "Bearer key");
            let mut forwarded = None;
            let outcome = host.send(request, |request| {
                forwarded = Some(request.path().to_owned());
                Response::ok()
            });
            (outcome.status(), forwarded, outcome.header("x-ratelimit-remaining").is_some())
        };
        for _ in 0..300 {
            // What passes is counted, and reaches the upstream as it was sent.
            let passed = (status == 200).then(|| PATH.to_owned());
            assert_eq!(send(PATH), (status, passed, status == 200));
        }
        assert_eq!(send("/r/x"), (200, Some("/r/x".to_owned()), false));
        host.advance(Duration::from_secs(1));
        let exempt = host.metrics().counter(&metric::requests("none", "standard", Outcome::Exempt));
        assert_eq!(exempt, 1);
    }
}

/// nginx decodes `:path` with its query's delimiters, so a decoded `?` or `#` would hide a key or make up one.
#[test]
fn in_nginx_a_key_is_read_from_the_query_as_it_was_sent() {
    let policy = Policy::contract()
        .unwrap()
        .with("classes", json!([]))
        .with("plans", json!({"one": {"standard": ["1/month"]}}))
        .with("key_sources", json!([{"query": "api_key"}]))
        .with("missing_key", json!({"action": "reject"}))
        .with("unknown_key", json!({"action": "reject"}))
        .subscriber("k", "one", "k")
        .subscriber("l", "one", "l");
    //  the path, and the keys that have nothing left after it
    let rows: [(&str, &[&str]); 6] = [
        ("/x?api_key=k", &["k"]),
        ("/x%23?api_key=k", &["k"]),
        ("/x%3F?api_key=k", &["k"]),
        ("/x%3Fapi_key=l&y=?api_key=k", &["k"]),
        ("/x?api%5Fkey=%6c", &["l"]),
        ("/x%3Fapi_key=k", &[]),
    ];
    for flavour in [Flavour::Ngx, Flavour::default()] {
        for (path, used_up) in rows {
            let mut host = Host::builder().workers(1).flavour(flavour).build();
            host.load(module(), plugin(&policy)).unwrap();
            let status = |path: String| host.send(Request::get(path), |_| Response::ok()).status();
            assert_eq!(
                status(path.to_owned()),
                if used_up.is_empty() { 401 } else { 200 },
                "{flavour:?} {path}"
            );
            let refused = |key: &&str| status(format!("/x?api_key={key}")) == 429;
            let found: Vec<_> = ["k", "l"].into_iter().filter(refused).collect();
            assert_eq!(found, used_up, "{flavour:?} {path}");
        }
    }
}

/// ngx_wasm_module hands over 100 headers, and drops those behind them.
#[test]
fn in_nginx_no_request_hides_its_key_behind_other_headers() {
    let policy = Policy::contract().unwrap().subscriber("acme", "pro", "key");
    // Here no path matters.
    let by_header = policy.clone().with("classes", json!([])).with("exempt", json!([]));
    let by_header = by_header.with("plans", json!({"pro": {"standard": ["600/minute"]}}));
    for policy in [policy, by_header] {
        let shadow = policy.clone().with("enforcement", json!("shadow"));
        //  the host, the policy, headers before the key, and the status
        let rows = [
            (Flavour::default(), &policy, 90, 200),
            (Flavour::default(), &policy, 200, 200),
            (Flavour::Ngx, &policy, 90, 200),
            (Flavour::Ngx, &policy, 99, 431),
            (Flavour::Ngx, &policy, 200, 431),
            (Flavour::Ngx, &shadow, 200, 200),
        ];
        for (flavour, policy, before, status) in rows {
            let mut host = Host::builder().workers(1).flavour(flavour).build();
            host.load(module(), plugin(policy)).unwrap();
            let request = (0..before)
                .fold(Request::get("/links"), |request, number| request.header(format!("x-{number}"), "1"));
            let answer = host.send(request.header("authorization", "Bearer key"), |_| Response::ok());
            assert_eq!(answer.status(), status, "{flavour:?}, {before} headers: {answer:?}");
            let sees_key = answer.header("x-ratelimit-limit").is_some();
            assert_eq!(sees_key, status == 200 && before < 99 || flavour == Flavour::default());
        }
    }
}
