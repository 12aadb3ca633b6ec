//! What a fleet does while its service does not answer, answers late, or has no limit to answer with.

use std::time::Duration;

use fleet::burst::Clients;
use fleet::client::Client as ServiceClient;
use fleet::gateways::{Service, vm_failures};
use fleet::load::{configuration, key};
use fleet::server::{Fault, Garbage};
use fleet::wire::{Unit, descriptor, limited, request};
use fleet::{Fleet, Limiter, Setup};
use serde_json::{Value, json};
use tests::clock;
use tonic::Code;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The default of `timeout`.
const TIMEOUT: Duration = Duration::from_millis(250);
/// Twice as long as the longest backoff.
const RECOVERY: Duration = Duration::from_secs(30);

/// Gateways of one worker with `fields` in their field `fleet`.
fn fleet(gateways: usize, keys: usize, quota: &str, fields: &Value) -> Setup {
    let mut fleet = json!({"cluster": "ratelimit"});
    for (name, value) in fields.as_object().unwrap() {
        fleet[name] = value.clone();
    }
    let limiter = Limiter::Weir(configuration(keys, quota, &fleet));
    Setup::new(limiter).gateways(gateways).workers(1).without_upstream()
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
        (
            "answers are late by 10 s",
            |fleet| fleet.service.set_round_trip(Duration::from_secs(10)),
            |fleet| fleet.service.set_round_trip(Duration::ZERO),
        ),
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

/// `on_unavailable`; of 300 requests of a quota of 100 at two gateways while the service is away, how many are admitted, and the status
/// of the others.
fn settings() -> [(Value, usize, u16); 3] {
    [
        (json!({}), 20, 429), // the default: local, 10 %
        (json!({"on_unavailable": "allow"}), 300, 429),
        (json!({"on_unavailable": "deny"}), 0, 503),
    ]
}

fn check_outages((fields, admitted, refusal): (Value, usize, u16), breakages: &[Breakage]) {
    clock::wait_for_room(DAY, 5 * MINUTE);
    // For each breakage a key that is asked for meanwhile, one for each gateway that is asked until the service is, and some afterwards.
    const KEYS: usize = 32;
    let mut fleet = fleet(2, KEYS * breakages.len(), "100/day", &fields).start().unwrap();
    let clients = Clients::to(&fleet.gateways, 1).unwrap();
    for (place, (what, breaks, mends)) in breakages.iter().enumerate() {
        let case = format!("{fields}, {what}");
        breaks(&mut fleet);
        let seen = clients.send_in_turn(&key(KEYS * place), 300).unwrap();
        assert_eq!((seen.count(200), seen.contradictions()), (admitted, 0), "{case}: {seen}");
        assert_eq!(seen.count(200) + seen.count(refusal), 300, "{case}: {seen}");
        assert!(seen.slowest() < 4 * TIMEOUT, "{case}: {seen}");
        mends(&mut fleet);
        let question = || request("weir", limited(descriptor(&[("who", "nobody")]), 1, Unit::Day), 1);
        let eventually = |what: &str, probe: &mut dyn FnMut() -> bool| {
            let what = format!("{case}: {what}");
            clock::eventually(&what, RECOVERY, || probe().then_some(())).unwrap();
        };
        eventually("the service is back", &mut || {
            let client = ServiceClient::to(fleet.service.address());
            client.is_ok_and(|client| client.ask(question()).is_ok())
        });
        for number in 0..fleet.gateways.len() {
            let gateway = Clients::to(&fleet.gateways[number..=number], 1).unwrap();
            let before = fleet.service.calls();
            eventually("the service is asked", &mut || {
                gateway.send_in_turn(&key(KEYS * place + 1 + number), 1).unwrap();
                fleet.service.calls() > before
            });
        }
        // A call to a service that has just come back may fail once more.
        let mut unused = KEYS * place + 3..KEYS * (place + 1);
        eventually("both gateways lease", &mut || {
            let before = fleet.service.calls();
            let seen = clients.send_in_turn(&key(unused.next().expect("a key")), 2).unwrap();
            let lease = seen.count(200) == 2 && fleet.service.calls() - before >= 2;
            if !lease {
                clock::pass(4 * TIMEOUT);
            }
            lease
        });
    }
    for gateway in &fleet.gateways {
        assert_eq!(vm_failures(gateway), [""; 0], "{fields}");
    }
}

#[test]
fn without_its_service_a_fleet_is_local_by_default() {
    let [local, _, _] = settings();
    check_outages(local, &breakages()[..3]);
}

#[test]
fn without_its_service_a_fleet_allows_or_denies_if_it_is_configured_to() {
    let [_, allow, deny] = settings();
    check_outages(allow, &breakages()[..3]);
    check_outages(deny, &breakages()[..3]);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn whatever_a_service_answers_a_fleet_follows_on_unavailable() {
    for setting in settings() {
        check_outages(setting, &breakages());
    }
}

#[test]
fn what_the_service_has_reported_as_exhausted_stays_exhausted_while_it_is_away() {
    clock::wait_for_room(DAY, MINUTE);
    for fields in [json!({}), json!({"on_unavailable": "allow"}), json!({"on_unavailable": "deny"})] {
        let mut fleet = fleet(1, 1, "20/day", &fields).start().unwrap();
        let clients = Clients::to(&fleet.gateways, 1).unwrap();
        let before = clients.send_in_turn(&key(0), 40).unwrap();
        assert!((19..=20).contains(&before.count(200)), "{fields}: {before}");
        fleet.service.stop().unwrap();
        let during = clients.send_in_turn(&key(0), 40).unwrap();
        assert_eq!((during.count(429), during.contradictions()), (40, 0), "{fields}: {during}");
    }
}

#[test]
fn a_late_answer_is_credited() {
    clock::wait_for_room(DAY, MINUTE);
    let fleet = fleet(1, 1, "100/day", &json!({"on_unavailable": "deny"})).start().unwrap();
    // Later than a request waits, earlier than a call times out.
    fleet.service.set_round_trip(2 * TIMEOUT);
    let clients = Clients::to(&fleet.gateways, 1).unwrap();
    let mut admitted = 0;
    for _ in 0..40 {
        let seen = clients.send_in_turn(&key(0), 1).unwrap();
        assert_eq!(seen.count(200) + seen.count(503), 1, "{seen}");
        admitted += seen.count(200);
        clock::pass(TIMEOUT / 2);
    }
    // What the root context asks for after a failure is late as well, and admits later requests.
    assert!(admitted >= 3, "{admitted} admitted, {} calls", fleet.service.calls());
}

#[test]
fn shadow_enforcement_never_waits() {
    const SLOW: Duration = Duration::from_secs(4);
    let mut configuration = configuration(2, "10/day", &json!({"cluster": "ratelimit", "timeout": "5s"}));
    configuration["enforcement"] = json!("shadow");
    let fleet = Setup::new(Limiter::Weir(configuration)).gateways(1).workers(1).without_upstream();
    let mut fleet = fleet.start().unwrap();
    let clients = Clients::to(&fleet.gateways, 1).unwrap();
    fleet.service.set_round_trip(SLOW);
    let late = clients.send(&key(0), 40).unwrap();
    fleet.service.stop().unwrap();
    let gone = clients.send(&key(1), 40).unwrap();
    for seen in [late, gone] {
        assert_eq!(seen.count(200), 40, "{seen}");
        assert!(seen.slowest() < SLOW / 2, "{seen}");
    }
}

#[test]
fn on_unavailable_decides_where_the_service_has_no_limit_and_the_filter_says_so_once() {
    let services = [
        ("no limit for the descriptor", "domain: weir", json!({"limits": "configured"})),
        ("an unknown domain, limits configured", "domain: other", json!({"limits": "configured"})),
        ("an unknown domain, limits sent", "domain: other", json!({})),
    ];
    let settings = [
        // of 40 requests of a quota of 60
        (json!({}), 6, 429), // the default: local, 10 %
        (json!({"on_unavailable": "allow"}), 40, 429),
        (json!({"on_unavailable": "deny"}), 0, 503),
    ];
    clock::wait_for_room(DAY, 2 * MINUTE);
    for (what, yaml, limits) in services {
        for (on_unavailable, admitted, refusal) in &settings {
            let case = format!("{what}, {on_unavailable}");
            let mut fields = limits.clone();
            fields.as_object_mut().unwrap().extend(on_unavailable.as_object().unwrap().clone());
            let setup = fleet(1, 1, "60/day", &fields).service(Service::Envoyproxy(yaml.to_owned()));
            let fleet = setup.start().unwrap();
            let seen = Clients::to(&fleet.gateways, 1).unwrap().send(&key(0), 40).unwrap();
            assert!(fleet.service.calls() > 0, "{case}");
            assert_eq!((seen.count(200), seen.contradictions()), (*admitted, 0), "{case}: {seen}");
            assert_eq!(seen.count(200) + seen.count(*refusal), 40, "{case}: {seen}");
            let [gateway] = fleet.gateways.as_slice() else { panic!("one gateway") };
            clock::eventually(&format!("{case}: weir_fleet_unconfigured_total"), RECOVERY, || {
                (gateway.prometheus("weir_fleet_unconfigured_total").unwrap_or(0) > 0).then_some(())
            })
            .unwrap();
            let lines = gateway.log().lines();
            let complaint = |line: &&String| {
                line.contains("wasm log") && (line.contains("[warning]") || line.contains("[error]"))
            };
            let complaints: Vec<_> = lines.iter().filter(complaint).collect();
            assert_eq!(complaints.len(), 1, "{case}: {complaints:?}");
        }
    }
}

#[test]
fn where_the_service_says_unlimited_everything_is_admitted() {
    let unlimited = "
domain: weir
descriptors:
  - key: class
    value: standard
    descriptors:
      - key: window
        value: day
        descriptors:
          - key: plan
            value: pro
            descriptors:
              - key: who
                rate_limit: { unlimited: true }
";
    let fields = json!({"limits": "configured", "on_unavailable": "deny"});
    let setup = fleet(1, 1, "60/day", &fields).service(Service::Envoyproxy(unlimited.to_owned()));
    let fleet = setup.start().unwrap();
    let clients = Clients::to(&fleet.gateways, 1).unwrap();
    for _ in 0..3 {
        let seen = clients.send(&key(0), 40).unwrap();
        assert_eq!(seen.count(200), 40, "{seen}, {} calls", fleet.service.calls());
    }
    assert_eq!(fleet.gateways[0].prometheus("weir_fleet_unconfigured_total").unwrap_or(0), 0);
}
