//! The JSON Schema of the configuration, made from the types that read it.
//!
//! The schema accepts every configuration that the filter accepts. It also accepts some that the filter refuses: those whose fields
//! contradict each other, such as a subscriber whose plan does not exist.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use serde_json::Value;

use super::settings::Settings;
use crate::count::table::MAX_CAPACITY;

/// The JSON Schema, draft 2020-12.
#[must_use]
pub fn document() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Settings>();
    portable(&mut schema);
    // What the configuration checks of a type of the counters.
    for capacity in ["/$defs/Capacity/properties/known", "/$defs/Capacity/properties/strangers"] {
        if let Some(Value::Object(bounds)) = schema.pointer_mut(capacity) {
            bounds.insert("minimum".to_owned(), 1.into());
            bounds.insert("maximum".to_owned(), (MAX_CAPACITY / 2).into());
        }
    }
    schema.to_value()
}

/// Makes a schema portable: `format` and a default of null are keywords that only some validators and editors know how to read.
fn portable(schema: &mut Schema) {
    if schema.remove("format").is_some_and(|format| format == "uint32") {
        schema.insert("maximum".to_owned(), u32::MAX.into());
    }
    if let Some(description) = schema.remove("description")
        && let Some(text) = description.as_str()
    {
        let paragraphs: Vec<_> = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        schema.insert("description".to_owned(), paragraphs.join("\n\n").into());
    }
    if let Some(default) = schema.remove("default")
        && let Some(default) = without_nulls(default)
    {
        schema.insert("default".to_owned(), default);
    }
    transform_subschemas(&mut portable, schema);
}

/// A default without the fields that are absent.
fn without_nulls(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) => Some(items.into_iter().filter_map(without_nulls).collect()),
        Value::Object(fields) => {
            let given = fields.into_iter().filter_map(|(name, value)| Some((name, without_nulls(value)?)));
            Some(Value::Object(given.collect()))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value),
    }
}
