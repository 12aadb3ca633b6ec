//! Bursts: never more than the limit, all of it while the traffic goes on, and the first 429 near the end.

use std::time::Duration;

use serde_json::json;
use tests::clock;
use tests::policy::Policy;

use crate::clients::{Seen, Traffic, send};
use crate::fleet::{Fleet, Shape, Store};

const HOUR: Duration = Duration::from_secs(3600);
/// Of the hour.
const LIMIT: usize = 600;
const SMALL: usize = 60;
/// Of the second.
const OF_A_SECOND: usize = 100;

/// Customers of one kind.
#[derive(Clone, Copy)]
struct Kind {
    plan: &'static str,
    limit: usize,
    number: usize,
    traffic: Traffic,
    /// The first 429 may come in the median after this part of the limit, in percent, and never before the second.
    first_429: Option<[usize; 2]>,
}

fn kinds() -> [Kind; 5] {
    let of_the_hour = |plan, limit, number, burst, first_429| Kind {
        plan,
        limit,
        number,
        traffic: Traffic { burst, per_second: 20.0, most: Duration::from_secs(90), enough: limit },
        first_429: Some(first_429),
    };
    let of_the_second = |burst| Kind {
        plan: "second",
        limit: OF_A_SECOND,
        number: 2,
        traffic: Traffic { burst, per_second: 200.0, most: Duration::from_secs(12), enough: usize::MAX },
        first_429: None,
    };
    [
        of_the_hour("hour", LIMIT, 15, 5, [95, 90]),
        of_the_hour("hour", LIMIT, 7, 40, [85, 75]),
        of_the_hour("small", SMALL, 7, 5, [0, 0]),
        of_the_second(5),
        of_the_second(40),
    ]
}

fn key(kind: usize, number: usize) -> String {
    format!("key-{kind}-{number}")
}

fn policy(kinds: &[Kind]) -> Policy {
    let policy = Policy::contract().unwrap().with(
        "plans",
        json!({
            "hour": {"standard": [format!("{LIMIT}/hour")]},
            "small": {"standard": [format!("{SMALL}/hour")]},
            "second": {"standard": [format!("{OF_A_SECOND}/second")]},
        }),
    );
    let customers = kinds
        .iter()
        .enumerate()
        .flat_map(|(kind, of)| (0..of.number).map(move |number| (key(kind, number), of.plan)));
    customers.fold(policy, |policy, (key, plan)| policy.subscriber(&key, plan, &key))
}

