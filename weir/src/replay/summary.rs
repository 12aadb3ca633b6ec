//! What a replay found, within a bound however long the log is.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::Decided;
use super::line::Entry;
use super::report::{Cell, Table, percent};

/// Rows of a table beyond this many share one.
const MAX_ROWS: usize = 10_000;

/// Buckets of time beyond this many are joined in pairs.
const MAX_BUCKETS: usize = 240;

/// The narrowest bucket, in seconds.
const NARROWEST: i64 = 60;

/// The row of what has no row of its own.
const OTHERS: &str = "(others)";

/// What stands for a value that there is not.
const NONE: &str = "-";

/// How many requests went on, and how many were refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Went on to the upstream.
    pub forwarded: u64,
    /// Were answered by the filter, or cut, or would have been but for a quota in shadow mode.
    pub refused: u64,
}

impl Outcomes {
    fn add(&mut self, refused: bool) {
        if refused {
            self.refused += 1;
        } else {
            self.forwarded += 1;
        }
    }

    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        self.forwarded + self.refused
    }
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// When it begins.
    pub start: Timestamp,
    /// Its requests.
    pub outcomes: Outcomes,
}

/// What requests are counted by.
const BY: [&str; 6] = ["subscriber", "plan", "class", "quota", "client", "path"];

/// Requests by a name.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows<T>(HashMap<String, T>);

impl<T: Default> Rows<T> {
    pub(super) fn row(&mut self, name: &str) -> &mut T {
        let name = if self.0.len() < MAX_ROWS || self.0.contains_key(name) { name } else { OTHERS };
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), T::default());
        }
        self.0.entry(name.to_owned()).or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, row)| (name.as_str(), row))
    }
}

/// What a replay found.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Lines that were requests.
    pub requests: u64,
    /// All requests.
    pub outcomes: Outcomes,
    /// Refused requests by what they were answered.
    pub replies: BTreeMap<String, u64>,
    /// When the first and the last request began.
    pub span: Option<(Timestamp, Timestamp)>,
    /// What is to be known of the figures: what was skipped, taken for something else, or not judged.
    pub notes: Vec<String>,
    /// Requests of another class than in the log, by both, with one of their paths.
    pub(super) other_class: BTreeMap<(String, String), (u64, String)>,
    /// Requests without a client's address.
    pub(super) without_client: u64,
    by: [Rows<Outcomes>; BY.len()],
    buckets: BTreeMap<i64, Outcomes>,
    /// How often the narrowest buckets were joined in pairs.
    joined: u32,
}

impl Summary {
    pub(super) fn count(&mut self, entry: &Entry, decided: &Decided) {
        let refused = decided.refused.is_some();
        self.requests += 1;
        self.outcomes.add(refused);
        if let Some(reply) = &decided.refused {
            *self.replies.entry(reply.clone()).or_default() += 1;
        }
        let told = decided.told.clone().unwrap_or_default();
        // Of a quota, only its refusals are known.
        let quota = told.quota.filter(|_| refused);
        let client = Some(entry.client.clone()).filter(|client| !client.is_empty());
        self.without_client += u64::from(client.is_none());
        let names = [told.subscriber, told.plan, told.class.clone(), quota, client, Some(entry.path.clone())];
        for (rows, name) in self.by.iter_mut().zip(names) {
            if let Some(name) = name {
                rows.row(&name).add(refused);
            }
        }
        let logged = entry.told.as_ref().and_then(|logged| logged.class.clone());
        if let (Some(logged), Some(class)) = (logged, told.class)
            && logged != class
        {
            let (count, _) =
                self.other_class.entry((logged, class)).or_insert_with(|| (0, entry.path.clone()));
            *count += 1;
        }
        let (first, last) = self.span.unwrap_or((entry.time, entry.time));
        self.span = Some((first.min(entry.time), last.max(entry.time)));
        self.buckets.entry(entry.time.as_second().div_euclid(self.width())).or_default().add(refused);
        while self.buckets.len() > MAX_BUCKETS {
            self.joined += 1;
            let narrow = std::mem::take(&mut self.buckets);
            for (index, outcomes) in narrow {
                let wide = self.buckets.entry(index.div_euclid(2)).or_default();
                wide.forwarded += outcomes.forwarded;
                wide.refused += outcomes.refused;
            }
        }
    }

