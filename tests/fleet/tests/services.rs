//! The services' rules, each as a row, asked over gRPC and counted in a real Redis.

use std::time::Duration;

use fleet::client::Client;
use fleet::envoyproxy::{Limit, cache_key, status};
use fleet::gateways::{Service, serve};
use fleet::redis::{Memory, Redis};
use fleet::server::{Fault, Garbage, Server};
use fleet::wire::{
    Code, DescriptorStatus, RateLimit, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Unit,
    adding, descriptor, limited, request,
};
use tests::clock;

/// A service on a Redis of its own, and a client of it.
struct Asked {
    client: Client,
    server: Server,
    redis: Redis,
}

impl Asked {
    fn of(service: &Service) -> Self {
        let redis = Redis::start(Memory::Volatile).unwrap();
        let server = serve(service, &redis.url()).unwrap();
        Self { client: Client::to(server.address()).unwrap(), server, redis }
    }

    fn ask(&self, request: &RateLimitRequest) -> RateLimitResponse {
        self.client.ask(request.clone()).unwrap()
    }

    fn refusal(&self, request: RateLimitRequest) -> (tonic::Code, String) {
        let status = self.client.ask(request).unwrap_err();
        (status.code(), status.message().to_owned())
    }
}

const TREE: &str = r"
domain: weir
descriptors:
  - key: class
    value: standard
    descriptors:
      - key: plan
        value: free
        rate_limit: { unit: hour, requests_per_unit: 9 }
        descriptors:
          - key: who
            rate_limit: { unit: day, requests_per_unit: 3 }
          - key: who
            value: vip
            rate_limit: { unit: day, requests_per_unit: 1000 }
      - key: plan
        value: trial
        shadow_mode: true
        rate_limit: { unit: DAY, requests_per_unit: 1 }
      - key: plan
        value: enterprise
        rate_limit: { unlimited: true }
";

fn envoyproxy(tree: &str) -> Asked {
    Asked::of(&Service::Envoyproxy(tree.to_owned()))
}

fn code(answer: &RateLimitResponse) -> Code {
    answer.overall_code()
}

/// What an answer says of its only descriptor.
fn only(answer: &RateLimitResponse) -> &DescriptorStatus {
    assert_eq!(answer.statuses.len(), 1);
    &answer.statuses[0]
}

#[test]
fn hits_are_added_first_and_then_judged() {
    let service = envoyproxy("domain: weir");
    let rows = [
        // hits, code, remaining
        (1, Code::Ok, 9),
        (0, Code::Ok, 8), // none said is one
        (5, Code::Ok, 3),
        (4, Code::OverLimit, 0), // 11 of 10: what was left is lost
        (1, Code::OverLimit, 0),
    ];
    clock::wait_for_room(Duration::from_secs(60), Duration::from_secs(10));
    for (place, (hits, expected, remaining)) in rows.into_iter().enumerate() {
        let who = limited(descriptor(&[("who", "a")]), 10, Unit::Minute);
        let now = clock::now().as_secs();
        let answer = service.ask(&request("weir", who, hits));
        let status = only(&answer);
        assert_eq!(
            (code(&answer), status.code(), status.limit_remaining),
            (expected, expected, remaining),
            "row {place}"
        );
        let limit = RateLimit { name: String::new(), requests_per_unit: 10, unit: Unit::Minute as i32 };
        assert_eq!(status.current_limit, Some(limit), "row {place}");
        let reset = u64::try_from(status.duration_until_reset.as_ref().unwrap().seconds).unwrap();
        assert!((59 - now % 60..=60 - now % 60).contains(&reset), "row {place}: {reset} at {now}");
    }
    let counters: Vec<String> = service.redis.ask(&["KEYS", "*"]).unwrap();
    let start = clock::now().as_secs() / 60 * 60;
    assert_eq!(counters, [format!("weir_who_a_{start}")]);
    assert_eq!(service.redis.ask::<u64>(&["GET", &counters[0]]).unwrap(), 12, "refused hits stay counted");
    let lasts: u64 = service.redis.ask(&["TTL", &counters[0]]).unwrap();
    assert!((50..=60).contains(&lasts), "{lasts}");
    assert_eq!(service.server.calls(), 5);
}

