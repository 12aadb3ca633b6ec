//! Rates with bursts: what is admitted at once and in any time, what clients are told, and what is given back.

use std::time::Duration;

use host_sim::{Host, LogLevel, Outcome, Request, Response};
use serde_json::{Value, json};
use tests::gateway::{module, plugin};
use tests::policy::{Policy, hash};
use tests::ratelimit;

/// VMs of the simulator.
const VMS: usize = 8;
const BURST: usize = 20;
/// The time of one unit at 10 a second.
const UNIT: Duration = Duration::from_millis(100);

/// A key with these quotas in the default class.
fn policy(quotas: Value) -> Policy {
    Policy::contract().unwrap().with_at("/plans/pro/standard", quotas).subscriber("acme", "pro", "key")
}

fn ten_a_second() -> Policy {
    policy(json!([{"rate": "10/second", "burst": BURST}]))
}

fn simulator(policy: &Policy, vms: usize) -> Host {
    let mut host = Host::builder().workers(vms).log_level(LogLevel::Info).build();
    host.load(module(), plugin(policy)).unwrap();
    host
}

fn request(path: &str) -> Request {
    Request::get(path.to_owned()).header("authorization", "Bearer key")
}

fn send(host: &Host) -> Outcome {
    host.send(request("/links"), |_| Response::ok())
}

/// How many of so many requests pass.
fn passed(host: &Host, requests: usize) -> usize {
    (0..requests).filter(|_| send(host).status() == 200).count()
}

