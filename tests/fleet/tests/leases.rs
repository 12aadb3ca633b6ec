//! Real Envoys with the filter, a rate-limit service and a Redis: one quota over all of them.

use std::process::Command;
use std::time::Duration;

use fleet::client::Client as ServiceClient;
use fleet::gateways::Service;
use fleet::load::{Load, Pace, Seen, key, subscribers};
use fleet::native::Native;
use fleet::redis::Memory;
use fleet::server::{Fault, Garbage};
use fleet::wire::{Unit, descriptor, limited, request};
use fleet::{Fleet, Limiter, Setup};
use serde_json::{Value, json};
use tests::client::Client;
use tests::envoy::Envoy;
use tests::exchange::get;
use tests::{artifacts, clock, soak};
use tonic::Code;

const MINUTE: Duration = Duration::from_secs(60);
const KEYS: usize = 20;

/// A configuration with one plan of `limit` a minute, for that many keys; with `fleet` unless it is null.
fn configuration(keys: usize, limit: u32, fleet: Value) -> Value {
    let mut configuration = json!({
        "plans": {"pro": {"standard": [format!("{limit}/minute")]}},
        "subscribers": subscribers(keys, "pro"),
    });
    if !fleet.is_null() {
        configuration["fleet"] = fleet;
    }
    configuration
}

/// With leases, and the patience that a busy machine asks for: what is admitted without an answer is another test's.
fn weir(limit: u32) -> Limiter {
    let fleet = json!({"cluster": "ratelimit", "timeout": "5s", "on_unavailable": "deny"});
    Limiter::Weir(configuration(KEYS, limit, fleet))
}

/// Two gateways with two workers each under more demand than the quota of each of twenty keys.
fn full_demand(limit: u32, lasting: Duration) -> (Fleet, Seen) {
    let fleet = Setup::new(weir(limit)).start().unwrap();
    // In a whole minute twice the limit; in less, all of it still.
    let rate = 2 * limit * u32::try_from(KEYS).unwrap() / u32::try_from(lasting.as_secs().min(60)).unwrap();
    let load = Load { connections: 32, ..Load::new(KEYS, Pace::PerSecond(rate), lasting) };
    let seen = load.offer(&fleet).unwrap();
    (fleet, seen)
}

fn check_full_demand(limit: u32, calls_at_most: f64, lasting: Duration) {
    let (fleet, seen) = full_demand(limit, lasting);
    soak::row(
        "fleet: 2 Envoys of 2 workers, 20 keys, full demand",
        format_args!("{limit}/minute, {lasting:?}"),
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
        fleet
            .gateways
            .iter()
            .map(|gateway| gateway.prometheus("weir_fleet_calls_total").unwrap())
            .sum::<u64>()
    };
    clock::eventually("the gateways' metric of calls", Duration::from_secs(10), || {
        (counted() == fleet.service.calls()).then_some(())
    })
    .unwrap();
}