#[test]
fn a_counter_is_named_by_domain_entries_and_start_of_window() {
    let of = descriptor(&[("class", "standard"), ("who", "0a")]);
    let rows = [
        (Unit::Second, 1_000_000_007, "weir_class_standard_who_0a_1000000007"),
        (Unit::Minute, 1_000_000_007, "weir_class_standard_who_0a_999999960"),
        (Unit::Hour, 1_000_000_007, "weir_class_standard_who_0a_999997200"),
        (Unit::Day, 1_000_000_007, "weir_class_standard_who_0a_999993600"),
        (Unit::Week, 1_000_000_007, "weir_class_standard_who_0a_999734400"),
        (Unit::Month, 1_000_000_007, "weir_class_standard_who_0a_997920000"), // 30 days
        (Unit::Year, 1_000_000_007, "weir_class_standard_who_0a_977616000"),  // 365 days
        (Unit::Minute, 0, "weir_class_standard_who_0a_0"),
    ];
    for (unit, now, expected) in rows {
        assert_eq!(cache_key("weir", &of, unit, now), expected);
    }
}

#[test]
fn a_window_ends_in_whole_seconds_one_to_its_length() {
    const DAY: i64 = 24 * 60 * 60;
    let rows = [
        // unit, now, until it ends
        (Unit::Second, 1_000_000_007, 1),
        (Unit::Minute, 1_000_000_007, 13),
        (Unit::Minute, 1_000_000_019, 1),
        (Unit::Minute, 1_000_000_020, 60),
        (Unit::Month, 997_920_000, 30 * DAY),
        (Unit::Year, 977_616_000, 365 * DAY),
    ];
    for (unit, now, expected) in rows {
        let until = status(&Limit { requests_per_unit: 1, unit, shadow: false }, 1, now).duration_until_reset;
        assert_eq!(until.map(|until| (until.seconds, until.nanos)), Some((expected, 0)), "{unit:?} at {now}");
    }
}

/// A domain, what is asked in it, and the limit.
type Row = (&'static str, RateLimitDescriptor, Option<(u32, Unit)>);

#[test]
fn a_limit_is_the_descriptors_own_or_the_one_at_the_end_of_its_path() {
    let service = envoyproxy(TREE);
    let free = |who| descriptor(&[("class", "standard"), ("plan", "free"), ("who", who)]);
    let plan = |plan| descriptor(&[("class", "standard"), ("plan", plan)]);
    let rows: [Row; 11] = [
        ("weir", free("a"), Some((3, Unit::Day))),
        ("weir", free("vip"), Some((1000, Unit::Day))), // key and value before key alone
        ("weir", plan("free"), Some((9, Unit::Hour))),
        ("weir", plan("gold"), None),
        ("weir", plan("enterprise"), None),
        ("weir", descriptor(&[("class", "standard")]), None),
        ("weir", descriptor(&[("plan", "free"), ("class", "standard")]), None), // entries have an order
        ("weir", descriptor(&[("class", "standard"), ("plan", "free"), ("who", "a"), ("more", "b")]), None),
        ("weir", limited(free("b"), 7, Unit::Second), Some((7, Unit::Second))),
        ("weir", limited(plan("gold"), 8, Unit::Minute), Some((8, Unit::Minute))),
        ("other", limited(free("c"), 7, Unit::Second), None), // a domain that is not configured has no limits
    ];
    for (domain, descriptor, expected) in rows {
        let answer = service.ask(&request(domain, descriptor.clone(), 1));
        let limit = only(&answer).current_limit.as_ref();
        let limit = limit.map(|limit| (limit.requests_per_unit, Unit::from_number(limit.unit).unwrap()));
        assert_eq!(limit, expected, "{domain} {descriptor:?}");
        assert_eq!(code(&answer), Code::Ok, "{domain} {descriptor:?}");
        assert_eq!(only(&answer).duration_until_reset.is_some(), expected.is_some());
    }
}

#[test]
fn without_a_limit_an_answer_is_ok_without_current_limit_and_nothing_is_counted() {
    let service = envoyproxy(TREE);
    let plan = |plan| descriptor(&[("class", "standard"), ("plan", plan)]);
    let rows = [
        // domain, descriptor, remaining
        ("weir", plan("gold"), 0),
        ("other", limited(plan("free"), 7, Unit::Day), 0), // a domain that is not configured
        ("weir", plan("enterprise"), u32::MAX),            // unlimited
    ];
    for (domain, descriptor, limit_remaining) in rows {
        let expected = DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..Default::default() };
        for hits in [1, 1_000_000] {
            let answer = service.ask(&request(domain, descriptor.clone(), hits));
            assert_eq!((code(&answer), only(&answer)), (Code::Ok, &expected), "{domain} {descriptor:?}");
        }
    }
    assert_eq!(service.redis.ask::<Vec<String>>(&["KEYS", "*"]).unwrap(), [""; 0]);
}

