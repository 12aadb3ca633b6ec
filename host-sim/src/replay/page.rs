//! The page of a replay: one file of HTML with its plots in it, that needs no network.

use std::fmt::Write as _;

use super::summary::{Outcomes, Summary, percent};
use crate::MetricValue;

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 24.0;

/// Rows of the tables.
const ROWS: usize = 20;

const STYLE: &str = "
:root { color-scheme: light dark; --forwarded: #3b7dd8; --refused: #d9482b; --rule: #8886; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 960px; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 600; }
td, th { padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td:not(:first-child), th:not(:first-child) { text-align: right; font-variant-numeric: tabular-nums; }
td:first-child { overflow-wrap: anywhere; } svg { width: 100%; height: auto; } svg text { fill: currentColor; font-size: 11px; }
.forwarded { fill: var(--forwarded); } .refused { fill: var(--refused); } .rule { stroke: var(--rule); }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
";

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Writes a summary as a page.
pub fn page(summary: &Summary, title: &str) -> String {
    let title = escape(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n"
    );
    let Outcomes { forwarded, refused } = summary.outcomes;
    let span = summary.span.map(|(first, last)| format!(" from {first:.0} to {last:.0}")).unwrap_or_default();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        page,
        "<p>{} requests{span}: {forwarded} went on, {refused} ({}) would have been refused.</p>",
        summary.requests,
        percent(refused, summary.requests)
    );
    page.push_str(&plot(summary));

    let replies: Vec<_> = summary
        .replies
        .iter()
        .map(|((status, details), count)| {
            (format!("{status} {details}"), vec![count.to_string(), percent(*count, summary.requests)])
        })
        .collect();
    page.push_str(&table("Replies of the filter", &["status and details", "requests", "share"], &replies));
    for (what, rows) in [("path", summary.paths(ROWS)), ("client", summary.clients(ROWS))] {
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(name, outcomes)| {
                let (total, refused) = (outcomes.total(), outcomes.refused);
                let cells = vec![total.to_string(), refused.to_string(), percent(refused, total)];
                (name.to_owned(), cells)
            })
            .collect();
        page.push_str(&table(&format!("By {what}"), &[what, "requests", "refused", "share"], &rows));
    }
    let counters: Vec<_> = summary
        .metrics
        .iter()
        .filter_map(|(name, value)| match value {
            MetricValue::Counter(count) => Some((name.clone(), vec![count.to_string()])),
            MetricValue::Gauge(_) | MetricValue::Histogram(_) => None,
        })
        .collect();
    page.push_str(&table("Counted by the filter", &["counter", "total"], &counters));
    if summary.skipped > 0 {
        let rows: Vec<_> = summary
            .first_skipped
            .iter()
            .map(|skipped| (skipped.error.to_string(), vec![skipped.line.to_string()]))
            .collect();
        let _ = writeln!(page, "<p>{} lines are no requests.</p>", summary.skipped);
        page.push_str(&table("The first of them", &["why", "line"], &rows));
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn table(title: &str, head: &[&str], rows: &[(String, Vec<String>)]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head: String = head.iter().map(|cell| format!("<th>{}</th>", escape(cell))).collect();
    let rows: String = rows
        .iter()
        .map(|(name, cells)| {
            let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            format!("<tr><td>{}</td>{cells}</tr>\n", escape(name))
        })
        .collect();
    format!("<h2>{}</h2>\n<table>\n<tr>{head}</tr>\n{rows}</table>\n", escape(title))
}

/// Requests over time, those that went on below those that were refused.
#[expect(clippy::cast_precision_loss, reason = "positions in a picture")]
fn plot(summary: &Summary) -> String {
    let buckets = summary.buckets();
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return String::new() };
    let width = summary.bucket_width().as_secs().max(1);
    let count = (last.start.as_second() - first.start.as_second()) / width + 1;
    let most = buckets.iter().map(|bucket| bucket.outcomes.total()).max().unwrap_or(1).max(1);
    let step = (WIDTH - LEFT) / count as f64;
    let height = |number: u64| (HEIGHT - BOTTOM - 8.0) * number as f64 / most as f64;
    let base = HEIGHT - BOTTOM;

    let mut svg = format!(
        "<h2>Requests per {}</h2>\n<p><span class=\"key\" style=\"background: var(--forwarded)\"></span>went on \
         <span class=\"key\" style=\"background: var(--refused); margin-left: 1em\"></span>refused</p>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"requests over time\">\n",
        span_of(width)
    );
    for part in 0..=2_u64 {
        let number = most * part / 2;
        let y = base - height(number);
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            svg,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{number}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for bucket in &buckets {
        let index = (bucket.start.as_second() - first.start.as_second()) / width;
        let (x, wide) = (LEFT + step * index as f64, (step * 0.9).max(0.5));
        let Outcomes { forwarded, refused } = bucket.outcomes;
        let (below, above) = (height(forwarded), height(refused));
        let _ = writeln!(
            svg,
            "<g><title>{:.0}: {forwarded} went on, {refused} refused</title><rect class=\"forwarded\" x=\"{x:.1}\" \
             y=\"{:.1}\" width=\"{wide:.1}\" height=\"{below:.1}\"/><rect class=\"refused\" x=\"{x:.1}\" y=\"{:.1}\" \
             width=\"{wide:.1}\" height=\"{above:.1}\"/></g>",
            bucket.start,
            base - below,
            base - below - above
        );
    }
    for (at, anchor, x) in [(first.start, "start", LEFT), (last.start, "end", WIDTH)] {
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{at:.0}</text>",
            HEIGHT - 6.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// A bucket's width in words.
fn span_of(seconds: i64) -> String {
    match seconds {
        60 => "minute".to_owned(),
        other => format!("{} minutes", other / 60),
    }
}
