//! What users read: the JSON Schema and the pages of `docs/`.

mod book;
mod pages;
mod schema;
