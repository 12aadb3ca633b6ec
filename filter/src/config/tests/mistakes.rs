//! Each mistake in a configuration has a message that names its field.

use serde_json::value::RawValue;

use super::{refused, with};
use crate::config::quota::Grants;
use crate::read::read_value;

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
        ("7", "expected an object"),
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
            r#""exempt": [{"path": "/a/*"}]"#.to_owned(),
            r#"exempt[0].path: "/a/*": * stands for nothing here; write {name} for any one segment, and path_prefix for everything below a path"#,
        ),
        (
            r#""exempt": [{"path": "/a/{b}.json"}]"#.to_owned(),
            r#"exempt[0].path: "/a/{b}.json": a name in braces stands for a whole segment, as in /users/{id}/reports"#,
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
            "key_sources[0]: give one of header, query and metadata, not several",
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
            r#"subscribers[0].limits.*[0]: unknown unit, expected second, minute, hour, day, week, month, year, billing_month or billing_year"#,
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
            r#"headers.in_shadow: "yes": expected true or false"#,
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
            "rate: unknown field, expected plans, classes, default_class, exempt, base_path or 22 others",
        ),
        (r#""usage": {"cluster": "c"}"#.to_owned(), "usage: missing field `path`"),
        (
            r#""usage": {"cluster": "c", "path": "/u", "every": "1s"}"#.to_owned(),
            "usage.*: unknown field, expected cluster, path, authority, interval, bearer, thresholds",
        ),
        (
            r#""usage": {"cluster": "c", "path": "u"}"#.to_owned(),
            "usage.path: expected a path that starts with /",
        ),
        (
            r#""usage": {"cluster": "c", "path": "/u", "interval": "0s"}"#.to_owned(),
            "usage.interval: expected at least 1 s",
        ),
        (
            r#""usage": {"cluster": "c", "path": "/u", "thresholds": [0]}"#.to_owned(),
            "usage.thresholds[0]: expected 1 to 100 percent",
        ),
        (
            r#""usage": {"cluster": "c", "path": "/u", "thresholds": [101]}"#.to_owned(),
            "usage.thresholds[0]: expected 1 to 100 percent",
        ),
        (
            r#""usage": {"cluster": "c", "path": "/u", "thresholds": [100, 80]}"#.to_owned(),
            "usage.thresholds: expected ascending shares, each once",
        ),
        (
            r#""usage": {"cluster": "c", "path": "/u", "thresholds": [1, 2, 3, 4, 5, 6, 7, 8, 9]}"#
                .to_owned(),
            "usage.thresholds: expected at most 8 shares",
        ),
        (
            r#""fleet": {"cluster": "c", "domain": "d"}"#.to_owned(),
            "fleet.domain: unknown field, expected cluster, authority, bearer, timeout, term, on_unavailable",
        ),
        (
            r#""fleet": {"cluster": "c", "on_unavailable": "local"}"#.to_owned(),
            r#"fleet.on_unavailable: "local": expected "allow", "deny", or {"local": 10} for a percentage of the limit"#,
        ),
        (
            r#""fleet": {"cluster": "c", "on_unavailable": {"local": 0}}"#.to_owned(),
            "fleet.on_unavailable.local: 0: expected 1 to 100 percent",
        ),
        (
            r#""fleet": {"cluster": "c", "timeout": "501ms", "term": "2s"}"#.to_owned(),
            r#"fleet.timeout: "501ms": expected 1 to 500 ms"#,
        ),
        (
            r#""fleet": {"cluster": "c", "timeout": "0s"}"#.to_owned(),
            r#"fleet.timeout: "0s": expected 1 to 500 ms"#,
        ),
        (
            r#""fleet": {"cluster": "c", "timeout": "1ms", "term": "499ms"}"#.to_owned(),
            r#"fleet.term: "499ms": expected 500 to 2000 ms"#,
        ),
        (
            r#""fleet": {"cluster": "c", "term": "2001ms"}"#.to_owned(),
            r#"fleet.term: "2001ms": expected 500 to 2000 ms"#,
        ),
        (
            r#""fleet": {"cluster": "c", "timeout": "500ms", "term": "1999ms"}"#.to_owned(),
            "fleet.term: 1999 ms: expected at least four times timeout, 2000 ms",
        ),
        (
            r#""fleet": {"cluster": "c", "timeout": "251ms"}"#.to_owned(),
            "fleet.term: 1000 ms: expected at least four times timeout, 1004 ms",
        ),
        (
            r#""fleet": {"cluster": "c", "term": "1 s"}"#.to_owned(),
            r#"fleet.term: "1 s": expected whole milliseconds or seconds such as 250ms, 1s"#,
        ),
        (r#""headers": {"ietf": "yes"}"#.to_owned(), r#"headers.ietf: "yes": expected true or false"#),
        (r#""enforcement": "off""#.to_owned(), "enforcement: \"off\": expected enforced or shadow"),
        (r#""on_error": "close""#.to_owned(), "on_error: \"close\": expected allow or deny"),
        (r#""counters": {"known": 0}"#.to_owned(), "counters.known: 0: expected 1 to 33488890 records"),
        (
            r#""counters": {"strangers": 4294967295}"#.to_owned(),
            "counters.strangers: 4294967295: expected 1 to 33488890 records",
        ),
        (
            format!(
                r#""counters": {{"known": 1}}, "subscribers": [{{"id": "a", "plan": "free", "keys": ["{key}", "sha256:{}"]}}]"#,
                "b".repeat(64)
            ),
            "counters.known: the configured keys need 2 records, more than 1",
        ),
        (r#""namespace": 7"#.to_owned(), "namespace: 7: expected a string"),
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
        (r#""key_sources": [{"metadata": "x"}]"#, format!("key_sources[0].metadata: {metadata}")),
        (r#""key_sources": [{"metadata": ["a", "b"], "header": "x"}]"#, "key_sources[0]: give one of header, query and metadata, not several".into()),
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
        (r#""directory": {"cluster": "c", "path": "/keys", "bearer": 7}"#, r#"directory.bearer: expected a token, or {"env": "NAME"} for an environment variable"#.into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "bearer": {"env": "7UP"}}"#, "directory.bearer.env: expected the name of an environment variable: letters, digits and _".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "bearer": {"envv": "x"}}"#, "directory.bearer.*: unknown field, did you mean env?".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "bearer": {}}"#, "directory.bearer: missing field `env`".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "authority": "a|b"}"#, "directory.authority: expected a host with or without a port, such as directory.internal:8082 or, of IPv6 in brackets, [fd00::1]:8082".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "timeout": "0s"}"#, r#"directory.timeout: expected 1 to 600 s"#.into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "timeout": "11m"}"#, r#"directory.timeout: expected 1 to 600 s"#.into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "autority": "x"}"#, "directory.*: unknown field, did you mean authority?".into()),
        (r#""directory": {"cluster": "c", "path": "/keys", "token": "x"}"#, "directory.*: unknown field, expected cluster, path, authority, interval, timeout or 4 others".into()),
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
fn a_row_of_the_directory_with_a_window_that_is_too_long_is_bad() {
    let limits = |window: &str| {
        let json = format!(r#"{{"standard": [{{"limit": 9, "window": "{window}"}}]}}"#);
        let limits: &RawValue = serde_json::from_str(&json).unwrap();
        read_value::<Grants>(limits).map_err(|refused| refused.to_string())
    };
    assert_eq!(limits("366d").unwrap().len(), 1);
    let expected = r#"standard[0].window: "367d": a window of 31708800 s is longer than the longest, 366 days (31622400 s)"#;
    assert_eq!(limits("367d").unwrap_err(), expected);
}

#[test]
fn a_fleet_has_the_terms_from_the_shortest_to_the_longest() {
    for (timeout, term) in [("1ms", "500ms"), ("125ms", "500ms"), ("500ms", "2s"), ("500ms", "2000ms")] {
        let fleet = format!(r#""fleet": {{"cluster": "c", "timeout": "{timeout}", "term": "{term}"}}"#);
        assert!(with(&fleet).is_ok(), "{timeout} {term}");
    }
}
