//! Real Envoys with the filter, a rate-limit service and a Redis: one quota over all of them.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fleet::burst::Clients;
use fleet::gateways::Service;
use fleet::load::{Load, Pace, Seen, configuration, key};
use fleet::native::Native;
use fleet::{Limiter, Setup};
use serde_json::{Value, json};
use tests::client::Client;
use tests::envoy::Envoy;
use tests::exchange::get;
use tests::server::Server;
use tests::{artifacts, clock, soak};

const MINUTE: Duration = Duration::from_secs(60);
const KEYS: usize = 20;

/// With leases, and a timeout for a busy machine: other tests count what is admitted without an answer.
fn weir(keys: usize, limit: u32) -> Limiter {
    let fleet = json!({"cluster": "ratelimit", "timeout": "2s"});
    Limiter::Weir(configuration(keys, &format!("{limit}/minute"), &fleet))
}

/// Offers a part of the quota of each key to two gateways with two workers each.
fn check_calls(keys: usize, limit: u32, part_of_quota: f64, calls_at_most: f64, lasting: Duration) {
    let fleet = Setup::new(weir(keys, limit)).start().unwrap();
    let rate = Pace::PerSecond((part_of_quota * f64::from(limit) * keys as f64 / 60.0) as u32);
    let seen = Load { connections: 32, ..Load::new(keys, rate, lasting) }.offer(&fleet).unwrap();
    soak::row(
        "fleet: 2 Envoys of 2 workers, leases",
        format_args!(
            "{keys} keys, {limit}/minute, {:.0} % of it offered, {lasting:?}",
            part_of_quota * 100.0
        ),
        &seen,
    );
    assert!(seen.admitted().max().unwrap() <= limit.into(), "{seen}");
    // A late request may fall into a window that nothing else was offered in.
    let possible =
        seen.answers.values().map(|answers| (answers.admitted + answers.refused).min(limit.into()));
    let possible: u64 = possible.sum();
    assert!(seen.total().admitted as f64 >= 0.95 * possible as f64, "of {possible}: {seen}");
    assert!(seen.calls_per_thousand() <= calls_at_most, "{seen}");
    assert_eq!(seen.total().other, 0, "{seen}");
    let counted = || {
        let calls = fleet.gateways.iter().map(|gateway| gateway.prometheus("weir_fleet_calls_total"));
        calls.sum::<anyhow::Result<u64>>().ok()
    };
    clock::eventually("weir_fleet_calls_total is the number of calls", Duration::from_secs(10), || {
        (counted() == Some(fleet.service.calls())).then_some(())
    })
    .unwrap();
}

/// The first requests of a key, whose rate is not known yet, need more calls: in the long form they are few.
#[test]
fn two_gateways_share_twenty_quotas_of_600_a_minute_with_few_calls() {
    check_calls(KEYS, 600, 2.0, 35.0, Duration::from_secs(20));
}

