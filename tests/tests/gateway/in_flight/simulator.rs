//! The same in the simulator, whose streams a test holds open, and whose VMs run in any order.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use filter::decide::metric;
use filter::decide::outcome::Outcome;
use filter::event::Event;
use host_sim::{Builder, Fault, Host, Request, Response, Status, Stream};
use serde_json::{Value, json};
use tests::gateway::{self, module, plugin};
use tests::policy::{Policy, hash};

use super::{KEY, policy};

const VMS: usize = 8;

fn host(builder: Builder, policy: &Policy) -> Host {
    let mut host = builder.workers(VMS).build();
    host.load(module(), plugin(policy)).unwrap();
    host
}

fn request() -> Request {
    Request::get("/links").header("authorization", format!("Bearer {KEY}"))
}

fn ok(_: &Request) -> Response {
    Response::ok()
}

/// Requests that may still begin, and all that may, of each quota in flight, as the usage endpoint says.
fn left(host: &Host) -> Vec<(u64, u64)> {
    let usage = host.send(Request::get("/quota").header("authorization", format!("Bearer {KEY}")), ok);
    let usage: Value = serde_json::from_slice(usage.body()).unwrap();
    let quotas = usage["classes"][0]["quotas"].as_array().unwrap_or_else(|| panic!("{usage}"));
    let in_flight = quotas.iter().filter(|quota| quota["in_flight"].is_u64());
    in_flight.map(|quota| (quota["remaining"].as_u64().unwrap(), quota["limit"].as_u64().unwrap())).collect()
}

fn assert_settled(host: &Host) {
    host.advance(Duration::from_secs(1));
    let errors =
        [metric::requests("pro", "standard", Outcome::Error), Event::CostUnsettled.metric().to_owned()];
    assert_eq!(errors.map(|name| host.metrics().counter(&name)), [0, 0]);
}