#[test]
fn an_override_replaces_the_configured_limit_on_the_same_counter_and_is_never_in_shadow_mode() {
    let service = envoyproxy(TREE);
    let trial = || descriptor(&[("class", "standard"), ("plan", "trial")]); // 1 a day, in shadow mode
    let (hour, day) = (Duration::from_secs(60 * 60), Duration::from_secs(24 * 60 * 60));
    clock::wait_for_room(hour, Duration::from_secs(10));
    let is_first_hour = clock::left_of(day, clock::now()) > day - hour;
    let rows = [
        // descriptor, hits, code, remaining
        (trial(), 3, Code::Ok, 0),
        (limited(trial(), 10, Unit::Day), 1, Code::Ok, 6),
        (limited(trial(), 4, Unit::Day), 1, Code::OverLimit, 0),
        (limited(trial(), 10, Unit::Day), 1, Code::Ok, 4), // what was refused stays counted
        (trial(), 1, Code::Ok, 0),
        // Another window, another counter. The key has the window's start and not its length, so the first hour of a day shares
        // the day's (envoyproxy/ratelimit, `src/limiter/cache_key.go`).
        (limited(trial(), 10, Unit::Hour), 1, Code::Ok, if is_first_hour { 2 } else { 9 }),
    ];
    for (place, (descriptor, hits, expected, remaining)) in rows.into_iter().enumerate() {
        let answer = service.ask(&request("weir", descriptor, hits));
        let seen = (code(&answer), only(&answer).limit_remaining);
        assert_eq!(seen, (expected, remaining), "row {place}");
    }
}

#[test]
fn each_descriptor_counts_for_itself_and_one_over_its_limit_is_enough() {
    let service = envoyproxy(TREE);
    let of = |who: &str, limit| limited(descriptor(&[("who", who)]), limit, Unit::Day);
    let unlimited = descriptor(&[("class", "none")]);
    let rows = [
        // descriptors, overall, what each says and has left
        (
            vec![of("a", 5), of("b", 2), unlimited.clone()],
            Code::Ok,
            vec![(Code::Ok, 3), (Code::Ok, 0), (Code::Ok, 0)],
        ),
        (vec![of("a", 5), of("b", 2)], Code::OverLimit, vec![(Code::Ok, 1), (Code::OverLimit, 0)]),
        (vec![adding(of("a", 5), 1), of("c", 9)], Code::Ok, vec![(Code::Ok, 0), (Code::Ok, 7)]),
        (vec![adding(of("a", 5), 0)], Code::Ok, vec![(Code::Ok, 0)]), // a look
        (vec![adding(of("b", 2), 0)], Code::OverLimit, vec![(Code::OverLimit, 0)]),
        (vec![unlimited], Code::Ok, vec![(Code::Ok, 0)]),
    ];
    for (place, (descriptors, overall, expected)) in rows.into_iter().enumerate() {
        let request = RateLimitRequest { domain: "weir".to_owned(), descriptors, hits_addend: 2 };
        let answer = service.ask(&request);
        let said: Vec<_> =
            answer.statuses.iter().map(|status| (status.code(), status.limit_remaining)).collect();
        assert_eq!((code(&answer), said), (overall, expected), "row {place}");
    }
}

#[test]
fn a_shadow_limit_refuses_nothing() {
    let service = envoyproxy(TREE);
    let trial = request("weir", descriptor(&[("class", "standard"), ("plan", "trial")]), 1);
    assert_eq!([(); 3].map(|()| code(&service.ask(&trial))), [Code::Ok; 3]);
}

#[test]
fn what_cannot_be_judged_is_an_error() {
    let mut service = envoyproxy(TREE);
    let one = || limited(descriptor(&[("who", "a")]), 10, Unit::Hour);
    let no_descriptor = RateLimitRequest { domain: "weir".to_owned(), ..RateLimitRequest::default() };
    let rows = [
        (request("", one(), 1), "rate limit domain must not be empty"),
        (no_descriptor, "rate limit descriptor list must not be empty"),
    ];
    for (request, message) in rows {
        assert_eq!(service.refusal(request), (tonic::Code::Unknown, message.to_owned()));
    }
    assert_eq!(code(&service.ask(&request("weir", one(), 3))), Code::Ok);
    service.redis.kill();
    let (refused, message) = service.refusal(request("weir", one(), 1));
    assert_eq!(refused, tonic::Code::Unknown);
    assert!(message.starts_with("redis: "), "{message}");
    service.redis.restart().unwrap();
    let answer = clock::eventually("the service to find Redis again", Duration::from_secs(10), || {
        service.client.ask(request("weir", one(), 3)).ok()
    });
    assert_eq!(only(&answer.unwrap()).limit_remaining, 7, "a volatile Redis has forgotten");
}

