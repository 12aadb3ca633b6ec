//! No message of a refused configuration has a secret, wherever the secret was put.

use serde_json::{Value, json};

use crate::config::{Config, SECRET_FIELDS};

/// Has every field.
fn full(key: &str) -> Value {
    json!({
        "plans": {
            "free": {"standard": ["60/minute", {"limit": 7, "window": "90s", "name": "burst", "mode": "shadow"}]},
            "pro": {"standard": "unlimited", "analytics": ["2/second"]},
        },
        "classes": [{"name": "analytics", "cost": 2, "refund": {"statuses": ["5xx"], "grpc": ["UNAVAILABLE"]}, "match": [{"methods": ["GET"], "path": "/analytics"}, {"path_prefix": "/events"}]}],
        "default_class": "standard",
        "exempt": [{"methods": ["OPTIONS"]}],
        "base_path": "/v1",
        "upstream_paths": {"merge_slashes": true, "matrix_parameters": "drop", "encoded_slash": "keep", "ignore_case": false},
        "key_sources": [
            {"header": "authorization", "scheme": "Bearer"},
            {"query": "api_key"},
            {"metadata": ["filter_metadata", "jwt", "sub"]},
        ],
        "subscribers": [
            {"id": "a", "plan": "pro", "keys": [format!("sha256:{}", "a".repeat(64))], "limits": {"standard": ["5/day", {"limit": 9, "window": "month"}]},
             "parent": {"organisation": "o", "limits": {"standard": [{"limit": 99, "window": "month"}]}}},
            {"id": "b", "plan": "free", "keys": [format!("sha256:{}", "b".repeat(64))]},
        ],
        "plan_source": {"metadata": ["filter_metadata", "jwt", "plan"]},
        "directory": {"cluster": "b", "path": "/keys", "authority": "keys.internal", "interval": "10s", "bearer": key, "not_ready": {"action": "limit", "quotas": ["600/minute"]}, "max_stale": "1m"},
        "count_by": "subscriber",
        "unknown_key": {"action": "limit", "quotas": ["60/minute"]},
        "missing_key": {"action": "reject"},
        "ipv6_prefix": 56,
        "not_in_plan": {"status": 402},
        "headers": {"x_ratelimit": true, "x_ratelimit_limit": "per_window", "ietf": false, "expose_cors": true, "upstream": "absent", "in_shadow": true, "allow_origin": ["https://app.example"]},
        "usage_path": "/quota",
        "enforcement": "shadow",
        "log_decisions": true,
        "log_fields": "all",
        "on_error": "deny",
        "counters": {"known": 64, "strangers": 8},
        "namespace": "n",
        "usage": {"cluster": "b", "path": "/usage", "authority": "usage.internal", "interval": "10s", "bearer": key, "thresholds": [50, 100]},
        "operators": {"path": "/weir", "tokens": [{"name": "on-call", "token": format!("sha256:{}", "c".repeat(64))}]},
    })
}

/// The JSON pointers of `value` and of everything in it.
fn places(value: &Value) -> Vec<String> {
    let within = |name: String, inner: &Value| {
        places(inner).into_iter().map(|place| format!("/{name}{place}")).collect::<Vec<_>>()
    };
    let inner: Vec<String> = match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, inner)| within(name.clone(), inner)).collect()
        }
        Value::Array(list) => {
            list.iter().enumerate().flat_map(|(index, inner)| within(index.to_string(), inner)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    [String::new()].into_iter().chain(inner).collect()
}

/// Configurations with `secret` at `place`: as the value, inside it, around it, and as a field's name.
fn with_secret(place: &str, secret: &str) -> Vec<Value> {
    let full = full("token");
    let value = full.pointer(place).unwrap();
    let mut values = vec![
        json!(secret),
        json!([secret]),
        json!([[secret]]),
        json!([value, secret]),
        json!({"keys": secret}),
        json!({secret: value}),
        json!({secret: secret}),
        json!([{secret: [secret]}]),
        json!(format!("/{secret}")),
        json!(format!("sha256:{secret}")),
        json!(format!("60/{secret}")),
    ];
    if let Value::Object(fields) = value {
        let with = |field: (String, Value)| Value::from_iter(fields.clone().into_iter().chain([field]));
        values.push(with((secret.to_owned(), json!(1))));
        values.extend(fields.iter().map(|(name, value)| {
            let Value::Object(mut renamed) = with((secret.to_owned(), value.clone())) else { panic!() };
            renamed.remove(name);
            Value::Object(renamed)
        }));
    }
    let at_place = |value| {
        let mut changed = full.clone();
        *changed.pointer_mut(place).unwrap() = value;
        changed
    };
    values.into_iter().map(at_place).collect()
}

fn refusal(json: &str) -> Option<String> {
    Config::from_json(json.as_bytes()).err().map(|error| format!("{error}\n{error:?}"))
}

#[test]
fn the_full_configuration_is_taken_and_not_debugged_with_its_token() {
    let config = Config::from_json(full("s3cret").to_string().as_bytes()).unwrap();
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn fields_with_secrets_are_refused_without_any_given_text() {
    for secret in ["s3cret", "sk_live_51HxQ2eZvKYlo2C", "s3c/ret+Zm9v==", "s3cret, expected `a`", "s3crèt"] {
        let mut refusals = 0;
        for place in places(&full("token")) {
            if SECRET_FIELDS.iter().any(|field| place.split('/').nth(1) == Some(field)) {
                for changed in with_secret(&place, secret) {
                    let refusal = refusal(&changed.to_string()).unwrap_or_default();
                    refusals += usize::from(!refusal.is_empty());
                    assert!(!refusal.contains(secret), "{place} in {changed}\n{refusal}");
                }
            }
        }
        assert!(refusals > 300, "{refusals}");
    }
}

#[test]
fn a_key_is_in_no_message_wherever_it_was_put() {
    for key in ["sk_live_51HxQ2eZvKYlo2C", "2bb80d537b1da3e38bd30361aa855686", "c2VjcmV0+c2VjcmV0c2VjcmV0=="]
    {
        let mut refusals = 0;
        for place in places(&full("token")) {
            for changed in with_secret(&place, key) {
                let Err(refused) = Config::from_json(changed.to_string().as_bytes()) else { continue };
                refusals += 1;
                assert!(!refused.to_string().contains(key), "{place} in {changed}\n{refused}");
            }
        }
        assert!(refusals > 900, "{refusals}");
    }
}

#[test]
fn json_that_is_cut_anywhere_is_refused_without_a_key() {
    const KEY: &str = "sk_live_51HxQ2eZvKYlo2C";
    for whole in [full(KEY).to_string(), format!("{:#}", full(KEY))] {
        let plain = whole.replace("sha256:aaaa", KEY).replace("\"free\"", &format!("\"{KEY}\""));
        for end in 0..plain.len() {
            for rest in ["", "}", "\"", "\\", "\u{1}", KEY] {
                let refusal = refusal(&format!("{}{rest}", &plain[..end])).unwrap_or_default();
                assert!(!refusal.contains(KEY), "{refusal}");
            }
        }
    }
}

#[test]
fn a_whole_document_that_is_a_key_is_not_quoted() {
    for document in [r#""s3cret""#, r#"["s3cret"]"#, r#"{"plans": {}, "plans": "s3cret"}"#, "s3cret"] {
        let refusal = refusal(document).unwrap();
        assert!(!refusal.contains("s3cret"), "{refusal}");
    }
}