#[test]
fn a_request_that_comes_while_as_many_as_may_are_in_flight_is_refused_and_consumes_nothing() {
    let quotas = json!([{"in_flight": 2, "longest": "1m"}, "600/minute"]);
    let host = host(Host::builder(), &policy(quotas));
    let header = |outcome: &host_sim::Outcome, name: &str| outcome.header(name).map(str::to_owned);
    let held = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
    assert!(held.iter().all(Stream::is_forwarded));

    let refused = host.worker(2).send(request(), ok);
    assert_eq!((refused.status(), refused.details()), (429, "weir_in_flight"), "{refused:?}");
    let second = host.clock().wall().as_secs();
    let expected = [
        ("retry-after", "1".to_owned()),
        ("x-ratelimit-limit", "2".to_owned()),
        ("x-ratelimit-remaining", "0".to_owned()),
        ("x-ratelimit-reset", (second + 1).to_string()),
        ("x-envoy-ratelimited", "true".to_owned()),
        (
            "ratelimit-policy",
            r#""standard-in-flight";q=2;qu="concurrent-requests", "standard-minute";q=600;w=60"#.to_owned(),
        ),
        ("ratelimit", r#""standard-in-flight";r=0, "standard-minute";r=598;t=60"#.to_owned()),
    ];
    for (name, value) in expected {
        assert_eq!(header(&refused, name), Some(value), "{name}");
    }
    let body: Value = serde_json::from_slice(refused.body()).unwrap();
    let message = "Too many requests: 2 requests in flight on the pro plan; retry in 1 s.";
    assert_eq!(
        (&body["error"]["message"], &body["violated-policies"]),
        (&json!(message), &json!(["standard-in-flight"])),
        "{body}"
    );

    drop(held.map(Stream::finish));
    let passed = host.send(request(), ok);
    // Unless the quota in flight has refused, the X- headers are about the others.
    let expected = [
        ("x-ratelimit-limit", "36000"),
        ("x-ratelimit-remaining", "597"),
        ("ratelimit", r#""standard-in-flight";r=1, "standard-minute";r=597;t=60"#),
    ];
    for (name, value) in expected {
        assert_eq!(header(&passed, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(left(&host), [(2, 2)]);
    assert_settled(&host);
}

#[test]
fn beside_no_other_quota_a_response_has_x_headers_only_if_it_was_refused() {
    let host = host(Host::builder(), &policy(json!([{"in_flight": 1}])));
    let held = host.stream(&request(), true);
    let refused = host.send(request(), ok);
    assert_eq!((refused.status(), refused.header("x-ratelimit-limit")), (429, Some("1")));
    drop(held.finish());
    let passed = host.send(request(), ok);
    assert_eq!(passed.header("x-ratelimit-limit"), None);
    assert_eq!(passed.header("ratelimit-policy"), Some(r#""standard";q=1;qu="concurrent-requests""#));
    assert_eq!(passed.header("ratelimit"), Some(r#""standard";r=0"#));
}

/// Whether hosts call `proxy_on_log` and `proxy_on_done`, or only the latter.
#[test]
fn however_a_stream_ends_its_place_is_given_back_once() {
    type Ends = fn(Stream) -> host_sim::Outcome;
    let ends: [(&str, Ends); 7] = [
        ("with a response", |mut stream| {
            stream.respond(Response::ok().body("all"));
            stream.finish()
        }),
        ("the client goes", Stream::finish),
        ("the client goes midway", |mut stream| {
            stream.respond_headers(host_sim::Headers::from_iter([(":status", "200")]), false);
            stream.respond_body("half", false);
            stream.finish()
        }),
        ("the upstream resets", |mut stream| {
            stream.respond(Response::reset());
            stream.finish()
        }),
        ("it times out", |mut stream| {
            stream.respond(Response::silence());
            stream.finish()
        }),
        ("it is upgraded", |mut stream| {
            stream.respond_headers(host_sim::Headers::from_iter([(":status", "101")]), false);
            stream.respond_body("tick", false);
            stream.body("tock", false);
            stream.respond_body("", true);
            stream.finish()
        }),
        ("with a response and trailers", |mut stream| {
            stream.respond_headers(host_sim::Headers::from_iter([(":status", "200")]), false);
            stream.respond_trailers(host_sim::Headers::from_iter([("x", "y")]));
            stream.finish()
        }),
    ];
    for builder in [Host::builder, || Host::builder().without_stream_logs()] {
        let host = host(builder(), &policy(json!([{"in_flight": 3}])));
        for (what, end) in &ends {
            let held = [0, 1, 2].map(|worker| host.worker(worker).stream(&request(), false));
            assert_eq!(host.worker(3).send(request(), ok).status(), 429, "{what}");
            for (ended, stream) in held.into_iter().enumerate() {
                end(stream);
                // The usage endpoint counts nothing.
                assert_eq!(left(&host), [(ended as u64 + 1, 3)], "{what}");
            }
        }
        assert_settled(&host);
    }
}

/// What a class settles is settled as it is without a quota in flight, and the place stays taken until the stream ends.
#[test]
fn a_settlement_does_not_give_the_place_back_before_the_end() {
    let cost = |actual: Value| json!([{"name": "standard", "cost": {"reserve": 10, "actual": actual}, "refund": {"statuses": ["5xx"]}}]);
    let by_header = cost(json!({"response_header": "x-cost"}));
    let by_metadata = cost(json!({"metadata": ["filter_metadata", "llm", "tokens"]}));
    let quotas = json!([{"in_flight": 2}, "1000/month"]);
    let rows = [
        // class, response, units that are charged
        (&by_header, Response::ok().header("x-cost", "4"), 4),
        (&by_header, Response::ok(), 10),
        (&by_header, Response::new(503), 0),
        (&by_metadata, Response::ok(), 7),
        (&by_metadata, Response::new(503), 0),
    ];
    for (class, response, charged) in rows {
        let host = host(Host::builder(), &policy(quotas.clone()).with("classes", class.clone()));
        let tokens = ["metadata", "filter_metadata", "llm", "tokens"];
        let mut stream = host.stream(&request().property(tokens, 7.0), true);
        stream.respond(response);
        assert_eq!(left(&host), [(1, 2)], "{class}");
        drop(stream.finish());
        assert_eq!(left(&host), [(2, 2)], "{class}");
        let probe = host.worker(1).send(request().property(tokens, 7.0), |_| Response::new(503));
        let month =
            probe.header("ratelimit").and_then(|value| tests::ratelimit::left(value, "standard-month"));
        assert_eq!(month, Some(1000 - charged), "{class}");
        assert_settled(&host);
    }
}

thread_local! {
    /// Whether a request of this thread's VM is at the upstream.
    static AT_UPSTREAM: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn whatever_the_interleaving_of_eight_vms_no_more_are_in_flight_than_may_and_all_give_back() {
    const REQUESTS: usize = 80;
    const LIMIT: usize = 3;
    let mut refused = 0;
    for seed in 0..50 {
        let (at_once, most) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let ended = Arc::clone(&at_once);
        // Before the end of the stream, which gives its place back.
        let builder = Host::builder().on_trace(move |callback| {
            if callback.callback == "proxy_on_response_headers" && AT_UPSTREAM.take() {
                ended.fetch_sub(1, Ordering::SeqCst);
            }
        });
        let host = host(builder, &policy(json!([{"in_flight": LIMIT}])));
        let outcomes = host.interleave(seed, (0..REQUESTS).map(|job| (job % VMS, request())), |_| {
            AT_UPSTREAM.set(true);
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            Response::ok()
        });
        assert!(outcomes.iter().all(|outcome| [200, 429].contains(&outcome.status())), "seed {seed}");
        refused += outcomes.iter().filter(|outcome| outcome.status() == 429).count();
        assert!(most.into_inner() <= LIMIT, "seed {seed}");
        assert_eq!(left(&host), [(LIMIT as u64, LIMIT as u64)], "seed {seed}");
        assert_settled(&host);
    }
    assert!(refused > 0);
}

/// A key with a quota in flight, and an organisation with one and another quota.
fn of_organisation(own: &Value, shared: &Value) -> Policy {
    let parent = json!({"organisation": "acme", "limits": {"standard": shared}});
    let subscriber = json!({"id": "s", "plan": "pro", "keys": [hash(KEY)], "parent": parent});
    policy(own.clone()).with("subscribers", json!([subscriber]))
}

#[test]
fn if_the_organisation_refuses_the_place_and_the_units_of_the_key_go_back() {
    let own = json!([{"in_flight": 5}, "100/month"]);
    let host = host(Host::builder(), &of_organisation(&own, &json!([{"in_flight": 2}])));
    let held = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
    assert_eq!(left(&host), [(3, 5), (0, 2)]);
    for worker in 0..VMS {
        let refused = host.worker(worker).send(request(), ok);
        assert_eq!((refused.status(), refused.details()), (429, "weir_in_flight"));
        let message = "Too many requests: 2 requests in flight for the organisation; retry in 1 s.";
        assert!(String::from_utf8_lossy(refused.body()).contains(message), "{refused:?}");
        let units =
            refused.header("ratelimit").and_then(|value| tests::ratelimit::left(value, "standard-month"));
        assert_eq!(units, Some(98));
    }
    assert_eq!(left(&host), [(3, 5), (0, 2)]);
    drop(held.map(Stream::finish));
    assert_eq!(left(&host), [(5, 5), (2, 2)]);
    let again = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
    assert!(again.iter().all(Stream::is_forwarded));
    assert_settled(&host);
}

#[test]
fn whatever_the_interleaving_eight_vms_give_the_places_of_both_levels_back() {
    const REQUESTS: usize = 80;
    let mut given_back = 0;
    for seed in 0..40 {
        let policy = of_organisation(&json!([{"in_flight": 4}]), &json!([{"in_flight": 2}]));
        let host = host(Host::builder(), &policy);
        let outcomes = host.interleave(seed, (0..REQUESTS).map(|job| (job % VMS, request())), ok);
        assert!(outcomes.iter().all(|outcome| [200, 429].contains(&outcome.status())), "seed {seed}");
        let again = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
        assert!(again.iter().all(Stream::is_forwarded), "seed {seed}");
        assert_eq!(host.send(request(), ok).details(), "weir_in_flight", "seed {seed}");
        drop(again.map(Stream::finish));
        assert_settled(&host);
        given_back += host.metrics().counter(Event::OrganisationGivenBack.metric());
    }
    assert!(given_back > 0);
}

#[test]
fn a_quota_in_shadow_mode_refuses_nothing_and_takes_no_more_places_than_it_has() {
    let trial = json!({"in_flight": 1, "mode": "shadow", "name": "trial"});
    let host = host(Host::builder(), &policy(json!([{"in_flight": 3}, trial])));
    let held = [0, 1, 2].map(|worker| host.worker(worker).stream(&request(), true));
    assert!(held.iter().all(Stream::is_forwarded));
    assert_eq!(host.send(request(), ok).status(), 429);
    let [first, second, third] = held;
    // Those that the trial would have refused have no place of it to give back.
    drop([second, third].map(Stream::finish));
    let before = shadow_limited(&host);
    assert_eq!(before, 2);
    assert_eq!(host.send(request(), ok).status(), 200);
    assert_eq!(shadow_limited(&host), 3, "the first is still in flight");
    drop(first.finish());
    assert_eq!(host.send(request(), ok).status(), 200);
    assert_eq!(shadow_limited(&host), 3);
    assert_settled(&host);
}

fn shadow_limited(host: &Host) -> u64 {
    host.advance(Duration::from_secs(1));
    host.metrics().counter(&metric::requests("pro", "standard", Outcome::ShadowLimited))
}

#[test]
fn a_filter_in_shadow_mode_takes_no_place_for_what_it_would_have_refused() {
    let policy = policy(json!([{"in_flight": 2}])).with("enforcement", json!("shadow"));
    let host = host(Host::builder(), &policy);
    let held: Vec<_> = (0..5).map(|worker| host.worker(worker).stream(&request(), true)).collect();
    assert!(held.iter().all(Stream::is_forwarded));
    assert_eq!(shadow_limited(&host), 3);
    held.into_iter().for_each(|stream| drop(stream.finish()));
    assert_eq!(left(&host), [(2, 2)]);
}

#[test]
fn strangers_too_give_back_what_they_took_and_those_without_a_place_of_their_own_share_one() {
    let limit = json!({"action": "limit", "quotas": [{"in_flight": 1}]});
    // Two entries of 32 records, and one that is shared in each.
    let counters = json!({"known": 1024, "strangers": 1});
    let policy = policy(json!(["600/minute"])).with("missing_key", limit).with("counters", counters);
    let host = host(Host::builder(), &policy);
    let stranger =
        |number: usize| Request::get("/links").source(format!("192.0.{}.{}:1", number / 250, number % 250));
    for round in 0..2 {
        let held: Vec<_> =
            (0..100).map(|number| host.worker(number % VMS).stream(&stranger(number), true)).collect();
        let admitted = held.iter().filter(|stream| stream.is_forwarded()).count();
        assert!((33..=66).contains(&admitted), "round {round}: {admitted}");
        assert_eq!(host.send(stranger(0), ok).details(), "weir_in_flight", "round {round}");
        held.into_iter().for_each(|stream| drop(stream.finish()));
        assert_eq!(host.send(stranger(99), ok).status(), 200, "round {round}");
    }
    assert_settled(&host);
}

#[test]
fn after_a_reset_all_places_are_free_and_none_is_given_back_twice() {
    const TOKEN: &str = "the-operators-token";
    let policy = policy(json!([{"in_flight": 2, "name": "at-once"}, "100/month"]));
    let tokens = json!([{"name": "on-call", "token": hash(TOKEN)}]);
    let operators = policy.clone().with("operators", json!({"path": "/weir", "tokens": tokens}));
    let mut host = host(Host::builder(), &policy);
    let before = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
    assert_eq!(host.send(request(), ok).status(), 429);

    host.update(operators.to_string()).unwrap();
    let operate = |host: &Host, method: &str, path: &str| {
        let answer = host.send(
            Request::new(method.to_owned(), path.to_owned())
                .header("authorization", format!("Bearer {TOKEN}")),
            ok,
        );
        assert_eq!(answer.status(), 200, "{answer:?}");
        let state: Value = serde_json::from_slice(answer.body()).unwrap();
        let quotas = state["counters"][0]["classes"][0]["quotas"].as_array().unwrap().clone();
        quotas.iter().map(|quota| quota["remaining"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(operate(&host, "GET", "/weir/subscribers/acme"), [0, 98]);
    let reset = "/weir/subscribers/acme/reset?class=standard&quota=at-once";
    assert_eq!(operate(&host, "POST", reset), [2, 98]);
    let audit = host.logs().lines().into_iter().find(|line| line.message.contains("audit {")).unwrap();
    assert!(audit.message.contains(r#""used_before":2,"used_after":0"#), "{}", audit.message);

    host.update(policy.to_string()).unwrap();
    let after = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
    assert!(after.iter().all(Stream::is_forwarded));
    drop(before.map(Stream::finish));
    assert_eq!(host.send(request(), ok).status(), 429, "what began before gives nothing back");
    drop(after.map(Stream::finish));
    let again = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
    assert!(again.iter().all(Stream::is_forwarded));
    assert_settled(&host);
}

/// As after the death of a VM: nothing that its streams would write is stored.
#[test]
fn what_a_vm_that_dies_has_taken_is_free_after_longest_and_an_eighth_and_not_before_longest() {
    const LONGEST: u64 = 80;
    let host = host(Host::builder(), &policy(json!([{"in_flight": 2, "longest": "80s"}])));
    let held = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
    host.inject(Fault::new("proxy_set_shared_data", Status::InternalFailure).every()).unwrap();
    drop(held.map(Stream::finish));
    host.clear_faults();
    host.advance(Duration::from_secs(LONGEST - 1));
    assert_eq!(host.worker(2).send(request(), ok).status(), 429);
    host.advance(Duration::from_secs(1 + LONGEST / 8));
    assert_eq!(left(&host), [(2, 2)]);
    let again = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
    assert!(again.iter().all(Stream::is_forwarded));
    assert_eq!(host.metrics().counter(Event::CostUnsettled.metric()), 2);
}

#[test]
fn a_stream_of_an_earlier_configuration_gives_its_place_back_and_another_longest_begins_a_count() {
    let quotas = |limit: u32, longest: &str| policy(json!([{"in_flight": limit, "longest": longest}]));
    let mut host = host(Host::builder(), &quotas(2, "1m"));
    let held = [0, 1].map(|worker| host.worker(worker).stream(&request(), true));
    host.update(quotas(3, "1m").to_string()).unwrap();
    assert_eq!(left(&host), [(1, 3)], "a raised limit helps at once");
    let [first, second] = held;
    drop(first.finish());
    assert_eq!(left(&host), [(2, 3)]);
    host.update(quotas(3, "2m").to_string()).unwrap();
    assert_eq!(left(&host), [(3, 3)]);
    drop(second.finish());
    assert_eq!(left(&host), [(3, 3)]);
    assert_settled(&host);
}

/// A request of a fleet's gateway holds a place while it is at the upstream, and not while it waits for the ledger.
#[test]
fn a_request_that_waits_for_the_ledger_and_goes_keeps_no_place() {
    let quotas = json!([{"in_flight": 2}, "1000/month"]);
    let policy = policy(quotas).with("fleet", json!({"cluster": "ledger"}));
    for silent in [true, false] {
        let builder = Host::builder().cluster("ledger", move |call| {
            let asked: Value = serde_json::from_slice(call.body_bytes()).unwrap();
            let items = asked["items"].as_array().unwrap().iter().map(|item| {
                json!({"share": item["used"].as_u64().unwrap_or(0) + 1, "others": 0, "reset": item["reset"]})
            });
            let items: Vec<_> = items.collect();
            match silent {
                true => Response::silence(),
                false => Response::ok()
                    .body(json!({"epoch": "0".repeat(32), "now": asked["now"], "items": items}).to_string()),
            }
        });
        let host = host(builder, &policy);
        for round in 0..5 {
            let waiting: Vec<_> = (0..4).map(|worker| host.worker(worker).stream(&request(), true)).collect();
            waiting.into_iter().for_each(|stream| drop(stream.finish()));
            let state = host.worker(0).stream(&request(), true);
            drop(state.finish());
            host.advance(Duration::from_secs(2));
            let refused =
                host.logs().lines().iter().filter(|line| line.message.contains("weir_in_flight")).count();
            assert_eq!(refused, 0, "round {round}");
        }
        assert_eq!(left(&host), [(2, 2)], "silent: {silent}");
    }
}

/// The time and the swap of the end; nothing for others.
#[test]
fn only_a_quota_in_flight_makes_host_calls_at_the_end() {
    let calls = |quotas: Value| {
        gateway::host_calls(&policy(quotas), |host| assert_eq!(host.send(request(), ok).status(), 200))
    };
    assert_eq!(calls(json!(["1000000/minute"])), 6000);
    assert_eq!(calls(json!([{"in_flight": 5}, "1000000/minute"])), 8000);
}
