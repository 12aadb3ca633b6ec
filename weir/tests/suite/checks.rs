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
        (r#"{"plan": {}}"#, "FILE:1:10: plan: unknown field, did you mean plans?"),
        (
            r#"{"plans": {"free": {"standard": ["60/minutes"]}}}"#,
            "FILE:1:34: plans.free.standard[0]: \"60/minutes\": unknown unit",
        ),
        ("plans:\n  free:\n    standard:\n    - 60/fortnight\n", "FILE:4:7: plans.free.standard[0]: \"60/fortnight\": unknown unit"),
        (
            "typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm, config: {configuration:
                {'@type': type.googleapis.com/google.protobuf.StringValue, value: '{\"plans\": {'}}}",
            "FILE: line 1, column 11 of the configuration: not JSON: what begins here is not closed",
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
fn what_may_be_a_hash_is_refused_with_both_ways_to_write_it_and_is_not_repeated() {
    let digits = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    for given in [
        digits,
        "$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW",
        "K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=",
    ] {
        let text = format!(
            r#"{{"plans": {{"free": {{"standard": ["60/minute"]}}}}, "subscribers": [{{"id": "acme", "plan": "free", "keys": ["{given}"]}}]}}"#
        );
        let (code, _, problem) = check(&text);
        assert_eq!(code, 1, "{problem}");
        let words = "subscribers[0].keys[0]: this may be a hash or a key";
        assert!(problem.contains(words) && problem.contains("put \"sha256:\" before it"), "{problem}");
        assert!(problem.contains("`weir hash`") && !problem.contains(given), "{problem}");
        // As the message says.
        let mended = text.replace(given, &format!("sha256:{digits}"));
        assert_eq!(check(&mended).0, 0, "{mended}");
    }
}

#[test]
fn each_filter_of_documents_and_lists_and_of_standard_input_is_checked_by_its_name() {
    let plugin = |name: &str, quota: &str| {
        format!(
            "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {{name: {name}, namespace: gw}}\nspec:\n  pluginConfig:\n    plans: {{free: {{standard: [{quota}]}}}}\n"
        )
    };
    let documents = format!(
        "---\n{}---\napiVersion: v1\nkind: Service\n---\n{}---\n",
        plugin("one", "60/minute"),
        plugin("two", "7/min")
    );
    let item = |text: String| {
        text.lines().map(|line| format!("  {line}\n")).collect::<String>().replacen("  ", "- ", 1)
    };
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}{}",
        item(plugin("one", "60/minute")),
        item(plugin("two", "7/min"))
    );
    for text in [documents, list] {
        let (code, told, problem) = weir(&["check", "-"], &text);
        assert_eq!(code, 1, "{told}{problem}");
        assert!(told.starts_with("-, filter 1: \"gw.one\"\n") && told.contains("60/minute"), "{told}");
        assert!(
            problem.contains("-, filter 2: \"gw.two\":")
                && problem.contains("plans.free.standard[0]: \"7/min\""),
            "{problem}"
        );
    }
    let (code, told, problem) = weir(&["check", "-"], &format!("{}---\n", plugin("one", "60/minute")));
    assert_eq!((code, problem.as_str()), (0, ""), "{told}");
}

#[test]
fn all_mistakes_of_all_files_are_listed_with_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("good.json", r#"{"plans": {"free": {"standard": ["60/minute"]}}}"#);
    write(
        "bad.yaml",
        "plans:\n  free:\n    standard: [60/min]\n  pro:\n    standard: [600/minute, 5/fortnight]\n\
         subscribers:\n- {id: acme, plan: gold}\nlog_field: all\n",
    );
    let files = ["check", "absent.json", "bad.yaml", "good.json"];
    let (code, told, problem) = weir_in(folder.path(), &files, "");
    assert_eq!(code, 2, "{problem}");
    assert!(told.starts_with("good.json\n"), "{told}");
    let expected = [
        "error: absent.json: ",
        "bad.yaml:3:16: plans.free.standard[0]: \"60/min\": unknown unit",
        "bad.yaml:5:28: plans.pro.standard[1]: \"5/fortnight\": unknown unit",
        "bad.yaml:7:20: subscribers[0].plan: ",
        "bad.yaml:8:12: log_field: unknown field, did you mean log_fields?",
    ];
    let mut lines: Vec<_> = problem.lines().collect();
    lines.sort_unstable();
    let mut wanted = expected.to_vec();
    wanted.sort_unstable();
    assert_eq!(lines.len(), wanted.len(), "{problem}");
    for (line, wanted) in lines.iter().zip(wanted) {
        assert!(line.starts_with(wanted), "{line} is not {wanted}");
    }
    let (_, told, _) = weir_in(folder.path(), &[&files[..], &["--format", "json"]].concat(), "");
    let filters: serde_json::Value = serde_json::from_str(&told).unwrap();
    let accepted: Vec<_> =
        filters.as_array().unwrap().iter().map(|filter| filter["accepted"].as_bool().unwrap()).collect();
    assert_eq!(accepted, [false, true], "{told}");
    let mistakes = filters[0]["mistakes"].as_array().unwrap();
    let quota = mistakes.iter().find(|mistake| mistake["field"] == "/plans/free/standard/0").unwrap();
    assert_eq!((&quota["line"], &quota["column"]), (&3.into(), &16.into()), "{told}");
}

