//! The published API clients, pointed at the gateway.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use backend::{ClickRules, LocationHeaders};
use http::HeaderName;
use jiff::Timestamp;
use serde_json::{Value, json};
use tests::backend::{Service, SteppedService};
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{get, post};
use tests::gateway::{Kind, wait_for_directory};
use tests::policy::Policy;
use tests::served::Served;
use tests::{artifacts, clock};

#[test]
fn the_python_client_works_and_gets_its_typed_error_at_the_61st_request_of_a_free_key() {
    let python = artifacts::python_with("tests/clients/python");
    let service = Service::start().unwrap();
    let setup = Setup::new(Policy::deployed().unwrap(), Upstream::At(service.address()));
    let envoy = Envoy::start(setup.keys_from(service.directory())).unwrap();
    wait_for_directory(&envoy);

    clock::wait_for_room(Duration::from_secs(60), Duration::from_secs(20));
    let mut story = Command::new(python);
    story
        .arg(artifacts::root().join("tests/clients/python/story.py"))
        .arg(format!("http://{}", envoy.address()))
        .args([service.keys.of("pro"), service.keys.of("free")]);
    succeed(&mut story);
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Lets a client make every call with every argument, on a clock that stands still and with links and clicks that are
/// known. The client is started by a command that takes the gateway's address, a key and the files that have the clicks
/// and the arguments.
fn make_every_call(kind: Kind, mut client: Command) {
    let clicks = artifacts::root().join("tests/clients/clicks.json");
    let arguments = artifacts::root().join("tests/clients/arguments.json");
    let table = read(&clicks);
    let header = |name| Some(HeaderName::from_static(name));
    let location = LocationHeaders {
        continent: header("x-continent"),
        country: header("x-country"),
        region: header("x-region"),
        city: header("x-city"),
    };
    let rules = ClickRules { location, trusted_hops: 1, ..ClickRules::default() };
    let start: Timestamp = "2026-03-15T09:34:56Z".parse().unwrap();
    let service = SteppedService::start_with(start, rules).unwrap();
    // Counted by the month, so that no call has to wait.
    let policy = Policy::deployed()
        .unwrap()
        .with_at("/plans/pro/standard", json!(["100000/month"]))
        .with_at("/plans/pro/analytics", json!(["100000/month"]));
    let setup = Setup::new(policy, Upstream::At(service.address())).keys_from(service.directory());
    let gateway = Served::start(&kind.served(), setup).unwrap();

    let key = service.keys.of("pro");
    let visitor = Client::to(gateway.address()).unwrap();
    let fixture = read(&arguments);
    for tag in fixture["tags"].as_array().unwrap() {
        assert_eq!(visitor.send(&post("/tags").json(tag).key(key)).unwrap().status(), 201, "{tag}");
    }
    let mut link = table["link"].clone();
    for folder in fixture["folders"].as_array().unwrap() {
        let made = visitor.send(&post("/folders").json(folder).key(key)).unwrap();
        assert_eq!(made.status(), 201, "{made}");
        if link["folderId"] == folder["name"] {
            link["folderId"] = made.json().unwrap()["id"].clone();
        }
    }
    for link in [&link].into_iter().chain(fixture["links"].as_array().unwrap()) {
        let created = visitor.send(&post("/links").json(link).key(key)).unwrap();
        assert_eq!(created.status(), 200, "{created}");
    }
    let mut hours_left = 3;
    for click in table["clicks"].as_array().unwrap() {
        let hours_ago = click["hoursAgo"].as_u64().unwrap();
        service.advance(Duration::from_secs(3600) * u32::try_from(hours_left - hours_ago).unwrap());
        hours_left = hours_ago;
        let path = format!("/r/clicked{}", click["query"].as_str().unwrap());
        let headers = click["headers"].as_object().unwrap();
        let request = headers
            .iter()
            .fold(get(path), |request, (name, value)| request.header(name, value.as_str().unwrap()));
        let answer = visitor.send(&request).unwrap();
        assert_eq!(answer.status(), 302, "{answer}");
        service.flush_clicks();
    }
    service.advance(Duration::from_secs(3600) * u32::try_from(hours_left).unwrap());

    for (name, path) in fixture["notServed"].as_object().unwrap() {
        let path = path.as_str().unwrap();
        let (request, status) = match path.strip_prefix("POST ") {
            Some(path) => (post(path).json(&json!({})), 405),
            None => (get(path), 404),
        };
        let answer = visitor.send(&request.key(key)).unwrap();
        assert_eq!(answer.status(), status, "{name}: {answer}");
    }

    client.arg(format!("http://{}", gateway.address())).arg(key).arg(clicks).arg(arguments);
    succeed(&mut client);
}

#[test]
fn the_python_client_makes_every_call_through_envoy() {
    let mut python = Command::new(artifacts::python_with("tests/clients/python"));
    python.arg(artifacts::root().join("tests/clients/python/every_call.py"));
    make_every_call(Kind::Envoy, python);
}

#[test]
fn the_typescript_client_makes_every_call_through_the_simulator() {
    let mut node = Command::new("node");
    node.arg(artifacts::root().join("tests/clients/typescript/every_call.mjs"));
    node.arg(artifacts::node_modules("tests/clients/typescript"));
    make_every_call(Kind::SIMULATOR, node);
}

/// The rows of a table in the documentation that starts with this heading: the code in its first column, and its second.
fn documented(heading: &str) -> Vec<(Vec<String>, String)> {
    let text = std::fs::read_to_string(artifacts::root().join("backend/README.md")).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let code = cells[0].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (code, cells[1].trim().to_owned())
    });
    rows.collect()
}

