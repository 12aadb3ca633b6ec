//! `host-sim run --against`: scenarios beside the real Envoy of `envoy/get-envoy.sh`.

use std::{fs, path::Path, process::Command, sync::LazyLock};

use crate::{commands::host_sim, guests};

/// The path of an Envoy.
static ENVOY: LazyLock<String> = LazyLock::new(|| {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../envoy/get-envoy.sh");
    let output = Command::new(script).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
});

/// A filter that writes the time into the log, a request to the upstream, a call to a cluster and a response.
const MOMENTS: &str = r#"(module
  (import "env" "proxy_get_current_time_nanoseconds" (func $now (param i32) (result i32)))
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_replace_header_map_value" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_http_call"
    (func $http_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response"
    (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  ;; prelude
  (func $size (result i32) (i32.sub (global.get $line) (i32.const 1024)))
  (func $tell (param $map i32)
    (drop (call $now (i32.const 32)))
    (call $put (str "at ")) (call $put_number (i32.wrap_i64 (i64.load (i32.const 32)))) (call $put (str " ns, here"))
    (drop (call $replace (local.get $map) (str "x-moment") (i32.const 1024) (call $size))))
  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (call $tell (i32.const 0))
    (drop (call $http_call (str "auth")
      (str "\03\00\00\00\07\00\00\00\04\00\00\00\05\00\00\00\06\00\00\00\0a\00\00\00\04\00\00\00:method\00POST\00:path\00/check\00:authority\00auth\00")
      (i32.const 1024) (call $size) (str "") (i32.const 500) (i32.const 48)))
    (if (call $result_begins (str "/reply"))
      (then (drop (call $reply (i32.const 429) (str "") (i32.const 1024) (call $size) (str "") (i32.const -1)))))
    (call $say)
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $tell (i32.const 2))
    (call $say)
    (i32.const 0))
)"#;

/// A filter that takes a header from requests for `/removed`, and writes the status of each answer into the log.
const REMOVES: &str = r#"(module
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_remove_header_map_value" (func $remove (param i32 i32 i32) (result i32)))
  ;; prelude
  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (if (call $result_begins (str "/removed"))
      (then
        (drop (call $remove (i32.const 0) (str "x-forwarded-proto")))
        (drop (call $add (i32.const 0) (str "x-more") (str "1")))))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $note_result (str "answered") (call $get (i32.const 2) (str ":status") (i32.const 16) (i32.const 20)))
    (i32.const 0))
)"#;

/// Runs a scenario with a guest: exit code, standard output and standard error.
fn run(guest: &str, scenario: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let module = match guest {
        "moments" => guests::assemble(MOMENTS).unwrap(),
        "removes" => guests::assemble(REMOVES).unwrap(),
        named => guests::guest(named),
    };
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), module).unwrap();
    fs::write(directory.path().join("one.yaml"), scenario).unwrap();
    host_sim(&[&["run", "--wasm", "filter.wasm", "one.yaml"], arguments].concat(), directory.path())
}

fn against(guest: &str, scenario: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    run(guest, scenario, &[&["--against", &ENVOY], arguments].concat())
}

