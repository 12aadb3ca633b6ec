//! What the gateways of a fleet report of a quota that they share.

use std::collections::BTreeMap;

use serde_json::json;
use tests::collector::{Collector, Used, reporting};
use tests::exchange::get;
use tests::policy::Policy;
use tests::{clock, flood};

use crate::fleet::{Fleet, Shape};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
const SUBSCRIBERS: usize = 20;
const LIMIT: usize = 100;

fn policy() -> Policy {
    let policy = (0..SUBSCRIBERS).fold(Policy::contract().unwrap(), |policy, number| {
        policy.subscriber(&format!("subscriber-{number}"), "pro", &format!("key-{number}"))
    });
    let policy = policy.with_at("/plans/pro/standard", json!([format!("{LIMIT}/month")]));
    reporting(policy.with("fleet", json!({"cluster": "ledger"})))
}

fn start(collector: &Collector) -> Fleet {
    Fleet::start(&policy(), Shape { usage: Some(collector.way.address()), ..Shape::default() })
}

/// Sends this many requests of each subscriber to a gateway.
fn send(fleet: &Fleet, gateway: usize, each: usize) {
    let requests = (0..each * SUBSCRIBERS)
        .map(|number| ((), get("/links").key(&format!("key-{}", number % SUBSCRIBERS))));
    flood::send(fleet.gateways[gateway].address(), 8, requests).unwrap();
}

/// How many events told each share of each subscriber.
fn thresholds(collector: &Collector) -> BTreeMap<(String, u64), usize> {
    let mut told = BTreeMap::new();
    for event in collector.events("weir.threshold") {
        let of = (event["subject"].as_str().unwrap().to_owned(), event["data"]["share"].as_u64().unwrap());
        *told.entry(of).or_insert(0) += 1;
    }
    told
}

fn assert_told(collector: &Collector, shares: &[u64]) {
    let subscribers = (0..SUBSCRIBERS).map(|number| format!("subscriber-{number}"));
    let all = subscribers.flat_map(|subscriber| shares.iter().map(move |share| (subscriber.clone(), *share)));
    let expected: BTreeMap<_, _> = all.map(|of| (of, 1)).collect();
    let agrees = || (thresholds(collector) == expected).then_some(());
    clock::eventually("the thresholds", PATIENCE, agrees)
        .unwrap_or_else(|error| panic!("{error:#}: {:?}", thresholds(collector)));
}

#[test]
fn two_gateways_report_together_what_they_admit_and_tell_each_threshold_once() {
    let collector = Collector::start();
    let fleet = start(&collector);
    std::thread::scope(|scope| {
        for gateway in 0..2 {
            let fleet = &fleet;
            scope.spawn(move || send(fleet, gateway, LIMIT * 3 / 4));
        }
    });
    assert_told(&collector, &[80, 100]);
    let expected: BTreeMap<_, _> = (0..SUBSCRIBERS)
        .map(|number| {
            let used = Used { requests: LIMIT as u64, units: LIMIT as u64, refused: LIMIT as u64 / 2 };
            ((format!("subscriber-{number}"), "standard".to_owned()), used)
        })
        .collect();
    clock::eventually("the usage", PATIENCE, || (collector.usage() == expected).then_some(()))
        .unwrap_or_else(|error| panic!("{error:#}: {:?}", collector.usage()));
}

/// A caller is looked at for ten seconds after its last request: on a busy machine the ledger may show nothing until then.
mod alone {
    use super::*;

    /// Neither gateway sees it at its last request: it knows what the other held then, or nothing at all of it.
    #[test]
    fn a_threshold_that_only_the_ledgers_answers_show_is_told() {
        let collector = Collector::start();
        let fleet = start(&collector);
        for gateway in 0..2 {
            send(&fleet, gateway, LIMIT * 45 / 100);
        }
        assert_told(&collector, &[80]);
    }
}
