//! The files of `docs/` that are made from the code that reads the filter's configuration.

mod reference;

use filter::config;

/// A file that is made from the code.
#[derive(Debug)]
pub struct Generated {
    /// Path from the root of the repository.
    pub path: &'static str,
    /// Content.
    pub text: String,
}

/// The JSON Schema of the configuration and the page that shows it.
#[must_use]
pub fn files() -> [Generated; 2] {
    let schema = config::schema();
    [
        Generated { path: "docs/schema.json", text: format!("{schema:#}\n") },
        Generated { path: "docs/src/configuration.md", text: reference::page(&schema) },
    ]
}
