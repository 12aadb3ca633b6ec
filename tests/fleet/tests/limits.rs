//! What `weir-limits` prints, loaded into the services and asked.

use std::process::{Command, Output, Stdio};

use fleet::client::Client;
use fleet::gateways::{Service, serve};
use fleet::redis::{Memory, Redis};
use fleet::wire::{Code, RateLimitRequest, Unit, descriptor, request};
use serde_json::{Value, json};
use tests::{artifacts, policy};

/// The command's output for a configuration on its standard input.
fn command(service: &str, configuration: &Value) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("configuration");
    std::fs::write(&file, configuration.to_string()).unwrap();
    Command::new(artifacts::command("weir-limits"))
        .args([service, "-"])
        .stdin(Stdio::from(std::fs::File::open(file).unwrap()))
        .output()
        .unwrap()
}

fn configuration(window_index: bool) -> Value {
    json!({
        "plans": {
            "free": {"standard": ["60/minute"]},
            "pro": {"standard": ["600/minute", "20/second"], "analytics": ["10000/day"]},
        },
        "classes": [{"name": "analytics", "match": [{"path": "/analytics"}]}],
        "subscribers": [
            {"id": "acme", "plan": "pro", "keys": [policy::hash("acme's")], "limits": {"standard": ["900/minute"]}},
            {"id": "hourly", "plan": "free", "keys": [policy::hash("hourly's")], "limits": {"standard": ["1000/hour"]}},
        ],
        "count_by": "subscriber",
        "fleet": {"cluster": "ratelimit", "limits": "configured", "window_index": window_index},
    })
}

/// SHA-256 of the domain (its length in eight bytes, then itself), of what is counted, and of its name: the first 16 bytes.
fn who(subscriber: &str) -> String {
    policy::hash(&format!("\u{4}\0\0\0\0\0\0\0weirsubscriber{subscriber}"))["sha256:".len()..][..32]
        .to_owned()
}

/// Class, window and plan, who, and the limit.
type Row = ([&'static str; 3], String, Option<(u32, Unit)>);

/// Descriptors as gateways send them, and the limits that the configuration gives them.
fn rows() -> Vec<Row> {
    vec![
        (["standard", "minute", "free"], who("somebody"), Some((60, Unit::Minute))),
        (["standard", "minute", "pro"], who("somebody"), Some((600, Unit::Minute))),
        (["standard", "second", "pro"], who("somebody"), Some((20, Unit::Second))),
        (["analytics", "day", "pro"], who("somebody"), Some((10_000, Unit::Day))),
        (["standard", "minute", "pro"], who("acme"), Some((900, Unit::Minute))),
        (["analytics", "day", "pro"], who("acme"), Some((10_000, Unit::Day))),
        (["standard", "hour", "free"], who("hourly"), Some((1000, Unit::Hour))),
        (["standard", "hour", "free"], who("somebody"), None),
        (["analytics", "minute", "free"], who("somebody"), None),
    ]
}

fn asking([class, window, plan]: [&str; 3], index: bool, who: &str, hits: u32) -> RateLimitRequest {
    let mut entries = vec![("class", class), ("window", window), ("plan", plan)];
    entries.extend(index.then_some(("index", "29000000")));
    entries.push(("who", who));
    request("weir", descriptor(&entries), hits)
}

#[test]
fn envoyproxys_service_finds_each_limit_in_the_tree() {
    let redis = Redis::start(Memory::Volatile).unwrap();
    for index in [false, true] {
        let made = command("envoyproxy", &configuration(index));
        assert!(made.status.success(), "{made:?}");
        let yaml = String::from_utf8(made.stdout).unwrap();
        let server = serve(&Service::Envoyproxy(yaml), &redis.url()).unwrap();
        let client = Client::to(server.address()).unwrap();
        for (entries, who, expected) in rows() {
            let answer = client.ask(asking(entries, index, &who, 1)).unwrap();
            let limit = answer.statuses[0].current_limit.as_ref();
            let limit = limit.map(|limit| (limit.requests_per_unit, Unit::from_number(limit.unit).unwrap()));
            assert_eq!(limit, expected, "{entries:?} {who}, index: {index}");
        }
    }
}

#[test]
fn limitador_admits_each_limit_and_no_more() {
    let redis = Redis::start(Memory::Volatile).unwrap();
    let made = command("limitador", &configuration(true));
    assert!(made.status.success(), "{made:?}");
    let server = serve(&Service::Limitador(String::from_utf8(made.stdout).unwrap()), &redis.url()).unwrap();
    let client = Client::to(server.address()).unwrap();
    let code = |request| client.ask(request).unwrap().overall_code();
    for (entries, who, expected) in rows() {
        // Of what a second admits the second may be over before it is asked again, but not before it is asked at once.
        let limit = expected.map_or(1_000_000, |(limit, _)| limit);
        assert_eq!(
            code(asking(entries, true, &who, limit + u32::from(expected.is_none()))),
            Code::Ok,
            "{entries:?} {who}"
        );
        let more = if expected.is_some() { Code::OverLimit } else { Code::Ok };
        assert_eq!(code(asking(entries, true, &who, limit + 1)), more, "{entries:?} {who}");
    }
}

#[test]
fn the_files_beside_the_compose_file_are_what_the_command_prints() {
    let root = artifacts::root().join("envoy/fleet");
    let rows = [
        ("envoyproxy", "envoy.yaml", "ratelimit/weir.yaml"),
        ("limitador", "limitador/weir.json", "limitador/limits.yaml"),
    ];
    for (service, from, expected) in rows {
        let made = Command::new(artifacts::command("weir-limits"))
            .arg(service)
            .arg(root.join(from))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        assert_eq!(
            String::from_utf8(made.stdout).unwrap(),
            std::fs::read_to_string(root.join(expected)).unwrap(),
            "{expected}"
        );
    }
}

#[test]
fn a_configuration_that_does_not_do_ends_with_one_line_and_a_status() {
    let mut sent = configuration(true);
    sent["fleet"]["limits"] = json!("sent");
    let refused = command("limitador", &sent);
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(
        (refused.status.code(), refused.stdout.as_slice(), message.lines().count()),
        (Some(1), &b""[..], 1),
        "{message}"
    );
    assert!(message.contains(r#"set "limits": "configured""#), "{message}");
    let missing =
        Command::new(artifacts::command("weir-limits")).args(["envoyproxy", "/nowhere"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8(missing.stderr).unwrap().starts_with("error: /nowhere: "));
    let wrong = Command::new(artifacts::command("weir-limits")).args(["gubernator", "-"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