#[test]
fn a_scenario_that_envoy_answers_alike_passes() {
    //  guest, scenario
    let rows = [
        (
            "limiter",
            r#"
workers: 2
upstream: [{status: 201, headers: {x-up: [a, b]}, body: made}, {status: 202, after: 50ms}]
steps:
- {request: {path: /k}, expect: {status: 201, body: made, forwarded: true, headers: {x-up: "a,b"}}}
- {request: {path: /k}, repeat: 3, expect: {status: 202, details: via_upstream, local_reply: false}}
- {request: {path: /k, http2: true}, upstream: {reset: true}, expect: {status: 503, forwarded_headers: {":path": /k}}}
- {advance: 1s}
- {request: {path: /k}, expect: {status: 429, details: limited, local_reply: true, forwarded: false}}"#,
        ),
        (
            "bodies",
            r#"
upstream: {body: def}
steps:
- request: {method: POST, path: /pass, body: abc, trailers: {x-sum: "6"}, http2: true}
  expect: {body: def, forwarded_body: abc, forwarded_headers: {":method": POST}, not_logged: [panicked]}"#,
        ),
        (
            "callouts",
            r#"
clusters: {auth: [{status: 200, body: "yes"}, {status: 403}]}
steps:
- request: {path: /}
  expect: {status: 200, log: ["body yes"], callouts: [{cluster: auth, body: ask, headers: {":path": /check, x-absent: null}}]}
- {request: {path: /}, expect: {status: 403, details: denied, forwarded: false}}
- {request: {path: /unknown}, expect: {status: 200, callouts: []}}"#,
        ),
        (
            "configuration",
            r#"
config: first
steps:
- {request: {path: /}, expect: {headers: {x-configuration: first}}}
- {update: second, expect: {log: [configure second]}}
- {update: bad, expect: {refused: true}}
- {request: {path: /}, expect: {headers: {x-configuration: second}}}"#,
        ),
        ("metrics", "steps: [{request: {path: /}, expect: {status: 200, metrics: {made.counter: 5}}}]"),
    ];
    for (guest, scenario) in rows {
        let (code, out, err) = against(guest, scenario, &[]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{guest}: {out}");
        assert!(out.contains(" 0 missed, 0 not comparable with Envoy 1.40.0\n"), "{guest}: {out}");
    }
}

#[test]
fn a_scenario_that_holds_here_and_not_in_envoy_shows_the_lines_that_differ() {
    let scenario = r#"
steps:
- name: a header without which Envoy finds no route
  request: {path: /removed}
  expect: {status: 200, not_logged: ["answered 404"]}
- name: a request that is alike
  request: {path: /}
  expect: {status: 200}"#;
    let (code, out, err) = run("removes", scenario, &[]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let (code, out, err) = against("removes", scenario, &[]);
    let summary = "1 scenario, 2 steps, 1 missed, 0 not comparable with Envoy 1.40.0\n";
    assert_eq!((code, err.as_str()), (Some(1), summary), "{out}");
    assert!(out.contains("  MISS   1  a header without which Envoy finds no route\n"), "{out}");
    assert!(out.contains("log: - host-sim, + Envoy\n"), "{out}");
    assert!(out.contains("            - answered 200\n            + answered 404\n"), "{out}");
    assert!(out.contains("not_logged in Envoy\n"), "{out}");
    assert!(out.contains("  ok     2  a request that is alike\n"), "{out}");
    // What follows the mask is not compared.
    let (_, out, _) = against("removes", scenario, &["--mask", "answered "]);
    assert!(!out.contains("log: - host-sim, + Envoy\n"), "{out}");
}

#[test]
fn a_mask_hides_a_value_from_the_comparison_wherever_it_is_told() {
    let scenario = r#"
clusters: {auth: {}}
steps:
- request: {path: /}
  expect:
    forwarded_headers: {x-moment: "at 3992584192 ns, here"}
    callouts: [{body: "at 3992584192 ns, here"}]
    log: ["at 3992584192 ns"]
- request: {path: /reply}
  expect: {status: 429, body_contains: "at 3992584192 ns", headers: {x-moment: "at 3992584192 ns, here"}}"#;
    for mask in ["at * ns", "at "] {
        let (code, out, err) = against("moments", scenario, &["--mask", mask]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{mask}: {out}");
    }
    // What is reported in another way is compared.
    let scenario = r#"
steps: [{request: {path: /reply}, expect: {headers: {x-moment: "at 3992584192 ns, here"}}}]"#;
    let (code, out, err) = against("moments", scenario, &["--mask", "x-moment: "]);
    assert!(code == Some(1) && !out.contains("headers.x-moment"), "{code:?} {out}{err}");
    for line in [
        "  answered x-moment: …\n",
        "- answered body \"at ",
        "+ answered body \"at ",
        "log: - host-sim, + Envoy\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
}

#[test]
fn steps_that_envoy_cannot_take_are_named_with_their_reasons() {
    let reasons = [
        ("{advance: 60s}", "advance: Envoy's clock cannot be stepped"),
        ("{wall: 2027-01-01T00:00:00Z}", "wall: Envoy's clock cannot be set"),
        ("{fault: {call: proxy_log, status: InternalFailure}}", "fault: "),
        ("{interleave: {requests: [{path: /}]}}", "interleave: "),
        ("{request: {path: /, source: '192.0.2.1:1'}}", "request.source: "),
        (
            "{request: {path: /}, expect: {shared_data_entries_at_most: 9}}",
            "shared_data_entries_at_most: Envoy does not show its shared data",
        ),
        // Trailers over HTTP/1 reach the filter only without a socket.
        (
            "{request: {path: /, trailers: {x-sum: a}}, expect: {forwarded_trailers: {x-sum: a}}}",
            "forwarded_trailers.x-sum: expected \"a\"; over sockets and on the real clock, host-sim and Envoy both have \"(absent)\"",
        ),
    ];
    for (step, reason) in reasons {
        let (code, out, err) = against("limiter", &format!("steps: [{step}]"), &[]);
        let summary = "1 scenario, 1 step, 0 missed, 1 not comparable with Envoy 1.40.0\n";
        assert_eq!((code, err.as_str()), (Some(3), summary), "{step}: {out}");
        assert!(out.contains("  N/C    1  ") && out.contains(&format!("not comparable: {reason}")), "{out}");
    }
    let later = "steps: [{request: {path: /}}, {clear_faults: true}, {request: {path: /}}]";
    let (code, out, _) = against("limiter", later, &["--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let said = |step: usize| report["scenarios"][0]["steps"][step]["not_comparable"].clone();
    let after = "Envoy has not taken step 2, which comes before this one";
    assert_eq!(
        (code, said(0), said(2)),
        (Some(3), serde_json::json!([]), serde_json::json!([after])),
        "{out}"
    );
    let (code, out, _) = against("limiter", later, &["--property", "xds.cluster_name=a"]);
    assert_eq!((code, out.matches("not comparable: --property: ").count()), (Some(3), 3), "{out}");
}

#[test]
fn without_an_envoy_the_command_says_how_to_get_one() {
    let steps = "steps: [{request: {path: /}}]";
    //  Envoy, options, what is said
    let rows: [(&str, &[&str], &str); 4] = [
        ("no-such-envoy", &[], "error: cannot run no-such-envoy: "),
        ("./filter.wasm", &[], "envoy/get-envoy.sh fetches one and prints its path"),
        (env!("CARGO_BIN_EXE_host-sim"), &[], "is not an Envoy from 1.36 on: --version prints \"host-sim "),
        (&ENVOY, &["--host", "ngx"], "error: --host ngx is for check"),
    ];
    for (envoy, options, said) in rows {
        let (code, out, err) = run("limiter", steps, &[&["--against", envoy], options].concat());
        assert!(code == Some(2) && err.contains(said) && out.is_empty(), "{envoy}: {code:?} {out}{err}");
    }
    let (code, out, err) = against("limiter", steps, &["--host", "envoy-1.36"]);
    assert!(code == Some(0) && err.contains("give --host envoy-1.40"), "{code:?} {out}{err}");
}
