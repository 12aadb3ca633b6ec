//! Many requests of one key at once, with the service at several distances.

use std::fmt::Display;
use std::time::Duration;

use fleet::burst::{Burst, Clients};
use fleet::envoyproxy::cache_key;
use fleet::gateways::vm_failures;
use fleet::load::{Load, Pace, configuration, key};
use fleet::wire::Unit;
use fleet::{Fleet, Limiter, Setup};
use serde_json::{Value, json};
use tests::{clock, soak};

const ROUND_TRIPS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(10), Duration::from_millis(40)];
const MINUTE: Duration = Duration::from_secs(60);
/// Part of a minute that a story needs.
const STORY: Duration = Duration::from_secs(10);
/// The default `timeout`, and a tick, which is a quarter of it.
const LONGEST_WAIT: Duration = Duration::from_micros(250_000 + 62_500);
/// Time that 40 requests at once take apart from waiting for the service, on a busy machine.
const SLACK: Duration = Duration::from_millis(400);
/// The same for 2,000 requests.
const SLACK_OF_MANY: Duration = Duration::from_millis(2500);
/// Where the service itself takes this long for an answer, the machine runs nothing in time.
const STALL: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 5;
/// Keys that the gateways know: enough for each attempt at each round trip, and for two in each of ten rounds.
const KEYS: usize = 20;

/// Gateways of one worker with a quota and the defaults, or `more` in their field `fleet`.
fn fleet(gateways: usize, quota: &str, more: &Value) -> Setup {
    let mut fleet = json!({"cluster": "ratelimit"});
    for (name, value) in more.as_object().into_iter().flatten() {
        fleet[name] = value.clone();
    }
    Setup::new(Limiter::Weir(configuration(KEYS, quota, &fleet)))
        .gateways(gateways)
        .workers(1)
        .without_upstream()
}

/// Tells a story with a fresh key until the machine does not stall during it.
fn undisturbed<T: Display>(fleet: &Fleet, round_trip: usize, mut story: impl FnMut(&str) -> T) -> T {
    for attempt in 1.. {
        let _ = fleet.service.take_slowest();
        let told = story(&key(round_trip * ATTEMPTS + attempt - 1));
        let stalled = fleet.service.take_slowest();
        if stalled < STALL || attempt == ATTEMPTS {
            return told;
        }
        println!("again, because the service took {stalled:.0?} for an answer: {told}");
    }
    unreachable!("the last attempt returns")
}

/// Bursts of one key, one after the other.
struct Story(Vec<Burst>);

impl Story {
    fn count(&self, status: u16) -> usize {
        self.0.iter().map(|burst| burst.count(status)).sum()
    }

    fn unanswered(&self) -> usize {
        self.0.iter().map(|burst| burst.unanswered).sum()
    }

    fn contradictions(&self) -> usize {
        self.0.iter().map(Burst::contradictions).sum()
    }

    fn slowest(&self) -> Duration {
        self.0.iter().map(Burst::slowest).max().unwrap_or_default()
    }
}

impl Display for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} admitted:", self.count(200))?;
        self.0.iter().try_for_each(|burst| write!(f, " [{burst}]"))
    }
}

fn check_free(rounds: usize) {
    let mut problems = Vec::new();
    for _ in 0..rounds {
        let fleet = fleet(1, "60/minute", &Value::Null).start().unwrap();
        let clients = Clients::to(&fleet.gateways, 4).unwrap();
        for (place, round_trip) in ROUND_TRIPS.into_iter().enumerate() {
            fleet.service.set_round_trip(round_trip);
            let seen = undisturbed(&fleet, place, |key| {
                clock::wait_for_room(MINUTE, STORY);
                Story((0..2).map(|_| clients.send(key, 40).unwrap()).collect())
            });
            soak::row("fleet: 40 at once of 60/minute, twice", format_args!("{round_trip:?}"), &seen);
            let counts: Vec<_> = seen.0.iter().map(|burst| (burst.count(200), burst.count(429))).collect();
            if counts != [(40, 0), (20, 20)]
                || seen.contradictions() > 0
                || seen.slowest() > LONGEST_WAIT + SLACK
            {
                problems.push(format!("{round_trip:?}: {seen}"));
            }
        }
    }
    assert_eq!(problems, [""; 0]);
}

#[test]
fn of_sixty_a_minute_forty_at_once_are_admitted_and_twenty_of_the_next_forty() {
    check_free(1);
}

