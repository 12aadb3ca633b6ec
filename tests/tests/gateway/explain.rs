//! `weir explain` with the built filter: the decision comes from the filter, without the key, and the line costs nothing unless
//! the configuration asks for it.

use std::process::Command;
use std::sync::{Arc, Mutex};

use host_sim::{Flavour, Host, LogLevel, Request, Response};
use serde_json::json;
use tests::artifacts;
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{get, post};
use tests::gateway::{module, plugin};
use tests::policy::Policy;

const KEY: &str = "a-key-that-is-not-logged";

fn policy() -> Policy {
    Policy::contract().expect("the contract").subscriber("acme", "free", KEY)
}

/// Runs the command with a configuration: whether it succeeds, and what it prints.
fn explain(configuration: &str, arguments: &[&str]) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, configuration).expect("the configuration's file");
    let output = Command::new(artifacts::command("weir"))
        .current_dir(folder.path())
        // The repository's bootstrap names it.
        .env("WEIR_DIRECTORY_TOKEN", "any")
        .arg("explain")
        .arg(&config)
        .arg("--wasm")
        .arg(artifacts::filter_wasm())
        .args(arguments)
        .output()
        .expect("weir runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

/// The value that is printed beside a name.
fn value<'o>(out: &'o str, name: &str) -> Option<&'o str> {
    let line = out.lines().find_map(|line| line.strip_prefix(name));
    line.filter(|rest| rest.starts_with(' ')).map(str::trim)
}

#[test]
fn the_way_of_a_request_is_explained_from_its_key_to_the_answer() {
    let header = format!("authorization: Bearer {KEY}");
    //  arguments: key, subscriber, plan, class, decision, answer
    type Row<'a> = (&'a [&'a str], [Option<&'a str>; 6]);
    let rows: [Row<'_>; 4] = [
        (
            &["--path", "/links", "--header", &header],
            [
                Some("header authorization"),
                Some("acme"),
                Some("free"),
                Some("standard"),
                Some("forwarded"),
                Some("200 from the upstream"),
            ],
        ),
        (
            &["--path", "/links", "--header", &header, "--repeat", "61"],
            [
                Some("header authorization"),
                Some("acme"),
                Some("free"),
                Some("standard"),
                Some("answered 429 weir_rate_limited"),
                Some("429 from the gateway, weir_rate_limited"),
            ],
        ),
        (
            &["--path", "/analytics", "--header", &header],
            [
                Some("header authorization"),
                Some("acme"),
                Some("free"),
                Some("analytics"),
                Some("answered 403 weir_not_in_plan"),
                Some("403 from the gateway, weir_not_in_plan"),
            ],
        ),
        (
            &["--path", "/links", "--source", "192.0.2.1"],
            [Some("none"), None, None, Some("standard"), Some("forwarded"), Some("200 from the upstream")],
        ),
    ];
    for (arguments, expected) in rows {
        let (succeeded, out) = explain(&policy().to_string(), arguments);
        assert!(succeeded && !out.contains(KEY), "{arguments:?}: {out}");
        let fields = ["key", "subscriber", "plan", "class", "decision", "answer"];
        assert_eq!(fields.map(|field| value(&out, field)), expected, "{arguments:?}: {out}");
    }
    let (_, out) = explain(&policy().to_string(), rows[1].0);
    let quota = value(&out, "quotas").expect("a quota");
    for part in ["exhausted true", "limit 60", "remaining 0", "window 60", "mode enforced"] {
        assert!(quota.contains(part), "{part} in {quota}");
    }
}

