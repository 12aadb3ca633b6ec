//! A broken configuration never serves: a real Envoy does not start with one, and keeps the old one on an update.

use serde_json::{Value, json};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::policy::{self, Policy};

fn contract() -> Policy {
    Policy::contract().unwrap()
}

fn setup(policy: Policy) -> Setup {
    Setup::new(policy, Upstream::DirectResponse)
}

#[test]
fn envoy_does_not_start_with_a_broken_configuration_and_its_log_names_the_field() {
    let key = policy::hash("a-key");
    let twice = json!([
        {"id": "one", "plan": "pro", "keys": [key]},
        {"id": "two", "plan": "pro", "keys": [key]},
    ]);
    //  field                         value                                 the log says
    let broken: &[(&str, Value, &str)] = &[
        ("/plans/pro/standard", json!(["600/fortnight"]), r#"plans.pro.standard[0]: "600/fortnight""#),
        ("/plans/pro/standard", json!(["0/minute"]), "plans.pro.standard[0]"),
        ("/plans/pro/standard", json!(["60/minute", "90/minute"]), "plans.pro.standard"),
        ("/plans", json!({}), "plans"),
        ("/classes/0/match/0/path", json!("analytics"), "classes[0].match[0].path"),
        ("/classes/0/limit", json!(2), "classes[0].limit"),
        ("/subscribers", json!([{"id": "a", "plan": "gold", "keys": [key]}]), "subscribers[0].plan"),
        ("/subscribers", json!([{"id": "a", "plan": "pro", "keys": ["a-key"]}]), "subscribers[0].keys[0]"),
        ("/subscribers", json!([{"id": "a", "plan": "enterprise", "keys": [key]}]), "subscribers[0]"),
        ("/subscribers", twice, "subscribers[1].keys[0]"),
        ("/plan", json!({}), "plan: unknown field, did you mean plans?"),
        ("/fleet", json!({}), "fleet: missing field `cluster`"),
        ("/directory", json!({"cluster": "backend"}), "directory: missing field `path`"),
        ("/headers/allow_origin", json!(["app.example"]), "headers.allow_origin[0]"),
    ];
    for (field, value, said) in broken {
        let policy = contract().with_at(field, value.clone());
        let log = Envoy::refuse(&setup(policy)).unwrap();
        let refusal = log.lines().find(|line| line.contains("configuration refused"));
        let refusal = refusal.unwrap_or_else(|| panic!("{field} = {value}: no reason in\n{log}"));
        assert!(
            refusal.contains(&format!("configuration refused: {said}")),
            "{field} = {value}: expected {said:?} in {refusal}"
        );
    }
}

#[test]
fn a_plain_key_is_refused_with_the_hash_to_use_and_is_not_logged() {
    let policy = contract().with("subscribers", json!([{"id": "a", "plan": "pro", "keys": ["s3cret-key"]}]));
    let log = Envoy::refuse(&setup(policy)).unwrap();
    assert!(log.contains(&policy::hash("s3cret-key")), "no hash in\n{log}");
    assert!(!log.contains("s3cret-key"), "the key itself is in\n{log}");
}

#[test]
fn an_update_with_a_broken_configuration_keeps_the_old_one_serving() {
    let policy = contract().subscriber("acme", "free", "acme-key");
    let mut envoy = Envoy::start(setup(policy.clone()).live_updates()).unwrap();
    let remaining = |envoy: &Envoy| {
        let answer = envoy.send(&get("/links").key("acme-key")).unwrap();
        assert_eq!(answer.status(), 200, "{answer}");
        (answer.number("x-ratelimit-limit").unwrap(), answer.number("x-ratelimit-remaining").unwrap())
    };
    // Counting against a month, so that no window ends between two lines.
    let monthly =
        |limit: u32| policy.clone().with_at("/plans/free/standard", json!([format!("{limit}/month")]));

    assert!(envoy.update(monthly(1000)).unwrap());
    assert_eq!(remaining(&envoy), (1000, 999));

    let broken = policy.clone().with_at("/plans/free/standard", json!(["many"]));
    assert!(!envoy.update(broken).unwrap());
    let reason = "configuration refused: plans.free.standard[0]";
    envoy.log().wait_for(|line| line.contains(reason).then_some(())).unwrap();
    assert_eq!(remaining(&envoy), (1000, 998), "the old configuration and its counters live on");

    assert!(envoy.update(monthly(10)).unwrap());
    assert_eq!(remaining(&envoy), (10, 7), "a lowered limit helps at once, and what was used stays used");
}
