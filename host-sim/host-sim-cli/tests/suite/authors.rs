//! What the author of a new filter meets where it fails: the first line of a miss names the cause and the place.

use std::{fs, path::Path};

use crate::commands::host_sim;

/// A filter with debug information, or without.
fn module(name: &str, with_lines: bool) -> Vec<u8> {
    let source = format!("{}/tests/authors/{name}.wat", env!("CARGO_MANIFEST_DIR"));
    let source = fs::read_to_string(source).unwrap();
    let mut parser = wat::Parser::new();
    if with_lines {
        parser.generate_dwarf(wat::GenerateDwarf::Full);
    }
    parser.parse_str(Some(Path::new(&format!("{name}.wat"))), source).unwrap()
}

/// Runs a scenario of one request, and gives what is printed of it.
fn missed(name: &str, with_lines: bool, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), module(name, with_lines)).unwrap();
    let scenario = "clusters: {backend: {}}\nsteps: [{request: {path: /, method: POST, body: hello}, expect: {status: 200}}]";
    fs::write(directory.path().join("one.yaml"), scenario).unwrap();
    let arguments = [&["run", "--wasm", "filter.wasm", "one.yaml"], arguments].concat();
    let (code, out, err) = host_sim(&arguments, directory.path());
    assert_eq!(code, Some(1), "{out}{err}");
    out
}

#[test]
fn a_miss_begins_with_its_cause_and_the_place() {
    //  filter, lines of the report after the step's own
    let rows: [(&str, &[&str]); 3] = [
        (
            "third_callback",
            &[
                "proxy_on_response_headers trapped: wasm trap: integer divide by zero, at divide (./third_callback.wat:13:6)",
            ],
        ),
        (
            "early_body",
            &[
                "proxy_on_request_headers trapped: wasm trap: wasm `unreachable` instruction executed, at read_body \
                 (./early_body.wat:9:6)",
                "the last call before it: proxy_get_buffer_bytes(buffer: request body, start: 0, length: 100) → Ok: nothing: \
                 no request body in proxy_on_request_headers: it is there in proxy_on_request_body, called at read_body \
                 (./early_body.wat:8:12)",
            ],
        ),
        (
            "unknown_cluster",
            &[
                "in proxy_on_request_headers: proxy_http_call(cluster: \"auth\", headers: {}, body: \"\", trailers: {}, timeout: \
                 1000) → BadArgument: no cluster `auth`; known: `backend`, called at ask (./unknown_cluster.wat:9:12)",
            ],
        ),
    ];
    for (name, expected) in rows {
        let out = missed(name, true, &[]);
        let said: Vec<_> = out.lines().skip(2).map(str::trim).take(expected.len()).collect();
        let expected: Vec<_> = expected.iter().map(|line| line.replace("  ", " ")).collect();
        assert_eq!(said, expected, "{out}");
    }
}

#[test]
fn a_trap_is_followed_by_the_log_the_backtrace_and_the_trace() {
    let out = missed("third_callback", true, &[]);
    let lines: Vec<_> = out.lines().map(str::trim).collect();
    let expected = [
        "log:",
        "[info][worker 0] a request arrives",
        "0: divide (./third_callback.wat:13:6)",
        "1: on_response (./third_callback.wat:17:6)",
        "trace:",
        "worker 0: proxy_on_context_create(context: 2, parent: 1)",
        "worker 0: proxy_on_request_headers(context: 2, headers: 9, end_of_stream: false) → Continue",
        "proxy_log(level: info, message: \"a request arrives\") → Ok",
        "worker 0: proxy_on_response_headers(context: 2, headers: 1, end_of_stream: true) → trapped",
    ];
    let mut rest = lines.iter();
    for line in expected {
        assert!(rest.any(|found| found.starts_with(line)), "{line:?} is missing or out of order:\n{out}");
    }
}

#[test]
fn a_module_without_debug_information_is_told_how_to_get_it() {
    let out = missed("third_callback", false, &[]);
    assert!(out.contains("integer divide by zero, at divide\n"), "{out}");
    assert!(out.contains("build it with `debug = true` and `strip = false` in its Cargo profile"), "{out}");
    let out = missed("third_callback", true, &[]);
    assert!(!out.contains("no debug information"), "{out}");
}

#[test]
fn reports_for_machines_have_the_cause_too() {
    let out = missed("unknown_cluster", true, &["--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let step = &report["scenarios"][0]["steps"][0];
    assert_eq!((&report["ok"], &step["ok"]), (&false.into(), &false.into()), "{out}");
    let call = &step["trace"][0]["calls"][0];
    assert_eq!(call["why"], "no cluster `auth`; known: `backend`", "{out}");
    assert_eq!(call["arguments"]["cluster"], "auth", "{out}");
    let out = missed("unknown_cluster", true, &["--format", "junit"]);
    assert!(out.contains("<failure message=\"in proxy_on_request_headers: proxy_http_call("), "{out}");
}

#[test]
fn check_prints_the_place_and_with_trace_what_came_before() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), module("third_callback", true)).unwrap();
    let check = |more: &[&str]| {
        let (code, out, err) =
            host_sim(&[&["check", "--wasm", "filter.wasm"], more].concat(), directory.path());
        assert_eq!(code, Some(1), "{out}{err}");
        (out, err)
    };
    let (out, err) = check(&[]);
    assert!(err.contains("integer divide by zero, at divide (./third_callback.wat:13:6)"), "{err}");
    assert!(!out.contains("proxy_on_request_headers("), "{out}");
    let (out, _) = check(&["--trace"]);
    assert!(out.contains("\n  proxy_log(level: info, message: \"a request arrives\") → Ok ["), "{out}");
    let (out, _) = check(&["--trace=json"]);
    let callbacks: Vec<serde_json::Value> =
        out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = callbacks.last().unwrap();
    assert_eq!(last["callback"], "proxy_on_response_headers", "{out}");
    assert!(last["trapped"].as_str().is_some_and(|trap| trap.contains("./third_callback.wat:13:6")), "{out}");
}
