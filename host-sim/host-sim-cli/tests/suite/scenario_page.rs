//! The page on scenarios, held against what scenarios are made of.

use std::collections::BTreeSet;

use host_sim_cli::scenario::{
    Answer, Call, Expect, ExpectedCall, FaultStep, Interleave, Link, Scenario, Step,
};
use serde::de::DeserializeOwned;

use crate::commands::host_sim;

const PAGE: &str = include_str!("../../../scenarios.md");

const SCHEMA: &str = include_str!("../../scenario.schema.json");

/// The fields of a part of scenarios, as the refusal of an unknown one names them.
fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
    let refusal = serde_saphyr::from_str::<T>("{no_such_field: 1}").map(|_| ()).unwrap_err().to_string();
    let (_, expected) = refusal.split_once(", expected").unwrap_or_else(|| panic!("{refusal}"));
    let list = expected.lines().next().unwrap().trim().trim_start_matches("one of ").replace(" or ", ", ");
    list.split(", ").map(|name| name.trim_matches('`').to_owned()).collect()
}

/// The fields that a section of the page lists.
fn documented(section: &str) -> BTreeSet<String> {
    let heading = format!("\n## {section}\n");
    let (_, text) = PAGE.split_once(&heading).unwrap_or_else(|| panic!("no section {section}"));
    let text = text.split("\n## ").next().unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(str::to_owned).collect()
}

#[test]
fn the_page_and_the_schema_list_every_field_and_no_other() {
    let parts = [
        ("Scenario", fields::<Scenario>()),
        ("Filter", fields::<Link>()),
        ("Answer", fields::<Answer>()),
        ("Step", fields::<Step>()),
        ("Request", fields::<Call>()),
        ("Interleave", fields::<Interleave>()),
        ("Fault", fields::<FaultStep>()),
        ("Expect", fields::<Expect>()),
        ("Call", fields::<ExpectedCall>()),
    ];
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    for (section, fields) in parts {
        assert_eq!(documented(section), fields, "{section}");
        let object = match section {
            "Scenario" => &schema,
            part => &schema["$defs"][part.to_lowercase()],
        };
        let properties = object["properties"].as_object().unwrap_or_else(|| panic!("no {section}: {object}"));
        assert_eq!(properties.keys().cloned().collect::<BTreeSet<_>>(), fields, "{section} of the schema");
        assert_eq!(object["additionalProperties"], false, "{section} of the schema");
    }
}

#[test]
fn the_command_prints_the_schema() {
    let (code, out, _) = host_sim(&["schema"], std::path::Path::new("."));
    assert_eq!((code, out.as_str()), (Some(0), SCHEMA));
}

#[test]
fn the_examples_of_the_page_are_scenarios() {
    let examples: Vec<&str> =
        PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 6, "{} examples", examples.len());
    for example in examples {
        let scenario: Result<Scenario, _> = serde_saphyr::from_str(example);
        assert!(scenario.is_ok(), "{:?}\n{example}", scenario.err());
    }
}
