//! `weir check` and `weir hash`.

use crate::{repository, weir_in};

fn weir(arguments: &[&str], input: &str) -> (i32, String, String) {
    weir_in(&repository(), arguments, input)
}

/// What the check of a file with this text prints, without the file's path.
fn check(text: &str) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, text).unwrap();
    let (code, told, problems) = weir(&["check", file.to_str().unwrap()], "");
    let without = |text: String| text.replace(file.to_str().unwrap(), "FILE");
    (code, without(told), without(problems))
}

#[test]
fn a_configuration_is_shown_as_plans_and_classes() {
    let json = r#"{
        "plans": {
            "free": {"standard": ["60/minute"]},
            "pro": {"standard": ["600/minute", {"limit": 5000, "window": "7d", "mode": "shadow"}], "analytics": ["2/second"]},
            "enterprise": {"standard": "unlimited", "analytics": "unlimited"}
        },
        "classes": [{"name": "analytics", "match": [{"path": "/analytics"}]}],
        "subscribers": [
            {"id": "acme", "plan": "pro", "keys": ["sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"]}
        ],
        "counters": {"known": 1024, "strangers": 64}
    }"#;
    let expected = "\
FILE
            analytics  standard
free        -          60/minute
pro         2/second   600/minute, 5000/7d (shadow)
enterprise  unlimited  unlimited
keys: 1; subscribers: 1; records: 2 of 1024; shared data: 1 MB at most

";
    assert_eq!(check(json), (0, expected.to_owned(), String::new()));
}

#[test]
fn a_match_that_an_earlier_one_hides_is_warned_of() {
    let json = r#"{
        "plans": {"free": {"standard": ["60/minute"]}},
        "classes": [{"name": "users", "match": [{"path_prefix": "/users"}]},
                    {"name": "reports", "match": [{"path": "/reports"}, {"path": "/users/{id}/reports"}]}]
    }"#;
    let (code, told, problem) = check(json);
    assert_eq!((code, problem.as_str()), (0, ""), "{told}");
    let warnings: Vec<_> = told.lines().filter(|line| line.starts_with("warning")).collect();
    let expected = "warning: class reports, match[1]: never used, because a match of class users comes first and matches all of its requests";
    assert_eq!(warnings, [expected], "{told}");
}

#[test]
fn a_count_of_a_day_or_longer_that_is_lost_with_the_process_is_warned_of() {
    const NONE: &str = "";
    let fleet = r#", "fleet": {"cluster": "ledger", "on_unavailable": "deny"}"#;
    let acme = r#", "subscribers": [{"id": "acme", "plan": "free", "limits": {"standard": ["100/day"]}}]"#;
    //  the quota of the plan, other fields, whether a warning is printed
    let rows = [
        (r#""60/minute""#, NONE, false),
        (r#"{"limit": 1000, "window": "23h"}"#, NONE, false),
        (r#""60/minute", {"limit": 1000, "window": "24h"}"#, NONE, true),
        (r#""1000/week""#, NONE, true),
        (r#""1000/month""#, NONE, true),
        (r#""1000/billing_year""#, NONE, true),
        (r#""1000/month""#, fleet, false),
        (r#"{"limit": 1000, "window": "month", "mode": "shadow"}"#, NONE, false),
        (r#""60/minute""#, acme, true),
    ];
    for (quotas, fields, is_warned_of) in rows {
        let json = format!(r#"{{"plans": {{"free": {{"standard": [{quotas}]}}}}{fields}}}"#);
        let (code, told, problem) = check(&json);
        assert_eq!((code, problem.as_str()), (0, ""), "{json}: {told}");
        let warnings: Vec<_> = told.lines().filter(|line| line.starts_with("warning")).collect();
        let expected = "warning: plan free, class standard: counts of a day or longer are lost when the gateway's process ends, because there is no fleet";
        assert_eq!(warnings, vec![expected; usize::from(is_warned_of)], "{json}");
    }
}

#[test]
fn what_the_filter_refuses_is_refused_with_its_message_and_a_place() {
    let rows = [
        (r#"{"plan": {}}"#, "FILE: plan: unknown field, did you mean plans?"),
        (
            r#"{"plans": {"free": {"standard": ["60/minutes"]}}}"#,
            "FILE: plans.free.standard[0]: \"60/minutes\": unknown unit",
        ),
        (r#"{"plans": {"free": {"standard": ["60/minute"]},}}"#, "at line 1 column 48"),
        (
            "{\n  \"plans\": {\"free\": {\"standard\": [\"60/minute\"]}\n}",
            "what begins at line 1 column 1 is not closed",
        ),
        (
            "typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm, config: {configuration:
                {'@type': type.googleapis.com/google.protobuf.StringValue, value: '{\"plans\": {'}}}",
            "what begins at line 1 column 11 is not closed",
        ),
        ("", "FILE: the configuration is empty"),
    ];
    for (text, expected) in rows {
        let (code, told, problem) = check(text);
        assert_eq!((code, told.as_str()), (1, ""), "{text}: {problem}");
        assert!(problem.contains(expected), "{text}: {problem}");
    }
    let (code, _, problem) = weir(&["check", "no-such-file"], "");
    assert_eq!(code, 2, "{problem}");
    assert!(problem.starts_with("error: no-such-file: "), "{problem}");
}

#[test]
fn what_is_deployed_is_taken() {
    let deployed = [
        "envoy/envoy.yaml",
        "envoy/fleet/envoy.yaml",
        "envoy/istio/wasmplugin/ingress-gateway.yaml",
        "envoy/envoy-gateway/policy.yaml",
    ];
    for file in deployed {
        let (code, told, problem) = weir(&["check", file], "");
        assert_eq!((code, problem.as_str()), (0, ""), "{file}");
        assert!(told.contains("600/minute") && told.contains("and those of the directory"), "{file}: {told}");
    }
}

#[test]
fn each_filter_of_a_file_is_checked() {
    let filter = |name: &str, configuration: &str| {
        format!(
            r#"{{"name": "{name}", "typed_config": {{"@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
                "config": {{"name": "{name}", "configuration": {{"@type": "type.googleapis.com/google.protobuf.StringValue", "value": {configuration:?}}}}}}}}}"#
        )
    };
    let good = r#"{"plans": {"free": {"standard": ["60/minute"]}}}"#;
    let text =
        format!(r#"{{"http_filters": [{}, {}]}}"#, filter("one", good), filter("two", r#"{"plans": 1}"#));
    let (code, told, problem) = check(&text);
    assert_eq!(code, 1, "{told}{problem}");
    assert!(told.contains("one") && told.contains("60/minute"), "{told}");
    assert!(problem.contains("two") && problem.contains("plans: "), "{problem}");
}

#[test]
fn a_key_is_hashed_from_standard_input_alone() {
    let expected = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";
    for input in ["secret", "secret\n", "secret\r\n"] {
        assert_eq!(weir(&["hash"], input), (0, expected.to_owned(), String::new()), "{input:?}");
    }
    for (input, problem) in [("", "no key"), ("\n", "no key"), ("a\nb\n", "several lines")] {
        let (code, told, message) = weir(&["hash"], input);
        assert_eq!((code, told.as_str()), (2, ""));
        assert!(message.contains(problem), "{message}");
    }
    assert_eq!(weir(&["hash", "secret"], "").0, 2, "never an argument");
}
