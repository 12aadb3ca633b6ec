//! What the filter reports that callers have used is what it admitted, whatever becomes of the service that is told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host_sim::{Host, Response as Simulated};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::collector::{CLUSTER, Collector, Usage, Used, reporting};
use tests::envoy::{Setup, Upstream};
use tests::exchange::get;
use tests::gateway::{module, plugin};
use tests::policy::Policy;
use tests::server::{Response, Server};
use tests::{clock, flood};

const PATIENCE: Duration = Duration::from_secs(60);
const SUBSCRIBERS: usize = 200;
/// Requests of a flood.
const REQUESTS: usize = 12_000;

/// Subscribers of three classes: one that refuses most of their requests, one whose responses settle what it costs, and one without quotas.
pub(crate) fn policy() -> Policy {
    let classes = json!([
        {"name": "chat", "cost": {"reserve": 10, "actual": {"response_header": "x-cost"}}, "refund": {"statuses": ["5xx"]},
         "match": [{"path": "/chat"}]},
        {"name": "bulk", "cost": 3, "match": [{"path": "/bulk"}]},
    ]);
    let plans = json!({"pro": {"standard": ["8/month"], "chat": ["4000000000/month"], "bulk": "unlimited"}});
    let policy = Policy::contract().unwrap().with("plans", plans).with("classes", classes);
    let policy = (0..SUBSCRIBERS).fold(policy, |policy, number| {
        policy.subscriber(&subscriber(number), "pro", &format!("key-{number}"))
    });
    reporting(policy)
}

fn subscriber(number: usize) -> String {
    format!("subscriber-{number}")
}

/// The path and the class of a request, and what it costs if it is admitted.
const KINDS: [(&str, &str, u64); 6] = [
    ("/links", "standard", 1),
    ("/chat?cost=4", "chat", 4),
    ("/chat?cost=25", "chat", 25),
    ("/chat?status=503", "chat", 0),
    ("/chat", "chat", 10),
    ("/bulk", "bulk", 3),
];

/// Answers as a path asks for.
pub(crate) fn upstream() -> Server {
    let answer = |request: http::Request<bytes::Bytes>| {
        let query = request.uri().query().unwrap_or_default();
        let parameter = |name: &str| query.strip_prefix(name).map(str::to_owned);
        let mut response = Response::default();
        if let Some(status) = parameter("status=") {
            *response.status_mut() = status.parse().unwrap();
        }
        if let Some(cost) = parameter("cost=") {
            response.headers_mut().insert("x-cost", cost.parse().unwrap());
        }
        response
    };
    Server::start(answer).unwrap()
}

/// Sends a request for each number, of all subscribers and kinds in turn. Returns what is to be reported of them.
pub(crate) fn send(
    gateway: SocketAddr,
    numbers: impl IntoIterator<Item = usize, IntoIter: Send + 'static>,
) -> Usage {
    let requests = numbers.into_iter().map(|number| {
        let (who, kind) = (number % SUBSCRIBERS, number / SUBSCRIBERS % KINDS.len());
        ((who, kind), get(KINDS[kind].0).key(&format!("key-{who}")))
    });
    let answers = flood::send(gateway, 32, requests).unwrap();
    let mut usage = Usage::new();
    for (((who, kind), status), times) in answers {
        let ((_, class, units), times) = (KINDS[kind], times as u64);
        let used = usage.entry((subscriber(who), class.to_owned())).or_default();
        match status {
            200 | 503 => {
                used.requests += times;
                used.units += times * units;
            }
            429 => used.refused += times,
            other => panic!("status {other}"),
        }
    }
    usage
}

pub(crate) fn sum(mut all: Usage, more: Usage) -> Usage {
    for (of, Used { requests, units, refused }) in more {
        let used = all.entry(of).or_default();
        used.requests += requests;
        used.units += units;
        used.refused += refused;
    }
    all
}

