//! Who was limited, in the access log of a real Envoy: `%FILTER_STATE(wasm.weir:PLAIN)%`.

use serde_json::{Value, json};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Request, get};
use tests::policy::Policy;

const FORMAT: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/access_log/0/typed_config/log_format/json_format";

/// Each request with what is to become of it: its status where limits are enforced.
fn requests() -> Vec<(Request, u16)> {
    vec![
        (get("/links?0").key("free-key"), 200),
        (get("/links?1").key("free-key"), 429),
        (get("/analytics?2").key("free-key"), 403),
        (get("/links?3"), 200),
        (get("/links?4"), 429),
        (Request::new("OPTIONS".parse().unwrap(), "/links?5"), 200),
        (get("/links?6").key("odd-key"), 200),
        (get("/links?7").key("odd-key"), 429),
    ]
}

fn policy() -> Policy {
    let one = json!(["1/month"]);
    Policy::contract()
        .unwrap()
        .with_at("/plans/free/standard", one.clone())
        .with("missing_key", json!({"action": "limit", "quotas": one}))
        .subscriber("acme", "free", "free-key")
        .subscriber("an odd = \"name\"", "free", "odd-key")
}

/// What the access log has of each request.
fn logged(policy: Policy, statuses: impl Fn(u16) -> u16) -> Vec<Option<String>> {
    let setup = Setup::new(policy, Upstream::DirectResponse).workers(1);
    let envoy = Envoy::start_amended(setup, |bootstrap, _| {
        bootstrap.pointer_mut(FORMAT).unwrap()["weir"] = json!("%FILTER_STATE(wasm.weir:PLAIN)%");
        Ok(())
    });
    let envoy = envoy.unwrap();
    let requests = requests();
    for (request, enforced) in &requests {
        let answer = envoy.send(request).unwrap();
        assert_eq!(answer.status(), statuses(*enforced), "{} {answer}", request.path);
    }
    let line = |path: &str| {
        envoy.log().wait_for(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["path"] == path).then_some(line)
        })
    };
    requests
        .iter()
        .map(|(request, _)| line(&request.path).unwrap()["weir"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn the_access_log_says_who_was_limited_and_in_shadow_who_would_be() {
    const ODD: &str = "subscriber=an%20odd%20%3D%20%22name%22";
    let limited = |outcome: &str| {
        vec![
            None,
            Some(format!("outcome={outcome} subscriber=acme plan=free class=standard quota=standard")),
            Some("outcome=not_in_plan subscriber=acme plan=free class=analytics".to_owned()),
            None,
            Some(format!("outcome={outcome},missing_key class=standard quota=address")),
            None,
            None,
            Some(format!("outcome={outcome} {ODD} plan=free class=standard quota=standard")),
        ]
    };
    let mut all = limited("limited");
    all[0] = Some("outcome=allowed subscriber=acme plan=free class=standard".to_owned());
    all[3] = Some("outcome=missing_key class=standard".to_owned());
    all[5] = Some("outcome=exempt class=standard".to_owned());
    all[6] = Some(format!("outcome=allowed {ODD} plan=free class=standard"));
    //  enforcement, log_fields, the lines
    let rows = [
        (None, None, limited("limited")),
        (None, Some("refused"), limited("limited")),
        (Some("shadow"), None, limited("shadow_limited")),
        (None, Some("all"), all),
        (None, Some("none"), vec![None; 8]),
        (Some("shadow"), Some("none"), vec![None; 8]),
    ];
    for (enforcement, log_fields, expected) in rows {
        let fields = [("enforcement", enforcement), ("log_fields", log_fields)];
        let given = fields.into_iter().filter_map(|(field, value)| Some((field, value?)));
        let policy = given.fold(policy(), |policy, (field, value)| policy.with(field, json!(value)));
        let statuses = |enforced| if enforcement.is_some() { 200 } else { enforced };
        assert_eq!(logged(policy, statuses), expected, "{fields:?}");
    }
}