/// What the service has counted of the key that it was asked for last.
fn counted(fleet: &Fleet) -> u64 {
    let last = fleet.service.requests().pop().unwrap();
    let name = cache_key(&last.domain, &last.descriptors[0], Unit::Minute, clock::now().as_secs());
    fleet.redis.ask(&["GET", &name]).unwrap_or(0)
}

fn check_bursts_until_nothing_passes(gateways: usize, limit: usize, rounds: usize) {
    let mut problems = Vec::new();
    for _ in 0..rounds {
        let fleet = fleet(gateways, &format!("{limit}/minute"), &Value::Null).start().unwrap();
        let clients = Clients::to(&fleet.gateways, 4).unwrap();
        for (place, round_trip) in ROUND_TRIPS.into_iter().enumerate() {
            fleet.service.set_round_trip(round_trip);
            let mut counted_at_first_refusal = None;
            let seen = undisturbed(&fleet, place, |key| {
                clock::wait_for_room(MINUTE, STORY);
                counted_at_first_refusal = None;
                let mut bursts: Vec<Burst> = Vec::new();
                while bursts.last().is_none_or(|last| last.count(200) > 0) {
                    let burst = clients.send(key, 40).unwrap();
                    if burst.count(429) > 0 {
                        counted_at_first_refusal.get_or_insert_with(|| counted(&fleet));
                    }
                    bursts.push(burst);
                }
                Story(bursts)
            });
            soak::row(
                "fleet: bursts of 40 until nothing passes",
                format_args!("{gateways} gateways, {limit}/minute, {round_trip:?}"),
                format_args!(
                    "{} admitted in {} bursts, slowest {:.0?}",
                    seen.count(200),
                    seen.0.len(),
                    seen.slowest()
                ),
            );
            let counted = counted_at_first_refusal.unwrap_or(0);
            if !(limit * 95 / 100..=limit).contains(&seen.count(200))
                || counted < limit as u64
                || seen.unanswered() + seen.contradictions() > 0
                || seen.slowest() > LONGEST_WAIT + SLACK
            {
                problems.push(format!("{round_trip:?}, {counted} counted at the first 429: {seen}"));
            }
        }
    }
    assert_eq!(problems, [""; 0]);
}

#[test]
fn two_gateways_admit_57_to_60_of_sixty_in_bursts_of_forty() {
    check_bursts_until_nothing_passes(2, 60, 1);
}

#[test]
fn two_gateways_admit_most_and_never_more_than_six_hundred_in_bursts_of_forty() {
    check_bursts_until_nothing_passes(2, 600, 1);
}

