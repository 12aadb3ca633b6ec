//! The files that are made from the code that reads the filter's configuration: of `docs/`, and the schema of the chart's values.

mod reference;
mod values;

use filter::config;

/// A file that is made from the code.
#[derive(Debug)]
pub struct Generated {
    /// Path from the root of the repository.
    pub path: &'static str,
    /// Content.
    pub text: String,
}

/// The JSON Schema of the configuration, the page that shows it, and the schema that has it within the values of the chart.
#[must_use]
pub fn files() -> [Generated; 3] {
    let schema = config::schema();
    [
        Generated { path: "docs/schema.json", text: format!("{schema:#}\n") },
        Generated { path: "docs/src/configuration.md", text: reference::page(&schema) },
        Generated {
            path: "envoy/chart/values.schema.json",
            text: format!("{:#}\n", values::schema(&schema)),
        },
    ]
}
