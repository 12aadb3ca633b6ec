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
/// Of the second.
const OF_A_SECOND: usize = 100;

/// Customers of one kind.
#[derive(Clone, Copy)]
struct Kind {
    plan: &'static str,
    number: usize,
    traffic: Traffic,
    /// The first 429 may come in the median after this part of the limit, in percent, and never before the second.
    first_429: Option<[usize; 2]>,
}

fn kinds() -> [Kind; 4] {
    let of_the_hour = |number, burst, first_429| Kind {
        plan: "hour",
        number,
        traffic: Traffic { burst, per_second: 20.0, most: Duration::from_secs(60), enough: LIMIT },
        first_429: Some(first_429),
    };
    let of_the_second = |burst| Kind {
        plan: "second",
        number: 2,
        traffic: Traffic { burst, per_second: 200.0, most: Duration::from_secs(12), enough: usize::MAX },
        first_429: None,
    };
    [of_the_hour(15, 5, [95, 90]), of_the_hour(7, 40, [85, 75]), of_the_second(5), of_the_second(40)]
}

fn key(kind: usize, number: usize) -> String {
    format!("key-{kind}-{number}")
}

fn policy(kinds: &[Kind]) -> Policy {
    let policy = Policy::contract().unwrap().with(
        "plans",
        json!({"hour": {"standard": [format!("{LIMIT}/hour")]}, "second": {"standard": [format!("{OF_A_SECOND}/second")]}}),
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

/// All kinds of customers at once in front of this many gateways.
fn check(gateways: usize, store: Store, round_trip: Duration) {
    let kinds = kinds();
    let shape = Shape { gateways, store, round_trip, ..Shape::default() };
    let fleet = Fleet::start(&policy(&kinds), shape);
    clock::wait_for_room(HOUR, Duration::from_secs(90));
    let traffic: Vec<_> = kinds
        .iter()
        .enumerate()
        .flat_map(|(kind, of)| (0..of.number).map(move |number| (key(kind, number), of.traffic)))
        .collect();
    let mut seen = send(&fleet.addresses(), &traffic).into_iter();
    for kind in kinds {
        let seen: Vec<Seen> = seen.by_ref().take(kind.number).collect();
        let form = format!("{gateways} gateways, {round_trip:?}, bursts of {}", kind.traffic.burst);
        for seen in &seen {
            // A machine that is too busy to answer in time.
            let unavailable = seen.others.get(&503).copied().unwrap_or(0);
            assert!(unavailable * 100 <= LIMIT && seen.others.len() <= 1, "{form}: {:?}", seen.others);
        }
        match kind.first_429 {
            Some([in_the_median, never_before]) => {
                let first = seen.iter().map(|seen| 100 * seen.before_a_429.unwrap_or(0) / LIMIT);
                let (earliest, middle) = (first.clone().min().unwrap(), median(first));
                println!("{form}: first 429 after {middle} % in the median, {earliest} % at the earliest");
                let passed: Vec<_> = seen.iter().map(Seen::passed).collect();
                assert!(passed.iter().all(|passed| *passed == LIMIT), "{form}: {passed:?}");
                assert!(middle >= in_the_median && earliest >= never_before, "{form}: {middle}, {earliest}");
            }
            None => {
                // The first and the last are not whole.
                let windows: Vec<usize> = seen.iter().flat_map(whole).collect();
                let (most, sum) = (windows.iter().max().unwrap(), windows.iter().sum::<usize>());
                println!(
                    "{form}: in {} seconds at most {most}, in the mean {}",
                    windows.len(),
                    sum / windows.len()
                );
                assert!(*most <= OF_A_SECOND, "{form}: {windows:?}");
                assert!(sum / windows.len() >= OF_A_SECOND * 9 / 10, "{form}: {windows:?}");
            }
        }
    }
}

/// Admitted requests of the windows that were whole.
fn whole(seen: &Seen) -> Vec<usize> {
    let windows: Vec<usize> = seen.by_window().into_values().collect();
    windows[1..windows.len() - 1].to_vec()
}

#[test]
fn two_gateways_use_up_a_quota_in_bursts() {
    check(2, Store::redis(), Duration::from_millis(40));
}

#[test]
fn four_gateways_use_up_a_quota_in_bursts() {
    check(4, Store::redis(), Duration::from_millis(10));
}

#[test]
fn eight_gateways_use_up_a_quota_in_bursts() {
    check(8, Store::redis(), Duration::from_millis(40));
}
