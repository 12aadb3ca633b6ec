//! The page of a replay: one file of HTML with its plots in it, that needs no network.

use askama::Template;
use envoy_config::stats_tags::TagTable;

use super::plot::{Plot, plot};
use super::summary::{Outcomes, Summary, percent};

/// Rows of the tables.
const ROWS: usize = 20;

#[derive(Template)]
#[template(path = "replay.html")]
struct Page<'a> {
    title: &'a str,
    /// From when to when.
    span: String,
    figures: [(String, &'static str); 4],
    plot: Option<Plot>,
    tables: Vec<Table>,
}

struct Table {
    title: String,
    /// What is in each column, and whether it is words.
    head: Vec<(String, bool)>,
    /// At least one.
    rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
enum Cell {
    /// Words, which stand to the left.
    Name(String),
    /// A number.
    Count(String),
    /// A part of a whole, with a bar.
    Share(String),
}

fn count(number: u64) -> Cell {
    Cell::Count(grouped(number))
}

/// A number with a thin space between each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    text
}

/// Writes a summary as a page.
pub fn page(summary: &Summary, title: &str) -> String {
    let Outcomes { forwarded, refused } = summary.outcomes;
    let figures = [
        (grouped(summary.requests), "requests"),
        (grouped(forwarded), "would have gone on"),
        (grouped(refused), "would have been refused"),
        (percent(refused, summary.requests), "of all refused"),
    ];
    let span = summary.span.map(|(first, last)| format!("{first:.0} to {last:.0}")).unwrap_or_default();
    Page { title, span, figures, plot: plot(summary), tables: tables(summary) }.to_string()
}

/// The tables that have rows.
fn tables(summary: &Summary) -> Vec<Table> {
    let name = |name: &str| Cell::Name(name.to_owned());
    let mut tables = vec![table(
        "Replies of the filter".to_owned(),
        &["status and details", "requests", "of all"],
        summary.replies.iter().map(|((status, details), replies)| {
            let share = percent(*replies, summary.requests);
            vec![Cell::Name(format!("{status} {details}")), count(*replies), Cell::Share(share)]
        }),
    )];
    let (tagged, counters) = summary.counters();
    for tagged in &tagged {
        let TagTable { rows, values, counts, .. } = tagged;
        let head: Vec<_> = rows.iter().chain(values).map(String::as_str).collect();
        let rows = counts.iter().map(|(row, counts)| {
            let names = row.iter().map(|part| name(part));
            names.chain(counts.iter().copied().map(count)).collect()
        });
        tables.push(table(tagged.title(), &head, rows));
    }
    for (what, rows) in [("path", summary.paths(ROWS)), ("client", summary.clients(ROWS))] {
        let rows = rows.into_iter().map(|(of, outcomes)| {
            let (total, refused) = (outcomes.total(), outcomes.refused);
            vec![name(of), count(total), count(refused), Cell::Share(percent(refused, total))]
        });
        tables.push(table(format!("By {what}"), &[what, "requests", "refused", "refused of them"], rows));
    }
    let counters = counters.into_iter().map(|(counter, total)| vec![name(counter), count(total)]);
    tables.push(table("Counted by the filter".to_owned(), &["counter", "total"], counters));
    let skipped = summary.first_skipped.iter();
    let skipped = skipped.map(|skipped| vec![Cell::Name(skipped.error.to_string()), count(skipped.line)]);
    tables.push(table(
        format!("The first of {} lines that are not requests", summary.skipped),
        &["why", "line"],
        skipped,
    ));
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn table(title: String, head: &[&str], rows: impl Iterator<Item = Vec<Cell>>) -> Table {
    let rows: Vec<_> = rows.collect();
    let first = rows.first().into_iter().flatten();
    let head = head.iter().zip(first);
    let head = head.map(|(text, cell)| ((*text).to_owned(), matches!(cell, Cell::Name(_)))).collect();
    Table { title, head, rows }
}
