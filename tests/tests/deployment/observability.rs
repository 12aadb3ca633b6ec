//! `envoy/grafana` and `envoy/prometheus`: the dashboard by Grafana's own types, the rules by `promtool`, and the metrics that both use.

use std::process::Command;

use serde_json::{Value, json};
use tests::artifacts;
use tests::policy;

use crate::tools::{json_of, pipe, run, schema_script, succeed};

const DASHBOARD: &str = "envoy/grafana/weir.json";
const RULES: &str = "envoy/prometheus/rules.yaml";
const RULES_TESTS: [&str; 2] = ["envoy/prometheus/rules_test.yaml", "envoy/prometheus/rules_week_test.yaml"];

/// An expression, and the panel or alert that has it.
#[derive(Debug)]
pub(crate) struct Query {
    #[expect(dead_code, reason = "read where a test prints the queries that found nothing")]
    name: String,
    pub(crate) expression: String,
}

fn dashboard() -> Value {
    serde_json::from_str(&crate::tools::text(DASHBOARD)).unwrap()
}

/// Every query of every panel, for all gateways, ledgers and backends, with rates over `interval`.
pub(crate) fn panel_queries(interval: &str) -> Vec<Query> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries = panels.flat_map(|panel| {
        panel["targets"].as_array().into_iter().flatten().map(|target| {
            let expression = target["expr"].as_str().unwrap().replace("$__rate_interval", interval);
            let expression = ["$gateway", "$ledger", "$backend"]
                .iter()
                .fold(expression, |expression, variable| expression.replace(variable, ".*"));
            assert!(!expression.contains('$'), "{expression}");
            Query { name: format!("{}: {}", panel["title"], target["legendFormat"]), expression }
        })
    });
    queries.collect()
}

/// Every rule, those that record and those that alert.
fn rules() -> Vec<Value> {
    let rules = policy::yaml(RULES).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The selectors of every alert, which must find series for the alert to mean anything.
pub(crate) fn alert_selectors() -> Vec<Query> {
    let alerts: Vec<_> = rules().into_iter().filter(|rule| rule.get("alert").is_some()).collect();
    let expressions: Vec<_> = alerts.iter().map(|alert| alert["expr"].clone()).collect();
    let selectors = selectors_of(&Value::Array(expressions));
    let queries = alerts.iter().zip(selectors).flat_map(|(alert, selectors)| {
        assert!(!selectors.is_empty(), "{alert}");
        selectors
            .into_iter()
            .map(|expression| Query { name: alert["alert"].as_str().unwrap().to_owned(), expression })
    });
    queries.collect()
}

fn selectors_of(expressions: &Value) -> Vec<Vec<String>> {
    let found = pipe(&mut schema_script("promql.mjs"), expressions.to_string().as_bytes());
    serde_json::from_value(json_of(found)).unwrap()
}

#[test]
fn grafana_knows_every_field_of_the_dashboard() {
    //  where a field is added that does not exist, and the field
    let rows = [
        ("", "titel"),
        ("/panels/1", "gridPosition"),
        ("/panels/1/fieldConfig/defaults", "units"),
        ("/panels/1/fieldConfig/defaults/custom", "stack"),
        ("/panels/1/options", "legends"),
        ("/panels/1/targets/0", "expression"),
        ("/templating/list/0", "lable"),
    ];
    let broken = rows.map(|(pointer, field)| {
        let mut broken = dashboard();
        broken.pointer_mut(pointer).and_then(Value::as_object_mut).unwrap().insert(field.into(), json!("x"));
        broken
    });
    let folder = tempfile::tempdir().unwrap();
    let good = dashboard();
    let files = std::iter::once(&good).chain(&broken).enumerate().map(|(number, dashboard)| {
        let file = folder.path().join(format!("{number}.json"));
        std::fs::write(&file, dashboard.to_string()).unwrap();
        file
    });
    let errors = json_of(run(schema_script("dashboard.mjs").args(files)));
    let errors = errors.as_array().unwrap();
    assert_eq!(errors[0], json!([]));
    for ((_, field), errors) in rows.iter().zip(&errors[1..]) {
        let errors = errors.to_string();
        assert!(errors.contains(&format!("'\\\"{field}\\\"' does not exist")), "{field}: {errors}");
    }
    assert_eq!(errors.len(), 1 + rows.len());
}

#[test]
fn every_panel_has_a_place_of_its_own_and_says_what_it_shows() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
    let place = |panel: &Value| ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
    for (index, panel) in panels.iter().enumerate() {
        let [x, y, w, h] = place(panel);
        assert!(x + w <= 24, "{panel}");
        for other in &panels[index + 1..] {
            let [other_x, other_y, other_w, other_h] = place(other);
            let apart =
                x + w <= other_x || other_x + other_w <= x || y + h <= other_y || other_y + other_h <= y;
            assert!(apart, "{} and {}", panel["title"], other["title"]);
        }
        assert!(panel["type"] == "row" || !panel["description"].as_str().unwrap().is_empty(), "{panel}");
    }
}

#[test]
fn the_rules_fire_when_they_should_and_only_then() {
    let root = artifacts::root();
    succeed(Command::new("promtool").args(["check", "rules"]).arg(root.join(RULES)));
    succeed(Command::new("promtool").args(["test", "rules"]).args(RULES_TESTS.map(|file| root.join(file))));
    // Beside the rules, as compose mounts both.
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(root.join(RULES), folder.path().join("rules.yaml")).unwrap();
    for configuration in ["envoy/prometheus/prometheus.yaml", "envoy/fleet/prometheus.yaml"] {
        let mounted = folder.path().join("prometheus.yaml");
        std::fs::copy(root.join(configuration), &mounted).unwrap();
        succeed(Command::new("promtool").args(["check", "config"]).arg(mounted));
    }
}

#[test]
fn every_alert_is_tested_and_tells_what_to_do() {
    let tests = RULES_TESTS.map(crate::tools::text).concat();
    let mut alerts = 0;
    for rule in rules() {
        let Some(name) = rule.get("alert").and_then(Value::as_str) else { continue };
        alerts += 1;
        for annotation in ["summary", "runbook"] {
            let text = rule["annotations"][annotation].as_str().unwrap_or_default();
            assert!(text.ends_with('.'), "{name}: {annotation}: {text:?}");
        }
        assert!(["warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        let fires = tests.split("alertname: ").any(|rest| rest.starts_with(&format!("{name}\n")));
        assert!(fires, "no test shows {name} firing");
    }
    assert_eq!(alerts, 33);
}

#[test]
fn an_expression_with_a_mistake_is_found() {
    let (parsed, said) = pipe(&mut schema_script("promql.mjs"), br#"["sum(rate(a[5m])"]"#);
    assert!(!parsed && said.contains("unexpected"), "{said}");
    let expression = json!(["sum by (a) (rate(x_total{a=\"b\"}[5m] offset 1w)) > 2 * {__name__=~\"y\"}"]);
    assert_eq!(selectors_of(&expression), [[r#"x_total{a="b"}"#, r#"{__name__=~"y"}"#]]);
}
