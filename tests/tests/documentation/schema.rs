//! `docs/schema.json` and the configuration reference: made from the code as it is, and right about what the filter accepts.

use std::io::Write as _;
use std::process::{Command, Stdio};

use filter::config::Config;
use serde_json::{Map, Value, json};
use tests::artifacts;
use tests::policy::{self, Policy};

/// `tests/schemas/configurations.yaml`.
struct Corpus(Value);

impl Corpus {
    fn read() -> Self {
        Self(policy::yaml("tests/schemas/configurations.yaml").unwrap())
    }

    /// The configurations of a section by name.
    fn section(&self, name: &str) -> Vec<(String, Value)> {
        cases(&self.0[name])
    }

    /// The configurations that only the filter refuses.
    fn filter_alone(&self) -> Vec<(String, Value)> {
        let reasons = self.0["refused by the filter alone"].as_object().unwrap();
        reasons.values().flat_map(cases).collect()
    }
}

fn cases(section: &Value) -> Vec<(String, Value)> {
    let cases = section.as_object().unwrap();
    assert!(!cases.is_empty());
    cases.iter().map(|(name, fields)| (name.clone(), with(fields))).collect()
}

/// The published schema.
pub(crate) fn schema() -> Value {
    policy::yaml("docs/schema.json").unwrap()
}

/// The least configuration with these fields.
pub(crate) fn with(fields: &Value) -> Value {
    let mut configuration = json!({"plans": {"free": {"standard": ["60/minute"]}}});
    configuration.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    configuration
}

fn filter_accepts(configuration: &Value) -> Result<Config, String> {
    Config::from_json(configuration.to_string().as_bytes()).map_err(|refused| refused.to_string())
}

/// The errors of each configuration by the published schema.
fn schema_errors<'c>(configurations: impl IntoIterator<Item = &'c Value>) -> Vec<Vec<String>> {
    let documents: Vec<_> = configurations.into_iter().collect();
    let mut node = Command::new(artifacts::node())
        .arg(artifacts::root().join("tests/schemas/judge.mjs"))
        .arg(artifacts::node_modules("tests/schemas"))
        .arg(artifacts::root().join("docs/schema.json"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    node.stdin.take().unwrap().write_all(&serde_json::to_vec(&documents).unwrap()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "judge.mjs: {}", output.status);
    let errors: Vec<Vec<String>> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(errors.len(), documents.len());
    errors
}

#[test]
fn the_generated_files_are_up_to_date() {
    for file in docs_generator::files() {
        let published = std::fs::read_to_string(artifacts::root().join(file.path)).unwrap();
        assert!(published == file.text, "{} is stale: run `make schema`", file.path);
    }
}

#[test]
fn the_schema_and_the_filter_accept_the_same_configurations() {
    let corpus = Corpus::read();
    let shipped = [
        ("envoy/envoy.yaml".to_owned(), Policy::deployed().unwrap().as_value().clone()),
        ("the smallest seed".to_owned(), seed("smallest")),
        ("the largest seed".to_owned(), seed("everything")),
    ];
    let accepted: Vec<_> = corpus.section("accepted").into_iter().chain(shipped).collect();
    for ((name, configuration), errors) in
        accepted.iter().zip(schema_errors(accepted.iter().map(|(_, it)| it)))
    {
        assert_eq!(filter_accepts(configuration).err(), None, "{name}");
        assert_eq!(errors, [""; 0], "{name}");
    }
}

fn seed(name: &str) -> Value {
    policy::yaml(&format!("filter/fuzz/seeds/configuration/{name}.json")).unwrap()
}

#[test]
fn the_schema_and_the_filter_refuse_the_same_configurations() {
    let refused = Corpus::read().section("refused");
    for ((name, configuration), errors) in refused.iter().zip(schema_errors(refused.iter().map(|(_, it)| it)))
    {
        assert!(filter_accepts(configuration).is_err(), "the filter accepts {name}");
        assert!(!errors.is_empty(), "the schema accepts {name}");
    }
}

#[test]
fn what_only_the_filter_refuses_is_known_by_name() {
    let refused = Corpus::read().filter_alone();
    for ((name, configuration), errors) in refused.iter().zip(schema_errors(refused.iter().map(|(_, it)| it)))
    {
        assert!(filter_accepts(configuration).is_err(), "the filter accepts {name}");
        assert_eq!(errors, [""; 0], "the schema refuses {name} as well");
    }
}

#[test]
fn the_defaults_of_the_schema_are_those_of_the_filter() {
    let schema = schema();
    let least = format!("{:?}", filter_accepts(&with(&json!({}))).unwrap());
    let fields = schema["properties"].as_object().unwrap();
    let mut seen = 0;
    for (name, field) in fields {
        if let Some(default) = field.get("default") {
            let written = filter_accepts(&with(&one(name, default))).unwrap();
            assert_eq!(format!("{written:?}"), least, "{name}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
    // Defaults inside objects: an object with its required fields, and one with all of the schema's defaults besides.
    let object = |definition: &str, field: &str, required: Value| {
        let defaults = schema["$defs"][definition]["properties"].as_object().unwrap().iter();
        let defaults: Map<_, _> = defaults
            .filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone())))
            .collect();
        let mut whole = required.clone();
        whole.as_object_mut().unwrap().extend(defaults);
        let [required, whole] = [required, whole]
            .map(|value| format!("{:?}", filter_accepts(&with(&one(field, &value))).unwrap()));
        assert_eq!(required, whole, "{definition}");
    };
    object("Directory", "directory", json!({"cluster": "c", "path": "/keys"}));
    object("Usage", "usage", json!({"cluster": "c", "path": "/usage"}));
    object("Operators", "operators", json!({"tokens": [{"name": "a", "token": policy::hash("token")}]}));
    object("Headers", "headers", json!({}));
    object("Capacity", "counters", json!({}));
    object("UpstreamPaths", "upstream_paths", json!({}));
    object("StrangerPolicy", "unknown_key", json!({"action": "limit"}));
}

fn one(name: &str, value: &Value) -> Value {
    json!({name: value})
}