/// Waits until exactly this is reported.
fn assert_reported(collector: &Collector, expected: &Usage) {
    let agrees = || (collector.usage() == *expected).then_some(());
    if let Err(error) = clock::eventually("the usage", PATIENCE, agrees) {
        let found = collector.usage();
        let different: BTreeMap<_, _> =
            expected.iter().filter(|(of, used)| found.get(*of) != Some(*used)).collect();
        panic!(
            "{error:#}: {different:?}, reported {:?}",
            different.keys().map(|of| found.get(*of)).collect::<Vec<_>>()
        );
    }
}

/// Each batch that was not taken came again with the same bytes.
fn assert_sent_again(collector: &Collector) {
    let posted = collector.posted();
    for (body, status) in &posted {
        let is_taken = posted.iter().any(|(other, status)| other == body && *status == 202);
        assert!(is_taken, "a batch that was answered {status} never came again");
    }
    assert!(posted.iter().all(|(_, status)| *status != 422), "a batch is none");
}

#[test]
fn reported_is_what_was_admitted_while_the_service_fails_and_does_not_answer() {
    let (collector, upstream) = (Collector::start(), upstream());
    let setup = Setup::new(policy(), Upstream::At(upstream.address())).workers(4);
    let envoy = collector.envoy(setup);
    let mut admitted = send(envoy.address(), 0..REQUESTS);
    assert_reported(&collector, &admitted);
    let refused: u64 = admitted.values().map(|used| used.refused).sum();
    assert!(refused > 0, "the quota of the class standard refuses nobody");
    // It fails in each way that is not for good.
    collector.answer([500, 503, 429, 401, 403, 408, 302, 500]);
    admitted = sum(admitted, send(envoy.address(), 0..REQUESTS));
    assert_reported(&collector, &admitted);
    assert!(collector.has_answered());
    // It takes batches, but its answers come too late.
    let before = collector.again();
    collector.way.take(Duration::from_secs(4));
    admitted = sum(admitted, send(envoy.address(), 0..REQUESTS));
    let is_again = || (collector.again() > before).then_some(());
    clock::eventually("batches of which no answer comes", PATIENCE, is_again).unwrap();
    collector.way.take(Duration::ZERO);
    collector.way.reset();
    admitted = sum(admitted, send(envoy.address(), 0..REQUESTS));
    assert_reported(&collector, &admitted);
    assert_sent_again(&collector);
    assert_eq!(envoy.stat("wasmcustom.weir.usage.lost_total").unwrap_or(0), 0);
}

#[test]
fn configurations_that_are_pushed_in_mid_load_lose_nothing() {
    let (collector, upstream) = (Collector::start(), upstream());
    let setup = Setup::new(policy(), Upstream::At(upstream.address())).workers(4).live_updates();
    let mut envoy = collector.envoy(setup);
    // Some batches fail meanwhile, so that configurations end with one that is not taken.
    collector.answer([500; 12]);
    let address = envoy.address();
    let is_done = AtomicBool::new(false);
    let admitted = std::thread::scope(|scope| {
        let is_done = &is_done;
        let flood = scope.spawn(move || {
            let admitted = send(address, 0..3 * REQUESTS);
            is_done.store(true, Ordering::SeqCst);
            admitted
        });
        let mut updates = 0;
        while !is_done.load(Ordering::SeqCst) || updates < 5 {
            updates += 1;
            let limit = json!([format!("{}/month", 4_000_000_000_u32 - updates)]);
            assert!(envoy.update(policy().with_at("/plans/pro/chat", limit)).unwrap());
        }
        flood.join().unwrap()
    });
    assert_reported(&collector, &admitted);
    assert_sent_again(&collector);
    assert_eq!(envoy.stat("wasmcustom.weir.usage.lost_total").unwrap_or(0), 0);
}