    /// The rows by subscriber, plan, class, quota, client or path: by refusals, the most first.
    #[must_use]
    pub fn by(&self, what: &str) -> Vec<(&str, Outcomes)> {
        let place = BY.iter().position(|by| *by == what);
        let rows = place.and_then(|place| self.by.get(place)).into_iter().flat_map(Rows::iter);
        let mut rows: Vec<_> = rows.map(|(name, outcomes)| (name, *outcomes)).collect();
        rows.sort_by(|(name, a), (other, b)| {
            (b.refused, b.total()).cmp(&(a.refused, a.total())).then(name.cmp(other))
        });
        rows
    }

    /// The requests over time: buckets of [`bucket_width`](Self::bucket_width), those without requests left out.
    #[must_use]
    pub fn buckets(&self) -> Vec<Bucket> {
        let of = |(index, outcomes): (&i64, &Outcomes)| {
            let start = Timestamp::from_second(index.saturating_mul(self.width())).ok()?;
            Some(Bucket { start, outcomes: *outcomes })
        };
        self.buckets.iter().filter_map(of).collect()
    }

    fn width(&self) -> i64 {
        NARROWEST << self.joined
    }

    /// How wide a bucket is.
    #[must_use]
    pub fn bucket_width(&self) -> SignedDuration {
        SignedDuration::from_secs(self.width())
    }

    /// The tables that have rows.
    pub(super) fn tables(&self) -> Vec<Table> {
        let mut tables = vec![Table {
            name: "replies",
            title: "Refused".to_owned(),
            head: vec!["answer", "requests", "of all"],
            rows: self
                .replies
                .iter()
                .map(|(reply, count)| {
                    vec![Cell::Name(reply.clone()), Cell::Count(*count), Cell::Share(*count, self.requests)]
                })
                .collect(),
        }];
        tables.extend(BY.map(|what| {
            let is_quota = what == "quota";
            let row = |(name, outcomes): (&str, Outcomes)| {
                let (total, refused) = (outcomes.total(), outcomes.refused);
                let mut row = vec![Cell::Name(name.to_owned()), Cell::Count(refused)];
                if !is_quota {
                    row.insert(1, Cell::Count(total));
                    row.push(Cell::Share(refused, total));
                }
                row
            };
            let head =
                if is_quota { vec![what, "refused"] } else { vec![what, "requests", "refused", "of them"] };
            Table {
                name: what,
                title: format!("By {what}"),
                head,
                rows: self.by(what).into_iter().map(row).collect(),
            }
        }));
        tables.retain(|table| !table.rows.is_empty());
        tables
    }

    /// From when to when.
    pub(super) fn period(&self) -> String {
        self.span.map_or_else(|| NONE.to_owned(), |(first, last)| format!("{first:.0} to {last:.0}"))
    }

    /// The summary for a terminal, each table with at most this many rows.
    #[must_use]
    pub fn text(&self, most: usize) -> String {
        let Outcomes { forwarded, refused } = self.outcomes;
        let mut text =
            format!("{} requests, {}: {forwarded} went on, {refused} refused", self.requests, self.period());
        text += &format!(" ({})\n", percent(refused, self.requests));
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        for table in self.tables() {
            text += &format!("\n{}", table.text(most));
        }
        text
    }

    /// The summary as one object.
    #[must_use]
    pub fn json(&self) -> Value {
        let head = json!({
            "requests": self.requests,
            "forwarded": self.outcomes.forwarded,
            "refused": self.outcomes.refused,
            "first": self.span.map(|(first, _)| first.to_string()),
            "last": self.span.map(|(_, last)| last.to_string()),
            "notes": self.notes,
        });
        let mut object: Map<_, _> = head.as_object().cloned().unwrap_or_default();
        object.extend(self.tables().iter().map(|table| (table.name.to_owned(), table.json())));
        object.into()
    }
}
