use super::*;
use crate::quota::Mode;
use crate::request::readings::AmbiguousPath;
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
    let preflight = leaf::NonEmpty(vec![leaf::Method("OPTIONS".into())]);
    let preflight = Match { methods: Some(preflight), path: None, path_prefix: None };
    assert_eq!(config.rules, [(preflight, Rule::Exempt)]);
    assert_eq!(&*config.settings.base_path, "");
    assert_eq!(
        config.key_sources,
        [KeySource::Header { name: "authorization".into(), scheme: Some("Bearer".into()) }]
    );
    assert_eq!(config.catalog.plans.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["free"]);
    assert!(config.subscribers.roster().is_empty());
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
fn what_is_no_configuration_is_refused() {
    let rows = [
        (
            "",
            r#"the configuration is empty; it needs plans, for example {"plans": {"free": {"standard": ["60/minute"]}}}"#,
        ),
        (
            " \n",
            r#"the configuration is empty; it needs plans, for example {"plans": {"free": {"standard": ["60/minute"]}}}"#,
        ),
        ("{}", "missing field `plans`"),
        (r#"{"plans": {}}"#, "plans: must not be empty"),
        ("nonsense", "expected ident at line 1 column 2"),
        (r#"{"plans": {"free": "#, "EOF while parsing a value at line 1 column 19"),
        (r#"{"plans": {"free": {"standard": ["60/minute"]}}} {}"#, "trailing characters at line 1 column 50"),
        ("7", "expected an object, found a number"),
    ];
    for (json, message) in rows {
        assert_eq!(refused(json), message, "{json}");
    }
}

#[test]
fn every_mistake_has_its_message_and_its_path() {
    let key = format!("sha256:{}", "a".repeat(64));
    let rows = [
        (r#""plan": {}"#.to_owned(), "plan: unknown field, did you mean plans?"),
        (r#""classes": [{"name": "x"}], "exempt": [{"method": ["GET"]}]"#.to_owned(), "classes: given twice"),
        (
            r#""default_class": "Standard""#.to_owned(),
            r#"default_class: "Standard": a name is 1 to 32 of a-z, 0-9, _ and -"#,
        ),
        (r#""default_class": """#.to_owned(), r#"default_class: "": a name is 1 to 32 of a-z, 0-9, _ and -"#),
        (
            r#""exempt": [{"method": ["GET"]}]"#.to_owned(),
            "exempt[0].method: unknown field, did you mean methods?",
        ),
        (
            r#""exempt": [{}]"#.to_owned(),
            "exempt[0]: give methods, path or path_prefix: a match without any would match everything",
        ),
        (r#""exempt": [{"methods": []}]"#.to_owned(), "exempt[0].methods: must not be empty"),
        (
            r#""exempt": [{"methods": ["get"]}]"#.to_owned(),
            r#"exempt[0].methods[0]: "get": expected a method in upper case"#,
        ),
        (
            r#""exempt": [{"path": "/a", "path_prefix": "/b"}]"#.to_owned(),
            "exempt[0]: give either path or path_prefix, not both",
        ),
        (
            r#""exempt": [{"path": "/a/"}]"#.to_owned(),
            r#"exempt[0].path: "/a/": not in the normal form that requests' paths are compared in; write "/a""#,
        ),
        (
            r#""exempt": [{"path_prefix": "a"}]"#.to_owned(),
            r#"exempt[0].path_prefix: "a": expected a path that starts with /"#,
        ),
        (
            r#""base_path": "/v1/""#.to_owned(),
            r#"base_path: "/v1/": not in the normal form that requests' paths are compared in; write "/v1""#,
        ),
        (
            r#""exempt": [{"path": "/caf%C3%A9"}]"#.to_owned(),
            r#"exempt[0].path: "/caf%C3%A9": not in the normal form that requests' paths are compared in; write "/café""#,
        ),
        (
            r#""exempt": [{"path": "/Docs"}], "upstream_paths": {"ignore_case": true}"#.to_owned(),
            r#"exempt[0].path: "/Docs": not in the normal form that requests' paths are compared in; write "/docs""#,
        ),
        (
            r#""upstream_paths": {"matrix_parameters": "strip"}"#.to_owned(),
            r#"upstream_paths.matrix_parameters: "strip": expected drop or keep"#,
        ),
        (
            r#""upstream_paths": {"merge": true}"#.to_owned(),
            "upstream_paths.merge: unknown field, expected merge_slashes, matrix_parameters, encoded_slash, ignore_case",
        ),
        (r#""key_sources": []"#.to_owned(), "key_sources: must not be empty"),
        (r#""key_sources": [{}]"#.to_owned(), "key_sources[0]: give header, query or metadata"),
        (
            r#""key_sources": [{"header": "x", "query": "y"}]"#.to_owned(),
            "key_sources[0]: give either header or query, not both",
        ),
        (
            r#""key_sources": [{"query": "y", "scheme": "Bearer"}]"#.to_owned(),
            "key_sources[0].scheme: only a header has a scheme",
        ),
        (r#""key_sources": [{"query": ""}]"#.to_owned(), "key_sources[0].query: must not be empty"),
        (
            r#""key_sources": [{"header": ":path"}]"#.to_owned(),
            r#"key_sources[0].header: expected the name of a header (RFC 9110, section 5.1)"#,
        ),
        (
            r#""key_sources": [{"header": "x", "scheme": "a b"}]"#.to_owned(),
            r#"key_sources[0].scheme: expected the name of a scheme (RFC 9110, section 11.1)"#,
        ),
        (
            r#""subscribers": [{"id": "a", "plan": "gold"}]"#.to_owned(),
            r#"subscribers[0].plan: unknown plan, expected free, none_of_its_own"#,
        ),
        (
            r#""subscribers": [{"id": "a", "plan": "free"}, {"id": "a", "plan": "free"}]"#.to_owned(),
            r#"subscribers[1].id: given twice"#,
        ),
        (
            r#""subscribers": [{"id": "a", "plan": "none_of_its_own"}]"#.to_owned(),
            r#"subscribers[0]: plan "none_of_its_own" has no quota for the default class "standard", and limits gives none: the subscriber could call nothing"#,
        ),
        (
            r#""subscribers": [{"id": "a", "plan": "free", "limits": {"analytics": ["2/sec"]}}]"#.to_owned(),
            r#"subscribers[0].limits.*[0]: unknown unit, expected second, minute, hour, day or month"#,
        ),
        (
            r#""subscribers": [{"id": "a", "plan": "free", "limits": {"bulk": ["2/second"]}}]"#.to_owned(),
            r#"subscribers[0].limits.*: unknown class, expected analytics, standard"#,
        ),
        (
            r#""subscribers": [{"id": "a", "plan": "free", "keys": ["secret"]}]"#.to_owned(),
            r#"subscribers[0].keys[0]: keys and tokens are given by their hash and written nowhere as they are; write "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b""#,
        ),
        (
            r#""subscribers": [{"id": "a", "plan": "free", "keys": ["sha256:abc"]}]"#.to_owned(),
            r#"subscribers[0].keys[0]: expected "sha256:" and 64 hexadecimal digits"#,
        ),
        (
            format!(
                r#""subscribers": [{{"id": "a", "plan": "free", "keys": ["{key}"]}}, {{"id": "b", "plan": "free", "keys": ["{key}"]}}]"#
            ),
            r#"subscribers[1].keys[0]: subscribers[0] has the same key"#,
        ),
        (r#""count_by": "plan""#.to_owned(), "count_by: \"plan\": expected key or subscriber"),
        (r#""unknown_key": {}"#.to_owned(), "unknown_key: missing field `action`"),
        (
            r#""unknown_key": {"action": "drop"}"#.to_owned(),
            "unknown_key.action: \"drop\": expected limit or reject or pass",
        ),
        (
            r#""unknown_key": {"action": "limit", "quotas": []}"#.to_owned(),
            "unknown_key.quotas: must not be empty",
        ),
        (
            r#""missing_key": {"action": "reject", "quotas": ["1/second"]}"#.to_owned(),
            r#"missing_key.quotas: only the action "limit" has quotas"#,
        ),
        (r#""ipv6_prefix": 0"#.to_owned(), "ipv6_prefix: 0: expected 1 to 128 bits"),
        (r#""ipv6_prefix": 300"#.to_owned(), "ipv6_prefix: 300: expected 1 to 128 bits"),
        (r#""ipv6_prefix": 129"#.to_owned(), "ipv6_prefix: 129: expected 1 to 128 bits"),
        (
            r#""not_in_plan": {"status": 429}"#.to_owned(),
            "not_in_plan.status: 429: expected a status from 400 to 499 except 429, after which clients would retry",
        ),
        (
            r#""not_in_plan": {"status": 200}"#.to_owned(),
            "not_in_plan.status: 200: expected a status from 400 to 499 except 429, after which clients would retry",
        ),
        (
            r#""headers": {"upstream": "none"}"#.to_owned(),
            "headers.upstream: \"none\": expected replace or absent",
        ),
        (
            r#""headers": {"x_ratelimit_limit": "per_day"}"#.to_owned(),
            "headers.x_ratelimit_limit: \"per_day\": expected per_hour or per_window",
        ),
        (
            r#""headers": {"allow_origin": "https://app.example"}"#.to_owned(),
            r#"headers.allow_origin: "https://app.example": expected "*", or a list of origins such as "https://app.example""#,
        ),
        (r#""headers": {"allow_origin": []}"#.to_owned(), "headers.allow_origin: must not be empty"),
        (
            r#""headers": {"allow_origin": ["https://a.b", "https://a.b/"]}"#.to_owned(),
            r#"headers.allow_origin[1]: "https://a.b/": expected an origin: a scheme and a host, with or without a port, such as https://app.example"#,
        ),
        (
            r#""headers": {"in_shadow": "yes"}"#.to_owned(),
            r#"headers.in_shadow: "yes": expected a boolean, found a string"#,
        ),
        (r#""headers": [true]"#.to_owned(), "headers: expected an object, found a list"),
        (r#""counters": [64, 8]"#.to_owned(), "counters: expected an object, found a list"),
        (
            r#""enforcement": {"shadow": null}"#.to_owned(),
            "enforcement: expected enforced or shadow, found an object",
        ),
        (r#""log_fields": "some""#.to_owned(), r#"log_fields: "some": expected none or refused or all"#),
        (r#""log_decision": true"#.to_owned(), "log_decision: unknown field, did you mean log_decisions?"),
        (
            r#""rate": 7"#.to_owned(),
            "rate: unknown field, expected plans, classes, default_class, exempt, base_path or 20 others",
        ),
        (
            r#""fleet": {"cluster": "c", "domain": "d"}"#.to_owned(),
            r#"fleet.domain: "d": the ledger has no domains; set namespace to keep two fleets on one ledger apart"#,
        ),
        (
            r#""fleet": {"cluster": "c", "limits": "sent"}"#.to_owned(),
            r#"fleet.limits: "sent": limits are those of the plans; leave the field out"#,
        ),
        (
            r#""fleet": {"cluster": "c", "window_index": true}"#.to_owned(),
            "fleet.window_index: a fleet shares quotas of every window; leave the field out",
        ),
        (
            r#""fleet": {"cluster": "c", "local_percent": 5}"#.to_owned(),
            r#"fleet.local_percent: 5: write "on_unavailable": {"local": 10}"#,
        ),
        (
            r#""fleet": {"cluster": "c", "on_unavailable": "local"}"#.to_owned(),
            r#"fleet.on_unavailable: "local": expected "allow", "deny", or {"local": 10} for a percentage of the limit"#,
        ),
        (
            r#""fleet": {"cluster": "c", "on_unavailable": {"local": 0}}"#.to_owned(),
            r#"fleet.on_unavailable: expected "allow", "deny", or {"local": 10} for a percentage of the limit"#,
        ),
        (
            r#""fleet": {"cluster": "c", "timeout": "6s"}"#.to_owned(),
            "fleet.timeout: 6000 ms: expected 1 ms to 5 s",
        ),
        (
            r#""fleet": {"cluster": "c", "timeout": "251ms"}"#.to_owned(),
            "fleet.term: 1000 ms: expected at least four times timeout, 1004 ms",
        ),
        (
            r#""fleet": {"cluster": "c", "term": "1 s"}"#.to_owned(),
            r#"fleet.term: "1 s": expected whole milliseconds or seconds such as 250ms, 1s"#,
        ),
        (
            r#""headers": {"ietf": "yes"}"#.to_owned(),
            r#"headers.ietf: "yes": expected a boolean, found a string"#,
        ),
        (r#""enforcement": "off""#.to_owned(), "enforcement: \"off\": expected enforced or shadow"),
        (r#""on_error": "close""#.to_owned(), "on_error: \"close\": expected allow or deny"),
        (r#""counters": {"known": 0}"#.to_owned(), "counters.known: 0: expected 1 to 33554426 records"),
        (
            r#""counters": {"strangers": 4294967295}"#.to_owned(),
            "counters.strangers: 4294967295: expected 1 to 33554426 records",
        ),
        (
            format!(
                r#""counters": {{"known": 1}}, "subscribers": [{{"id": "a", "plan": "free", "keys": ["{key}", "sha256:{}"]}}]"#,
                "b".repeat(64)
            ),
            "counters.known: the configured keys need 2 records, more than 1",
        ),
        (r#""namespace": 7"#.to_owned(), "namespace: 7: expected a string, found a number"),
    ];
    for (field, message) in rows {
        let refused = with(&field).unwrap_err();
        assert!(refused.starts_with(message), "{field}\n  expected {message}\n  found    {refused}");
    }
}

#[test]
fn every_mistake_in_trusted_metadata_or_a_directory_has_its_message_and_its_path() {
    let no_subject = r#"plan_source: needs a key source from metadata: otherwise every refreshed token would get a fresh quota; add to key_sources the token's subject, for example {"metadata": ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]}"#;
    let metadata = r#"expected the path of a value, for example ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]"#;
    let rows = [
        (r#""key_sources": [{"metadata": ["filter_metadata"]}]"#, format!("key_sources[0].metadata: {metadata}")),
        (r#""key_sources": [{"metadata": ["filter_metadata", ""]}]"#, format!("key_sources[0].metadata: {metadata}")),
        (r#""key_sources": [{"metadata": "x"}]"#, format!("key_sources[0].metadata: {metadata}, found a string")),
        (r#""key_sources": [{"metadata": ["a", "b"], "header": "x"}]"#, "key_sources[0]: give either header or metadata, not both".into()),
        (r#""plan_source": {}"#, "plan_source: missing field `metadata`".into()),
        (r#""plan_source": {"metadata": ["a\u0000", "b"]}, "key_sources": [{"metadata": ["a", "b"]}]"#, format!("plan_source.metadata: {metadata}")),
        (r#""plan_source": {"metadata": ["a", "b"]}"#, no_subject.into()),
        (r#""plan_source": {"metadata": ["a", "b"]}, "key_sources": [{"header": "x-api-key"}, {"query": "key"}]"#, no_subject.into()),
        (r#""usage_path": "quota""#, r#"usage_path: "quota": expected a path that starts with /"#.into()),
        (r#""directory": {"path": "/keys"}"#, "directory: missing field `cluster`".into()),
        (r#""directory": {"cluster": "", "path": "/keys"}"#, "directory.cluster: must not be empty".into()),
        (r#""directory": {"cluster": "c", "path": "keys"}"#, r#"directory.path: expected a path that starts with /"#.into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "interval": "0s"}"#, "directory.interval: expected at least 1 s".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "interval": "soon"}"#, r#"directory.interval: expected whole seconds, minutes, hours or days such as 10s, 5m, 2h, 7d"#.into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "max_stale": "99999999d"}"#, r#"directory.max_stale: expected whole seconds, minutes, hours or days such as 10s, 5m, 2h, 7d"#.into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "not_ready": "wait"}"#, "directory.not_ready: expected limit or pass or unavailable".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "not_ready": {"action": "pass", "quotas": ["1/day"]}}"#, r#"directory.not_ready.quotas: only the action "limit" has quotas"#.into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "not_ready": {"action": "limit", "quotas": ["1/day", "2/day"]}}"#, "directory.not_ready.quotas[1]: another quota of this class has the same window and mode; keep the lower limit".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "not_ready": {"action": "reject"}}"#, "directory.not_ready.action: expected limit or pass or unavailable".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "bearer": 7}"#, r#"directory.bearer: expected a token, or {"env": "NAME"} for an environment variable, found a number"#.into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "bearer": {"env": "7UP"}}"#, "directory.bearer.env: expected the name of an environment variable: letters, digits and _".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "bearer": {"envv": "x"}}"#, "directory.bearer.*: unknown field, did you mean env?".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "bearer": {}}"#, "directory.bearer: missing field `env`".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "authority": "a|b"}"#, "directory.authority: expected a host with or without a port, such as directory.internal:8082".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "autority": "x"}"#, "directory.*: unknown field, did you mean authority?".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "token": "x"}"#, "directory.*: unknown field, expected cluster, path, authority, interval, bearer, not_ready, max_stale".into()),
    ];
    for (field, message) in rows {
        assert_eq!(with(field).unwrap_err(), message, "{field}");
    }
}

#[test]
fn every_mistake_in_an_organisation_has_its_message_and_its_path() {
    let eight =
        (1..=8).map(|seconds| format!(r#"{{"limit": 9, "window": "{seconds}s"}}"#)).collect::<Vec<_>>();
    let eight = format!(r#"{{"standard": [{}]}}"#, eight.join(", "));
    let named = r#"{"standard": ["9/day", {"limit": 9, "window": "1h", "name": "standard"}]}"#;
    let reserve =
        r#""classes": [{"name": "chat", "cost": {"reserve": 10, "actual": {"response_header": "x"}}}]"#;
    let rows = [
        (r#"{"bulk": ["9/day"]}"#, "", ".limits.*: unknown class, expected standard"),
        (r#"{"standard": []}"#, "", ".limits.*: must not be empty"),
        (named, "", ".limits.*[1]: a quota of the subscriber has the same name; give this one another"),
        (&eight, "", ".limits.*: 9 quotas with those of the subscriber, at most 8 are possible"),
        (
            r#"{"chat": ["9/day"]}"#,
            reserve,
            ".limits.*[0]: a request of class \"chat\" reserves 10 units (its cost.reserve), more than this limit: none could ever pass",
        ),
    ];
    for (limits, more, message) in rows {
        let comma = if more.is_empty() { "" } else { "," };
        let json = format!(
            r#"{{"plans": {{"free": {{"standard": ["60/minute"]}}}},
                "subscribers": [{{"id": "a", "plan": "free", "parent": {{"organisation": "o", "limits": {limits}}}}}]{comma} {more}}}"#
        );
        assert_eq!(refused(&json), format!("subscribers[0].parent{message}"), "{limits}");
    }
    let nameless =
        r#""subscribers": [{"id": "a", "plan": "free", "parent": {"organisation": "", "limits": {}}}]"#;
    assert_eq!(with(nameless).unwrap_err(), "subscribers[0].parent.organisation: must not be empty");
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
fn a_directory_has_the_documented_defaults() {
    let config = with(r#""directory": {"cluster": "backend", "path": "/internal/keys"}"#).unwrap();
    let directory = config.settings.directory.unwrap();
    let Some(StrangerPolicy::Limit(quotas)) = &config.not_ready else { panic!("{directory:?}") };
    let [quota] = quotas.quotas() else { panic!("{quotas:?}") };
    assert_eq!((quota.limit.get(), quota.window, quota.name.as_str()), (600, Window::MINUTE, "address"));
    assert_eq!(
        (&*directory.cluster, &*directory.path, directory.authority()),
        ("backend", "/internal/keys", "backend")
    );
    assert_eq!((directory.interval.0, directory.bearer, directory.max_stale.0), (10, None, 0));
}

fn directory(cluster: &str, more: &str) -> Result<DirectorySettings, String> {
    let field = format!(r#""directory": {{"cluster": "{cluster}", "path": "/keys" {more}}}"#);
    with(&field).map(|config| config.settings.directory.unwrap())
}

#[test]
fn polls_name_the_host_in_the_name_of_the_cluster_or_the_given_one() {
    let rows = [
        ("outbound|8082||backend.links.svc.cluster.local", "backend.links.svc.cluster.local"),
        ("backend/links", "weir.internal"),
        ("backend", "backend"),
        ("outbound|8082||", "weir.internal"),
        ("a|127.0.0.1:8082", "127.0.0.1:8082"),
        ("[::1]:80", "[::1]:80"),
        ("[::g]", "weir.internal"),
        ("backend:http", "weir.internal"),
        ("backend:+80", "weir.internal"),
        ("backend:65536", "weir.internal"),
        ("back end", "weir.internal"),
    ];
    for (cluster, expected) in rows {
        assert_eq!(directory(cluster, "").unwrap().authority(), expected, "{cluster}");
    }
    for authority in ["directory", "keys.internal:8082", "[2001:db8::1]", "a_b-c.d"] {
        let given = format!(r#", "authority": "{authority}""#);
        assert_eq!(directory("a/b", &given).unwrap().authority(), authority);
    }
    for authority in ["", ":80", "a/b", "a:b", "a b", "http://a", "[::1", "a:"] {
        let given = format!(r#", "authority": "{authority}""#);
        assert!(directory("a/b", &given).is_err(), "{authority}");
    }
}

#[test]
fn a_directory_that_is_not_ready_has_a_policy_in_words_or_with_quotas() {
    let policy = |json: &str| {
        let field = format!(r#""directory": {{"cluster": "c", "path": "/keys", "not_ready": {json}}}"#);
        with(&field).unwrap().not_ready.unwrap()
    };
    let limit = |policy| match policy {
        StrangerPolicy::Limit(quotas) => quotas.quotas().iter().map(|quota| quota.limit.get()).collect(),
        StrangerPolicy::Pass | StrangerPolicy::Refuse => Vec::new(),
    };
    assert_eq!(policy(r#""pass""#), StrangerPolicy::Pass);
    assert_eq!(policy(r#"{"action": "pass"}"#), StrangerPolicy::Pass);
    assert_eq!(policy(r#""unavailable""#), StrangerPolicy::Refuse);
    assert_eq!(policy(r#"{"action": "unavailable"}"#), StrangerPolicy::Refuse);
    assert_eq!(limit(policy(r#""limit""#)), [600]);
    assert_eq!(limit(policy(r#"{"action": "limit"}"#)), [600]);
    assert_eq!(limit(policy(r#"{"action": "limit", "quotas": ["5/second", "9/day"]}"#)), [5, 9]);
}

#[test]
fn a_token_comes_from_the_environment() {
    let config = || {
        with(r#""directory": {"cluster": "c", "path": "/k", "bearer": {"env": "WEIR_DIRECTORY_TOKEN"}}"#)
            .unwrap()
    };
    assert!(!format!("{:?}", config()).contains("WEIR_DIRECTORY_TOKEN"));
    let token =
        config().with_environment(|name| (name == "WEIR_DIRECTORY_TOKEN").then(|| "s3cret".to_owned()));
    let bearer = token.unwrap().settings.directory.unwrap().bearer.unwrap();
    assert_eq!((bearer.expose(), format!("{bearer:?}").as_str()), ("s3cret", "Secret"));
    for value in [None, Some(String::new())] {
        let refused = config().with_environment(|_| value.clone()).unwrap_err().to_string();
        let expected = r#"directory.bearer.env: "WEIR_DIRECTORY_TOKEN": not set, or this host passes none"#;
        assert_eq!(refused, expected);
    }
    let given = with(r#""directory": {"cluster": "c", "path": "/k", "bearer": "t"}"#).unwrap();
    let given = given.with_environment(|_| panic!("no variable is read")).unwrap();
    assert_eq!(given.settings.directory.unwrap().bearer, Some(Secret::Given("t".into())));
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
        Ok(AllowOrigin::List(leaf::NonEmpty(origins.map(|origin| leaf::Origin(origin.to_owned())).to_vec())))
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
    let key = |key: u32| format!(r#""sha256:{}""#, hex(&digest(&key.to_le_bytes())));
    let keys = (0..keys).map(key).collect::<Vec<_>>().join(",");
    with(&format!(r#""subscribers": [{{"id": "a", "plan": "free", "keys": [{keys}]}}] {more}"#))
}

#[test]
fn a_configuration_has_a_bound_and_names_the_directory() {
    assert_eq!(with_keys(10_000, "").unwrap().subscribers.roster().len(), 10_000);
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
