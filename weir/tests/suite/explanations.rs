//! `weir explain`: the decision that the filter logs.

use std::fs;

use crate::{CONFIGURATION, guests, weir_in};

/// Logs a decision on each request at debug level, and answers 403 to one with `x-key: bad`.
const GUEST: &str = r#"(module
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response"
    (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  ;; prelude
  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $log (i32.const 1) (str "decision {\22plan\22:\22free\22,\22key\22:\22header x-key\22,\22quotas\22:[]}")))
    (if (i32.eqz (call $get (i32.const 0) (str "x-key") (i32.const 16) (i32.const 20)))
      (then (if (call $result_begins (str "bad"))
        (then
          (drop (call $reply (i32.const 403) (str "denied") (str "") (str "") (i32.const -1)))
          (return (i32.const 1))))))
    (i32.const 0))
)"#;

fn explain(arguments: &[&str]) -> (i32, String, String) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), guests::assemble(GUEST).unwrap()).unwrap();
    fs::write(directory.path().join("silent.wasm"), guests::guest("limiter")).unwrap();
    fs::write(directory.path().join("config"), CONFIGURATION).unwrap();
    fs::write(directory.path().join("bad"), r#"{"plan": {}}"#).unwrap();
    weir_in(directory.path(), &[&["explain"], arguments].concat(), "")
}

#[test]
fn the_filters_own_decision_is_printed_with_the_answer() {
    const FIELDS: &str = "key           header x-key\nplan          free\nquotas        none\n";
    let line = r#"{"start_time":"2026-01-02T00:00:00Z","path":"/a","response_code":204,"api_key":"bad"}"#;
    //  arguments, the answer
    let rows: [(&[&str], &str); 4] = [
        (&["--path", "/a"], "200 from the upstream"),
        (&["--header", "x-key: bad", "--repeat", "3"], "403 from the gateway, denied"),
        (&["--line", line, "--header", "x-key=api_key"], "403 from the gateway, denied"),
        (&["--line", line, "--header", "x-key=other"], "204 from the upstream"),
    ];
    for (arguments, answer) in rows {
        let (code, out, err) = explain(&[&["config", "--wasm", "filter.wasm"], arguments].concat());
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}: {out}");
        assert_eq!(out, format!("{FIELDS}answer        {answer}\n"), "{arguments:?}");
    }
    let (_, out, _) = explain(&["config", "--wasm", "filter.wasm", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["decisions"][0]["plan"], &report["answer"]["status"]), (&"free".into(), &200.into()));
}

#[test]
fn a_line_that_weir_refused_has_its_own_reason_beside_the_replay_of_the_request_alone() {
    let line = r#"{"time":"2026-01-02T00:00:00Z","path":"/a","status":429,"details":"weir_rate_limited",
        "weir":"outcome=limited subscriber=acme plan=free class=standard quota=standard"}"#;
    let (code, out, err) = explain(&["config", "--wasm", "filter.wasm", "--line", line]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let expected = "logged        outcome limited, subscriber acme, plan free, class standard, quota standard
key           header x-key
plan          free
quotas        none
answer        200 from the upstream
The gateway decided what is logged; the rest is this request alone, sent to a filter with empty counters.
";
    assert_eq!(out, expected);
}

#[test]
fn what_cannot_be_explained_is_said() {
    //  arguments, exit code, standard error
    let rows: [(&[&str], i32, &str); 9] = [
        (
            &["config", "--wasm", "silent.wasm"],
            1,
            "the filter logs no decision on this request: 200 from the upstream\n",
        ),
        (&["config", "--wasm", "absent.wasm"], 2, "error: absent.wasm: "),
        (
            &["config", "--wasm", "filter.wasm", "--header", "x-key"],
            2,
            "error: invalid value 'x-key' for '--header <HEADER>': expected NAME:VALUE",
        ),
        (
            &["config", "--wasm", "filter.wasm", "--line", "{}"],
            2,
            "error: --line: no time: none of start_time, ",
        ),
        (&["config", "--wasm", "filter.wasm", "--line", "{}", "--path", "/"], 2, "cannot be used with"),
        (
            &["config", "--wasm", "filter.wasm", "--keys", "config"],
            2,
            "error: --keys config: the configuration has no directory that would ask for it\n",
        ),
        (&["absent", "--wasm", "filter.wasm"], 2, "error: absent: "),
        (&["bad", "--wasm", "filter.wasm"], 1, "bad:1:10: plan: unknown field, did you mean plans?\n"),
        (&["--wasm", "filter.wasm"], 2, "required arguments were not provided"),
    ];
    for (arguments, code, said) in rows {
        let (found, out, err) = explain(arguments);
        assert!(found == code && err.contains(said), "{arguments:?}: {found:?} {out}{err}");
    }
}