#[test]
fn the_cause_of_a_text_that_cannot_be_read_is_named_with_its_place() {
    const PLANS: &str = r#""plans": {"free": {"standard": ["60/minute"]}}"#;
    //  text, place and cause
    let rows = [
        (format!("{{{PLANS},}}"), "FILE:1:49: not JSON: a comma behind the last entry"),
        (format!("{{{PLANS}, // all\n}}"), "FILE:1:50: not JSON: a comment"),
        (
            format!("{{\n{}}}", PLANS.replace("\"plans\"", "\u{201c}plans\u{201d}")),
            "FILE:2:1: not JSON: a typographic quotation mark",
        ),
        (format!("{{\n  {PLANS}\n"), "FILE:1:1: not JSON: what begins here is not closed"),
        ("plans:\n\tfree: {standard: [60/minute]}\n".to_owned(), "a tab, where YAML is indented by spaces"),
        (
            "plans:\n    free:\n      standard: [60/minute]\n  pro: {}\n".to_owned(),
            "line 4, column 3: an indentation that fits no line before it",
        ),
        ("plans: {free: {standard: [60/minute]}\n".to_owned(), "neither JSON nor YAML: line "),
    ];
    for (text, expected) in rows {
        let (code, _, problem) = check(&text);
        assert!(code == 1 && problem.contains(expected), "{text}: {problem}");
    }
}

#[test]
fn a_quota_in_other_words_is_refused_with_the_form_that_works() {
    let rows = [
        ("60/min", r#"write "60/minute""#),
        ("60/5m", r#"write {"limit": 60, "window": "5m"}"#),
        ("100/10s", r#"write {"limit": 100, "window": "10s"}"#),
        ("60 per minute", r#"write "60/minute""#),
    ];
    for (quota, form) in rows {
        let text = |quota: &str| format!(r#"{{"plans": {{"free": {{"standard": [{quota}]}}}}}}"#);
        let (code, _, problem) = check(&text(&format!("\"{quota}\"")));
        assert!(code == 1 && problem.trim_end().ends_with(form), "{quota}: {problem}");
        let (code, told, problem) = check(&text(form.trim_start_matches("write ")));
        assert_eq!((code, problem.as_str()), (0, ""), "{form}: {told}");
    }
}

#[test]
fn what_is_warned_of_is_accepted_and_with_strict_refused() {
    let public = r#"{"plans": {"free": {"standard": ["60/minute"]}}}"#;
    let operators = r#"{"plans": {"free": {"standard": ["90/minute"]}}, "operators": {"path": "/weir", "tokens":
        [{"name": "on-call", "token": "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}]}}"#;
    let alike = &*operators.replace("90", "60");
    let monthly = r#"{"plans": {"free": {"standard": ["60/month"]}}}"#;
    //  files, what is warned of
    let rows = [
        (vec![public], None),
        (vec![monthly], Some("counts of a day or longer are lost")),
        (
            vec![public, operators],
            Some("warning: the operators' plans differ from those of 0.json, whose counts they read"),
        ),
        (
            vec![operators, public],
            Some("warning: the operators' plans differ from those of 1.json, whose counts they read"),
        ),
        (vec![alike, public], None),
        (vec![operators], None),
    ];
    for (files, warning) in rows {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..files.len()).map(|index| format!("{index}.json")).collect();
        for (name, text) in names.iter().zip(&files) {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (code, told, problem) = weir_in(folder.path(), &[&["check"], &names[..]].concat(), "");
        assert_eq!((code, problem.as_str()), (0, ""), "{files:?}: {told}");
        assert_eq!(told.contains("warning: "), warning.is_some(), "{files:?}: {told}");
        assert!(warning.is_none_or(|warning| told.contains(warning)), "{files:?}: {told}");
        let (code, ..) = weir_in(folder.path(), &[&["check", "--strict"], &names[..]].concat(), "");
        assert_eq!(code, i32::from(warning.is_some()), "{files:?}");
    }
}

#[test]
fn what_gateways_do_not_take_is_refused() {
    let text = r#"{"plans": {"free": {"standard": ["60/minute"]}}}"#;
    let wide = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
    let rows = [
        (marked, "a byte order mark"),
        ([vec![0xff, 0xfe], wide(u16::to_le_bytes)].concat(), "a text in UTF-16"),
        ([vec![0xfe, 0xff], wide(u16::to_be_bytes)].concat(), "a text in UTF-16"),
        (wide(u16::to_le_bytes), "a text in UTF-16"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (bytes, said) in rows {
        std::fs::write(folder.path().join("file"), bytes).unwrap();
        let (code, _, problem) = weir_in(folder.path(), &["check", "file"], "");
        assert!(code == 1 && problem.contains(said), "{said}: {problem}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let script = format!(
        "set -o pipefail; for _ in 1 2 3; do {} check envoy/envoy.yaml | head -c 1 >/dev/null; done",
        env!("CARGO_BIN_EXE_weir")
    );
    let (code, told, problem) =
        crate::run(std::process::Command::new("bash").args(["-c", &script]).current_dir(repository()), "");
    assert_eq!((code, told.as_str(), problem.as_str()), (0, "", ""));
}

#[test]
fn what_is_deployed_is_taken() {
    let deployed = [
        "envoy/envoy.yaml",
        "envoy/fleet/envoy.yaml",
        "tests/data/chart/istio-wasmplugin.yaml",
        "tests/data/chart/envoy-gateway.yaml",
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
