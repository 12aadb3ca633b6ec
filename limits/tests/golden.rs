//! What the command prints for one configuration, for both services, and what it refuses.

use limits::{Service, convert};
use serde_json::{Value, json};

/// A configuration with everything that matters to a service: several windows, a plan that may do anything, quotas that are only
/// counted, and subscribers with limits of their own.
fn policy(fleet: &Value) -> Value {
    let key = |digit: &str| format!("sha256:{}", digit.repeat(64));
    json!({
        "plans": {
            "free": {"standard": ["60/minute"]},
            "pro": {
                "standard": ["600/minute", "20/second", {"limit": 100, "window": "month", "mode": "shadow"}],
                "analytics": ["10000/day"],
            },
            "enterprise": {"standard": "unlimited"},
        },
        "classes": [{"name": "analytics", "match": [{"path": "/analytics"}]}],
        "subscribers": [
            {"id": "acme", "plan": "pro", "keys": [key("1"), key("2")], "limits": {"standard": ["900/minute", "20/second"]}},
            {"id": "plain", "plan": "free", "keys": [key("3")]},
            {"id": "free of charge", "plan": "free", "keys": [key("4")], "limits": {"standard": "unlimited"}},
            {"id": "hourly", "plan": "free", "keys": [key("5")], "limits": {"standard": ["1000/hour"]}},
        ],
        "fleet": fleet,
    })
}

fn made(service: Service, policy: &Value) -> Result<String, String> {
    convert(service, policy.to_string().as_bytes(), None).map_err(|error| error.to_string())
}

#[test]
fn limits_that_are_sent_leave_the_service_its_domain() {
    let yaml = made(Service::Envoyproxy, &policy(&json!({"cluster": "ratelimit"}))).unwrap();
    insta::assert_snapshot!(yaml);
}

#[test]
fn limits_that_are_configured_are_a_tree() {
    let fleet = json!({"cluster": "ratelimit", "domain": "api", "limits": "configured"});
    insta::assert_snapshot!(made(Service::Envoyproxy, &policy(&fleet)).unwrap());
}

#[test]
fn an_index_is_a_level_of_the_tree() {
    let fleet = json!({"cluster": "ratelimit", "limits": "configured", "window_index": true});
    insta::assert_snapshot!(made(Service::Envoyproxy, &policy(&fleet)).unwrap());
}

#[test]
fn limitador_gets_a_list() {
    let fleet = json!({"cluster": "ratelimit", "limits": "configured", "window_index": true});
    insta::assert_snapshot!(made(Service::Limitador, &policy(&fleet)).unwrap());
}

#[test]
fn keys_that_do_not_share_a_quota_have_one_limit_each() {
    let mut by_key = policy(&json!({"cluster": "ratelimit", "limits": "configured"}));
    by_key["count_by"] = json!("key");
    let of = |policy: &Value| {
        let yaml = made(Service::Envoyproxy, policy).unwrap();
        yaml.lines().filter(|line| line.contains("value:") && line.trim().len() > 40).count()
    };
    by_key["subscribers"].as_array_mut().unwrap().truncate(1);
    assert_eq!(of(&by_key), 2);
    by_key["count_by"] = json!("subscriber");
    assert_eq!(of(&by_key), 1);
}

#[test]
fn what_a_service_cannot_keep_is_refused() {
    let configured = json!({"cluster": "ratelimit", "limits": "configured", "window_index": true});
    let with = |pointer: &str, value: Value| {
        let mut policy = policy(&configured);
        *policy.pointer_mut(pointer).unwrap() = value;
        policy
    };
    let mut without = policy(&configured);
    without.as_object_mut().unwrap().remove("fleet");
    let rows = [
        (Service::Envoyproxy, without, r#"has no field "fleet""#),
        (
            Service::Envoyproxy,
            with("/fleet", json!({"cluster": "c", "limits": "guessed"})),
            r#"fleet.limits: "guessed": expected sent or configured"#,
        ),
        (
            Service::Envoyproxy,
            with("/plans/free/standard", json!(["60/fortnight"])),
            "plans.free.standard[0]",
        ),
        (
            Service::Envoyproxy,
            with("/plans/free/standard", json!([{"limit": 9, "window": "90s"}])),
            "plans.free.standard[0]: a fleet shares quotas of a second, minute, hour or day",
        ),
        (
            Service::Limitador,
            with("/subscribers/0/limits/standard", json!([{"limit": 9, "window": "90s"}])),
            "subscribers[0].limits.*[0]: a fleet shares quotas of a second, minute, hour or day",
        ),
        (
            Service::Limitador,
            policy(&json!({"cluster": "c", "window_index": true})),
            r#"set "limits": "configured""#,
        ),
        (
            Service::Limitador,
            policy(&json!({"cluster": "c", "limits": "configured"})),
            r#"set "window_index": true"#,
        ),
        (Service::Limitador, json!("plans"), "plans"),
    ];
    for (service, policy, expected) in rows {
        let error = made(service, &policy).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_enforced_month_is_left_to_the_gateways() {
    let configured = json!({"cluster": "ratelimit", "limits": "configured"});
    let mut with_month = policy(&configured);
    with_month["plans"]["free"]["standard"] = json!(["60/minute", "1000/month"]);
    assert_eq!(made(Service::Envoyproxy, &with_month), made(Service::Envoyproxy, &policy(&configured)));
}

#[test]
fn a_refusal_never_quotes_a_key() {
    const KEY: &str = "sk_live_51HxQ2eZvKYlo2C";
    let with = |field: &str, value: Value| {
        let mut policy = policy(&json!({"cluster": "ratelimit"}));
        policy[field] = value;
        policy
    };
    let documents = [
        with("subscribers", json!([KEY])).to_string(),
        with("subscribers", json!([{"id": "a", "plan": "free", "keys": KEY}])).to_string(),
        with("subscribers", json!([{"id": "a", "plan": "free", KEY: 1}])).to_string(),
        with("directory", json!({"cluster": "c", "path": "/keys", "bearer": [KEY]})).to_string(),
        with("key_sources", json!({"header": KEY})).to_string(),
        with(KEY, json!({})).to_string(),
        // Neither JSON nor YAML.
        format!("subscribers:\n- id: a\n  keys: [\"{KEY}\n"),
        format!("subscribers:\n- keys: {KEY}: {KEY}\n"),
        format!("{KEY}: 1\n{KEY}: 2\n"),
        format!("subscribers: *{KEY}\n"),
        format!("subscribers: !{KEY} [\n"),
    ];
    for document in documents {
        let refused = convert(Service::Envoyproxy, document.as_bytes(), None).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains(KEY), "{document}\n{refused}");
    }
}
