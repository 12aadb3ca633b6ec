//! The schema of the values of `envoy/chart`: what stands in `values.json`, and the filter's configuration within it.

use serde_json::{Value, json};

/// The schema, so that Helm refuses a configuration that does not fit before anything is applied.
///
/// # Panics
/// If `values.json` is not a JSON object.
pub(crate) fn schema(configuration: &Value) -> Value {
    let mut values: Value = serde_json::from_str(include_str!("values.json")).expect("values.json is JSON");
    let mut configuration = configuration.clone();
    for service in ["Directory", "Usage", "Fleet"] {
        // The chart names the cluster.
        if let Some(required) = configuration["$defs"][service]["required"].as_array_mut() {
            required.retain(|field| field != "cluster");
        }
    }
    let fields = configuration.as_object_mut().expect("a schema is an object");
    fields.remove("$schema");
    if let Some(Value::Object(definitions)) = fields.remove("$defs") {
        values["$defs"].as_object_mut().expect("values.json has definitions").extend(definitions);
    }
    values["properties"]["configuration"] = json!(configuration);
    values
}
