//! A quota that gateways share, while the ledger is there, is away, and has lost everything.

use std::time::Duration;

use serde_json::json;
use tests::clock::{self, eventually};
use tests::exchange::get;
use tests::flood;
use tests::policy::Policy;

use crate::clients::until_used_up;
use crate::fleet::{Fleet, PATIENCE, Shape};

const KEY: &str = "key";
const LIMIT: usize = 600;
/// How long a window that began before the ledger lost everything grants nothing.
const SETTLING: Duration = Duration::from_secs(2);

/// `LIMIT` a month for the key. While the ledger is away, the default decides.
fn policy() -> Policy {
    let policy = Policy::contract().unwrap().subscriber("acme", "pro", KEY);
    policy
        .with_at("/plans/pro/standard", json!([format!("{LIMIT}/month")]))
        .with("fleet", json!({"cluster": "ledger"}))
}

fn start(gateways: usize, policy: &Policy) -> Fleet {
    Fleet::start(policy, Shape { gateways, ..Shape::default() })
}

/// How many of `requests` pass at one gateway, `at_once` at a time.
fn passed(fleet: &Fleet, gateway: usize, key: &str, requests: usize, at_once: usize) -> usize {
    let key = key.to_owned();
    let requests = (0..requests).map(move |_| ((), get("/links").key(&key)));
    let counts = flood::send(fleet.gateways[gateway].address(), at_once, requests).unwrap();
    let refused: usize =
        counts.iter().filter(|((_, status), _)| *status != 200).map(|(_, count)| count).sum();
    assert_eq!(counts.get(&((), 429)).copied().unwrap_or(0), refused, "{counts:?}");
    counts.get(&((), 200)).copied().unwrap_or(0)
}

/// How many pass at all gateways, each of which gets `requests` at the same time.
fn passed_everywhere(fleet: &Fleet, key: &str, requests: usize, at_once: usize) -> Vec<usize> {
    std::thread::scope(|scope| {
        let floods = (0..fleet.gateways.len())
            .map(|gateway| scope.spawn(move || passed(fleet, gateway, key, requests, at_once)));
        floods.collect::<Vec<_>>().into_iter().map(|flood| flood.join().unwrap()).collect()
    })
}

#[test]
fn gateways_use_up_a_quota_exactly_whatever_comes_at_once() {
    //  gateways, and requests at once to each, with a key each
    let rows: [(usize, &[usize]); 2] = [(2, &[1, 5, 40]), (4, &[5])];
    for (gateways, all_at_once) in rows {
        let keys = || all_at_once.iter().map(|at_once| format!("key-{at_once}"));
        let fleet =
            start(gateways, &keys().fold(policy(), |policy, key| policy.subscriber(&key, "pro", &key)));
        for (key, at_once) in keys().zip(all_at_once) {
            let passed = passed_everywhere(&fleet, &key, LIMIT, *at_once);
            let sum: usize = passed.iter().sum();
            assert_eq!(sum, LIMIT, "{gateways} gateways, {at_once} at once: {passed:?}");
            let answer = fleet.gateways[0].send(&get("/links").key(&key)).unwrap();
            assert_eq!((answer.status(), answer.number("x-ratelimit-remaining")), (429, Some(0)), "{answer}");
        }
    }
}

#[test]
fn what_one_gateway_has_used_the_other_tells_its_clients() {
    let fleet = start(2, &policy());
    assert_eq!(passed(&fleet, 0, KEY, 250, 5), 250);
    let answer = fleet.gateways[1].send(&get("/links").key(KEY)).unwrap();
    assert_eq!(answer.number("x-ratelimit-remaining"), Some(LIMIT as u64 - 251), "{answer}");
}

#[test]
fn a_ledger_that_lost_everything_is_told_again_what_was_used() {
    let mut fleet = start(2, &policy());
    assert_eq!(passed(&fleet, 0, KEY, 300, 8), 300);
    let address = fleet.kill_ledger(0);
    fleet.return_ledger(0, address);
    clock::pass(SETTLING + Duration::from_secs(1));
    assert_eq!(passed(&fleet, 1, KEY, LIMIT, 8), LIMIT - 300);
}

#[test]
fn while_the_ledger_is_away_each_gateway_admits_its_part_which_is_charged_afterwards() {
    const LOCAL: usize = LIMIT / 10;
    let mut fleet = start(2, &policy());
    assert_eq!(passed(&fleet, 0, KEY, 100, 4), 100);
    let address = fleet.kill_ledger(0);
    assert_eq!(passed_everywhere(&fleet, KEY, 200, 4), [LOCAL, LOCAL]);
    assert_eq!(passed_everywhere(&fleet, KEY, 50, 4), [0, 0], "for the whole window");
    fleet.return_ledger(0, address);
    clock::pass(SETTLING + Duration::from_secs(1));
    let passed = passed_everywhere(&fleet, KEY, LIMIT, 4);
    assert_eq!(passed.iter().sum::<usize>(), LIMIT - 100 - 2 * LOCAL, "{passed:?}");
}

#[test]
fn the_configuration_says_what_passes_while_there_is_no_ledger() {
    let fleet = |on_unavailable| {
        let policy = policy().with("fleet", json!({"cluster": "ledger", "on_unavailable": on_unavailable}));
        let mut fleet = start(1, &policy);
        fleet.kill_ledger(0);
        fleet
    };
    assert_eq!(passed(&fleet(json!("allow")), 0, KEY, 2 * LIMIT, 4), 2 * LIMIT);
    let denying = fleet(json!("deny"));
    let answer = denying.gateways[0].send(&get("/links").key(KEY)).unwrap();
    assert_eq!(answer.status(), 503, "{answer}");
    let logged = || denying.gateways[0].log().contains("weir: ledger: ").then_some(());
    eventually("the reason in the log", PATIENCE, logged).unwrap();
}

#[test]
fn a_plan_that_changes_keeps_what_was_used_everywhere() {
    let mut fleet = start(1, &policy());
    assert_eq!(passed(&fleet, 0, KEY, 400, 8), 400);
    // The other gateway has the new limit already.
    let raised = policy().with_at("/plans/pro/standard", json!(["1000/month"]));
    fleet.add_gateway(&raised, 0);
    assert_eq!(passed(&fleet, 1, KEY, 700, 1), 600);
    assert_eq!(passed(&fleet, 0, KEY, 10, 1), 0);
}

#[test]
fn a_gateway_that_is_stopped_while_it_serves_takes_what_it_holds_and_one_that_has_served_nobody_for_two_terms_nothing()
 {
    const MOST: usize = 4_000;
    const SERVED: usize = 1_000;
    //  how long the gateway serves nobody before it is stopped, and what it may take
    for (quiet, lost) in [(Duration::ZERO, 1..=MOST / 20), (Duration::from_secs(3), 0..=0)] {
        let policy = policy().with_at("/plans/pro/standard", json!([format!("{MOST}/month")]));
        let mut fleet = start(2, &policy);
        assert_eq!(passed(&fleet, 1, KEY, SERVED, 8), SERVED);
        clock::pass(quiet);
        fleet.terminate_gateway();
        let taken = MOST - SERVED - until_used_up(&fleet.addresses(), KEY);
        println!("stopped {quiet:?} after its last request: {taken} of {MOST} are lost");
        assert!(lost.contains(&taken), "{quiet:?}: {taken}");
    }
}
