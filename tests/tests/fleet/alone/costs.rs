//! What a fleet costs: time.

use serde_json::json;
use tests::clock;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::policy::Policy;

use crate::fleet::{Fleet, Shape};

#[test]
fn a_request_from_held_units_takes_little_longer_than_without_a_fleet() {
    const ROUNDS: usize = 40;
    const REQUESTS: usize = 100;
    let policy = Policy::contract()
        .unwrap()
        .with("plans", json!({"plan": {"standard": ["1000000/hour"]}}))
        .subscriber("acme", "plan", "key");
    let fleet = Fleet::start(&policy, Shape { gateways: 1, ..Shape::default() });
    let alone = Envoy::start(Setup::new(policy, Upstream::DirectResponse)).unwrap();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (times, gateway) in times.iter_mut().zip([&fleet.gateways[0], &alone]) {
            for _ in 0..REQUESTS {
                let began = clock::now();
                let answer = gateway.send(&get("/links").key("key")).unwrap();
                times.push(clock::now() - began);
                assert_eq!(answer.status(), 200, "{answer}");
            }
        }
    }
    let [held, local] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let ratio = held.as_secs_f64() / local.as_secs_f64();
    println!("a request takes {held:?} with held units, {local:?} without a fleet: {ratio:.2}");
    assert!(ratio <= 1.25, "{held:?}, {local:?}");
}