#[test]
fn a_durable_redis_still_knows_after_a_kill() {
    let mut redis = Redis::start(Memory::Durable).unwrap();
    assert_eq!(redis.ask::<u64>(&["INCRBY", "a", "7"]).unwrap(), 7);
    redis.kill();
    assert!(redis.ask::<u64>(&["GET", "a"]).is_err());
    redis.restart().unwrap();
    assert_eq!(redis.ask::<u64>(&["GET", "a"]).unwrap(), 7);
}

#[test]
fn a_configuration_that_the_real_service_would_refuse_is_refused() {
    let rows = [
        ("domain: ''", "empty domain"),
        ("domain: weir\nlimits: []", "limits"),
        ("domain: weir\ndescriptors: [{key: ''}]", "weir: descriptor has empty key"),
        ("domain: weir\ndescriptors: [{key: a}, {key: a}]", "duplicate descriptor composite key 'weir.a'"),
        (
            "domain: weir\ndescriptors: [{key: a, value: b, rate_limit: {unit: fortnight, requests_per_unit: 1}}]",
            "weir.a_b: invalid rate limit unit 'fortnight'",
        ),
        (
            "domain: weir\ndescriptors: [{key: a, rate_limit: {unit: day, unlimited: true}}]",
            "weir.a: should not specify rate limit unit when unlimited",
        ),
        ("domain: weir\ndescriptors: [{key: a, value: 'b*'}]", "weir.a_b*: this stand-in knows no wildcards"),
    ];
    for (yaml, expected) in rows {
        let error = fleet::envoyproxy::Configuration::from_yaml(yaml).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{yaml}: {error:#}");
    }
}

const LIMITS: &str = r#"
- namespace: weir
  max_value: 5
  seconds: 60
  conditions:
    - descriptors[0]["class"] == "standard"
    - descriptors[0]["plan"] == "free"
  variables:
    - descriptors[0]["who"]
    - descriptors[0]["index"]
"#;

#[test]
fn limitador_counts_what_it_admits_and_says_nothing_but_its_code() {
    let service = Asked::of(&Service::Limitador(LIMITS.to_owned()));
    let of = |plan, who, index| {
        descriptor(&[("class", "standard"), ("plan", plan), ("index", index), ("who", who)])
    };
    let rows = [
        // domain, descriptor, hits, code
        ("weir", of("free", "a", "1"), 1, Code::Ok),
        ("weir", of("free", "a", "1"), 0, Code::Ok), // none said is one
        ("weir", of("free", "a", "1"), 4, Code::OverLimit), // not counted:
        ("weir", of("free", "a", "1"), 3, Code::Ok),
        ("weir", of("free", "a", "1"), 1, Code::OverLimit),
        ("weir", of("free", "b", "1"), 5, Code::Ok), // another variable
        ("weir", of("free", "a", "2"), 5, Code::Ok), // another window
        ("weir", of("pro", "a", "1"), 9, Code::Ok),  // no limit has these conditions
        ("weir", limited(of("free", "c", "1"), 1, Unit::Minute), 5, Code::Ok), // an override is nothing to it
        ("weir", limited(of("free", "c", "1"), 100, Unit::Minute), 1, Code::OverLimit),
        ("weir", descriptor(&[("class", "standard"), ("plan", "free")]), 9, Code::Ok), // a variable is missing
        ("other", of("free", "a", "1"), 9, Code::Ok),
        ("", of("free", "a", "1"), 1, Code::Unknown),
    ];
    for (place, (domain, descriptor, hits, expected)) in rows.into_iter().enumerate() {
        let answer = service.ask(&request(domain, descriptor, hits));
        let bare = RateLimitResponse { overall_code: expected.into(), ..RateLimitResponse::default() };
        assert_eq!(answer, bare, "row {place}");
    }
}

#[test]
fn limitador_without_its_redis_is_unavailable() {
    let mut service = Asked::of(&Service::Limitador(LIMITS.to_owned()));
    let one = request(
        "weir",
        descriptor(&[("class", "standard"), ("plan", "free"), ("index", "1"), ("who", "a")]),
        1,
    );
    assert_eq!(code(&service.ask(&one)), Code::Ok);
    service.redis.kill();
    assert_eq!(service.refusal(one), (tonic::Code::Unavailable, "Service unavailable".to_owned()));
}

#[test]
fn answers_are_spoilt_as_a_test_says_and_counted_all_the_same() {
    let service = envoyproxy("domain: weir");
    let one = request("weir", limited(descriptor(&[("who", "a")]), 100, Unit::Day), 1);
    assert_eq!(only(&service.ask(&one)).limit_remaining, 99);
    let rows = [
        (Fault::Refuse(tonic::Code::ResourceExhausted), Some(tonic::Code::ResourceExhausted)),
        (Fault::Garbage(Garbage::NotProtobuf), Some(tonic::Code::Internal)),
        (Fault::Garbage(Garbage::BrokenFrame), Some(tonic::Code::Internal)),
        (Fault::Garbage(Garbage::NoMessage), Some(tonic::Code::Internal)),
        (Fault::Garbage(Garbage::UnknownCode), None),
    ];
    for (fault, expected) in rows {
        service.server.set_fault(Some(fault));
        match (service.client.ask(one.clone()), expected) {
            (Err(status), Some(code)) => assert_eq!(status.code(), code, "{fault:?}: {status:?}"),
            (Ok(answer), None) => assert_eq!(answer.overall_code, 99),
            (answer, _) => panic!("{fault:?}: {answer:?}"),
        }
    }
    service.server.set_fault(None);
    let so_far = u32::try_from(rows.len()).unwrap() + 1;
    assert_eq!(only(&service.ask(&one)).limit_remaining, 99 - so_far);
    assert_eq!(service.server.calls(), u64::from(so_far) + 1);
    assert_eq!(service.server.requests(), vec![one; service.server.calls() as usize]);
}

#[test]
fn every_call_takes_the_round_trip_and_none_waits_for_another() {
    const CALLS: u32 = 40;
    const ROUND_TRIP: Duration = Duration::from_millis(250);
    let service = envoyproxy("domain: weir");
    service.server.set_round_trip(ROUND_TRIP);
    let one = request("weir", limited(descriptor(&[("who", "a")]), 100, Unit::Day), 1);
    let started = clock::now();
    let waits: Vec<_> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                scope.spawn(|| {
                    let client = Client::to(service.server.address()).unwrap();
                    let sent = clock::now();
                    client.ask(one.clone()).unwrap();
                    clock::now() - sent
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let took = clock::now() - started;
    assert!(waits.iter().all(|wait| *wait >= ROUND_TRIP), "{waits:?}");
    assert!(took < ROUND_TRIP * CALLS / 2, "{took:?} for {CALLS} calls at once");
    assert!(service.server.take_slowest() < took);
    service.server.set_round_trip(Duration::ZERO);
    assert_eq!(only(&service.ask(&one)).limit_remaining, 100 - CALLS - 1);
}

#[test]
fn a_call_whose_caller_has_gone_is_counted() {
    let service = envoyproxy("domain: weir");
    let one = || request("weir", limited(descriptor(&[("who", "a")]), 100, Unit::Day), 1);
    service.server.set_round_trip(Duration::from_millis(500));
    let impatient = Client::to(service.server.address()).unwrap();
    assert!(impatient.ask_within(Duration::from_millis(100), one()).is_err());
    service.server.set_round_trip(Duration::ZERO);
    clock::eventually("the call to be counted", Duration::from_secs(10), || {
        let counters: Vec<String> = service.redis.ask(&["KEYS", "*"]).ok()?;
        (!counters.is_empty()).then_some(())
    })
    .unwrap();
    assert_eq!(only(&service.ask(&one())).limit_remaining, 98);
}

#[test]
fn a_stopped_service_comes_back_where_it_was() {
    let mut service = envoyproxy("domain: weir");
    let one = request("weir", limited(descriptor(&[("who", "a")]), 100, Unit::Day), 1);
    assert_eq!(only(&service.ask(&one)).limit_remaining, 99);
    let address = service.server.address();
    service.server.stop().unwrap();
    // The connection that there was breaks, and no other is to be had.
    for _ in 0..2 {
        let (code, message) = service.refusal(one.clone());
        assert!(matches!(code, tonic::Code::Unavailable | tonic::Code::Unknown), "{code:?}: {message}");
    }
    service.server.restart().unwrap();
    assert_eq!(service.server.address(), address);
    let answer = clock::eventually("the client to connect again", Duration::from_secs(10), || {
        service.client.ask(one.clone()).ok()
    });
    assert_eq!(only(&answer.unwrap()).limit_remaining, 98);
}
