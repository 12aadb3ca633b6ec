//! `weir replay --baseline`: the same traffic through two configurations.

use std::fs;

use demo::artifacts::filter_wasm;
use demo::policy::hash;
use serde_json::{Value, json};

use crate::{replays, weir_in};

fn limits() -> Value {
    let mut limits = replays::limits();
    limits["unknown_key"] = json!({"action": "reject"});
    limits
}

/// Five requests and three reports by acme, five requests by other, and four by an address.
fn log() -> String {
    let mut log = String::new();
    for (key, path, count) in
        [("k", "/links", 5), ("k", "/reports", 3), ("m", "/links", 5), ("-", "/links", 4)]
    {
        for _ in 0..count {
            let second = log.lines().count();
            let line = json!({"time": format!("2026-01-02T00:00:{second:02}Z"), "path": path, "client": "203.0.113.7", "key": key});
            log += &format!("{line}\n");
        }
    }
    log
}

fn compared(after: &Value, format: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    write("old.json", limits().to_string());
    write("new.json", after.to_string());
    write("access.log", log());
    let wasm = filter_wasm().to_str().unwrap();
    let arguments = [
        "replay",
        "--baseline",
        "old.json",
        "new.json",
        "access.log",
        "--header",
        "authorization=key",
        "--wasm",
        wasm,
        "--format",
        format,
    ];
    let (code, out, err) = weir_in(folder.path(), &arguments, "");
    assert_eq!(err, "", "{out}");
    (code, out)
}

#[test]
fn each_planted_difference_is_found_and_nothing_else() {
    type Change = fn(&mut Value);
    //  what changes, subscribers with their refused requests before and after, what only one has, exit code
    type Row<'r> = (&'r str, Change, &'r [(&'r str, u64, u64)], &'r [(&'r str, &'r str, &'r str)], i32);
    let rows: [Row<'_>; 8] = [
        ("nothing", |_| {}, &[], &[], 0),
        (
            "how it is written",
            |new| new["plans"]["free"]["standard"] = json!([{"limit": 60, "window": "60s"}]),
            &[],
            &[],
            0,
        ),
        (
            "a lower limit",
            |new| new["plans"]["free"]["standard"] = json!(["4/minute"]),
            &[("acme", 1, 2), ("other", 0, 1)],
            &[],
            3,
        ),
        (
            "a higher limit",
            |new| new["missing_key"]["quotas"] = json!(["4/minute"]),
            &[("address 203.0.113.7", 1, 0)],
            &[],
            0,
        ),
        (
            "an agreement",
            |new| new["subscribers"][1]["limits"] = json!({"standard": ["2/minute"]}),
            &[("other", 0, 3)],
            &[],
            3,
        ),
        (
            "a key that vanishes",
            |new| new["subscribers"][0]["keys"] = json!([hash("l")]),
            &[("acme", 1, 8)],
            &[("key", "1 of acme", "vanishes")],
            3,
        ),
        (
            "a key that appears",
            |new| new["subscribers"][1]["keys"] = json!([hash("m"), hash("n")]),
            &[],
            &[("key", "1 of other", "appears")],
            0,
        ),
        (
            "a class that appears in the place of another",
            |new| {
                new["classes"][0]["name"] = json!("bulk");
                new["plans"]["free"] = json!({"standard": ["60/minute"], "bulk": ["3/minute"]});
            },
            &[("acme", 1, 0)],
            &[("class", "bulk", "appears"), ("class", "reports", "vanishes")],
            0,
        ),
    ];
    for (what, change, subscribers, only, expected) in rows {
        let mut after = limits();
        change(&mut after);
        let (code, out) = compared(&after, "json");
        let report: Value = serde_json::from_str(&out).unwrap();
        let row = |row: &Value, names: [&str; 3]| names.map(|name| row[name].clone());
        let found: Vec<_> = report["subscribers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|of| row(of, ["subscriber", "refused_before", "refused_after"]))
            .collect();
        let wanted: Vec<_> = subscribers
            .iter()
            .map(|(name, before, after)| [json!(name), json!(before), json!(after)])
            .collect();
        assert_eq!((found, code), (wanted, expected), "{what}: {report:#}");
        let found: Vec<_> =
            report["only"].as_array().unwrap().iter().map(|of| row(of, ["what", "which", "fate"])).collect();
        let wanted: Vec<_> =
            only.iter().map(|(what, which, fate)| [json!(what), json!(which), json!(fate)]).collect();
        assert_eq!(found, wanted, "{what}: {report:#}");
    }
}

#[test]
fn a_comparison_is_a_comment_on_a_pull_request() {
    let (code, out) = compared(&limits(), "markdown");
    assert_eq!(code, 0);
    assert!(
        out.starts_with("No difference: of 17 requests, both configurations refuse the same 2.\n"),
        "{out}"
    );
    assert!(!out.contains('|'), "{out}");
    let mut after = limits();
    after["plans"]["free"]["standard"] = json!(["4/minute"]);
    let (code, out) = compared(&after, "markdown");
    assert_eq!(code, 3);
    let expected = "Of 17 requests, 2 were refused before, and 4 are refused after.

Callers: 13 by key, 4 by client address.

### Who fares differently

| subscriber | requests | refused before | refused after | change | first refusal |
| --- | ---: | ---: | ---: | ---: | --- |
| acme | 8 | 1 | 2 | +1 | 2026-01-02T00:00:04Z, quota standard |
| other | 5 | 0 | 1 | +1 | 2026-01-02T00:00:12Z, quota standard |

### By plan and class

| plan | class | requests | refused before | refused after | change |
| --- | --- | ---: | ---: | ---: | ---: |
| free | standard | 10 | 0 | 2 | +2 |
";
    assert_eq!(out, expected);
}