fn median(values: impl Iterator<Item = usize>) -> usize {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// Half as many customers of each kind: `make test` runs on machines that all of them keep busy for seconds, and then the ledger is late.
fn fewer(kinds: [Kind; 5]) -> [Kind; 5] {
    kinds.map(|kind| Kind { number: kind.number.div_ceil(2), ..kind })
}

/// These kinds of customers at once in front of these gateways. Returns what was seen.
fn check(kinds: [Kind; 5], gateways: usize, store: Store, round_trip: Duration) -> Vec<(String, String)> {
    let form = format!("{gateways} gateways, {round_trip:?}");
    let mut results = Vec::new();
    let shape = Shape { gateways, store, round_trip, ..Shape::default() };
    let fleet = Fleet::start(&policy(&kinds), shape);
    clock::wait_for_room(HOUR, Duration::from_secs(120));
    let traffic: Vec<_> = kinds
        .iter()
        .enumerate()
        .flat_map(|(kind, of)| (0..of.number).map(move |number| (key(kind, number), of.traffic)))
        .collect();
    let mut seen = send(&fleet.addresses(), &traffic).into_iter();
    for kind in kinds {
        let seen: Vec<Seen> = seen.by_ref().take(kind.number).collect();
        let limit = kind.limit;
        let form = format!("{form}, {limit} ({}), bursts of {}", kind.plan, kind.traffic.burst);
        for seen in &seen {
            // On a busy machine the ledger is too late for some requests, which are neither admitted nor told that the quota is used up.
            let unavailable = seen.others.get(&503).copied().unwrap_or(0);
            assert!(
                unavailable * 5 <= seen.times.len() && seen.others.len() <= 1,
                "{form}: {:?}",
                seen.others
            );
        }
        match kind.first_429 {
            Some([in_the_median, never_before]) => {
                let first = seen.iter().map(|seen| 100 * seen.before_a_429.unwrap_or(0) / limit);
                let (earliest, middle) = (first.clone().min().unwrap(), median(first));
                results.push((
                    form.clone(),
                    format!("first 429 after {middle} % in the median, {earliest} % at the earliest"),
                ));
                let passed: Vec<_> = seen.iter().map(Seen::passed).collect();
                assert!(passed.iter().all(|passed| *passed == limit), "{form}: {passed:?}");
                assert!(middle >= in_the_median && earliest >= never_before, "{form}: {middle}, {earliest}");
            }
            None => {
                let windows: Vec<_> = seen.iter().flat_map(whole).collect();
                let most = windows.iter().map(|(passed, _)| *passed).max().unwrap();
                assert!(most <= limit, "{form}: {windows:?}");
                // On a busy machine, not as much may come in each second.
                let used_up: Vec<_> =
                    windows.iter().filter(|(_, is_used_up)| *is_used_up).map(|(passed, _)| *passed).collect();
                let mean = used_up.iter().sum::<usize>() / used_up.len();
                let result = format!("in {} seconds at most {most}, in the mean {mean}", used_up.len());
                results.push((form.clone(), result));
                assert!(mean >= limit * 9 / 10, "{form}: {windows:?}");
            }
        }
    }
    for (form, result) in &results {
        println!("{form}: {result}");
    }
    results
}

/// Admitted requests of the windows that were whole, and whether more came than that.
fn whole(seen: &Seen) -> Vec<(usize, bool)> {
    let windows: Vec<_> =
        seen.by_window().into_iter().map(|(ends, passed)| (passed, seen.refused.contains(&ends))).collect();
    windows[1..windows.len() - 1].to_vec()
}

const NEAR: Duration = Duration::from_millis(10);
const FAR: Duration = Duration::from_millis(40);

#[test]
fn eight_gateways_use_up_a_quota_in_bursts() {
    check(fewer(kinds()), 8, Store::redis(), FAR);
}

/// Any number of gateways that share a store at a distance.
fn check_all(name: &str, store: fn() -> Store, round_trip: Duration) {
    for gateways in [2, 4, 8] {
        for (form, result) in check(kinds(), gateways, store(), round_trip) {
            tests::soak::row("bursts in a fleet", format!("Redis {name}, {form}"), result);
        }
    }
}

#[test]
#[ignore = "long: every number of gateways"]
fn quotas_are_used_up_in_bursts_with_a_redis_beside_the_gateways() {
    check_all("alone", Store::redis, Duration::ZERO);
}

#[test]
#[ignore = "long: every number of gateways"]
fn quotas_are_used_up_in_bursts_with_a_redis_near_by() {
    check_all("alone", Store::redis, NEAR);
}

#[test]
#[ignore = "long: every number of gateways"]
fn quotas_are_used_up_in_bursts_with_a_redis_far_away() {
    check_all("alone", Store::redis, FAR);
}

#[test]
#[ignore = "long: every number of gateways"]
fn quotas_are_used_up_in_bursts_with_a_cluster_beside_the_gateways() {
    check_all("cluster", Store::cluster, Duration::ZERO);
}

#[test]
#[ignore = "long: every number of gateways"]
fn quotas_are_used_up_in_bursts_with_a_cluster_near_by() {
    check_all("cluster", Store::cluster, NEAR);
}

#[test]
#[ignore = "long: every number of gateways"]
fn quotas_are_used_up_in_bursts_with_a_cluster_far_away() {
    check_all("cluster", Store::cluster, FAR);
}

#[test]
#[ignore = "long: 100,000 requests of a month"]
fn a_large_quota_of_a_month_is_used_up_exactly() {
    const OF_A_MONTH: usize = 100_000;
    for gateways in [2, 4, 8] {
        let plans = json!({"month": {"standard": [format!("{OF_A_MONTH}/month")]}});
        let policy = Policy::contract().unwrap().with("plans", plans).subscriber("acme", "month", "key");
        let fleet = Fleet::start(&policy, Shape { gateways, store: Store::redis(), ..Shape::default() });
        // All of it comes in bursts of 40, as fast as it goes, from 8 clients with one key.
        let most = Duration::from_secs(60);
        let traffic = Traffic { burst: 40, per_second: f64::INFINITY, most, enough: usize::MAX };
        let seen = send(&fleet.addresses(), &vec![("key".to_owned(), traffic); 8]);
        let passed: usize = seen.iter().map(Seen::passed).sum();
        assert_eq!(passed, OF_A_MONTH, "{gateways} gateways");
        let form = format!("{gateways} gateways, {OF_A_MONTH} a month");
        tests::soak::row("bursts in a fleet", form, format!("{passed} admitted"));
    }
}