#[test]
fn a_gateway_that_ends_in_mid_load_has_reported_all_but_its_last_interval() {
    for signal in [Signal::TERM, Signal::KILL] {
        let (collector, upstream) = (Collector::start(), upstream());
        let setup = Setup::new(policy(), Upstream::At(upstream.address())).workers(4);
        let envoy = collector.envoy(setup);
        let before = send(envoy.address(), 0..REQUESTS);
        assert_reported(&collector, &before);
        let all = sum(before.clone(), send(envoy.address(), 0..REQUESTS));
        kill_process(Pid::from_raw(envoy.id().try_into().unwrap()).unwrap(), signal).unwrap();
        let has_ended = || std::net::TcpStream::connect(envoy.address()).is_err().then_some(());
        clock::eventually("the gateway ends", PATIENCE, has_ended).unwrap();
        for (of, reported) in collector.usage() {
            let (least, most) = (before.get(&of).copied().unwrap_or_default(), all[&of]);
            let is_between = |part: fn(&Used) -> u64| (part(&least)..=part(&most)).contains(&part(&reported));
            let parts: [fn(&Used) -> u64; 3] = [|used| used.requests, |used| used.units, |used| used.refused];
            assert!(
                parts.into_iter().all(is_between),
                "{of:?}: {least:?} to {most:?}, reported {reported:?}"
            );
        }
    }
}

#[test]
fn a_batch_that_the_service_refuses_for_good_is_counted_as_lost_and_named_in_the_log() {
    let collector = Collector::start();
    let policy = reporting(Policy::contract().unwrap().subscriber("acme", "pro", "key"));
    let envoy = collector.envoy(Setup::new(policy, Upstream::DirectResponse).workers(1));
    collector.answer([400]);
    for _ in 0..7 {
        envoy.send(&get("/links").key("key")).unwrap();
    }
    // Seven requests may be of two intervals.
    clock::eventually("the counter", PATIENCE, || {
        let lost = envoy.prometheus("weir_usage_lost_total").unwrap_or(0);
        let taken: u64 = collector.usage().values().map(|used| used.requests).sum();
        (lost > 0 && lost + taken == 7).then_some(())
    })
    .unwrap();
    let line = "weir: usage: the service refuses a batch with status 400, so the usage of ";
    assert!(envoy.log().lines().iter().any(|log| log.contains(line)));
}

#[test]
fn strangers_are_reported_by_class_alone() {
    let collector = Collector::start();
    let policy = reporting(Policy::contract().unwrap().with("unknown_key", json!({"action": "pass"})));
    let envoy = collector.envoy(Setup::new(policy, Upstream::DirectResponse).workers(2));
    let requests = (0..500).map(|number| ((), get("/links").key(&format!("nobody-{number}"))));
    flood::send(envoy.address(), 8, requests).unwrap();
    let of = ("strangers".to_owned(), "standard".to_owned());
    let used = Used { requests: 500, units: 500, refused: 0 };
    assert_reported(&collector, &Usage::from([(of, used)]));
    let events = collector.events("weir.usage.strangers");
    assert!(
        events.iter().all(|event| event["data"].get("key").is_none() && event["data"].get("plan").is_none())
    );
}

/// The thresholds that were told, by subscriber, class, share and limit, and how many events told each.
fn thresholds(collector: &Collector) -> BTreeMap<(String, String, u64, u64), usize> {
    let mut told = BTreeMap::new();
    for event in collector.events("weir.threshold") {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let number = |field: &str| event["data"][field].as_u64().unwrap();
        let of = (text(&event["subject"]), text(&event["data"]["class"]), number("share"), number("limit"));
        *told.entry(of).or_insert(0) += 1;
    }
    told
}