#[test]
fn configurations_of_gateways_lines_of_access_logs_and_directories_are_read() {
    let manifest = |kind: &str, api: &str, spec: serde_json::Value| {
        serde_json::json!({"apiVersion": api, "kind": kind, "metadata": {"name": "weir"}, "spec": spec})
            .to_string()
    };
    let policy = policy();
    let configuration = policy.as_value();
    let line = format!(
        r#"{{"start_time":"2026-01-02T00:00:00Z","method":"GET","path":"/links","response_code":200,"key":"Bearer {KEY}"}}"#
    );
    let wasm_plugin = manifest(
        "WasmPlugin",
        "extensions.istio.io/v1alpha1",
        serde_json::json!({"pluginConfig": configuration}),
    );
    let extension_policy = manifest(
        "EnvoyExtensionPolicy",
        "gateway.envoyproxy.io/v1alpha1",
        serde_json::json!({"wasm": [{"name": "weir", "config": configuration}]}),
    );
    for configuration in [wasm_plugin, extension_policy] {
        let (succeeded, out) = explain(&configuration, &["--line", &line, "--header", "authorization=key"]);
        assert!(succeeded, "{out}");
        assert_eq!(
            (value(&out, "subscriber"), value(&out, "decision")),
            (Some("acme"), Some("forwarded")),
            "{out}"
        );
        // The clock is the line's.
        assert!(out.contains("(2026-01-02T00:01:00Z)"), "{out}");
    }
    // The repository's bootstrap has its keys in a directory.
    let bootstrap = std::fs::read_to_string(artifacts::root().join("envoy/envoy.yaml")).expect("envoy.yaml");
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys.json");
    let hash = tests::policy::hash(KEY);
    let hash = hash.trim_start_matches("sha256:");
    let known =
        serde_json::json!({"keys": [{"sha256": hash, "subscriber": "in-the-directory", "plan": "free"}]});
    std::fs::write(&keys, known.to_string()).expect("the directory's file");
    let (header, keys) = (format!("authorization: Bearer {KEY}"), keys.display().to_string());
    let (succeeded, out) = explain(&bootstrap, &["--path", "/links", "--header", &header, "--keys", &keys]);
    assert!(succeeded, "{out}");
    assert_eq!(value(&out, "subscriber"), Some("in-the-directory"), "{out}");
    let (succeeded, out) = explain(&bootstrap, &["--path", "/links", "--header", &header]);
    assert!(succeeded && out.contains("this gateway has no cluster \"backend-internal\""), "{out}");
}

/// A configuration that logs decisions.
fn logging() -> Policy {
    policy().with("log_decisions", json!(true))
}

/// The host calls of two requests, one forwarded and one refused, and the level and text of each line that the filter logs.
fn calls(flavour: Flavour, policy: &Policy) -> (Vec<String>, Vec<(LogLevel, String)>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let host = Host::builder().flavour(flavour).log_level(LogLevel::Debug).on_trace(move |callback| {
        let calls = callback.calls.iter().map(|call| format!("{}: {}", callback.callback, call.call));
        sink.lock().expect("the calls").extend(calls);
    });
    let mut host = host.build();
    host.load(module(), plugin(policy)).expect("the filter");
    seen.lock().expect("the calls").clear();
    host.logs().take();
    for path in ["/links", "/analytics"] {
        let request = Request::get(path).header("authorization", format!("Bearer {KEY}"));
        host.send(request, |_| Response::ok());
    }
    assert_eq!(host.worker(0).vm_failure().map(|failure| failure.to_string()), None);
    let lines = host.logs().take().into_iter().filter(|line| !line.by_host);
    let calls = seen.lock().expect("the calls").clone();
    (calls, lines.map(|line| (line.level, line.message)).collect())
}

#[test]
fn each_decision_is_a_line_at_debug_level_where_the_configuration_says_so_and_costs_no_host_call_elsewhere() {
    for flavour in [Flavour::default(), Flavour::Ngx] {
        let (quiet, none) = calls(flavour, &policy());
        assert_eq!(none, [], "{flavour:?}");
        let (told, lines) = calls(flavour, &logging());
        let decisions: Vec<_> = lines
            .iter()
            .map(|(level, line)| (*level, line.starts_with("decision {"), line.contains(KEY)))
            .collect();
        assert_eq!(decisions, [(LogLevel::Debug, true, false); 2], "{flavour:?}: {lines:?}");
        let beyond = |calls: &[String], call: &str| calls.iter().filter(|seen| seen.ends_with(call)).count();
        assert_eq!([beyond(&quiet, ": proxy_log"), beyond(&told, ": proxy_log")], [0, 2], "{told:?}");
        // A line costs the call that logs it, and nothing else.
        assert_eq!(told.len(), quiet.len() + 2, "{flavour:?}: {told:?}");
    }
}

#[test]
fn envoy_logs_a_line_for_each_decision_at_debug_level() {
    let decisions =
        |envoy: &Envoy| envoy.log().lines().iter().filter(|line| line.contains("decision {")).count();
    let request = get("/links").key(KEY);
    for (policy, expected) in [(policy(), 0), (logging(), 3)] {
        let envoy = Envoy::start(Setup::new(policy, Upstream::DirectResponse).workers(1)).expect("Envoy");
        let admin = Client::to(envoy.admin_address()).expect("Envoy's admin interface");
        let level = |level: &str| {
            let changed = admin.send(&post(format!("/logging?wasm={level}")));
            assert_eq!(changed.expect("an answer of the admin interface").status(), 200);
        };
        let send = || assert_eq!(envoy.send(&request).expect("an answer").status(), 200);
        (0..3).for_each(|_| send());
        level("debug");
        (0..3).for_each(|_| send());
        level("info");
        send();
        assert_eq!(decisions(&envoy), expected);
        assert!(!envoy.log().contains(KEY));
    }
}
