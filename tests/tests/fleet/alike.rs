//! What counts in one gateway counts alike in a fleet: organisations, costs that are settled, refunds.

use std::time::Duration;

use serde_json::json;
use tests::clock;
use tests::envoy::Upstream;
use tests::exchange::get;
use tests::policy::{Policy, hash};
use tests::server::{Response, Server};

use crate::clients::{Seen, Traffic, send};
use crate::fleet::{Fleet, PATIENCE, Shape, Store};

const FAR: Duration = Duration::from_millis(10);

fn shape(gateways: usize) -> Shape {
    Shape { gateways, store: Store::redis(), round_trip: FAR, ..Shape::default() }
}

fn traffic(key: &str) -> (String, Traffic) {
    (
        key.to_owned(),
        Traffic { burst: 5, per_second: 80.0, most: Duration::from_secs(12), enough: usize::MAX },
    )
}

#[test]
fn an_organisation_shares_its_quota_over_four_gateways_and_its_keys_keep_their_own() {
    const OF_A_KEY: usize = 300;
    const OF_ALL: usize = 700;
    let subscriber = |key: &str| {
        let parent = json!({"organisation": "acme", "limits": {"standard": [format!("{OF_ALL}/hour")]}});
        json!({"id": key, "plan": "hour", "keys": [hash(key)], "parent": parent})
    };
    let keys = ["one", "two", "three"];
    let policy = Policy::contract()
        .unwrap()
        .with("plans", json!({"hour": {"standard": [format!("{OF_A_KEY}/hour")]}}))
        .with("subscribers", keys.map(subscriber).into_iter().collect());
    let fleet = Fleet::start(&policy, shape(4));
    let seen = send(&fleet.addresses(), &keys.map(traffic));
    let passed: Vec<_> = seen.iter().map(Seen::passed).collect();
    assert!(passed.iter().all(|passed| *passed <= OF_A_KEY), "{passed:?}");
    assert_eq!(passed.iter().sum::<usize>(), OF_ALL, "{passed:?}");
}

#[test]
fn a_charge_is_settled_and_refunded_for_all_gateways() {
    const LIMIT: usize = 1_000;
    const RESERVE: usize = 10;
    let upstream = Server::start(|request| {
        let query = request.uri().query().unwrap_or_default();
        match query.parse::<u32>() {
            Ok(cost) => http::Response::builder().header("x-cost", cost),
            Err(_) => http::Response::builder().status(503),
        }
        .body(bytes::Bytes::new().into())
        .unwrap_or_else(|_| Response::default())
    })
    .unwrap();
    let chat = json!({
        "name": "chat",
        "cost": {"reserve": RESERVE, "actual": {"response_header": "x-cost"}},
        "refund": {"statuses": ["5xx"]},
        "match": [{"path": "/chat"}],
    });
    let policy = Policy::contract()
        .unwrap()
        .with("plans", json!({"hour": {"standard": ["1000/hour"], "chat": [format!("{LIMIT}/hour")]}}))
        .with("classes", json!([chat]))
        .subscriber("acme", "hour", "key")
        .with("fleet", json!({"cluster": "ledger"}))
        .with("usage_path", json!("/quota"));
    let fleet = Fleet::start(&policy, Shape { upstream: Upstream::At(upstream.address()), ..shape(2) });
    let mut used = 0;
    //  path, and what it is charged in the end
    let rows = [("/chat?4", 4), ("/chat?25", 25), ("/chat?away", 0), ("/chat?0", 0), ("/chat?10", 10)];
    for (number, (path, cost)) in rows.into_iter().cycle().take(20).enumerate() {
        let answer = fleet.gateways[number % 2].send(&get(path).key("key")).unwrap();
        assert!([200, 503].contains(&answer.status()), "{answer}");
        used += cost;
    }
    // Once everything is stated, each gateway shows the same, in units.
    for gateway in &fleet.gateways {
        clock::eventually("the same is left everywhere", PATIENCE, || {
            let usage = gateway.send(&get("/quota").key("key")).unwrap().json().unwrap();
            let class = usage["classes"].as_array()?.iter().find(|class| class["name"] == "chat")?;
            (class["quotas"][0]["remaining"] == LIMIT - used).then_some(())
        })
        .unwrap();
    }
    // The rest passes, and no more: each request reserves what it is not charged in the end.
    let mut passed = 0;
    for number in 0..LIMIT {
        let answer = fleet.gateways[number % 2].send(&get("/chat?20").key("key")).unwrap();
        passed += usize::from(answer.status() == 200);
    }
    let most = (LIMIT - used).div_ceil(20);
    assert!((most - 3..=most).contains(&passed), "{passed} of {most}");
}
