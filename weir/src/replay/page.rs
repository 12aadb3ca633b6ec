//! The page of a replay: one file of HTML with its plots in it, that needs no network.

use askama::Template;

use super::plot::{Plot, plot};
use super::report::{Cell, Table, percent};
use super::summary::{Outcomes, Summary};

/// Rows of the tables.
const ROWS: usize = 20;

#[derive(Template)]
#[template(path = "replay.html")]
struct Page<'a> {
    title: &'a str,
    /// From when to when.
    span: String,
    figures: [(String, &'static str); 4],
    notes: &'a [String],
    plot: Option<Plot>,
    tables: Vec<Table>,
}

/// Writes a summary as a page.
pub fn page(summary: &Summary, title: &str) -> String {
    let Outcomes { forwarded, refused } = summary.outcomes;
    let count = |count| Cell::Count(count).grouped();
    let figures = [
        (count(summary.requests), "requests"),
        (count(forwarded), "would have gone on"),
        (count(refused), "would have been refused"),
        (percent(refused, summary.requests), "of all refused"),
    ];
    let mut tables = summary.tables();
    tables.iter_mut().for_each(|table| table.rows.truncate(ROWS));
    Page { title, span: summary.period(), figures, notes: &summary.notes, plot: plot(summary), tables }
        .to_string()
}
