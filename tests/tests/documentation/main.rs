//! What users read: the JSON Schema and the pages of `docs/`.

mod book;
mod browser;
mod commands;
mod pages;
mod schema;
