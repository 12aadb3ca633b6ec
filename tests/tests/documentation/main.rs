//! What users read: the JSON Schema of the configuration.

mod schema;
