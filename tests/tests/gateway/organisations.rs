//! Organisations: a request is charged to the quotas of its key and to those that its organisation shares, or to neither.

use std::fmt::Display;
use std::time::Duration;

use filter::event::Event;
use host_sim::{Fault, Host, LogLevel, Outcome, Request, Response, Status};
use serde_json::{Value, json};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::gateway::{host_calls, module, plugin};
use tests::policy::{Policy, hash};
use tests::{flood, ratelimit};

/// VMs of the simulator.
const VMS: usize = 8;
/// Keys of the organisation.
const KEYS: usize = 3;
/// Units that a request of the class `chat` reserves.
const RESERVE: usize = 5;

/// Keys of an organisation, with limits of a month in a class, of each key and of all of them together; and a key without an organisation.
fn policy(class: &str, limits: [usize; 2]) -> Policy {
    let [of_key, of_organisation] = limits.map(|limit| json!([format!("{limit}/month")]));
    let parent = json!({"organisation": "acme", "limits": {class: of_organisation}});
    let subscriber = |key: usize| json!({"id": format!("s{key}"), "plan": "pro", "keys": [hash(&format!("key-{key}"))], "parent": parent});
    let settled = json!({
        "name": "chat",
        "cost": {"reserve": RESERVE, "actual": {"response_header": "x-cost"}},
        "refund": {"statuses": ["5xx"]},
        "match": [{"path": "/chat"}],
    });
    let plan = json!({"standard": ["4000000000/month"], "chat": ["4000000000/month"]});
    Policy::contract()
        .unwrap()
        .with("plans", json!({"pro": plan}))
        .with_at(&format!("/plans/pro/{class}"), of_key)
        .with("classes", json!([settled]))
        .with("subscribers", Value::Array((0..KEYS).map(subscriber).collect()))
        .subscriber("alone", "pro", "key-alone")
}

fn key(key: usize) -> String {
    format!("key-{key}")
}

fn simulated(key: impl Display, path: impl Into<String>) -> Request {
    Request::get(path.into()).header("authorization", format!("Bearer {key}"))
}

/// Status and cost of the upstream's answer to a path such as `/chat?503` or `/chat?4`.
fn wanted(path: &str) -> (u16, Option<&str>) {
    match path.split_once('?') {
        Some((_, "503")) => (503, None),
        Some((_, cost)) => (200, Some(cost)),
        None => (200, None),
    }
}

fn respond(request: &Request) -> Response {
    let (status, cost) = wanted(request.path());
    cost.into_iter().fold(Response::new(status), |response, cost| response.header("x-cost", cost.to_owned()))
}

/// Units left of the key's quota of a class and of the organisation's.
fn left(class: &str, value: Option<&str>) -> [Option<usize>; 2] {
    [class, "organisation"].map(|quota| ratelimit::left(value.unwrap_or_default(), quota))
}

fn simulator(policy: &Policy) -> Host {
    let mut host = Host::builder().workers(VMS).log_level(LogLevel::Info).build();
    host.load(module(), plugin(policy)).unwrap();
    host
}

#[test]
fn whatever_the_interleaving_eight_vms_exceed_neither_limit_and_lose_no_unit() {
    const REQUESTS: usize = 120;
    let limits = [15, 25];
    let mut given_back = 0;
    for seed in 0..60 {
        let host = simulator(&policy("standard", limits));
        let jobs = (0..REQUESTS).map(|job| (job % VMS, simulated(key(job % KEYS), "/links")));
        let outcomes = host.interleave(seed, jobs, respond);
        assert!(outcomes.iter().all(|outcome| [200, 429].contains(&outcome.status())), "seed {seed}");
        let mut admitted = [0; KEYS];
        for (job, outcome) in outcomes.iter().enumerate() {
            admitted[job % KEYS] += usize::from(outcome.status() == 200);
        }
        // A request may have been refused while a charge was being given back. What is left then serves the next.
        for (sender, admitted) in admitted.iter_mut().enumerate() {
            while host.send(simulated(key(sender), "/links"), respond).status() == 200 {
                *admitted += 1;
            }
        }
        assert_eq!(admitted.iter().sum::<usize>(), limits[1], "seed {seed}: {admitted:?}");
        for (sender, admitted) in admitted.into_iter().enumerate() {
            assert!(admitted <= limits[0], "seed {seed}: {admitted}");
            let refused = host.worker(sender).send(simulated(key(sender), "/links"), respond);
            let of_organisation = if admitted == limits[0] { None } else { Some(0) };
            let expected = [Some(limits[0] - admitted), of_organisation];
            assert_eq!(left("standard", refused.header("ratelimit")), expected, "seed {seed}, {sender}");
        }
        host.advance(Duration::from_secs(1));
        assert_eq!(host.metrics().counter(Event::CostUnsettled.metric()), 0, "seed {seed}");
        given_back += host.metrics().counter(Event::OrganisationGivenBack.metric());
    }
    assert!(given_back > 0);
}