#[test]
fn a_thousand_counters_tell_each_threshold_once_whichever_worker_sees_it_and_again_after_a_raised_limit() {
    const CALLERS: usize = 500;
    let policy = |limit: u32| {
        let quotas = json!([format!("{limit}/month")]);
        let classes = json!([{"name": "bulk", "cost": 3, "match": [{"path": "/bulk"}]}]);
        let policy = Policy::contract()
            .unwrap()
            .with("plans", json!({"pro": {"standard": quotas, "bulk": quotas}}))
            .with("classes", classes);
        let caller =
            |policy: Policy, number| policy.subscriber(&subscriber(number), "pro", &format!("key-{number}"));
        reporting((0..CALLERS).fold(policy, caller))
    };
    // As many as fit, and some more.
    let flood = |gateway: SocketAddr, each: usize| {
        let requests = (0..each * CALLERS).flat_map(|number| {
            let key = format!("key-{}", number % CALLERS);
            let bulk = (number / CALLERS).is_multiple_of(3).then(|| get("/bulk").key(&key));
            [Some(get("/links").key(&key)), bulk].into_iter().flatten().map(|request| ((), request))
        });
        flood::send(gateway, 32, requests).unwrap();
    };
    let expected = |limits: &[u64]| {
        let all = (0..CALLERS)
            .flat_map(|number| ["standard", "bulk"].map(|class| (subscriber(number), class.to_owned())));
        let all = all.flat_map(|(subject, class)| {
            limits
                .iter()
                .flat_map(move |limit| [80, 100].map(|share| (subject.clone(), class.clone(), share, *limit)))
        });
        all.map(|of| (of, 1)).collect::<BTreeMap<_, usize>>()
    };
    let assert_told = |collector: &Collector, limits: &[u64]| {
        let expected = expected(limits);
        let agrees = || (thresholds(collector) == expected).then_some(());
        if let Err(error) = clock::eventually("the thresholds", PATIENCE, agrees) {
            let told = thresholds(collector);
            let different: Vec<_> =
                expected.iter().filter(|(of, times)| told.get(*of) != Some(*times)).collect();
            panic!("{error:#}: {} of {}, without {different:?}", told.len(), expected.len());
        }
    };
    let collector = Collector::start();
    let setup = Setup::new(policy(20), Upstream::DirectResponse).workers(4).live_updates();
    let mut envoy = collector.envoy(setup);
    flood(envoy.address(), 22);
    assert_told(&collector, &[20]);
    assert!(envoy.update(policy(30)).unwrap());
    flood(envoy.address(), 33);
    assert_told(&collector, &[20, 30]);
}

/// Each reports once an hour, so nothing is reported but what a configuration does that ends.
#[test]
fn a_real_envoy_waits_for_what_a_configuration_reports_that_ends() {
    let hourly = reporting(Policy::contract().unwrap().subscriber("acme", "pro", "key"))
        .with_at("/plans/pro/standard", json!(["1000/month"]))
        .with_at("/usage/interval", json!("1h"));
    let collector = Collector::start();
    let setup = Setup::new(hourly, Upstream::DirectResponse).workers(4).live_updates();
    let mut envoy = collector.envoy(setup);
    flood::send(envoy.address(), 32, (0..400).map(|_| ((), get("/links").key("key")))).unwrap();
    assert_eq!(collector.usage(), Usage::new(), "the interval goes on");
    let silent = Policy::contract().unwrap().subscriber("acme", "pro", "key");
    assert!(envoy.update(silent).unwrap());
    let used = Used { requests: 400, units: 400, refused: 0 };
    assert_reported(&collector, &Usage::from([(("acme".to_owned(), "standard".to_owned()), used)]));
}

/// The next configuration of the VM reports nothing, so it cannot take over what is left.
#[test]
fn a_configuration_that_ends_without_another_that_reports_sends_its_last_batch() {
    for (status, lost) in [(202, 0), (500, 1)] {
        let posted = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&posted);
        let mut host = Host::builder()
            .cluster(CLUSTER, move |request| {
                let events: Vec<Value> = serde_json::from_slice(request.body_bytes()).unwrap();
                sink.lock().unwrap().extend(events);
                Simulated::new(status)
            })
            .build();
        let policy = Policy::contract().unwrap().subscriber("acme", "pro", "key");
        host.load(module(), plugin(&reporting(policy.clone()))).unwrap();
        let request = host_sim::Request::get("/links").header("authorization", "Bearer key");
        assert_eq!(host.send(request, |_| Simulated::ok()).status(), 200);
        assert!(posted.lock().unwrap().is_empty(), "the interval goes on");
        host.update(policy.to_string()).unwrap();
        host.advance(Duration::from_secs(1));
        let posted = posted.lock().unwrap();
        assert_eq!(posted.len(), 1, "{status}: {posted:?}");
        assert_eq!(posted[0]["data"]["requests"], 1);
        assert_eq!(host.metrics().counter("weir.usage.lost_total"), lost, "{status}");
    }
}