#[test]
fn two_gateways_share_twenty_quotas_exactly_and_with_few_calls() {
    check_full_demand(600, 20.0, Duration::from_secs(20));
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn two_gateways_share_twenty_quotas_exactly_and_with_few_calls_for_minutes() {
    check_full_demand(600, 20.0, 3 * MINUTE);
    check_full_demand(3000, 10.0, MINUTE);
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
        ("local quotas", Limiter::Weir(configuration(KEYS, limit, Value::Null))),
        ("leases", weir(limit)),
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

/// What gateways do with requests of one key, one after the other, each in turn.
fn statuses(gateways: &[Envoy], number: usize, requests: usize) -> Vec<(u16, Duration)> {
    let clients: Vec<_> = gateways.iter().map(|gateway| Client::to(gateway.address()).unwrap()).collect();
    let request = get("/links").key(&key(number));
    (0..requests)
        .map(|place| {
            let started = clock::now();
            let status = clients[place % clients.len()].send(&request).unwrap().status();
            (status, clock::now().saturating_sub(started))
        })
        .collect()
}

fn count(statuses: &[(u16, Duration)], status: u16) -> usize {
    statuses.iter().filter(|(seen, _)| *seen == status).count()
}

const TIMEOUT: Duration = Duration::from_millis(250);

/// Two gateways of one worker, with a quota of 100 an hour for so many keys.
fn hourly(keys: usize, on_unavailable: &Value) -> Fleet {
    let mut fleet = json!({"cluster": "ratelimit", "timeout": "250ms"});
    for (name, value) in on_unavailable.as_object().unwrap() {
        fleet[name] = value.clone();
    }
    let mut configuration = configuration(keys, 1, fleet);
    configuration["plans"]["pro"]["standard"] = json!(["100/hour"]);
    Setup::new(Limiter::Weir(configuration)).workers(1).memory(Memory::Durable).start().unwrap()
}

/// What happens to the service, and what undoes it.
type Breakage = (&'static str, fn(&mut Fleet), fn(&mut Fleet));

fn breakages() -> Vec<Breakage> {
    fn spoil(fleet: &mut Fleet, fault: Fault) {
        fleet.service.set_fault(Some(fault));
    }
    fn mend(fleet: &mut Fleet) {
        fleet.service.set_fault(None);
    }
    vec![
        ("Redis is killed", |fleet| fleet.redis.kill(), |fleet| fleet.redis.restart().unwrap()),
        (
            "the service is killed",
            |fleet| fleet.service.stop().unwrap(),
            |fleet| fleet.service.restart().unwrap(),
        ),
        ("answers are late by 2 s", |fleet| spoil(fleet, Fault::Delay(Duration::from_secs(2))), mend),
        ("answers are refusals", |fleet| spoil(fleet, Fault::Refuse(Code::Unavailable)), mend),
        ("answers are no protobuf", |fleet| spoil(fleet, Fault::Garbage(Garbage::NotProtobuf)), mend),
        ("answers are broken frames", |fleet| spoil(fleet, Fault::Garbage(Garbage::BrokenFrame)), mend),
        ("answers are empty", |fleet| spoil(fleet, Fault::Garbage(Garbage::NoMessage)), mend),
        (
            "answers have a code of no version",
            |fleet| spoil(fleet, Fault::Garbage(Garbage::UnknownCode)),
            mend,
        ),
    ]
}

/// `on_unavailable`; of 300 requests while the service is away, how many are admitted, and the status of the others.
fn settings() -> [(Value, usize, u16); 3] {
    [
        (json!({"on_unavailable": "local", "local_percent": 10}), 20, 429),
        (json!({"on_unavailable": "allow"}), 300, 429),
        (json!({"on_unavailable": "deny"}), 0, 503),
    ]
}

fn check_outages((fields, admitted, refusal): (Value, usize, u16), breakages: &[Breakage]) {
    clock::wait_for_room(60 * MINUTE, 5 * MINUTE);
    // For each breakage a key that is asked for meanwhile, one for each gateway that is asked until the service is, and one afterwards.
    let mut fleet = hourly(4 * breakages.len(), &fields);
    for (place, (what, breaks, mends)) in breakages.iter().enumerate() {
        let case = format!("{fields}, {what}");
        breaks(&mut fleet);
        let seen = statuses(&fleet.gateways, 4 * place, 300);
        assert_eq!(count(&seen, 200), admitted, "{case}");
        assert_eq!(count(&seen, 200) + count(&seen, refusal), 300, "{case}");
        let longest = seen.iter().map(|(_, took)| *took).max().unwrap();
        assert!(longest < 4 * TIMEOUT, "{case}: a request took {longest:?}");
        mends(&mut fleet);
        let question = || request("weir", limited(descriptor(&[("who", "nobody")]), 1, Unit::Hour), 1);
        let eventually = |what: &str, probe: &mut dyn FnMut() -> bool| {
            let what = format!("{case}: {what}");
            clock::eventually(&what, Duration::from_secs(30), || probe().then_some(())).unwrap();
        };
        eventually("the service is back", &mut || {
            let client = ServiceClient::to(fleet.service.address());
            client.is_ok_and(|client| client.ask(question()).is_ok())
        });
        for (number, gateway) in fleet.gateways.iter().enumerate() {
            let before = fleet.service.calls();
            eventually("the service is asked", &mut || {
                statuses(std::slice::from_ref(gateway), 4 * place + 1 + number, 1);
                fleet.service.calls() > before
            });
        }
        let before = fleet.service.calls();
        let seen = statuses(&fleet.gateways, 4 * place + 3, 2);
        assert_eq!((count(&seen, 200), fleet.service.calls() - before), (2, 2), "{case}: {seen:?}");
    }
    for gateway in &fleet.gateways {
        assert_eq!(gateway.prometheus("wasm_weir_vm_reload_success").unwrap_or(0), 0, "{fields}: a VM died");
    }
}

#[test]
fn without_its_service_a_fleet_does_what_it_is_told_to_and_asks_again_when_it_is_back() {
    for setting in settings() {
        check_outages(setting, &breakages()[..3]);
    }
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn whatever_a_service_answers_a_fleet_does_what_it_is_told_to() {
    for setting in settings() {
        check_outages(setting, &breakages());
    }
}

#[test]
fn services_with_limits_of_their_own_share_a_quota_by_what_weir_limits_prints() {
    clock::wait_for_room(60 * MINUTE, MINUTE);
    for (service, fields) in [("envoyproxy", json!({})), ("limitador", json!({"window_index": true}))] {
        let mut settings = json!({"cluster": "ratelimit", "limits": "configured"});
        for (name, value) in fields.as_object().unwrap() {
            settings[name] = value.clone();
        }
        let mut configuration = configuration(1, 1, settings);
        configuration["plans"]["pro"]["standard"] = json!(["100/hour"]);
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
        let seen = statuses(&fleet.gateways, 0, 300);
        let admitted = count(&seen, 200);
        assert!((90..=100).contains(&admitted), "{service:?}: {admitted} admitted");
        assert_eq!(admitted + count(&seen, 429), 300, "{service:?}");
    }
}
