//! The page of a replay: one file of HTML with its plots in it, that needs no network.

use std::fmt::Write as _;

use host_sim::stats_tags::TagTable;

use super::{
    plot,
    summary::{Outcomes, Summary, percent},
};
use crate::html::{document, escape};

/// Rows of the tables.
const ROWS: usize = 20;

const STYLE: &str = "
:root { color-scheme: light dark; --forwarded: #3b7dd8; --refused: #d9482b; --rule: #8883; --soft: #8888; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2.5rem auto; max-width: 1000px; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; }
.span { color: GrayText; margin: .2rem 0 1.5rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: .75rem; }
.figures div { border: 1px solid var(--rule); border-radius: 8px; padding: .7rem 1rem; }
.figures b { display: block; font-size: 1.6rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.figures span { color: GrayText; }
table { border-collapse: collapse; width: 100%; } th { font-weight: 600; color: GrayText; font-size: .85em; }
td, th { padding: .3rem 0 .3rem 1rem; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top; }
td { font-variant-numeric: tabular-nums; } td.name, th.name { text-align: left; padding-left: 0; overflow-wrap: anywhere; }
td.share { min-width: 9rem; } .bar { display: inline-block; width: 5rem; height: .55em; margin-right: .6em; background: var(--rule);
border-radius: 2px; overflow: hidden; } .bar i { display: block; height: 100%; background: var(--refused); }
svg { width: 100%; height: auto; display: block; } svg text { fill: GrayText; font-size: 11px; }
.forwarded { fill: var(--forwarded); } .refused { fill: var(--refused); } .rule { stroke: var(--rule); }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .35em 0 1.2em; }
h2 + p { margin: 0 0 .5rem; } h2 + p .key:first-child { margin-left: 0; }
";

/// A cell of a table.
enum Cell {
    /// Words, which stand to the left.
    Name(String),
    /// A number.
    Count(u64),
    /// A part of a whole, with a bar.
    Share(u64, u64),
}

impl Cell {
    fn html(&self) -> String {
        match self {
            Self::Name(text) => format!("<td class=\"name\">{}</td>", escape(text)),
            Self::Count(count) => format!("<td>{}</td>", grouped(*count)),
            Self::Share(part, whole) => {
                let width = percent(*part, *whole);
                let width = if *whole == 0 { "0%" } else { &width };
                let text = percent(*part, *whole);
                format!(
                    "<td class=\"share\"><span class=\"bar\"><i style=\"width: {width}\"></i></span>{text}</td>"
                )
            }
        }
    }
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
    let mut page = String::new();
    let Outcomes { forwarded, refused } = summary.outcomes;
    let span = summary.span.map(|(first, last)| format!("{first:.0} to {last:.0}")).unwrap_or_default();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(page, "<p class=\"span\">{span}</p>\n<div class=\"figures\">");
    let share = percent(refused, summary.requests);
    let figures = [
        (grouped(summary.requests), "requests"),
        (grouped(forwarded), "would have gone on"),
        (grouped(refused), "would have been refused"),
        (share, "of all refused"),
    ];
    for (figure, what) in figures {
        let _ = writeln!(page, "<div><b>{figure}</b><span>{what}</span></div>");
    }
    page.push_str("</div>\n");
    if summary.requests > 0 {
        let _ = writeln!(
            page,
            "<h2>Requests per {}</h2>\n<p><span class=\"key\" style=\"background: var(--forwarded)\"></span>went on\
             <span class=\"key\" style=\"background: var(--refused)\"></span>refused</p>",
            plot::span_of(summary.bucket_width().as_secs())
        );
        page.push_str(&plot::plot(summary));
    }

    let replies: Vec<_> = summary
        .replies
        .iter()
        .map(|((status, details), count)| {
            let what = format!("{status} {details}");
            vec![Cell::Name(what), Cell::Count(*count), Cell::Share(*count, summary.requests)]
        })
        .collect();
    page.push_str(&table("Replies of the filter", &["status and details", "requests", "of all"], &replies));
    let (tables, counters) = summary.counters();
    for tagged in &tables {
        let TagTable { rows, values, counts, .. } = tagged;
        let head: Vec<_> = rows.iter().chain(values).map(String::as_str).collect();
        let cells = |(row, counts): &(Vec<String>, Vec<u64>)| {
            let names = row.iter().cloned().map(Cell::Name);
            names.chain(counts.iter().copied().map(Cell::Count)).collect()
        };
        let title = tagged.title();
        page.push_str(&table(&title, &head, &counts.iter().map(cells).collect::<Vec<_>>()));
    }
    for (what, rows) in [("path", summary.paths(ROWS)), ("client", summary.clients(ROWS))] {
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(name, outcomes)| {
                let (total, refused) = (outcomes.total(), outcomes.refused);
                let name = Cell::Name(name.to_owned());
                vec![name, Cell::Count(total), Cell::Count(refused), Cell::Share(refused, total)]
            })
            .collect();
        page.push_str(&table(
            &format!("By {what}"),
            &[what, "requests", "refused", "refused of them"],
            &rows,
        ));
    }
    let counters: Vec<_> = counters
        .into_iter()
        .map(|(name, count)| vec![Cell::Name(name.to_owned()), Cell::Count(count)])
        .collect();
    page.push_str(&table("Counted by the filter", &["counter", "total"], &counters));
    if summary.skipped > 0 {
        let rows: Vec<_> = summary
            .first_skipped
            .iter()
            .map(|skipped| vec![Cell::Name(skipped.error.to_string()), Cell::Count(skipped.line)])
            .collect();
        let _ = writeln!(page, "<p>{} lines are no requests.</p>", summary.skipped);
        page.push_str(&table("The first of them", &["why", "line"], &rows));
    }
    document(title, STYLE, &page)
}

fn table(title: &str, head: &[&str], rows: &[Vec<Cell>]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let head: String = head
        .iter()
        .zip(first)
        .map(|(text, cell)| {
            let class = if matches!(cell, Cell::Name(_)) { " class=\"name\"" } else { "" };
            format!("<th{class}>{}</th>", escape(text))
        })
        .collect();
    let rows: String = rows
        .iter()
        .map(|row| format!("<tr>{}</tr>\n", row.iter().map(Cell::html).collect::<String>()))
        .collect();
    format!("<h2>{}</h2>\n<table>\n<tr>{head}</tr>\n{rows}</table>\n", escape(title))
}
