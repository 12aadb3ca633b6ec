//! What operators and callers of a fleet see and reset at one gateway counts at all: two real Envoys, each with an operators' listener, and a
//! ledger.

use std::process::Command;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::artifacts;
use tests::client::Client;
use tests::clock::{self, eventually};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Request, get};
use tests::ledger::Ledger;
use tests::operators;
use tests::policy::{self, Policy};

const LIMIT: usize = 10;
const TOKEN: &str = "the-operators-token";
/// How long a gateway may refuse what the other could admit, or wait before it tries a ledger again: a term, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(5);

struct Gateway {
    envoy: Envoy,
    operators: Client,
}

/// `LIMIT` a month for each of these keys, whose subscribers have the same names.
fn policy(keys: &[&str]) -> Policy {
    let policy =
        Policy::contract().unwrap().with_at("/plans/pro/standard", json!([format!("{LIMIT}/month")]));
    keys.iter()
        .fold(policy.with("usage_path", json!("/quota")), |policy, key| policy.subscriber(key, "pro", key))
}

/// Two gateways that share quotas.
fn gateways(policy: &Policy, ledger: &Ledger) -> [Gateway; 2] {
    [(); 2].map(|()| {
        let setup = Setup::new(policy.clone(), Upstream::DirectResponse).sharing_through(ledger);
        let tokens = json!([{"name": "on-call", "token": policy::hash(TOKEN)}]);
        let (envoy, operators) = operators::start(setup, |public| {
            public.with("operators", json!({"path": "/weir", "tokens": tokens}))
        });
        Gateway { envoy, operators }
    })
}

impl Gateway {
    /// How many of `requests` with a key pass. The others are refused.
    fn passed(&self, key: &str, requests: usize) -> usize {
        let statuses = (0..requests).map(|_| self.envoy.send(&get("/links").key(key)).unwrap().status());
        let statuses: Vec<_> = statuses.collect();
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
        statuses.iter().filter(|status| **status == 200).count()
    }

    /// Status and document of a request of an operator.
    fn operate(&self, method: Method, path: &str) -> (u16, Value) {
        let answer = self.operators.send(&Request::new(method, path).key(TOKEN)).unwrap();
        (answer.status(), answer.json().unwrap())
    }

    fn reset(&self, subscriber: &str) -> (u16, Value) {
        let path = format!("/weir/subscribers/{subscriber}/reset?class=standard&quota=standard");
        self.operate(Method::POST, &path)
    }

    /// What is left of the quota to a subscriber, and whose use is counted: as an operator sees it, and as the caller does.
    fn seen(&self, subscriber: &str) -> [(u64, String); 2] {
        // What the ledger has just said is not asked again.
        clock::pass(Duration::from_millis(300));
        let usage = self.envoy.send(&get("/quota").key(subscriber)).unwrap().json().unwrap();
        let (status, state) = self.operate(Method::GET, &format!("/weir/subscribers/{subscriber}"));
        assert_eq!(status, 200, "{state}");
        assert_eq!(state["counters"][0]["scope"], Value::Null, "it is said once");
        [(&state["counters"][0], &state["scope"]), (&usage, &usage["scope"])].map(|(usage, scope)| {
            let classes = usage["classes"].as_array().unwrap();
            let class = classes.iter().find(|class| class["name"] == "standard").unwrap();
            (class["quotas"][0]["remaining"].as_u64().unwrap(), scope.as_str().unwrap().to_owned())
        })
    }

    /// The use before each reset, as the audit lines have it.
    fn used_before_resets(&self) -> Vec<u64> {
        let lines = self.envoy.log().lines();
        let audits = lines.iter().filter_map(|line| line.split_once("audit ")).map(|(_, audit)| audit);
        audits
            .map(|audit| serde_json::from_str::<Value>(audit).unwrap()["used_before"].as_u64().unwrap())
            .collect()
    }
}

fn both(left: u64, scope: &str) -> [(u64, String); 2] {
    [(); 2].map(|()| (left, scope.to_owned()))
}

/// A request of the key passes at the gateway, at the latest after a pause.
fn assert_goes_on(gateway: &Gateway, key: &str) {
    eventually("a request after the reset", PATIENCE, || (gateway.passed(key, 1) == 1).then_some(()))
        .unwrap();
}

#[test]
fn what_is_used_and_reset_at_one_gateway_is_so_at_the_other() {
    let ledger = Ledger::serve(artifacts::command("weir-ledger")).unwrap();
    let [one, other] = gateways(&policy(&["acme", "globex"]), &ledger);
    assert_eq!(other.seen("acme"), both(10, "fleet"));
    assert_eq!(one.passed("acme", 4), 4);
    assert_eq!(other.seen("acme"), both(6, "fleet"));
    assert_eq!(one.seen("acme"), both(6, "fleet"));
    assert_eq!(other.passed("acme", 7), 6);
    assert_eq!([one.seen("acme"), other.seen("acme")], [both(0, "fleet"), both(0, "fleet")]);

    let (status, state) = one.reset("acme");
    assert_eq!((status, &state["scope"]), (200, &json!("fleet")), "{state}");
    assert_eq!(one.seen("acme"), both(10, "fleet"));
    assert_goes_on(&other, "acme");
    assert_eq!([one.seen("acme"), other.seen("acme")], [both(9, "fleet"), both(9, "fleet")]);
    assert_eq!(one.passed("acme", 10), 9, "no more than the limit after the reset");

    // Only the other gateway has served this one.
    assert_eq!(other.passed("globex", 11), 10);
    assert_eq!(one.reset("globex").0, 200);
    assert_goes_on(&other, "globex");
    assert_eq!(other.passed("globex", 10), 9);
    assert_eq!(one.used_before_resets(), [10, 10]);
}

#[test]
fn a_reset_without_a_ledger_is_answered_503_and_comes_into_force_once_the_ledger_is_back() {
    let ledger = Ledger::serve(artifacts::command("weir-ledger")).unwrap();
    let [one, other] = gateways(&policy(&["acme"]), &ledger);
    assert_eq!((one.passed("acme", 1), other.passed("acme", 5)), (1, 5));
    let signal = |signal: &str| {
        assert!(Command::new("kill").args([signal, &ledger.id().to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    // Of the other's use it knows what the ledger said last.
    let is_alone =
        || one.seen("acme").iter().all(|(left, scope)| [4, 9].contains(left) && scope == "gateway");
    eventually("a ledger that has stopped", PATIENCE, || is_alone().then_some(())).unwrap();
    let (status, refusal) = one.reset("acme");
    assert_eq!(status, 503, "{refusal}");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("do not know it yet"), "{refusal}");
    assert_eq!(one.seen("acme"), both(10, "gateway"));
    signal("-CONT");
    eventually("the reset", PATIENCE, || (other.seen("acme") == both(10, "fleet")).then_some(())).unwrap();
    assert_eq!(other.passed("acme", 11), 10);
    // Each worker finds out by itself that the ledger is back.
    eventually("the ledger", PATIENCE, || (one.seen("acme") == both(0, "fleet")).then_some(())).unwrap();
    assert_eq!(one.passed("acme", 1), 0);
}
