//! What a fleet costs: time.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use tests::clock;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::policy::Policy;

use crate::fleet::{Fleet, PATIENCE, Shape};

/// Far more than a request takes that waits for nobody, and less than one that waits for the ledger.
const FAR: Duration = Duration::from_millis(40);

fn median<T: Copy + PartialOrd>(mut values: Vec<T>) -> T {
    values.sort_unstable_by(|one, other| one.partial_cmp(other).expect("numbers"));
    values[values.len() / 2]
}

/// Keeps this thread, and what it starts from now on, on one processor. A gateway's thread would take twice its time otherwise, for as long as the
/// system lets it share a core with its client.
fn stay_on_one_processor() {
    let all = sched_getaffinity(None).unwrap();
    let first =
        (0..CpuSet::MAX_CPU).find(|processor| all.is_set(*processor)).expect("this thread runs on one");
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
}

/// In CPU time of the gateway, of which other programs on the machine take nothing.
#[test]
fn a_request_from_held_units_takes_little_longer_than_without_a_fleet() {
    const ROUNDS: usize = 40;
    const REQUESTS: u32 = 100;
    stay_on_one_processor();
    let policy = Policy::contract()
        .unwrap()
        .with("plans", json!({"plan": {"standard": ["1000000/hour"]}}))
        .subscriber("acme", "plan", "key");
    let fleet = Fleet::start(&policy, Shape { gateways: 1, round_trip: FAR, ..Shape::default() });
    let held = &fleet.gateways[0];
    let local = Envoy::start(Setup::new(policy, Upstream::DirectResponse).workers(held.workers())).unwrap();
    let request = get("/links").key("key");
    for gateway in [held, &local] {
        let is_admitted = || (gateway.send(&request).unwrap().status() == 200).then_some(());
        clock::eventually("a request is admitted", PATIENCE, is_admitted).unwrap();
    }
    let mut times = Vec::new();
    let mut round = |gateway: &Envoy| {
        let before = gateway.cpu_time().unwrap();
        for _ in 0..REQUESTS {
            let began = clock::now();
            // While the machine stands still, the ledger may be too late.
            let status = gateway.send(&request).unwrap().status();
            assert!([200, 503].contains(&status), "{status}");
            times.push((clock::now() - began, status));
        }
        (gateway.cpu_time().unwrap() - before) / REQUESTS
    };
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (round(held), round(&local))).collect();
    let ratio = median(rounds.iter().map(|(held, local)| held.as_secs_f64() / local.as_secs_f64()).collect());
    let [of_held, of_local] = [
        median(rounds.iter().map(|(held, _)| *held).collect()),
        median(rounds.iter().map(|(_, local)| *local).collect()),
    ];
    let (took, status) = median(times);
    println!(
        "a request costs {of_held:?} with held units, {of_local:?} without a fleet: {ratio:.2}; it takes {took:?}"
    );
    assert!(ratio <= 1.25, "{rounds:?}");
    assert!(status == 200 && took < FAR / 2, "{took:?}, {status}");
}
