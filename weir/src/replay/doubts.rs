//! What is to be known of a replay's figures, and why there would be none worth having.

use std::collections::{BTreeMap, HashSet};

use super::Decided;
use super::callers::{By, Callers};
use super::line::Entry;
use super::log::Log;
use super::told::SHADOW;

/// Classes that are named in a note about other classes.
const CLASSES: usize = 3;

/// Why the requests of a log cannot be those of their callers.
#[derive(Debug, thiserror::Error)]
pub enum Doubt {
    /// A header was asked for, in a field that no line has; the first line has these.
    #[error("no line has a value in the field {1:?} (--header {0}={1}); the first has {2}")]
    NoHeader(String, String, String),
    /// That many keys were asked for, none of which is among those of the configuration, and perhaps its directory's were not given.
    #[error(
        "the log has {0} requests with keys, and the configuration knows none of the keys: it has {1} of its own{hint}",
        hint = if *.2 { ", and --keys FILE gives those of its directory" } else { "" }
    )]
    NoKey(u64, usize, bool),
    /// Only that many refused requests say whose they were.
    #[error(
        "only the {0} refused requests have the field weir, so who sent the others is not known: \
         set \"log_fields\": \"all\" in the filter's configuration and replay a log that was written since"
    )]
    OnlyRefused(u64),
}

/// What was seen of a log's requests.
#[derive(Debug, Default)]
pub(super) struct Seen {
    requests: u64,
    by: BTreeMap<By, u64>,
    /// Headers that a line had.
    headers: HashSet<String>,
    /// Requests whose subscriber is in the field `weir` and not in the configuration.
    strange: u64,
    /// Lines with the field `weir`, and those of them that were not refused.
    told: u64,
    told_passed: u64,
    without_client: u64,
    without_duration: u64,
    /// Requests of another class than in the log, by both, with one of their paths.
    other_class: BTreeMap<(String, String), (u64, String)>,
}

impl Seen {
    /// Takes note of a request, by what its caller is known, and what was decided.
    pub(super) fn add(&mut self, entry: &Entry, by: By, decided: &Decided) {
        self.requests += 1;
        *self.by.entry(by).or_default() += 1;
        for (name, _) in &entry.headers {
            if !self.headers.contains(name) {
                self.headers.insert(name.clone());
            }
        }
        self.without_client += u64::from(entry.client.is_empty());
        self.without_duration += u64::from(entry.took.is_none());
        let Some(told) = &entry.told else { return };
        self.told += 1;
        self.told_passed += u64::from(!told.is_answered() && !told.is(SHADOW));
        self.strange += u64::from(by == By::Address && told.get("subscriber").is_some());
        if let (Some(logged), Some(class)) = (told.get("class"), decided.told.get("class"))
            && logged != class
        {
            self.other_class.entry((logged, class)).or_insert_with(|| (0, entry.path.clone())).0 += 1;
        }
    }

    /// How often the log names callers in this way.
    fn by(&self, by: By) -> u64 {
        self.by.get(&by).copied().unwrap_or(0)
    }

    /// Whether a replay can say anything of this log.
    pub(super) fn is_worth_a_replay(&self, log: &Log, callers: &Callers) -> Result<(), Doubt> {
        let absent = log.fields.headers.iter().find(|(header, _)| !self.headers.contains(header));
        if let Some((header, field)) = absent.cloned() {
            return Err(Doubt::NoHeader(header, field, log.names.clone()));
        }
        let known = self.by(By::Key) + self.by(By::Hash);
        let unknown = self.by(By::UnknownKey);
        if known + self.by(By::Subscriber) == 0 && unknown > 0 && !callers.has_plan_source {
            return Err(Doubt::NoKey(unknown, callers.keys.len(), callers.lacks_keys));
        }
        if known == 0 && self.told > 0 && self.told_passed == 0 {
            return Err(Doubt::OnlyRefused(self.told));
        }
        Ok(())
    }

    /// What is to be said of the figures.
    pub(super) fn notes(&self, log: &Log, callers: &Callers, class_from_log: bool) -> Vec<String> {
        let mut notes = Vec::new();
        let ways = [
            (By::Key, "by key"),
            (By::Hash, "by the SHA-256 of a key"),
            (By::Subscriber, "by the subscriber in the field weir"),
            (By::UnknownKey, "with an unknown key"),
            (By::Address, "by client address"),
        ];
        let found = ways.into_iter().map(|(by, words)| (self.by(by), words)).filter(|(count, _)| *count > 0);
        let found: Vec<_> = found.map(|(count, words)| format!("{count} {words}")).collect();
        if self.by(By::Address) == self.requests {
            notes.push("No line has a key (--header) or a subscriber in the field weir: all callers are counted by their client address.".to_owned());
        } else {
            notes.push(format!("Callers: {}.", found.join(", ")));
        }
        let mut note = |count: u64, words: &str| {
            if count > 0 {
                notes.push(format!("{count} {words}"));
            }
        };
        note(self.strange, "requests are of subscribers that the configuration does not have.");
        note(
            self.without_client,
            "lines have no client address: without a known key, they are counted as one caller's.",
        );
        if self.by(By::Subscriber) > 0 && callers.counts_keys_apart() {
            notes.push("The field weir does not say by which key: a subscriber's keys, which have quotas of their own, are counted as one.".to_owned());
        }
        if !log.skipped.is_none() {
            notes.push(log.skipped.to_string());
        }
        if callers.has_in_flight && self.without_duration > 0 {
            let count = self.without_duration;
            notes.push(if count == self.requests {
                "Quotas of requests in flight are not judged: no line says how long its request took (--field duration=NAME names the field).".to_owned()
            } else {
                format!("{count} requests are not judged by quotas of requests in flight: their lines do not say how long they took, or Weir refused them when they were logged.")
            });
        }
        let count: u64 = self.other_class.values().map(|(count, _)| count).sum();
        if count > 0 {
            let example = |((logged, class), (count, path)): (&(String, String), &(u64, String))| {
                format!("{count} of class {logged} in the log and {class} by the path, such as {path}")
            };
            let examples: Vec<_> = self.other_class.iter().take(CLASSES).map(example).collect();
            let way = if class_from_log {
                "the configuration has no such class"
            } else {
                "--class-from-log takes the log's class"
            };
            let examples = examples.join("; ");
            notes.push(format!("{count} requests have another class than the log says ({examples}): {way}."));
        }
        notes
    }
}
