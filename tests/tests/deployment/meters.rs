//! `envoy/meters`: what is given to others' meters, by their own types.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tests::artifacts;
use tests::policy;

use crate::tools::{json_of, pipe, schema_script, succeed, text};

const METERS: &str = "envoy/meters/openmeter.yaml";

/// What is wrong with each meter, event and set of parameters.
fn judged(meters: &[Value], events: &[Value], stripe: &[Value]) -> Value {
    let input = json!({"meters": meters, "events": events, "stripe": stripe});
    json_of(pipe(&mut schema_script("meters.mjs"), input.to_string().as_bytes()))
}

fn events() -> Vec<Value> {
    serde_json::from_str(&text("envoy/meters/usage-batch.json")).unwrap()
}

#[test]
fn openmeter_takes_the_events_as_they_are_and_its_meters_find_their_fields() {
    let meters = policy::yaml(METERS).unwrap()["meters"].as_array().unwrap().clone();
    let events = events();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["weir.usage", "weir.usage", "weir.usage.strangers", "weir.threshold"]);
    let found = judged(&meters, &events, &[]);
    assert_eq!((&found["meters"], &found["events"]), (&json!([[], [], [], []]), &json!([[], [], [], []])));
    for meter in &meters {
        let of_type = |event: &&Value| event["type"] == meter["eventType"];
        let data = &events.iter().find(of_type).unwrap_or_else(|| panic!("no event for {meter}"))["data"];
        let groups = meter["groupBy"].as_object().unwrap().values();
        for property in groups.chain(meter.get("valueProperty")) {
            let field = property.as_str().unwrap().strip_prefix("$.").unwrap();
            assert!(data.get(field).is_some(), "{meter}: {data} has no {field}");
        }
    }
    // A schema that takes everything would find nothing.
    let broken = |mut value: Value, field: &str, with: Value| {
        value[field] = with;
        value
    };
    let bad_meters = [
        broken(meters[0].clone(), "slug", json!("api-units")),
        broken(meters[0].clone(), "aggregation", json!("TOTAL")),
        broken(meters[0].clone(), "value", json!("$.units")),
    ];
    let bad_events = [
        broken(events[0].clone(), "subject", json!("")),
        broken(events[0].clone(), "data", json!([])),
        broken(events[0].clone(), "time", json!("soon")),
    ];
    let found = judged(&bad_meters, &bad_events, &[]);
    for (kind, places) in
        [("meters", ["slug", "aggregation", "value"]), ("events", ["subject", "data", "time"])]
    {
        for (errors, place) in found[kind].as_array().unwrap().iter().zip(places) {
            assert!(errors.to_string().contains(place), "{kind}: {errors}");
        }
    }
}

/// Answers requests as Stripe does, and returns their fields once there were `count`.
fn stripe(listener: &TcpListener, count: usize) -> Vec<BTreeMap<String, String>> {
    let answer = |_| {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(&stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        for line in head.lines() {
            let (name, value) = line.split_once(": ").unwrap_or((line, ""));
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().unwrap();
            }
        }
        assert!(
            head.starts_with("POST /v1/billing/meter_events HTTP/1.1") && head.contains("Bearer sk_test"),
            "{head}"
        );
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").unwrap();
        let fields = String::from_utf8(body).unwrap();
        let decoded = |text: &str| text.replace("%5B", "[").replace("%5D", "]");
        fields
            .split('&')
            .map(|field| field.split_once('=').unwrap())
            .map(|(name, value)| (decoded(name), decoded(value)))
            .collect()
    };
    (0..count).map(answer).collect()
}

#[test]
fn stripe_is_told_the_units_of_each_customer_once() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let api = format!("http://{}", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let customers = folder.path().join("customers.csv");
    std::fs::write(&customers, "acme,cus_1\nhooli,cus_2\nnone,cus_3\n").unwrap();
    let row = |subscriber: &str, class: &str, units: u64| json!({"subscriber": subscriber, "organisation": "", "key": "", "class": class, "plan": "pro", "requests": 1, "units": units, "refused": 0});
    let export = json!([
        row("", "a", 7),
        row("acme", "a", 40),
        row("acme", "b", 2),
        row("hooli", "a", 1),
        row("none", "a", 0),
        row("unknown", "a", 5)
    ]);
    let run = || {
        let mut script = Command::new("python3");
        script.arg(artifacts::root().join("envoy/meters/stripe.py"));
        script
            .args(["--month", "2026-01", "--event", "api_units", "--api", &api, "--customers"])
            .arg(&customers);
        script
            .env("STRIPE_API_KEY", "sk_test")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut script = script.spawn().unwrap();
        script.stdin.take().unwrap().write_all(export.to_string().as_bytes()).unwrap();
        let told = stripe(&listener, 2);
        (told, script.wait_with_output().unwrap())
    };
    let (told, output) = run();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("unknown: ") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "acme: 42\nhooli: 1\n");
    let of = |fields: &BTreeMap<String, String>| {
        let field = |name: &str| fields[name].clone();
        json!({
            "event_name": field("event_name"),
            "payload": {"stripe_customer_id": field("payload[stripe_customer_id]"), "value": field("payload[value]")},
            "identifier": field("identifier"),
            "timestamp": field("timestamp").parse::<u64>().unwrap(),
        })
    };
    let parameters: Vec<Value> = told.iter().map(of).collect();
    assert_eq!(parameters[0]["payload"], json!({"stripe_customer_id": "cus_1", "value": "42"}));
    // The last second of January.
    assert_eq!(parameters[0]["timestamp"], 1_769_903_999);
    assert!(told[0]["identifier"].len() <= 100 && told[0]["identifier"] != told[1]["identifier"]);
    assert_eq!(run().0, told, "the same, for which Stripe counts it once");
    let mut broken = parameters[0].clone();
    broken["payload"]["value"] = json!(42);
    let found = judged(&[], &[], &[parameters[0].clone(), parameters[1].clone(), broken]);
    assert_eq!((&found["stripe"][0], &found["stripe"][1]), (&json!([]), &json!([])));
    assert!(found["stripe"][2].to_string().contains("number"), "{found}");
}

#[test]
fn the_rules_of_usage_are_prometheus_and_about_metrics_that_exist() {
    let rules = artifacts::root().join("envoy/meters/rules.yaml");
    succeed(Command::new("promtool").args(["check", "rules"]).arg(&rules));
    let rules = policy::yaml("envoy/meters/rules.yaml").unwrap();
    let known = text("envoy/prometheus/rules.yaml") + &text("envoy/grafana/weir.json");
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let expression = rule["expr"].as_str().unwrap();
        for name in expression.split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter))) {
            let is_recorded = || rules.to_string().contains(&format!("\"record\":\"{name}\""));
            assert!(
                !name.starts_with("weir") || known.contains(name) || is_recorded(),
                "{name} does not exist"
            );
        }
        assert!(expression.contains("weir"), "{expression}");
    }
}
