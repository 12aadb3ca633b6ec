mod directory;
mod mistakes;
mod secrecy;

use super::*;
use crate::quota::Mode;
use crate::read::NonEmpty;
use crate::request::readings::AmbiguousPath;
use crate::time::Timestamp;
use crate::window::Window;

/// A configuration with `field` beside the least that is needed.
pub(super) fn with(field: &str) -> Result<Config, String> {
    let comma = if field.is_empty() { "" } else { "," };
    let json = format!(
        r#"{{"plans": {{"free": {{"standard": ["60/minute"]}}, "none_of_its_own": {{}}}}, "classes": [{{"name": "analytics"}}]{comma} {field}}}"#
    );
    Config::from_json(json.as_bytes()).map_err(|error| error.to_string())
}

pub(super) fn refused(json: &str) -> String {
    Config::from_json(json.as_bytes()).unwrap_err().to_string()
}

#[test]
fn the_least_configuration_has_the_documented_defaults() {
    let config = Config::from_json(br#"{"plans": {"free": {"standard": ["60/minute"]}}}"#).unwrap();
    let standard = Class::plain(leaf::Name("standard".into()));
    assert_eq!((config.catalog.classes, config.catalog.default_class), (vec![standard], 0));
    let preflight = NonEmpty(vec![leaf::Method("OPTIONS".into())]);
    let preflight = Match { methods: Some(preflight), path: None, path_prefix: None };
    assert_eq!(config.rules, [(preflight, Rule::Exempt)]);
    assert_eq!(&*config.settings.base_path, "");
    assert_eq!(
        config.key_sources,
        [KeySource::Header { name: "authorization".into(), scheme: Some("Bearer".into()) }]
    );
    assert_eq!(config.catalog.plans.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["free"]);
    assert!(config.subscribers.roster().keys() == 0);
    assert!(config.settings.plan_source.is_none());
    assert!(config.settings.directory.is_none());
    assert_eq!(config.settings.count_by, CountBy::Key);
    for policy in [&config.unknown_key, &config.missing_key] {
        let StrangerPolicy::Limit(quotas) = policy else { panic!("{policy:?}") };
        let [quota] = quotas.quotas() else { panic!("{quotas:?}") };
        assert_eq!((quota.limit.get(), quota.window, quota.name.as_str()), (60, Window::MINUTE, "address"));
    }
    assert_eq!(config.settings.ipv6_prefix.0, 64);
    assert_eq!(config.settings.not_in_plan.status.0, 403);
    let headers = HeaderOptions {
        x_ratelimit: true,
        x_ratelimit_limit: LimitHeader::PerHour,
        ietf: true,
        expose_cors: true,
        upstream: UpstreamHeaders::Replace,
        in_shadow: false,
        allow_origin: AllowOrigin::None,
    };
    assert_eq!(config.settings.headers, headers);
    assert_eq!(config.settings.enforcement, Mode::Enforced);
    assert_eq!((config.settings.log_decisions, config.settings.log_fields), (false, LogFields::Refused));
    assert_eq!(config.settings.on_error, OnError::Allow);
    assert_eq!(config.settings.counters, Capacity { known: 262_144, strangers: 8192 });
    assert_eq!(config.settings.namespace, "");
}

#[test]
fn quotas_are_named_after_their_class_and_window() {
    let config = Config::from_json(
        br#"{"plans": {"pro": {"standard": ["9/second", {"limit": 60, "window": "90s"}, {"limit": 7, "window": "month", "name": "monthly", "mode": "shadow"}]}}}"#,
    )
    .unwrap();
    let [(_, granted)] = config.catalog.plans.as_slice() else { panic!() };
    let [Entitlement::Quotas(quotas)] = granted.as_ref() else { panic!() };
    let names: Vec<_> = quotas.quotas().iter().map(|quota| (quota.name.as_str(), quota.mode)).collect();
    assert_eq!(
        names,
        [("standard-second", Mode::Enforced), ("standard-90s", Mode::Enforced), ("monthly", Mode::Shadow)]
    );
}

#[test]
fn a_subscribers_limits_replace_its_plans_classes() {
    let key = |letter: &str| format!("sha256:{}", letter.repeat(64));
    let config = with(&format!(
        r#""subscribers": [
            {{"id": "a", "plan": "free", "keys": ["{}", "{}"]}},
            {{"id": "b", "plan": "none_of_its_own", "keys": ["{}"], "limits": {{"standard": ["5/hour"], "analytics": "unlimited"}}}}
        ]"#,
        key("a"), key("B"), key("c")
    ))
    .unwrap();
    let given = |digest: [u8; 32], class: &str| {
        let (known, agreement) = config.subscribers.get(&digest)?;
        let class = config.catalog.classes.iter().position(|other| *other.name == *class)?;
        Some((known.subscriber, agreement.entitlements.get(class)?.clone()))
    };
    let limit = |entitlement: Entitlement| match entitlement {
        Entitlement::Quotas(quotas) => quotas.quotas()[0].limit.get(),
        Entitlement::Unlimited => u32::MAX,
        Entitlement::NotInPlan => 0,
    };
    let rows = [
        ([0xaa; 32], "standard", Some(("a", 60))),
        ([0xbb; 32], "standard", Some(("a", 60))),
        ([0xbb; 32], "analytics", Some(("a", 0))),
        ([0xcc; 32], "standard", Some(("b", 5))),
        ([0xcc; 32], "analytics", Some(("b", u32::MAX))),
        ([0xdd; 32], "standard", None),
    ];
    for (digest, class, expected) in rows {
        let found = given(digest, class).map(|(owner, given)| (owner, limit(given)));
        assert_eq!(found, expected, "{:02x} {class}", digest[0]);
    }
}