#[test]
fn the_documentation_of_filters_is_what_the_clients_see() {
    let table = read(&artifacts::root().join("tests/clients/arguments.json"));
    let groups = |names: &[&str]| {
        let cases = names.iter().flat_map(|name| table["groups"][name].as_object().unwrap().clone());
        cases.map(|(argument, cases)| (argument, cases.as_array().unwrap().clone())).collect::<Vec<_>>()
    };
    let is_none = |case: &Value| case["get"] == 0 || case["get"] == json!([]);
    for (heading, filters, not_filters) in [
        (
            "| filter of `/analytics` and `/events` |",
            groups(&["clicks", "conversions", "groupings"]),
            &["interval", "start", "end", "timezone", "groupBy"][..],
        ),
        ("| filter of `/links` and `/links/count` |", groups(&["links"]), &[]),
        ("| filter of `/tags` |", groups(&["tags"]), &["sortBy", "sortOrder", "page", "pageSize"]),
        ("| filter of `/folders` |", groups(&["folders"]), &["page", "pageSize"]),
        ("| filter of `/domains` |", groups(&["domains"]), &["page", "pageSize"]),
    ] {
        let rows = documented(heading);
        let matches = |code: &str, argument: &str| {
            code == argument || code.strip_suffix('*').is_some_and(|start| argument.starts_with(start))
        };
        for (argument, cases) in &filters {
            let named = |code: &String| matches(code.split('=').next().unwrap(), argument);
            let is_documented = rows.iter().any(|(codes, _)| codes.iter().any(named));
            assert_ne!(is_documented, not_filters.contains(&argument.as_str()), "{argument} under {heading}");
            for (codes, result) in &rows {
                for code in codes {
                    let (name, value) = code.split_once('=').unwrap_or((code, ""));
                    if !matches(name, argument) {
                        continue;
                    }
                    let given = |case: &&Value| {
                        let give = &case["give"];
                        value.is_empty()
                            || give == value
                            || give.as_bool().is_some_and(|flag| flag.to_string() == value)
                    };
                    let cases: Vec<&Value> = cases.iter().filter(given).collect();
                    let seen = match result.split([':', ';', ',', ' ']).next().unwrap() {
                        "422" => cases.iter().all(|case| case["refuse"][0] == "unprocessable_entity"),
                        "yes" => cases.iter().any(|case| !case["get"].is_null() && !is_none(case)),
                        "all" => cases.iter().all(|case| !is_none(case)),
                        "no" => cases.iter().any(|case| is_none(case)),
                        other => panic!("{code}: {other} is none of the results"),
                    };
                    assert!(seen && !cases.is_empty(), "{code}: documented as {result:?}, seen as {cases:?}");
                }
            }
        }
    }
}