#[test]
fn a_client_is_told_what_is_there_and_when_more_is() {
    let host = simulator(&ten_a_second(), 2);
    let now = host.clock().wall().as_secs();
    // Nothing was used before.
    //  milliseconds until the request, status, X-RateLimit-Remaining, when all is there again, RateLimit, Retry-After
    let rows = [
        (0, 200, 19, 1, "r=19;t=1", None),
        (0, 200, 18, 1, "r=18;t=1", None),
        (250, 200, 19, 1, "r=19;t=1", None),
        (10_000, 200, 19, 11, "r=19;t=1", None),
    ];
    for (millis, status, remaining, full, ratelimit, retry_after) in rows {
        host.advance(Duration::from_millis(millis));
        let answer = send(&host);
        let header = |name: &str| answer.header(name).map(str::to_owned);
        assert_eq!(answer.status(), status, "{answer:?}");
        assert_eq!(header("x-ratelimit-limit"), Some("36000".to_owned()));
        assert_eq!(header("x-ratelimit-remaining"), Some(remaining.to_string()), "{answer:?}");
        assert_eq!(header("x-ratelimit-reset"), Some((now + full).to_string()), "{answer:?}");
        assert_eq!(header("ratelimit-policy"), Some(format!("\"standard\";q={BURST};w=2")));
        assert_eq!(header("ratelimit"), Some(format!("\"standard\";{ratelimit}")));
        assert_eq!(header("retry-after"), retry_after);
    }
    host.advance(Duration::from_secs(2));
    assert_eq!(passed(&host, BURST), BURST);
    let refused = send(&host);
    assert_eq!((refused.status(), refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.header("ratelimit"), Some("\"standard\";r=0;t=1"));
    let body: Value = serde_json::from_slice(refused.body()).unwrap();
    let message =
        "Too many requests: 10 requests per second, at most 20 at once, on the pro plan; retry in 1 s.";
    assert_eq!(body.pointer("/error/message"), Some(&json!(message)));
    assert_eq!(body["violated-policies"], json!(["standard"]));
    // One flows back after the other.
    for _ in 0..5 {
        host.advance(UNIT);
        assert_eq!(passed(&host, 2), 1);
    }
    host.advance(2 * UNIT);
    assert_eq!(passed(&host, 4), 2);
}

#[test]
fn a_rate_of_days_says_in_how_many_seconds_a_request_fits() {
    let host = simulator(&policy(json!([{"rate": "24/day", "burst": 3}])), 1);
    assert_eq!(passed(&host, 4), 3);
    host.advance(Duration::from_millis(1_500));
    let refused = send(&host);
    assert_eq!(refused.header("retry-after"), Some("3599"));
    host.advance(Duration::from_millis(3_598_499));
    assert_eq!(passed(&host, 1), 0);
    host.advance(Duration::from_millis(1));
    assert_eq!(passed(&host, 2), 1);
}

#[test]
fn quotas_of_all_kinds_are_charged_together_or_not_at_all() {
    let quotas = json!([{"rate": "10/second", "burst": BURST}, "30/minute", {"rate": "1/second", "burst": 40, "name": "slow"}]);
    let host = simulator(&policy(quotas), 2);
    assert_eq!(passed(&host, 25), BURST, "the burst refuses, and what it refuses is charged to none");
    let left = |quota: &str| ratelimit::left(send(&host).header("ratelimit").unwrap(), quota);
    assert_eq!([left("standard-rate"), left("standard-minute"), left("slow")], [Some(0), Some(10), Some(20)]);
    host.advance(Duration::from_secs(5));
    assert_eq!(passed(&host, 25), 10, "the minute refuses");
    assert_eq!([left("standard-rate"), left("standard-minute"), left("slow")], [Some(10), Some(0), Some(15)]);
}

#[test]
fn a_changed_burst_keeps_the_count_and_a_changed_rate_begins_one() {
    let mut host = simulator(&ten_a_second(), 2);
    assert_eq!(passed(&host, BURST), BURST);
    //  the quota, and how many pass then
    let rows = [
        (json!({"rate": "10/second", "burst": 25}), 5),
        (json!({"rate": "10/second", "burst": 15}), 0),
        (json!({"rate": "11/second", "burst": 15}), 15),
        (json!({"rate": "10/second", "burst": 15, "mode": "shadow"}), 30),
        (json!({"rate": "10/second", "burst": 25}), 0),
    ];
    for (quota, expected) in rows {
        host.update(policy(json!([quota])).to_string()).unwrap();
        assert_eq!(passed(&host, 30), expected, "{quota}");
    }
}

#[test]
fn in_shadow_mode_a_rate_takes_what_an_enforced_one_would() {
    let quota = json!([{"rate": "10/second", "burst": BURST, "mode": "shadow"}]);
    let host = simulator(&policy(quota), 2);
    assert_eq!(passed(&host, 100), 100);
    let limited = || {
        host.metrics()
            .counter("weir.plan=.=pro;.;class=.=standard;.;outcome=.=shadow_limited;.;requests_total")
    };
    host.advance(Duration::from_secs(1));
    assert_eq!(limited(), 80);
    // Ten have flowed back, whatever came meanwhile.
    assert_eq!(passed(&host, 15), 15);
    host.advance(Duration::from_secs(1));
    assert_eq!(limited(), 85);
}

#[test]
fn whatever_the_interleaving_eight_vms_admit_what_the_promise_leaves_room_for_and_no_more() {
    let mut total = 0;
    for seed in 0..60 {
        let host = simulator(&ten_a_second(), VMS);
        // What was admitted, in units of time after the first.
        let (mut admitted, mut units) = (Vec::<usize>::new(), 0);
        for round in 0..6 {
            let jobs = (0..24).map(|job| (job % VMS, request("/links")));
            let outcomes = host.interleave(seed * 7 + round, jobs, |_| Response::ok());
            assert!(outcomes.iter().all(|outcome| [200, 429].contains(&outcome.status())), "seed {seed}");
            let passed = outcomes.iter().filter(|outcome| outcome.status() == 200).count();
            // Nothing is given back, so as many pass as there are.
            let used = admitted
                .iter()
                .copied()
                .fold((0usize, 0usize), |(owed, last), at| (owed.saturating_sub(at - last) + 1, at));
            let there = BURST - used.0.saturating_sub(units - used.1);
            assert_eq!(passed, there.min(24), "seed {seed}, round {round}");
            admitted.extend(std::iter::repeat_n(units, passed));
            let pause = [1, 3, 0, 12, 30, 0][usize::try_from(round).unwrap()];
            host.advance(UNIT * u32::try_from(pause).unwrap());
            units += pause;
        }
        total += admitted.len();
    }
    assert!(total > 60 * BURST);
}

#[test]
fn what_a_request_gets_back_can_be_used_again_unless_it_has_flowed_back_already() {
    let settled = json!({
        "name": "chat",
        "cost": {"reserve": 5, "actual": {"response_header": "x-cost"}},
        "refund": {"statuses": ["5xx"]},
        "match": [{"path": "/chat"}],
    });
    let policy = ten_a_second().with("classes", json!([settled])).with(
        "plans",
        json!({"pro": {"standard": ["1000/minute"], "chat": [{"rate": "10/second", "burst": BURST}]}}),
    );
    let host = simulator(&policy, 2);
    let left = |outcome: &Outcome| ratelimit::left(outcome.header("ratelimit").unwrap(), "chat");
    //  the upstream's answer, and what is left once it is settled
    let rows = [
        (200, Some("2"), 18),
        (500, None, 18),
        (200, Some("5"), 13),
        // More than there are: the rest is owed.
        (200, Some("25"), 0),
    ];
    for (status, cost, settled) in rows {
        let outcome = host.send(request("/chat"), |_| {
            let response = Response::new(status);
            cost.into_iter().fold(response, |response, cost| response.header("x-cost", cost.to_owned()))
        });
        assert_eq!((outcome.status(), left(&outcome)), (status, Some(settled)));
    }
    // Twelve are owed, and five are reserved.
    for (units, status) in [(16, 429), (1, 200)] {
        host.advance(UNIT * units);
        let outcome = host.send(request("/chat"), |_| Response::ok().header("x-cost", "5"));
        assert_eq!(outcome.status(), status, "{outcome:?}");
    }
    // What has flowed back meanwhile cannot be given back as well.
    host.advance(10 * UNIT);
    let outcome = host.send(request("/chat"), |_| {
        host.advance(3 * UNIT);
        Response::new(500)
    });
    assert_eq!((outcome.status(), left(&outcome)), (500, Some(13)));
}

#[test]
fn an_organisation_shares_a_rate_and_its_refusal_takes_nothing_from_the_key() {
    let parent =
        json!({"organisation": "acme", "limits": {"standard": [{"rate": "10/second", "burst": 15}]}});
    let subscriber = |name: &str| json!({"id": name, "plan": "pro", "keys": [hash(name)], "parent": parent});
    let policy = ten_a_second().with("subscribers", json!([subscriber("key"), subscriber("other")]));
    let host = simulator(&policy, VMS);
    assert_eq!(passed(&host, 40), 15);
    let refused = send(&host);
    assert_eq!(ratelimit::left(refused.header("ratelimit").unwrap(), "standard"), Some(5), "{refused:?}");
    host.advance(3 * UNIT);
    assert_eq!(passed(&host, 10), 3);
}

#[test]
fn the_usage_endpoint_states_a_rate() {
    let host = simulator(&ten_a_second().with("usage_path", json!("/quota")), 2);
    assert_eq!(passed(&host, 5), 5);
    let answer = host.send(request("/quota"), |_| Response::ok());
    let body: Value = serde_json::from_slice(answer.body()).unwrap();
    let reset = host.clock().wall().as_secs() + 1;
    let quota = json!({"name": "standard", "limit": BURST, "rate": "10/second", "window": 2, "remaining": 15, "reset": reset});
    assert_eq!(body.pointer("/classes/1/quotas/0"), Some(&quota), "{body}");
}

/// What takes the whole machine, and so runs by itself.
mod alone {
    use std::net::SocketAddr;
    use std::thread;
    use std::time::Duration;

    use serde_json::json;
    use tests::client::Client;
    use tests::envoy::{Envoy, Setup, Upstream};
    use tests::exchange::get;
    use tests::{clock, soak};

    use super::policy;

    const BURST: usize = 20;
    const PER_SECOND: usize = 100;

    /// When a request was sent and when its answer came, of those that were admitted.
    type Admitted = (Duration, Duration);

    fn send_for(gateway: SocketAddr, key: &str, time: Duration) -> Vec<Admitted> {
        let client = Client::to(gateway).unwrap();
        let (mut admitted, began) = (Vec::new(), clock::now());
        while clock::now() - began < time {
            let sent = clock::now();
            let answer = client.send(&get("/links").key(key)).unwrap();
            match answer.status() {
                200 => admitted.push((sent, clock::now())),
                429 => {}
                _ => panic!("{answer}"),
            }
        }
        admitted
    }

    /// The most by which the requests of an interval exceed the promise: those that were sent and answered in it are at most the burst and what flows
    /// back in it.
    fn excess(mut admitted: Vec<Admitted>) -> f64 {
        admitted.sort_unstable();
        let (mut answered, mut most) = (Vec::<Duration>::new(), f64::MIN);
        for (sent, at) in admitted.into_iter().rev() {
            let place = answered.partition_point(|other| *other < at);
            answered.insert(place, at);
            for (others, last) in answered.iter().enumerate().skip(place) {
                let allowed = BURST as f64 + PER_SECOND as f64 * (*last - sent).as_secs_f64();
                most = most.max((others + 1) as f64 - allowed);
            }
        }
        most
    }

    fn check(time: Duration) {
        const AT_ONCE: [usize; 3] = [1, 16, 64];
        let quota = json!([{"rate": format!("{PER_SECOND}/second"), "burst": BURST}]);
        let keys = AT_ONCE.map(|at_once| format!("key-{at_once}"));
        let policy = keys.iter().fold(policy(quota), |policy, key| policy.subscriber(key, "pro", key));
        let envoy = Envoy::start(Setup::new(policy, Upstream::DirectResponse).workers(4)).unwrap();
        for (at_once, key) in AT_ONCE.into_iter().zip(&keys) {
            let began = clock::now();
            let admitted: Vec<_> = thread::scope(|scope| {
                let senders: Vec<_> =
                    (0..at_once).map(|_| scope.spawn(|| send_for(envoy.address(), key, time))).collect();
                senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
            });
            let took = (clock::now() - began).as_secs_f64();
            let part = admitted.len() as f64 / (BURST as f64 + PER_SECOND as f64 * took);
            let excess = excess(admitted);
            soak::row(
                "A rate with a burst in Envoy",
                format!("{PER_SECOND}/second, burst {BURST}, {at_once} at once for {time:?}, 4 workers"),
                format!(
                    "{:.1} % of what is allowed was admitted, {excess:.2} too many at most",
                    part * 100.0
                ),
            );
            assert!(excess <= 0.0, "{at_once} at once: {excess} too many");
            assert!(part >= 0.97, "{at_once} at once: {part}");
        }
    }

    #[test]
    fn a_real_envoy_admits_a_rate_and_its_burst_in_every_interval() {
        check(Duration::from_secs(4));
    }

    #[test]
    #[ignore = "one of the long forms: make soak"]
    fn a_real_envoy_admits_a_rate_and_its_burst_in_every_interval_of_thirty_seconds() {
        check(Duration::from_secs(30));
    }
}
