use super::super::tests::with;
use super::super::*;
use crate::count::lease::LeaseTerms;

#[test]
fn a_fleet_has_the_documented_defaults() {
    let config = with(r#""fleet": {"cluster": "ratelimit"}"#).unwrap();
    let expected = FleetSettings {
        cluster: "ratelimit".into(),
        domain: "weir".into(),
        terms: LeaseTerms { min_window: 10, timeout: 250 },
        limits: Limits::Sent,
        window_index: false,
        on_unavailable: OnUnavailable::Local(10),
    };
    assert_eq!(config.fleet, Some(expected));
}

#[test]
fn every_mistake_in_a_fleet_has_its_message_and_its_path() {
    let rows = [
        ("", "fleet: missing field `cluster`"),
        (r#""cluster": """#, "fleet.cluster: must not be empty"),
        (r#""cluster": "c", "domain": """#, "fleet.domain: must not be empty"),
        (
            r#""cluster": "c", "timeout": "soon""#,
            r#"fleet.timeout: "soon": expected whole milliseconds or seconds such as 250ms, 1s"#,
        ),
        (
            r#""cluster": "c", "timeout": "1m""#,
            r#"fleet.timeout: "1m": expected whole milliseconds or seconds such as 250ms, 1s"#,
        ),
        (r#""cluster": "c", "timeout": "0ms""#, "fleet.timeout: \"0ms\": out of range, expected 1 ms to 5 s"),
        (r#""cluster": "c", "timeout": "6s""#, "fleet.timeout: \"6s\": out of range, expected 1 ms to 5 s"),
        (
            r#""cluster": "c", "min_window": "10""#,
            r#"fleet.min_window: "10": expected whole seconds, minutes, hours or days such as 10s, 5m, 2h, 7d"#,
        ),
        (r#""cluster": "c", "limits": "mine""#, "fleet.limits: \"mine\": expected sent or configured"),
        (
            r#""cluster": "c", "on_unavailable": "wait""#,
            "fleet.on_unavailable: \"wait\": expected local or allow or deny",
        ),
        (
            r#""cluster": "c", "local_percent": 0"#,
            "fleet.local_percent: 0: out of range, expected 1 to 100 percent of a limit",
        ),
        (
            r#""cluster": "c", "local_percent": 101"#,
            "fleet.local_percent: 101: out of range, expected 1 to 100 percent of a limit",
        ),
        (
            r#""cluster": "c", "on_unavailable": "deny", "local_percent": 5"#,
            r#"fleet.local_percent: only "on_unavailable": "local" has a share"#,
        ),
        (
            r#""cluster": "c", "redis": "r""#,
            "fleet.redis: unknown field, expected one of cluster, domain, timeout, min_window, limits, window_index, on_unavailable, local_percent",
        ),
    ];
    for (fields, message) in rows {
        assert_eq!(with(&format!(r#""fleet": {{{fields}}}"#)).unwrap_err(), message, "{fields}");
    }
}

#[test]
fn a_fleet_shares_quotas_that_its_service_has_units_for() {
    let fleet = |quotas: &str| {
        let json = format!(
            r#"{{"plans": {{"pro": {{"standard": [{quotas}]}}}}, "fleet": {{"cluster": "c"}}, "unknown_key": {{"action": "limit", "quotas": ["9/month"]}}}}"#
        );
        Config::from_json(json.as_bytes()).map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = r#"plans.pro.standard[1]: a fleet shares quotas of a second, minute, hour or day, and each gateway counts a month for itself; use one of these, or "mode": "shadow""#;
    let rows = [
        (r#""1/second", "2/minute", "3/hour", "4/day""#, Ok(())),
        (r#""1/minute", {"limit": 1, "window": "60s", "mode": "shadow", "name": "b"}"#, Ok(())),
        (r#""1/minute", {"limit": 9, "window": "month", "mode": "shadow"}"#, Ok(())),
        (r#""1/minute", "9/month""#, Ok(())),
        (r#""1/minute", {"limit": 9, "window": "90s"}"#, Err(refused.to_owned())),
    ];
    for (quotas, expected) in rows {
        assert_eq!(fleet(quotas), expected, "{quotas}");
    }
}

#[test]
fn a_fleet_says_whether_gateways_count_enforced_months_for_themselves() {
    const FLEET: &str = r#""fleet": {"cluster": "c"}"#;
    const SHADOW: &str = r#"{"limit": 9, "window": "month", "mode": "shadow"}"#;
    //  quotas of the plan, limits of a subscriber, fleet, says so
    let rows = [
        (r#""9/month""#, "{}", FLEET, true),
        (r#""9/day""#, r#"{"standard": ["9/month"]}"#, FLEET, true),
        (r#""9/day""#, "{}", FLEET, false),
        (SHADOW, "{}", FLEET, false),
        (r#""9/month""#, "{}", r#""namespace": """#, false),
    ];
    for (quotas, limits, fleet, expected) in rows {
        let subscriber = format!(
            r#"{{"id": "a", "plan": "pro", "keys": ["sha256:{}"], "limits": {limits}}}"#,
            "a".repeat(64)
        );
        let json = format!(
            r#"{{"plans": {{"pro": {{"standard": [{quotas}]}}}}, "subscribers": [{subscriber}], {fleet}}}"#
        );
        let config = Config::from_json(json.as_bytes()).unwrap();
        assert_eq!(config.counts_months_per_gateway(), expected, "{json}");
    }
}

#[test]
fn a_fleet_names_bearers_alike_everywhere_and_differently_in_each_domain() {
    use crate::count::fingerprint::Who;
    let fleet = |domain: &str| {
        let config = with(&format!(r#""fleet": {{"cluster": "c", "domain": "{domain}"}}"#)).unwrap();
        config.fleet.unwrap()
    };
    let who = [Who::Key(&[1; 32]), Who::Key(&[2; 32]), Who::Subscriber("a"), Who::Subscriber("b")];
    let ids: Vec<_> =
        ["weir", "other"].iter().flat_map(|domain| who.map(|who| fleet(domain).id(who))).collect();
    for (place, id) in ids.iter().enumerate() {
        assert!(!ids[..place].contains(id));
    }
    assert_eq!(fleet("weir").id(who[0]), ids[0]);
}