#[test]
fn two_gateways_share_four_quotas_of_3000_a_minute_with_few_calls() {
    check_calls(4, 3000, 2.0, 15.0, Duration::from_secs(20));
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn two_gateways_share_quotas_exactly_and_with_few_calls_for_minutes() {
    for part_of_quota in [0.9, 2.0] {
        check_calls(KEYS, 600, part_of_quota, 20.0, 3 * MINUTE);
        check_calls(KEYS, 3000, part_of_quota, 10.0, MINUTE);
    }
}

/// The median time of requests that are far from their limit.
fn median(limiter: Limiter, service: Service, lasting: Duration) -> (Duration, Seen) {
    let fleet = Setup::new(limiter).service(service).start().unwrap();
    let load = Load { connections: 8, ..Load::new(KEYS, Pace::PerSecond(1000), lasting) };
    let seen = load.offer(&fleet).unwrap();
    (seen.latency(200, 0.5).unwrap(), seen)
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn leases_cost_a_request_what_local_quotas_do_and_less_than_the_native_filter() {
    let limit = 60_000;
    let domain = || Service::Envoyproxy("domain: weir\n".to_owned());
    let variants = [
        ("local quotas", Limiter::Weir(configuration(KEYS, &format!("{limit}/minute"), &Value::Null))),
        ("leases", weir(KEYS, limit)),
        ("Envoy's ratelimit filter", Limiter::Native(Native::of_domain("weir").sending(limit))),
    ];
    let mut samples = vec![Vec::new(); variants.len()];
    for _ in 0..3 {
        for ((_, limiter), samples) in variants.iter().zip(&mut samples) {
            samples.push(median(limiter.clone(), domain(), Duration::from_secs(10)));
        }
    }
    let local = samples[0].iter().map(|(median, _)| *median).min().unwrap();
    for ((name, _), samples) in variants.iter().zip(samples) {
        let (median, seen) = samples.into_iter().min_by_key(|(median, _)| *median).unwrap();
        soak::row(
            "fleet: median latency at 1,000 requests a second",
            name,
            format_args!(
                "{median:.1?}, {:.2} x local; p99 {:.1?}; {:.1} calls per 1,000",
                median.as_secs_f64() / local.as_secs_f64(),
                seen.latency(200, 0.99).unwrap_or_default(),
                seen.calls_per_thousand()
            ),
        );
    }
}

#[test]
fn services_with_limits_of_their_own_share_a_quota_by_what_weir_limits_prints() {
    clock::wait_for_room(24 * 60 * MINUTE, MINUTE);
    for (service, fields) in [("envoyproxy", json!({})), ("limitador", json!({"window_index": true}))] {
        let mut settings = json!({"cluster": "ratelimit", "limits": "configured"});
        for (name, value) in fields.as_object().unwrap() {
            settings[name] = value.clone();
        }
        let configuration = configuration(1, "100/day", &settings);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.json");
        std::fs::write(&file, configuration.to_string()).unwrap();
        let printed =
            Command::new(artifacts::command("weir-limits")).arg(service).arg(&file).output().unwrap();
        assert!(printed.status.success(), "{printed:?}");
        let yaml = String::from_utf8(printed.stdout).unwrap();
        let service = match service {
            "limitador" => Service::Limitador(yaml),
            _ => Service::Envoyproxy(yaml),
        };
        let fleet = Setup::new(Limiter::Weir(configuration)).service(service.clone()).start().unwrap();
        let seen = Clients::to(&fleet.gateways, 1).unwrap().send_in_turn(&key(0), 300).unwrap();
        // Limitador checks before it counts, and not in one step: calls at the same time may exceed the limit.
        let most = if matches!(service, Service::Limitador(_)) { 130 } else { 100 };
        assert!((90..=most).contains(&seen.count(200)), "{service:?}: {seen}");
        assert_eq!(seen.count(200) + seen.count(429), 300, "{service:?}: {seen}");
    }
}

/// The upstream answers each fifth request 503, which is refunded, and states a cost of 4 in the other answers. Without settlements the quota
/// would admit 60 requests.
#[test]
fn two_gateways_settle_costs_on_their_leases_and_exceed_no_quota() {
    const LIMIT: usize = 600;
    const RESERVE: usize = 10;
    const COST: usize = 4;
    clock::wait_for_room(24 * 60 * MINUTE, MINUTE);
    let answered = AtomicUsize::new(0);
    let upstream = Server::start(move |_| {
        let fails = answered.fetch_add(1, Ordering::Relaxed) % 5 == 0;
        let response = http::Response::builder().status(if fails { 503 } else { 200 });
        response.header("x-cost", COST.to_string()).body(bytes::Bytes::new().into()).unwrap()
    })
    .unwrap();
    let mut policy =
        configuration(1, &format!("{LIMIT}/day"), &json!({"cluster": "ratelimit", "timeout": "2s"}));
    policy["classes"] = json!([{
        "name": "standard",
        "cost": {"reserve": RESERVE, "actual": {"response_header": "x-cost"}},
        "refund": {"statuses": [503]},
    }]);
    let fleet = Setup::new(Limiter::Weir(policy)).upstream(upstream.address()).start().unwrap();
    // Each connection sends until it has been refused for a while: a lease may come back, or a refund.
    let admitted = &|gateway: &Envoy| {
        let client = Client::to(gateway.address()).unwrap();
        let (mut served, mut refused) = (0, 0);
        while refused < 20 {
            match client.send(&get("/links").key(&key(0))).unwrap().status() {
                429 => refused += 1,
                status => {
                    assert!([200, 503].contains(&status), "{status}");
                    (served, refused) = (served + usize::from(status == 200), 0);
                }
            }
        }
        served
    };
    let served: usize = std::thread::scope(|scope| {
        let connections = fleet.gateways.iter().flat_map(|gateway| [gateway; 4]);
        let senders: Vec<_> = connections.map(|gateway| scope.spawn(move || admitted(gateway))).collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).sum()
    });
    assert!(
        (LIMIT / RESERVE * 3 / 2..=LIMIT / COST).contains(&served),
        "{served} requests of {COST} units each"
    );
}
