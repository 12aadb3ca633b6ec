//! A fleet of one whose ledger keeps its store in a file: what was used of a month outlives both processes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tests::client::Client;
use tests::exchange::get;
use tests::policy::Policy;
use tests::{clock, soak};

use crate::clients::until_used_up;
use crate::fleet::{Fleet, Shape, Store};

/// So few that a gateway holds nothing in advance, which it would take with it.
const LIMIT: usize = 900;
const AT_ONCE: usize = 4;
/// What is killed while a key is in use, one after the other.
const KILLS: [Victims; 5] =
    [Victims::Gateway, Victims::Both, Victims::Ledger, Victims::Both, Victims::Gateway];

/// How many requests of a key were answered that they pass, by clients that go on until their gateway has gone, or until they are told.
fn acknowledged(gateway: SocketAddr, key: &str, goes_on: &AtomicBool) -> usize {
    let client = Client::to(gateway).unwrap();
    let mut passed = 0;
    while goes_on.load(Ordering::SeqCst)
        && let Ok(answer) = client.send(&get("/links").key(key))
    {
        match answer.status() {
            200 => passed += 1,
            // The ledger is away, or the quota is used up.
            429 | 503 => clock::pass(Duration::from_millis(5)),
            _ => panic!("{answer}"),
        }
    }
    passed
}

/// What is killed.
#[derive(Clone, Copy)]
enum Victims {
    Gateway,
    Ledger,
    Both,
}

/// Kills them at some instant while requests of a key are answered, and starts them again. Returns how many of the requests passed.
fn kill(victims: Victims, fleet: &mut Fleet, policy: &Policy, key: &str) -> usize {
    let (gateway, goes_on) = (fleet.gateways[0].address(), AtomicBool::new(true));
    let after = Duration::from_millis(rand::random_range(0..400));
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..AT_ONCE).map(|_| scope.spawn(|| acknowledged(gateway, key, &goes_on))).collect();
        clock::pass(after);
        let has_no_gateway = !matches!(victims, Victims::Ledger);
        if has_no_gateway {
            drop(fleet.gateways.pop());
        }
        if !matches!(victims, Victims::Gateway) {
            let address = fleet.kill_ledger(0);
            fleet.return_ledger(0, address);
        }
        if has_no_gateway {
            fleet.add_gateway(policy, 0);
        }
        goes_on.store(false, Ordering::SeqCst);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

fn is_killed(kills: usize) {
    let keys: Vec<_> = (0..kills.div_ceil(KILLS.len())).map(|number| format!("key-{number}")).collect();
    let policy =
        Policy::contract().unwrap().with("plans", json!({"month": {"standard": [format!("{LIMIT}/month")]}}));
    let policy = keys.iter().fold(policy, |policy, key| policy.subscriber(key, "month", key));
    let mut fleet = Fleet::start(&policy, Shape { gateways: 1, store: Store::file(), ..Shape::default() });
    let (mut served, mut lost) = (0, 0);
    for key in &keys {
        let before: usize = KILLS.iter().map(|victims| kill(*victims, &mut fleet, &policy, key)).sum();
        let rest = until_used_up(&fleet.addresses(), key);
        let most_lost = KILLS.len() * AT_ONCE;
        println!("{key}: {before} passed during kills, then {rest} of {LIMIT}");
        // A request whose gateway dies may have been charged, and nobody has its answer.
        assert!(
            (LIMIT - most_lost..=LIMIT).contains(&(before + rest)),
            "{key}: {before} and then {rest} of {LIMIT}"
        );
        served += before;
        lost += LIMIT - before - rest;
    }
    assert!(served > kills, "{served} passed during kills");
    soak::row(
        "Months that outlive a restart",
        format!("gateway, ledger or both killed {kills} times under load, {} months of {LIMIT}", keys.len()),
        format!("{served} acknowledged meanwhile, none too many; {lost} charged without an answer"),
    );
}

#[test]
fn a_month_is_exact_whenever_its_gateway_or_ledger_is_killed() {
    is_killed(KILLS.len());
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn a_month_is_exact_although_its_gateway_or_ledger_is_killed_200_times() {
    is_killed(200);
}