#[test]
fn whatever_the_interleaving_eight_vms_settle_both_levels_once() {
    const REQUESTS: usize = 160;
    let limits = [90, 180];
    let mut given_back = 0;
    // Requests are refunded, or cost at most what they reserve.
    let path = |job: usize| match job % 7 {
        0 => "/chat?503".to_owned(),
        cost => format!("/chat?{}", cost.min(RESERVE)),
    };
    for seed in 0..60 {
        let host = simulator(&policy("chat", limits));
        let jobs = (0..REQUESTS).map(|job| (job % VMS, simulated(key(job % KEYS), path(job))));
        let outcomes = host.interleave(seed, jobs, respond);
        let mut charged = [0; KEYS];
        for (job, outcome) in outcomes.iter().enumerate().filter(|(_, outcome)| outcome.status() != 429) {
            let path = path(job);
            let (status, cost) = wanted(&path);
            assert_eq!(outcome.status(), status, "seed {seed}");
            charged[job % KEYS] += cost.map_or(0, |cost| cost.parse().unwrap());
        }
        let of_all: usize = charged.iter().sum();
        assert!(of_all <= limits[1] && charged.iter().all(|charged| *charged <= limits[0]), "{charged:?}");
        for (sender, charged) in charged.into_iter().enumerate() {
            // The answer says what is left without this request, which is refused or refunded.
            let probe = host.worker(sender).send(simulated(key(sender), "/chat?503"), respond);
            let [of_key, of_organisation] = left("chat", probe.header("ratelimit"));
            assert_eq!(of_key, Some(limits[0] - charged), "seed {seed}, {sender}");
            assert!(of_organisation.is_none_or(|left| left == limits[1] - of_all), "seed {seed}, {sender}");
        }
        host.advance(Duration::from_secs(1));
        assert_eq!(host.metrics().counter(Event::CostUnsettled.metric()), 0, "seed {seed}");
        given_back += host.metrics().counter(Event::OrganisationGivenBack.metric());
    }
    assert!(given_back > 0);
}

/// As after the death of a VM that has charged the key and not yet its organisation: no further write of it is stored.
#[test]
fn a_charge_that_is_not_given_back_stands_until_its_window_ends() {
    let minutely = policy("standard", [10, 100]).with_at("/plans/pro/standard", json!(["10/minute"]));
    let host = simulator(&minutely);
    let send = |host: &Host, worker| host.worker(worker).send(simulated(key(0), "/links"), respond);
    let units = |outcome: &Outcome| left("standard", outcome.header("ratelimit"));
    assert_eq!(units(&send(&host, 0)), [Some(9), Some(99)]);
    host.inject(Fault::new("proxy_set_shared_data", Status::InternalFailure).nth(2).every()).unwrap();
    // By `on_error`, a request that could not be counted passes.
    assert_eq!(send(&host, 0).status(), 200);
    host.clear_faults();
    assert_eq!(units(&send(&host, 1)), [Some(7), Some(98)]);
    host.advance(Duration::from_secs(60));
    assert_eq!(units(&send(&host, 1)), [Some(9), Some(97)]);
    let events = [Event::CostUnsettled.metric(), Event::OrganisationGivenBack.metric()];
    assert_eq!(events.map(|name| host.metrics().counter(name)), [1, 0]);
}

#[test]
fn a_request_that_an_organisation_cannot_count_is_given_back() {
    let host = simulator(&policy("standard", [10, 100]).with("on_error", json!("deny")));
    let send = || host.send(simulated(key(0), "/links"), respond);
    assert_eq!(send().status(), 200);
    host.inject(Fault::new("proxy_set_shared_data", Status::InternalFailure).nth(2)).unwrap();
    assert_eq!(send().status(), 503);
    assert_eq!(left("standard", send().header("ratelimit")), [Some(8), Some(98)]);
}

#[test]
fn only_a_key_of_an_organisation_makes_host_calls_for_it() {
    let calls = |key: &str, limits: [usize; 2], status| {
        host_calls(&policy("standard", limits), |host| {
            assert_eq!(host.send(simulated(key, "/links"), respond).status(), status);
        })
    };
    let large = [1_000_000; 2];
    assert_eq!(calls("key-alone", large, 200), 6000);
    // The time and the swap.
    assert_eq!(calls("key-0", large, 200), 8000);
}

#[test]
fn an_organisation_of_three_keys_uses_up_its_pool_exactly_over_four_workers() {
    let limits = [400, 600];
    let setup = Setup::new(policy("standard", limits), Upstream::DirectResponse).workers(4);
    let envoy = Envoy::start(setup).unwrap();
    let requests = (0..3000).map(|place| (place % KEYS, get("/links").key(&key(place % KEYS))));
    let counts = flood::send(envoy.address(), 64, requests).unwrap();
    let of_key = |key: usize| counts.get(&(key, 200)).copied().unwrap_or(0);
    assert_eq!((0..KEYS).map(of_key).sum::<usize>(), limits[1], "{counts:?}");
    assert!((0..KEYS).all(|key| of_key(key) <= limits[0]), "{counts:?}");
    for sender in 0..KEYS {
        let refused = envoy.send(&get("/links").key(&key(sender))).unwrap();
        let [of_key_left, _] = left("standard", refused.header("ratelimit"));
        assert_eq!((refused.status(), of_key_left), (429, Some(limits[0] - of_key(sender))));
    }
}
