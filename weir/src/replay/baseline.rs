//! The same traffic by two configurations, and who fares differently.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Decided;
use super::callers::Callers;
use super::line::Entry;
use super::report::Report;
use super::summary::Rows;
use super::table::{Cell, Table};

/// What stands for a value that there is not.
const NONE: &str = "-";

/// How a caller, or all of a plan and a class, fare by both configurations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fare {
    requests: u64,
    before: u64,
    after: u64,
    /// When the configuration after refuses for the first time what the one before does not, and by which quota.
    first: Option<(Timestamp, String)>,
}

/// The differences of two configurations in the same traffic.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    callers: Rows<Fare>,
    /// By plan and class, with a tab between them.
    classes: Rows<Fare>,
    all: Fare,
    /// Keys and classes that only one of the configurations has: what, of whom, and what becomes of it.
    only: Vec<[String; 3]>,
}

impl Fare {
    fn add(&mut self, entry: &Entry, before: &Decided, after: &Decided) {
        self.requests += 1;
        self.before += u64::from(before.refused.is_some());
        self.after += u64::from(after.refused.is_some());
        let is_first = self.first.as_ref().is_none_or(|(first, _)| entry.time < *first);
        if let (None, Some(reply)) = (&before.refused, &after.refused)
            && is_first
        {
            let quota = after.told.get("quota").map(|quota| format!("quota {quota}"));
            self.first = Some((entry.time, quota.unwrap_or_else(|| reply.clone())));
        }
    }

    fn change(&self) -> i64 {
        self.after.cast_signed() - self.before.cast_signed()
    }

    /// Requests, refusals before and after, and the change.
    fn cells(&self) -> [Cell; 4] {
        let counts = [self.requests, self.before, self.after].map(Cell::Count);
        let [requests, before, after] = counts;
        [requests, before, after, Cell::Change(self.change())]
    }
}

impl Comparison {
    /// Of configurations that know these callers.
    pub(super) fn of(before: &Callers, after: &Callers) -> Self {
        let mut only = Vec::new();
        for (here, there, fate) in [(before, after, "vanishes"), (after, before, "appears")] {
            let mut keys: BTreeMap<&String, usize> = BTreeMap::new();
            for (_, subscriber) in here.keys.iter().filter(|(key, _)| !there.keys.contains_key(*key)) {
                *keys.entry(subscriber).or_default() += 1;
            }
            let keys = keys.into_iter().map(|(of, count)| ("key", format!("{count} of {of}")));
            let classes = here.classes.difference(&there.classes).map(|class| ("class", class.clone()));
            only.extend(keys.chain(classes).map(|(what, which)| [what.to_owned(), which, fate.to_owned()]));
        }
        only.sort();
        Self { only, ..Self::default() }
    }

    pub(super) fn count(&mut self, entry: &Entry, before: &Decided, after: &Decided) {
        let of = |name: &str| after.told.get(name).or_else(|| before.told.get(name));
        let client = if entry.client.is_empty() { "(unknown)" } else { entry.client.as_str() };
        let caller = of("subscriber").unwrap_or_else(|| format!("address {client}"));
        let [plan, class] =
            [of("plan"), after.told.get("class")].map(|name| name.unwrap_or_else(|| NONE.to_owned()));
        let class = format!("{plan}\t{class}");
        for fare in [&mut self.all, self.callers.row(caller), self.classes.row(class)] {
            fare.add(entry, before, after);
        }
    }

    /// Only what is different, sorted by what got worse.
    pub(super) fn report(&self) -> Report {
        let changed = |rows: &Rows<Fare>| {
            let is_changed = |fare: &Fare| fare.before != fare.after || fare.first.is_some();
            let rows = rows.iter().filter(|(_, fare)| is_changed(fare));
            let mut rows: Vec<_> = rows.map(|(name, fare)| (name.clone(), fare.clone())).collect();
            rows.sort_by(|(name, a), (other, b)| b.change().cmp(&a.change()).then(name.cmp(other)));
            rows
        };
        let callers = changed(&self.callers);
        let is_worse = callers.iter().any(|(_, fare)| fare.change() > 0);
        let caller = |(name, fare): (String, Fare)| {
            let first =
                fare.first.as_ref().map_or_else(|| NONE.to_owned(), |(time, by)| format!("{time}, {by}"));
            std::iter::once(Cell::Name(name)).chain(fare.cells()).chain([Cell::Name(first)]).collect()
        };
        let class = |(name, fare): (String, Fare)| {
            let names = name.split('\t').map(|name| Cell::Name(name.to_owned()));
            names.chain(fare.cells()).collect()
        };
        let counts = ["requests", "refused before", "refused after", "change"];
        let tables = vec![
            Table {
                name: "subscribers",
                title: "Who fares differently".to_owned(),
                head: [&["subscriber"], &counts[..], &["first refusal"]].concat(),
                rows: callers.into_iter().map(caller).collect(),
            },
            Table {
                name: "classes",
                title: "By plan and class".to_owned(),
                head: [&["plan", "class"], &counts[..]].concat(),
                rows: changed(&self.classes).into_iter().map(class).collect(),
            },
            Table {
                name: "only",
                title: "Keys and classes that one of the configurations lacks".to_owned(),
                head: vec!["what", "which", "fate"],
                rows: self.only.iter().map(|only| only.clone().map(Cell::Name).to_vec()).collect(),
            },
        ];
        let Fare { requests, before, after, .. } = self.all;
        let sentence = if tables.iter().all(|table| table.rows.is_empty()) {
            format!("No difference: of {requests} requests, both configurations refuse the same {after}.")
        } else {
            format!("Of {requests} requests, {before} were refused before, and {after} are refused after.")
        };
        let totals = vec![("requests", requests), ("refused_before", before), ("refused_after", after)];
        Report { sentence, totals, tables, is_worse, ..Report::default() }
    }
}
