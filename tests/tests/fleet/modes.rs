//! Configurations that are replaced while a fleet runs: a count goes on, and what is held is free for the others, whatever the mode.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tests::client::Client;
use tests::clock;
use tests::envoy::Updates;
use tests::exchange::{Request, get};
use tests::flood;
use tests::policy::Policy;

use crate::clients::until_used_up;
use crate::fleet::{Fleet, PATIENCE, Shape};

const TERM: Duration = Duration::from_secs(1);
/// How long a window that began before the ledger lost everything grants nothing.
const SETTLING: Duration = Duration::from_secs(2);
/// What a busy machine takes beyond the promised times.
const SLACK: Duration = Duration::from_millis(500);
/// Of the hour: a busy gateway holds some of it in advance.
const LIMIT: usize = 1_000;
const OF_A_MONTH: usize = 900;

/// Plans and keys of the same names.
fn policy() -> Policy {
    let plans = json!({
        "hour": {"standard": [format!("{LIMIT}/hour")]},
        "month": {"standard": [format!("{OF_A_MONTH}/month")]},
    });
    let policy = Policy::contract().unwrap().with("plans", plans);
    policy.subscriber("hour", "hour", "hour").subscriber("month", "month", "month")
}

fn in_shadow() -> Policy {
    policy().with("enforcement", json!("shadow"))
}

/// The same for the keys that it has.
fn with_another_plan() -> Policy {
    policy().with_at("/plans/another", json!({"standard": ["1/hour"]}))
}

fn start(gateways: usize, updates: Updates) -> Fleet {
    Fleet::start(&policy(), Shape { gateways, updates, ..Shape::default() })
}

/// Has this number of requests of a key pass at the first gateway. On a busy machine, the ledger is too late for some others.
fn use_some(fleet: &Fleet, key: &'static str, requests: usize) {
    let mut left = requests;
    clock::eventually("use", PATIENCE, || {
        let sent = (0..left).map(move |_| ((), get("/links").key(key)));
        let counts = flood::send(fleet.gateways[0].address(), 8, sent).unwrap();
        left -= counts.get(&((), 200)).copied().unwrap_or(0);
        (left == 0).then_some(())
    })
    .unwrap_or_else(|error| panic!("{left} of {requests} with {key}: {error}"));
}

/// How many requests with a key pass at a gateway until its quota is used up.
fn rest(fleet: &Fleet, gateway: usize, key: &str) -> usize {
    until_used_up(&[fleet.gateways[gateway].address()], key)
}

/// The same, once what the other gateway held is expected to be free. On a busy machine it may come a little later.
fn given_back(fleet: &Fleet, key: &str, expected: usize) -> usize {
    clock::pass(2 * TERM + SLACK);
    let (mut passed, began) = (0, clock::now());
    while passed < expected && clock::now() - began < 2 * TERM {
        passed += rest(fleet, 1, key);
    }
    passed
}

/// Sends requests to the first gateway until one is answered in the mode, which the headers tell. Returns how many passed.
fn until_mode(fleet: &Fleet, key: &str, is_enforced: bool) -> usize {
    for sent in 1..200 {
        let answer = fleet.gateways[0].send(&get("/links").key(key)).unwrap();
        assert_eq!(answer.status(), 200, "{answer}");
        if answer.header("ratelimit").is_some() == is_enforced {
            return sent;
        }
    }
    panic!("the mode never came into force");
}

#[test]
fn a_gateway_that_is_idle_since_its_last_configuration_gives_back_what_it_held_and_states_what_it_used() {
    const USED: usize = 400;
    let mut fleet = start(2, Updates::Extension);
    use_some(&fleet, "hour", USED);
    fleet.update(0, &with_another_plan());
    let given_back = given_back(&fleet, "hour", LIMIT - USED);
    let address = fleet.kill_ledger(0);
    fleet.return_ledger(0, address);
    clock::pass(SETTLING + 2 * SLACK);
    let twice = rest(&fleet, 1, "hour");
    assert_eq!((given_back, twice), (LIMIT - USED, 0), "before the ledger lost everything, and afterwards");
}

#[test]
fn a_count_goes_on_through_shadow_mode_in_which_its_gateway_gives_back_what_it_held() {
    const USED: usize = 400;
    let mut fleet = start(2, Updates::Extension);
    let mut used = 600;
    use_some(&fleet, "month", used);
    use_some(&fleet, "hour", USED);
    fleet.update(0, &in_shadow());
    used += until_mode(&fleet, "month", false);
    use_some(&fleet, "month", 20);
    used += 20;
    let given_back = given_back(&fleet, "hour", LIMIT - USED);
    // From here on, a request has time for few asks.
    fleet.ways[0].take(Duration::from_millis(60));
    fleet.update(0, &policy());
    // The count of the month goes on at once where it was, as the ledger knows it.
    let began = clock::now();
    use_some(&fleet, "month", 10);
    let took = clock::now() - began;
    used += 10;
    let left = rest(&fleet, 0, "month");
    let answer = fleet.gateways[1].send(&get("/links").key("month")).unwrap();
    println!("ten requests passed in {took:?}");
    let found = (given_back, used + left, answer.status(), took < 4 * TERM);
    assert_eq!(found, (LIMIT - USED, OF_A_MONTH, 429, true), "{answer}");
}

#[test]
fn requests_of_both_modes_are_counted_together_while_a_listener_drains() {
    const CONNECTIONS: usize = 8;
    const ROUNDS: usize = 48;
    let mut fleet = start(1, Updates::Listener);
    let address = fleet.gateways[0].address();
    use_some(&fleet, "month", 300);
    // A connection that is open has the old listener's mode until it closes, and a new one has the new listener's.
    let open: Vec<_> = (0..CONNECTIONS).map(|_| Client::to(address).unwrap()).collect();
    for client in &open {
        client.send(&Request::new(Method::OPTIONS, "/links")).unwrap();
    }
    // From here on, a request has time for few asks.
    fleet.ways[0].take(Duration::from_millis(60));
    fleet.update(0, &in_shadow());
    let (mut in_shadow, mut enforced) = (0, 0);
    for client in open.iter().cycle().take(ROUNDS) {
        for client in [client, &Client::to(address).unwrap()] {
            let answer = client.send(&get("/links").key("month")).unwrap();
            match (answer.status(), answer.header("ratelimit")) {
                (200, Some(_)) => enforced += 1,
                (200, None) => in_shadow += 1,
                // On a busy machine, the ledger is too late for some requests.
                (status, _) => assert_eq!(status, 503, "{answer}"),
            }
        }
    }
    fleet.update(0, &policy());
    let left = rest(&fleet, 0, "month");
    println!("{in_shadow} passed in shadow, {enforced} enforced, and {left} afterwards");
    assert!(in_shadow >= ROUNDS && enforced >= ROUNDS / 2, "{in_shadow}, {enforced}");
    assert_eq!(300 + in_shadow + enforced + left, OF_A_MONTH, "{in_shadow}, {enforced}, {left}");
}