#[test]
fn one_gateway_admits_most_and_never_more_than_six_hundred_in_bursts_of_forty() {
    check_bursts_until_nothing_passes(1, 600, 1);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn bursts_at_any_distance_are_exact_time_and_again() {
    check_free(5);
    for (gateways, limit) in [(1, 60), (2, 60), (4, 60), (1, 600), (2, 600)] {
        check_bursts_until_nothing_passes(gateways, limit, 5);
    }
}

#[test]
fn calls_that_the_circuit_breaker_refuses_are_made_later() {
    let setup = fleet(1, "60/hour", &json!({"on_unavailable": "deny"})).calls_in_flight(8);
    let fleet = setup.start().unwrap();
    let clients = Clients::to(&fleet.gateways, 4).unwrap();
    let round_trip = Duration::from_millis(10);
    fleet.service.set_round_trip(round_trip);
    let seen = undisturbed(&fleet, 0, |key| {
        clock::wait_for_room(60 * MINUTE, STORY);
        Story((0..2).map(|_| clients.send(key, 40).unwrap()).collect())
    });
    let counts: Vec<_> = seen.0.iter().map(|burst| (burst.count(200), burst.count(429))).collect();
    let calls = fleet.service.calls();
    assert_eq!(counts[0], (40, 0), "{seen}, {calls} calls");
    // The call that asks for more than is left loses that, and each asks for at most three.
    assert!((18..=20).contains(&counts[1].0) && counts[1].0 + counts[1].1 == 40, "{seen}, {calls} calls");
}

#[test]
fn of_eight_a_second_eight_at_once_are_admitted() {
    let fleet = fleet(1, "8/second", &Value::Null).start().unwrap();
    let clients = Clients::to(&fleet.gateways, 4).unwrap();
    for (place, round_trip) in ROUND_TRIPS.into_iter().enumerate() {
        fleet.service.set_round_trip(round_trip);
        let second = Duration::from_secs(1);
        let mut ended_in_its_second = false;
        let seen = undisturbed(&fleet, place, |key| {
            clock::wait_for_room(second, Duration::from_millis(700));
            let started = clock::now().as_secs();
            let story = Story((0..2).map(|_| clients.send(key, 8).unwrap()).collect());
            ended_in_its_second = clock::now().as_secs() == started;
            story
        });
        let [first, next] = seen.0.as_slice() else { panic!("two bursts") };
        assert_eq!(first.count(200), 8, "{round_trip:?}: {seen}");
        if ended_in_its_second {
            assert_eq!((next.count(429), next.contradictions()), (8, 0), "{round_trip:?}: {seen}");
        }
    }
}

fn check_thousand_a_second(lasting: Duration) {
    let fleet = fleet(1, "1000/second", &Value::Null).workers(2).start().unwrap();
    fleet.service.set_round_trip(Duration::from_millis(5));
    let second = Duration::from_secs(1);
    let load = Load { connections: 128, window: second, ..Load::new(1, Pace::PerSecond(900), lasting) };
    let seen = load.offer(&fleet).unwrap();
    soak::row("fleet: 900 of 1000/second", format_args!("5 ms, {lasting:?}"), &seen);
    // The second after a stall of this machine may have been offered more than its quota.
    let possible =
        seen.answers.values().map(|answers| (answers.admitted + answers.refused + answers.other).min(1000));
    let possible: u64 = possible.sum();
    assert!(seen.total().admitted * 100 >= possible * 99, "of {possible}: {seen}");
    assert!(seen.admitted().all(|admitted| admitted <= 1000), "{seen}");
    // Calls that wait for one another would slow the load down instead.
    assert!(seen.latency(200, 0.5).unwrap() < Duration::from_millis(100), "{seen}");
}

#[test]
fn of_a_thousand_a_second_nine_hundred_are_admitted() {
    check_thousand_a_second(Duration::from_secs(5));
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn of_a_thousand_a_second_nine_hundred_are_admitted_for_a_minute() {
    check_thousand_a_second(MINUTE);
}

/// A quota, what is configured, how far the service is away, and how many of 2,000 requests may be admitted.
type Crowd = (&'static str, Value, Duration, std::ops::RangeInclusive<usize>);

fn check_many_at_once(workers: usize, rounds: usize) {
    const MANY: usize = 2000;
    let never = Duration::from_secs(20);
    let rows: [Crowd; 4] = [
        // Beyond the paused streams that a worker may have, `local` admits another tenth.
        ("60/hour", json!({}), Duration::from_millis(40), 57..=66),
        ("60000/hour", json!({}), Duration::from_millis(40), MANY..=MANY),
        ("60/hour", json!({}), never, 6..=6),
        ("60/hour", json!({"on_unavailable": "deny"}), never, 0..=0),
    ];
    let mut problems = Vec::new();
    for (quota, more, round_trip, admitted) in rows {
        let fleet = fleet(1, quota, &more).workers(workers).start().unwrap();
        fleet.service.set_round_trip(round_trip);
        let clients = Clients::to(&fleet.gateways, 4).unwrap();
        for round in 0..rounds {
            clock::wait_for_room(60 * MINUTE, STORY);
            let case = format!("{quota} {more}, {round_trip:?}, {workers} workers");
            let seen = match clients.send(&key(round), MANY) {
                Ok(seen) => seen,
                Err(error) => {
                    problems.push(format!("{case}: {error:#}; {:?}", vm_failures(&fleet.gateways[0])));
                    break;
                }
            };
            soak::row("fleet: 2,000 requests at once", &case, &seen);
            // Of another key, so that the next round finds its own unused.
            let next = clients.send(&key(rounds + round), 1).unwrap();
            let failures = vm_failures(&fleet.gateways[0]);
            if seen.unanswered + seen.contradictions() > 0
                || !admitted.contains(&seen.count(200))
                || seen.slowest() > LONGEST_WAIT + SLACK_OF_MANY
                || next.answers.len() != 1
                || !failures.is_empty()
            {
                problems.push(format!("{case}: {seen}; then {next}; {failures:?}"));
            }
        }
    }
    assert_eq!(problems, [""; 0]);
}

#[test]
fn two_thousand_requests_at_once_are_all_answered_by_one_worker() {
    check_many_at_once(1, 1);
}

#[test]
fn two_thousand_requests_at_once_are_all_answered_by_two_workers() {
    check_many_at_once(2, 1);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn two_thousand_requests_at_once_are_all_answered_time_and_again() {
    for workers in [1, 2] {
        check_many_at_once(workers, 10);
    }
}
