//! What a replay reports: for a terminal, for a comment on a pull request, as an object, and as a page.

use askama::Template;
use serde_json::{Map, Value};

use super::plot::Plot;
use super::table::{Cell, Table};

/// What a replay found.
#[derive(Debug, Default)]
pub struct Report {
    pub(super) sentence: String,
    /// The figures of all requests, by their names in JSON.
    pub(super) totals: Vec<(&'static str, u64)>,
    /// What is to be known of the figures: what was skipped, taken for something else, or not judged.
    pub notes: Vec<String>,
    pub(super) tables: Vec<Table>,
    pub(super) plot: Option<Plot>,
    /// Whether a caller is refused more by the configuration after.
    pub is_worse: bool,
}

/// One file of HTML with the plot in it, that needs no network.
#[derive(Template)]
#[template(path = "replay.html")]
struct Page<'r> {
    title: &'r str,
    report: &'r Report,
    /// Rows of the tables.
    most: usize,
}

impl Report {
    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(|table| !table.rows.is_empty())
    }

    /// For a terminal, each table with at most this many rows.
    #[must_use]
    pub fn text(&self, most: usize) -> String {
        let tables = self.tables().map(|table| format!("\n{}", table.text(most)));
        let lines = std::iter::once(&self.sentence).chain(&self.notes).map(|line| format!("{line}\n"));
        lines.chain(tables).collect()
    }

    /// For a comment on a pull request.
    #[must_use]
    pub fn markdown(&self, most: usize) -> String {
        let paragraphs = std::iter::once(&self.sentence).chain(&self.notes).map(|line| format!("{line}\n"));
        paragraphs.chain(self.tables().map(|table| table.markdown(most))).collect::<Vec<_>>().join("\n")
    }

    /// As one object.
    #[must_use]
    pub fn json(&self) -> Value {
        let totals = self.totals.iter().map(|(name, count)| (*name, Value::from(*count)));
        let tables = self.tables.iter().map(|table| (table.name, table.json()));
        let fields = totals.chain([("notes", self.notes.clone().into())]).chain(tables);
        Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
    }

    /// As a page, each table with at most this many rows.
    #[must_use]
    pub fn page(&self, title: &str, most: usize) -> String {
        Page { title, report: self, most }.to_string()
    }
}
