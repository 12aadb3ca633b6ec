//! The same traffic by two configurations, and who fares differently.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Decided;
use super::callers::Callers;
use super::line::Entry;
use super::report::{Cell, Table};
use super::summary::Rows;

/// How a caller, or all of a plan and a class, fare by both configurations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fare {
    requests: u64,
    before: u64,
    after: u64,
    /// When the configuration after refuses for the first time what the one before does not, and by which quota.
    first: Option<String>,
}

/// The differences of two configurations in the same traffic.
#[derive(Debug, Default)]
pub struct Comparison {
    callers: Rows<Fare>,
    classes: Rows<Fare>,
    all: Fare,
    /// Keys and classes that only one of the configurations has: what, and of whom.
    only: Vec<(&'static str, String, &'static str)>,
    /// What is to be known of the figures.
    pub notes: Vec<String>,
}

impl Fare {
    fn add(&mut self, entry: &Entry, before: &Decided, after: &Decided) {
        self.requests += 1;
        self.before += u64::from(before.refused.is_some());
        self.after += u64::from(after.refused.is_some());
        if let (None, Some(reply), None) = (&before.refused, &after.refused, &self.first) {
            let quota = after.told.as_ref().and_then(|told| told.quota.as_ref());
            let by = quota.map_or_else(|| reply.clone(), |quota| format!("quota {quota}"));
            self.first = Some(format!("{}, {by}", entry.time));
        }
    }

    fn change(&self) -> i64 {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        signed(self.after) - signed(self.before)
    }

    /// Requests, refusals before and after, and the change.
    fn cells(&self) -> [Cell; 4] {
        [
            Cell::Count(self.requests),
            Cell::Count(self.before),
            Cell::Count(self.after),
            Cell::Change(self.change()),
        ]
    }
}

impl Comparison {
    /// Of configurations that know these callers.
    pub(super) fn of(before: &Callers, after: &Callers) -> Self {
        let mut only = Vec::new();
        let mut keys: BTreeMap<(&String, &'static str), usize> = BTreeMap::new();
        for (here, there, fate) in [(before, after, "vanishes"), (after, before, "appears")] {
            for (_, subscriber) in here.keys().iter().filter(|(key, _)| !there.keys().contains_key(*key)) {
                *keys.entry((subscriber, fate)).or_default() += 1;
            }
            only.extend(
                here.classes().difference(there.classes()).map(|class| ("class", class.clone(), fate)),
            );
        }
        let of = |((subscriber, fate), count): ((&String, &'static str), usize)| match count {
            1 => ("key", format!("1 of {subscriber}"), fate),
            count => ("key", format!("{count} of {subscriber}"), fate),
        };
        only.extend(keys.into_iter().map(of));
        only.sort();
        Self { only, ..Self::default() }
    }

    pub(super) fn count(&mut self, entry: &Entry, before: &Decided, after: &Decided) {
        let known = |decided: &Decided| decided.told.as_ref().and_then(|told| told.subscriber.clone());
        let client = || if entry.client.is_empty() { "(unknown)" } else { entry.client.as_str() };
        let caller =
            known(after).or_else(|| known(before)).unwrap_or_else(|| format!("address {}", client()));
        let told = after.told.clone().unwrap_or_default();
        let plan = told.plan.or_else(|| before.told.as_ref()?.plan.clone());
        let class = format!(
            "{}\t{}",
            plan.unwrap_or_else(|| "-".to_owned()),
            told.class.unwrap_or_else(|| "-".to_owned())
        );
        for fare in [&mut self.all, self.callers.row(&caller), self.classes.row(&class)] {
            fare.add(entry, before, after);
        }
    }

    /// How many requests were compared.
    pub(super) fn requests(&self) -> u64 {
        self.all.requests
    }

    /// Whether a caller is refused more by the configuration after.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.callers.iter().any(|(_, fare)| fare.change() > 0)
    }

    /// The tables that have rows: only what is different.
    fn tables(&self) -> Vec<Table> {
        let changed = |rows: &Rows<Fare>| {
            let mut rows: Vec<_> = rows
                .iter()
                .filter(|(_, fare)| fare.before != fare.after || fare.first.is_some())
                .map(|(name, fare)| (name.to_owned(), fare.clone()))
                .collect();
            rows.sort_by(|(name, a), (other, b)| b.change().cmp(&a.change()).then(name.cmp(other)));
            rows
        };
        let caller = |(name, fare): (String, Fare)| {
            let cells = std::iter::once(Cell::Name(name)).chain(fare.cells());
            cells.chain([Cell::Name(fare.first.unwrap_or_else(|| "-".to_owned()))]).collect()
        };
        let class = |(name, fare): (String, Fare)| {
            let names = name.split('\t').map(|name| Cell::Name(name.to_owned()));
            names.chain(fare.cells()).collect()
        };
        let only = |(what, name, fate): &(&'static str, String, &'static str)| {
            [(*what).to_owned(), name.clone(), (*fate).to_owned()].map(Cell::Name).to_vec()
        };
        let mut tables = vec![
            Table {
                name: "subscribers",
                title: "Who fares differently".to_owned(),
                head: vec![
                    "subscriber",
                    "requests",
                    "refused before",
                    "refused after",
                    "change",
                    "first refusal",
                ],
                rows: changed(&self.callers).into_iter().map(caller).collect(),
            },
            Table {
                name: "classes",
                title: "By plan and class".to_owned(),
                head: vec!["plan", "class", "requests", "refused before", "refused after", "change"],
                rows: changed(&self.classes).into_iter().map(class).collect(),
            },
            Table {
                name: "only",
                title: "Keys and classes that one of the configurations lacks".to_owned(),
                head: vec!["what", "which", "fate"],
                rows: self.only.iter().map(only).collect(),
            },
        ];
        tables.retain(|table| !table.rows.is_empty());
        tables
    }

    fn sentence(&self) -> String {
        let Fare { requests, before, after, .. } = self.all;
        if self.tables().is_empty() {
            return format!(
                "No difference: of {requests} requests, both configurations refuse the same {after}."
            );
        }
        format!("Of {requests} requests, {before} were refused before, and {after} are refused after.")
    }

    /// The comparison for a terminal, each table with at most this many rows.
    #[must_use]
    pub fn text(&self, most: usize) -> String {
        let notes = self.notes.iter().map(|note| format!("{note}\n"));
        let tables = self.tables().into_iter().map(|table| format!("\n{}", table.text(most)));
        std::iter::once(format!("{}\n", self.sentence())).chain(notes).chain(tables).collect()
    }

    /// The comparison for a comment on a pull request.
    #[must_use]
    pub fn markdown(&self, most: usize) -> String {
        let notes = self.notes.iter().map(|note| format!("\n{note}\n"));
        let tables = self.tables().into_iter().map(|table| format!("\n{}", table.markdown(most)));
        std::iter::once(format!("{}\n", self.sentence())).chain(notes).chain(tables).collect()
    }

    /// The comparison as one object.
    #[must_use]
    pub fn json(&self) -> Value {
        let Fare { requests, before, after, .. } = self.all;
        let head = json!({
            "requests": requests, "refused_before": before, "refused_after": after, "notes": self.notes,
            "subscribers": [], "classes": [], "only": [],
        });
        let mut object: Map<_, _> = head.as_object().cloned().unwrap_or_default();
        object.extend(self.tables().iter().map(|table| (table.name.to_owned(), table.json())));
        object.into()
    }
}
