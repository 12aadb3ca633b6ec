//! What a replay found, within a bound however long the log is.

use std::collections::HashMap;

use jiff::Timestamp;

use super::Decided;
use super::line::Entry;
use super::plot::Plot;
use super::report::Report;
use super::table::{Cell, Table, percent};

/// Rows of a table beyond this many share one.
const MAX_ROWS: usize = 10_000;

/// The row of what has no row of its own.
const OTHERS: &str = "(others)";

/// What requests are counted by, and whether only refused ones are.
const BY: [(&str, bool); 7] = [
    ("answer", true),
    ("subscriber", false),
    ("plan", false),
    ("class", false),
    ("quota", true),
    ("client", false),
    ("path", false),
];

/// How many requests there were, and how many of them were refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Outcomes {
    /// Were answered by the filter, or cut, or would have been but for a quota in shadow mode.
    pub(super) refused: u64,
    pub(super) requests: u64,
}

impl Outcomes {
    pub(super) fn add(&mut self, refused: bool) {
        self.requests += 1;
        self.refused += u64::from(refused);
    }
}

/// Requests by a name.
#[derive(Debug, Default)]
pub(super) struct Rows<T>(HashMap<String, T>);

impl<T: Default> Rows<T> {
    pub(super) fn row(&mut self, name: String) -> &mut T {
        let has_room = self.0.len() < MAX_ROWS || self.0.contains_key(&name);
        self.0.entry(if has_room { name } else { OTHERS.to_owned() }).or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &T)> {
        self.0.iter()
    }
}

/// What a replay found.
#[derive(Debug, Default)]
pub(super) struct Summary {
    all: Outcomes,
    /// When the first and the last request began.
    span: Option<(Timestamp, Timestamp)>,
    by: [Rows<Outcomes>; BY.len()],
    plot: Plot,
}

impl Summary {
    pub(super) fn count(&mut self, entry: &Entry, decided: &Decided) {
        let refused = decided.refused.is_some();
        self.all.add(refused);
        let told = |name| decided.told.get(name);
        let client = Some(entry.client.clone()).filter(|client| !client.is_empty());
        let names = [
            decided.refused.clone(),
            told("subscriber"),
            told("plan"),
            told("class"),
            told("quota"),
            client,
            Some(entry.path.clone()),
        ];
        for ((rows, name), (_, is_of_refused)) in self.by.iter_mut().zip(names).zip(BY) {
            if let Some(name) = name.filter(|_| refused || !is_of_refused) {
                rows.row(name).add(refused);
            }
        }
        let (first, last) = self.span.unwrap_or((entry.time, entry.time));
        self.span = Some((first.min(entry.time), last.max(entry.time)));
        self.plot.count(entry.time, refused);
    }

    /// The rows by what they are counted by: by refusals, the most first.
    fn table(&self, (what, is_of_refused): (&'static str, bool), rows: &Rows<Outcomes>) -> Table {
        let mut rows: Vec<_> = rows.iter().collect();
        rows.sort_by(|(name, a), (other, b)| b.cmp(a).then(name.cmp(other)));
        let row = |(name, Outcomes { refused, requests }): (&String, &Outcomes)| {
            let (name, refused_cell) = (Cell::Name(name.clone()), Cell::Count(*refused));
            match is_of_refused {
                true => vec![name, refused_cell, Cell::Share(*refused, self.all.requests)],
                false => vec![name, Cell::Count(*requests), refused_cell, Cell::Share(*refused, *requests)],
            }
        };
        let head = match is_of_refused {
            true => vec![what, "refused", "of all"],
            false => vec![what, "requests", "refused", "of them"],
        };
        Table { name: what, title: format!("By {what}"), head, rows: rows.into_iter().map(row).collect() }
    }

    pub(super) fn report(self) -> Report {
        let Outcomes { requests, refused } = self.all;
        let forwarded = requests - refused;
        let span = self.span.map_or_else(String::new, |(first, last)| format!(", {first:.0} to {last:.0}"));
        let share = percent(refused, requests);
        Report {
            sentence: format!("{requests} requests{span}: {forwarded} went on, {refused} refused ({share})"),
            totals: vec![("requests", requests), ("forwarded", forwarded), ("refused", refused)],
            tables: BY.into_iter().zip(&self.by).map(|(by, rows)| self.table(by, rows)).collect(),
            plot: Some(self.plot),
            ..Report::default()
        }
    }
}
