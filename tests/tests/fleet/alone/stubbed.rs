//! How long gateways wait for a ledger that answers what a test says, and how soon they tell it everything.

use std::time::Duration;

use serde_json::json;
use tests::client::Client;
use tests::clock;
use tests::exchange::get;
use tests::policy::Policy;

use crate::clients::send_at;
use crate::fleet::PATIENCE;
use crate::stub::{Stub, granted};
use crate::stubbed::policy;

#[test]
fn no_request_waits_longer_than_the_timeout_for_a_ledger_that_is_slow_or_dies() {
    const TAKEN: usize = 600;
    const AT_ONCE: usize = 40;
    /// The longest, so that a busy machine adds little to it.
    const TIMEOUT: Duration = Duration::from_millis(500);
    const SLACK: Duration = Duration::from_millis(150);
    let stub = Stub::start(|statement| match statement["limit"] == TAKEN {
        // Others have taken what was free a moment ago.
        true => json!({"share": statement["used"], "others": 0, "reset": 0}),
        false => granted(statement),
    });
    let gateway = stub.gateway(&policy(&[("taken", TAKEN), ("granted", 700)], TIMEOUT), 1);
    let longest = |begins: Duration| {
        let seen = send_at(&[gateway.address()], "taken", AT_ONCE, &[begins]);
        assert_eq!(seen.others.get(&503), Some(&AT_ONCE), "{:?}", seen.others);
        seen.times.into_iter().max().unwrap()
    };
    let mut all = Vec::new();
    for round_trip in [160, 230].map(Duration::from_millis) {
        stub.way.take(round_trip);
        all.push((format!("{round_trip:?} away"), longest(clock::now())));
    }
    for dies_after in [220, 236].map(Duration::from_millis) {
        stub.way.take(Duration::ZERO);
        let is_granted =
            || (gateway.send(&get("/links").key("granted")).unwrap().status() == 200).then_some(());
        clock::eventually("the ledger answers", PATIENCE, is_granted).unwrap();
        // From now on nothing arrives, and at one moment all connections break.
        stub.way.take(Duration::from_secs(3600));
        let begins = clock::now() + Duration::from_millis(300);
        let longest = std::thread::scope(|scope| {
            let longest = scope.spawn(|| longest(begins));
            clock::pass((begins + dies_after).saturating_sub(clock::now()));
            stub.way.reset();
            longest.join().unwrap()
        });
        all.push((format!("dies after {dies_after:?}"), longest));
    }
    println!("{all:?}");
    assert!(all.iter().all(|(_, longest)| *longest <= TIMEOUT + SLACK), "{all:?}");
}

#[test]
fn a_store_that_begins_anew_is_told_of_ten_thousand_counters_in_a_table_for_a_million_while_it_settles() {
    const KEYS: usize = 10_000;
    const CLIENTS: usize = 8;
    /// As long as the ledger of a new store grants nothing.
    const SETTLING: Duration = Duration::from_secs(2);
    let key = |number: usize| format!("key-{number}");
    let plan = json!({"many": {"standard": ["600/hour"]}});
    let policy = Policy::contract().unwrap().with("plans", plan).with("fleet", json!({"cluster": "ledger"}));
    let policy = policy.with("counters", json!({"known": 1_000_000, "strangers": 8192}));
    let policy =
        (0..KEYS).fold(policy, |policy, number| policy.subscriber(&key(number), "many", &key(number)));
    let stub = Stub::start(granted);
    let gateway = stub.gateway(&policy, 2);
    std::thread::scope(|scope| {
        for first in 0..CLIENTS {
            let (gateway, key) = (&gateway, &key);
            scope.spawn(move || {
                let client = Client::to(gateway.address()).unwrap();
                for number in (first..KEYS).step_by(CLIENTS) {
                    assert_eq!(client.send(&get("/links").key(&key(number))).unwrap().status(), 200);
                }
            });
        }
    });
    // Until then, all that was used is stated and answered.
    clock::pass(Duration::from_secs(3));
    stub.begin_epoch();
    let began = clock::now();
    // A gateway without requests hears of it within a term.
    assert_eq!(gateway.send(&get("/links").key(&key(0))).unwrap().status(), 200);
    clock::eventually("all counters are stated", PATIENCE, || (stub.told() == KEYS).then_some(())).unwrap();
    let took = clock::now() - began;
    println!("{KEYS} counters in {took:?}");
    assert!(took < SETTLING, "{took:?}");
}
