//! What a fleet costs: statements, commands of the store.

use std::time::Duration;

use serde_json::json;
use tests::policy::Policy;

use crate::clients::{Seen, Traffic, send};
use crate::fleet::{Fleet, Shape, Store};

/// Customers of a plan.
const KEYS: usize = 8;
const TIME: Duration = Duration::from_secs(15);
/// Until then, gateways hold as much as customers use in the time of an answer.
const WARM: Duration = Duration::from_secs(5);

/// Statements for 1,000 admitted requests of customers who use all of a limit of a minute, and commands that Redis had for them.
fn cost(gateways: usize, a_minute: usize) -> (f64, f64) {
    // An hour's window, so that none ends; customers send as many a second as the minute would let them.
    let plans = json!({"plan": {"standard": [format!("{a_minute}/hour")]}});
    let policy = Policy::contract().unwrap().with("plans", plans);
    let keys: Vec<_> = (0..KEYS).map(|number| format!("key-{number}")).collect();
    let policy = keys.iter().fold(policy, |policy, key| policy.subscriber(key, "plan", key));
    let shape = Shape { gateways, store: Store::redis(), ..Shape::default() };
    let mut fleet = Fleet::start(&policy, shape);
    let per_second = a_minute as f64 / 60.0;
    let addresses = fleet.addresses();
    let send_for = |most| {
        let traffic = Traffic { burst: 1, per_second, most, enough: usize::MAX };
        send(&addresses, &keys.iter().map(|key| (key.clone(), traffic)).collect::<Vec<_>>())
    };
    send_for(WARM);
    let before = (fleet.statements(), commands(&mut fleet));
    let seen = send_for(TIME);
    let passed: usize = seen.iter().map(Seen::passed).sum();
    let thousands = passed as f64 / 1_000.0;
    // Without the ledger's own look at its store, once a second.
    let of_clients = commands(&mut fleet) - before.1 - TIME.as_secs_f64();
    let (statements, commands) = ((fleet.statements() - before.0) / thousands, of_clients / thousands);
    println!(
        "{gateways} gateways, {a_minute} a minute: {statements:.0} statements and {commands:.0} commands for 1,000 of {passed} requests"
    );
    (statements, commands)
}

/// Commands that clients have sent to Redis: scripts count as one, and what they call does not.
fn commands(fleet: &mut Fleet) -> f64 {
    let stats = fleet.store.alone().cli("info commandstats");
    let of_script = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    of_script.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0.0)
}

#[test]
fn a_busy_key_costs_few_statements() {
    //  gateways, requests a minute, statements for 1,000 of them at most
    std::thread::scope(|scope| {
        for (gateways, a_minute, most) in [(2, 600, 60.0), (2, 3_000, 15.0)] {
            scope.spawn(move || {
                let (statements, commands) = cost(gateways, a_minute);
                assert!(statements <= most && commands <= most, "{a_minute}: {statements}, {commands}");
            });
        }
    });
}

#[test]
#[ignore = "long: four and eight gateways"]
fn what_a_busy_key_costs_in_a_larger_fleet() {
    for gateways in [2, 4, 8] {
        for a_minute in [600, 3_000] {
            let (statements, commands) = cost(gateways, a_minute);
            let form = format!("{gateways} gateways, {a_minute} requests a minute");
            let result = format!("{statements:.0} statements, {commands:.0} commands for 1,000 requests");
            tests::soak::row("what a fleet costs", form, result);
        }
    }
}