#[test]
fn subscribers_of_an_organisation_have_the_same_limits_whatever_their_order() {
    let with_limits = |limits: &str| {
        with(&format!(
            r#""subscribers": [{{"id": "s", "plan": "free"}}, {{"id": "a", "plan": "free", "parent": {{"organisation": "o", "limits": {{"standard": ["9/day"], "analytics": "unlimited"}}}}}},
                               {{"id": "b", "plan": "free", "parent": {{"organisation": "o", "limits": {limits}}}}}]"#
        ))
    };
    assert!(with_limits(r#"{"analytics": "unlimited", "standard": ["9/day"]}"#).is_ok());
    for other in [r#"{"standard": ["9/day"]}"#, r#"{"standard": ["8/day"], "analytics": "unlimited"}"#] {
        let expected =
            "subscribers[2].parent.limits: subscribers[1] gives the same organisation other limits";
        assert_eq!(with_limits(other).unwrap_err(), expected);
    }
}

#[test]
fn origins_are_any_or_listed() {
    let allowed = |json: &str| {
        with(&format!(r#""headers": {{"allow_origin": {json}}}"#))
            .map(|config| config.settings.headers.allow_origin)
    };
    assert_eq!(allowed(r#""*""#), Ok(AllowOrigin::Any));
    let origins =
        ["https://app.example", "http://localhost:3000", "https://[::1]:8443", "capacitor://localhost"];
    assert_eq!(
        allowed(&format!("{origins:?}")),
        Ok(AllowOrigin::List(NonEmpty(origins.map(|origin| leaf::Origin(origin.to_owned())).to_vec())))
    );
    for odd in [
        "null",
        "*",
        "app.example",
        "https://",
        "https://a/",
        "https://a?b",
        "https://u@a",
        "HTTPS://a",
        "https://a:x",
    ] {
        assert!(allowed(&format!("[{odd:?}]")).is_err(), "{odd}");
    }
}

/// A configuration with this many keys.
fn with_keys(keys: u32, more: &str) -> Result<Config, String> {
    let key = |key: u32| format!(r#""sha256:{}""#, hex(digest(&key.to_le_bytes())));
    let keys = (0..keys).map(key).collect::<Vec<_>>().join(",");
    with(&format!(r#""subscribers": [{{"id": "a", "plan": "free", "keys": [{keys}]}}] {more}"#))
}

#[test]
fn a_configuration_has_a_bound_and_names_the_directory() {
    assert_eq!(with_keys(10_000, "").unwrap().subscribers.roster().keys(), 10_000);
    let expected = "subscribers: 10001 keys, at most 10000 are possible here; use directory for more";
    assert_eq!(with_keys(10_001, "").unwrap_err(), expected);
    let padding = format!(r#""namespace": "{}""#, "x".repeat(4 << 20));
    let refused = with(&padding).unwrap_err();
    assert!(
        refused.ends_with("bytes, at most 4194304 are possible; use directory for many subscribers"),
        "{refused}"
    );
}

#[test]
fn equal_parts_of_successive_configurations_are_in_memory_once() {
    use std::sync::Arc;
    let config = |pro: u32, limits: &str| {
        let key = |letter: &str| letter.repeat(64);
        let mut config = Config::from_json(format!(
            r#"{{"plans": {{"free": {{"standard": ["60/minute"]}}, "pro": {{"standard": ["{pro}/minute"]}}}},
                 "subscribers": [{{"id": "a", "plan": "free", "keys": ["sha256:{}"]}}, {{"id": "b", "plan": "free", "keys": ["sha256:{}"] {limits}}}]}}"#,
            key("a"), key("b")
        ).as_bytes()).unwrap();
        config.settings.namespace = pro.to_string();
        config
    };
    let plan = |config: &Config, plan: usize| Arc::clone(&config.catalog.plans[plan].1);
    let agreed =
        |config: &Config, byte: u8| Arc::clone(&config.subscribers.get(&[byte; 32]).unwrap().1.entitlements);
    let limits = r#", "limits": {"standard": ["7/hour"]}"#;

    let first = config(600, limits);
    let mut same = config(600, limits);
    same.share_with(&first);
    assert!(Arc::ptr_eq(first.subscribers.roster(), same.subscribers.roster()));
    for byte in [0xaa, 0xbb] {
        assert!(Arc::ptr_eq(&agreed(&first, byte), &agreed(&same, byte)), "{byte:x}");
    }

    // Another plan changes; the keys and the entitlements of the first plan are in memory once all the same.
    let mut other = config(700, limits);
    other.share_with(&first);
    assert!(Arc::ptr_eq(first.subscribers.roster(), other.subscribers.roster()));
    assert!(Arc::ptr_eq(&plan(&first, 0), &plan(&other, 0)));
    assert!(!Arc::ptr_eq(&plan(&first, 1), &plan(&other, 1)));
    assert!(Arc::ptr_eq(&agreed(&first, 0xaa), &agreed(&other, 0xaa)));
    assert_eq!(other.catalog.plans[1].1[0].quotas()[0].limit.get(), 700);

    // Other subscribers are held apart, under the plans that are the same.
    let mut apart = config(600, "");
    apart.share_with(&first);
    assert!(!Arc::ptr_eq(first.subscribers.roster(), apart.subscribers.roster()));
    assert!(Arc::ptr_eq(&plan(&first, 0), &agreed(&apart, 0xbb)));
}

#[test]
fn paths_are_classed_by_the_first_match_below_the_base_path() {
    let config = Config::from_json(
        br#"{"plans": {"free": {"standard": ["60/minute"]}},
            "classes": [{"name": "analytics", "match": [{"methods": ["GET"], "path": "/analytics"}]},
                        {"name": "rest", "match": [{"path_prefix": "/"}]}]}"#,
    )
    .unwrap();
    let rows = [
        ("GET", Some("/analytics"), "analytics"),
        ("HEAD", Some("/analytics"), "analytics"),
        ("POST", Some("/analytics"), "rest"),
        ("GET", Some("/"), "rest"),
        ("CONNECT", None, "standard"),
    ];
    for (method, path, class) in rows {
        let Ok(Rule::Class(found)) = config.rule(method.as_bytes(), path.map(str::as_bytes)) else {
            panic!("{method} {path:?} has no class");
        };
        assert_eq!(config.class_name(found), class, "{method} {path:?}");
    }
}

#[test]
fn billing_periods_begin_at_the_anchors_of_the_subscriber_and_of_its_organisation() {
    let subscriber = |id: &str, byte: &str, anchor: &str, parent: &str| {
        format!(
            r#"{{"id": "{id}", "plan": "pro", "keys": ["sha256:{}"], {anchor}
                "parent": {{"organisation": "acme", {parent} "limits": {{"standard": ["9/billing_year"]}}}}}}"#,
            byte.repeat(32)
        )
    };
    let config = |second: &str| {
        let json = format!(
            r#"{{"plans": {{"pro": {{"standard": ["5/minute", "7/billing_month"]}}}}, "subscribers": [{}, {}]}}"#,
            subscriber(
                "a",
                "aa",
                r#""billing_anchor": "2026-01-31T09:30:00Z","#,
                r#""billing_anchor": "2024-02-29","#
            ),
            subscriber("b", "bb", "", second),
        );
        Config::from_json(json.as_bytes())
    };
    let same = config(r#""billing_anchor": "2024-02-29","#).unwrap();
    let quotas = |byte: u8| {
        let (_, agreement) = same.subscribers.get(&[byte; 32]).unwrap();
        let now = Timestamp::from_seconds(1_795_910_400); // 2026-11-29
        let quotas = agreement.entitlements[0].quotas().iter();
        quotas.map(|quota| (quota.name.clone(), quota.window.at(now).end)).skip(1).collect::<Vec<_>>()
    };
    let of_acme = ("organisation".to_owned(), 1_803_772_800); // 2027-02-28
    assert_eq!(quotas(0xaa), [("standard-billing_month".to_owned(), 1_796_031_000), of_acme.clone()]); // 2026-11-30T09:30
    assert_eq!(quotas(0xbb), [("standard-billing_month".to_owned(), 1_796_083_200), of_acme]); // 2026-12-01
    let refused = config("").unwrap_err().to_string();
    assert_eq!(
        refused,
        "subscribers[1].parent.billing_anchor: subscribers[0] gives the same organisation another billing_anchor"
    );
}

#[test]
fn a_segment_in_braces_stands_for_any_one_under_all_readings() {
    let config = Config::from_json(
        br#"{"plans": {"free": {"standard": ["60/minute"]}},
            "classes": [{"name": "reports", "match": [{"methods": ["GET"], "path": "/users/{id}/reports"}]},
                        {"name": "own", "match": [{"path_prefix": "/users/me"}]},
                        {"name": "user", "match": [{"path": "/users/{id}"}, {"path_prefix": "/users/{id}/files"}]}]}"#,
    )
    .unwrap();
    let rows = [
        ("/users/1/reports", Ok("reports")),
        ("/users/1/reports/", Ok("reports")),
        ("/users/%7Bid%7D/reports", Ok("reports")),
        ("/users/me/reports", Ok("reports")),
        ("/users/me", Ok("own")),
        ("/users/1", Ok("user")),
        ("/users/1/files/a/b", Ok("user")),
        ("/users", Ok("standard")),
        ("/users/1/2/reports", Ok("standard")),
        // One upstream reads another segment.
        ("/users/1%2F2/reports", Err(AmbiguousPath)),
        ("/users/1%2Freports", Err(AmbiguousPath)),
        ("/users//reports", Err(AmbiguousPath)),
        ("/users/../reports", Err(AmbiguousPath)),
        ("/users/1//reports", Err(AmbiguousPath)),
        // All upstreams read the same class.
        ("/users/1;a=b/reports", Ok("reports")),
        ("/users/1;a=b", Ok("user")),
    ];
    for (path, expected) in rows {
        let found = config.rule(b"GET", Some(path.as_bytes())).map(|rule| match rule {
            Rule::Class(class) => config.class_name(class),
            other => panic!("{path}: {other:?}"),
        });
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn the_paths_of_an_openapi_document_are_classes_as_they_stand() {
    let document = include_bytes!("../../../backend/openapi.json");
    let document: serde_json::Value = serde_json::from_slice(document).unwrap();
    let paths: Vec<_> = document["paths"].as_object().unwrap().keys().collect();
    let classes = paths
        .iter()
        .enumerate()
        .map(|(place, path)| serde_json::json!({"name": format!("c{place}"), "match": [{"path": path}]}));
    let json = serde_json::json!({
        "plans": {"free": {"standard": ["60/minute"]}},
        "classes": classes.collect::<Vec<_>>(),
    });
    let config = Config::from_json(json.to_string().as_bytes()).unwrap();
    // Whoever pastes them is told which a template above hides.
    let hidden: Vec<_> = config.hidden().map(|(class, ..)| paths[class].as_str()).collect();
    assert!(hidden.iter().all(|path| !path.contains('{')), "{hidden:?}");
    for (place, path) in paths.iter().enumerate() {
        let called = path.replace("{id}", "ext_a").replace("{event}", "evt_1");
        let expected = Ok(Rule::Class(place));
        assert!(
            hidden.contains(&path.as_str()) || config.rule(b"GET", Some(called.as_bytes())) == expected,
            "{path}"
        );
    }
    assert!(paths.len() > 15);
}

#[test]
fn what_an_earlier_match_hides_is_known() {
    let config = Config::from_json(
        br#"{"plans": {"free": {"standard": ["60/minute"]}}, "usage_path": "/quota",
            "exempt": [{"methods": ["GET"], "path_prefix": "/r"}],
            "classes": [{"name": "user", "match": [{"path_prefix": "/users"}, {"path": "/users/{id}"}]},
                        {"name": "rest", "match": [{"path": "/links"}, {"path": "/users/{id}/reports"}, {"methods": ["GET"], "path": "/r/{key}"}, {"methods": ["GET"], "path": "/quota"}]}]}"#,
    )
    .unwrap();
    let hidden: Vec<_> = config.hidden().collect();
    assert_eq!(hidden, [(1, 1, Rule::Class(0)), (1, 2, Rule::Exempt), (1, 3, Rule::Usage)]);
}

#[test]
fn an_upstreams_reading_of_paths_can_be_declared() {
    let rule = |declared: &str, path: &str| {
        let fields = format!(
            r#""base_path": "/v1", "exempt": [{{"path_prefix": "/r"}}], "upstream_paths": {declared}"#
        );
        with(&fields).unwrap().rule(b"GET", Some(path.as_bytes()))
    };
    let rows = [
        ("{}", "//v1/r/x", Err(AmbiguousPath)),
        (r#"{"merge_slashes": true}"#, "//v1/r/x", Ok(Rule::Exempt)),
        (r#"{"merge_slashes": false}"#, "//v1/r/x", Ok(Rule::Class(1))),
        ("{}", "/v1/r;x", Err(AmbiguousPath)),
        (r#"{"matrix_parameters": "drop"}"#, "/v1/r;x", Ok(Rule::Exempt)),
        (r#"{"matrix_parameters": "keep"}"#, "/v1/r;x", Ok(Rule::Class(1))),
        ("{}", "/v1%2Fr", Err(AmbiguousPath)),
        (r#"{"encoded_slash": "decode"}"#, "/v1%2Fr", Ok(Rule::Exempt)),
        (r#"{"encoded_slash": "keep"}"#, "/v1%2Fr", Ok(Rule::Class(1))),
        ("{}", "/V1/R", Ok(Rule::Class(1))),
        (r#"{"ignore_case": false}"#, "/V1/R", Ok(Rule::Class(1))),
        (r#"{"ignore_case": true}"#, "/V1/R", Ok(Rule::Exempt)),
    ];
    for (declared, path, expected) in rows {
        assert_eq!(rule(declared, path), expected, "{path} with {declared}");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_are_too_odd_for_a_configuration(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        proptest::prop_assert!(Config::from_json(&bytes).is_err());
    }

    #[test]
    fn a_configuration_with_odd_values_is_refused_or_taken(
        field in proptest::sample::select(vec!["plans", "classes", "exempt", "base_path", "key_sources", "subscribers", "counters", "headers", "namespace"]),
        value in "[\\[\\]{}\":,0-9a-z./]{0,20}",
    ) {
        let json = format!(r#"{{"plans": {{"free": {{"standard": ["60/minute"]}}}}, "{field}": {value}}}"#);
        if let Err(refused) = Config::from_json(json.as_bytes()) {
            proptest::prop_assert!(!refused.to_string().is_empty());
        }
    }
}
