//! What is to be known of a replay's figures, and why there would be none worth having.

use std::collections::BTreeSet;

use filter::config::{Config, CountBy};
use serde_json::Value;

use super::callers::{By, Callers, Seen};
use super::line::Fields;
use super::log::Log;
use super::summary::Summary;

/// Classes that are named in a note about other classes.
const CLASSES: usize = 3;

/// Why the requests of a log cannot be those of their callers.
#[derive(Debug, thiserror::Error)]
pub enum Doubt {
    /// A header was asked for that no line has.
    #[error("no line has a value in the field {field:?} (--header {header}={field}); the first has {}", names.iter().map(String::as_str).collect::<Vec<_>>().join(", "))]
    NoHeader {
        /// The header.
        header: String,
        /// Its field.
        field: String,
        /// The fields that there are.
        names: BTreeSet<String>,
    },
    /// Keys were asked for, and none is known.
    #[error("the log has {unknown} requests with keys, and the configuration knows none of the keys: it has {known} of its own{}", if *has_directory { ", and --keys FILE gives those of its directory" } else { "" })]
    NoKey {
        /// Requests with an unknown key.
        unknown: u64,
        /// Keys of the configuration.
        known: usize,
        /// Whether keys of a directory were not given.
        has_directory: bool,
    },
    /// Only refused requests say whose they were.
    #[error(
        "only the {refused} refused requests have the field weir, so who sent the others is not known: \
         set \"log_fields\": \"all\" in the filter's configuration and replay a log that was written since"
    )]
    OnlyRefused {
        /// How many.
        refused: u64,
    },
}

impl Seen {
    /// Whether a replay can say anything of this log.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn is_worth_a_replay(
        &self,
        fields: &Fields,
        log: &Log,
        callers: &Callers,
        config: &Config,
    ) -> Result<(), Doubt> {
        let absent = fields.headers().iter().find(|(header, _)| !self.headers.contains(header));
        if let Some((header, field)) = absent.cloned() {
            return Err(Doubt::NoHeader { header, field, names: log.names().clone() });
        }
        let known = self.by(By::Key) + self.by(By::Hash);
        let unknown = self.by(By::UnknownKey);
        if known + self.by(By::Subscriber) == 0 && unknown > 0 && config.settings.plan_source.is_none() {
            let known = callers.keys().len();
            return Err(Doubt::NoKey {
                unknown,
                known,
                has_directory: config.settings.directory.is_some() && known == 0,
            });
        }
        if known == 0 && self.told > 0 && self.told_passed == 0 {
            return Err(Doubt::OnlyRefused { refused: self.told });
        }
        Ok(())
    }

    /// What is to be said of the figures that were made by this configuration.
    #[must_use]
    pub fn notes(&self, log: &Log, callers: &Callers, config: &Config, configuration: &Value) -> Vec<String> {
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
        if self.by(By::Address) > 0 && found.len() == 1 {
            notes.push("No line has a key (--header) or a subscriber in the field weir: all callers are counted by their client address.".to_owned());
        } else {
            notes.push(format!("Callers: {}.", found.join(", ")));
        }
        if self.strange > 0 {
            notes.push(format!(
                "{} requests are of subscribers that the configuration does not have.",
                self.strange
            ));
        }
        let is_merged = self.by(By::Subscriber) > 0 && callers.has_several_keys();
        if is_merged && config.settings.count_by == CountBy::Key {
            notes.push("The field weir does not say by which key: a subscriber's keys, which have quotas of their own, are counted as one.".to_owned());
        }
        if let (skipped @ 1.., first) = log.skipped() {
            notes.push(format!("{skipped} lines are not requests:"));
            notes.extend(first.iter().map(|skipped| format!("  {skipped}")));
        }
        if has_field(configuration, "in_flight") {
            notes.push(
                "Quotas of requests in flight are not judged: requests are replayed one after another."
                    .to_owned(),
            );
        }
        notes
    }
}

impl Summary {
    /// Adds what is to be said of these requests.
    pub fn note(&mut self, notes: Vec<String>, class_from_log: bool) {
        self.notes = notes;
        if self.without_client > 0 {
            let count = self.without_client;
            self.notes.push(format!(
                "{count} lines have no client address: without a known key, they are counted as one caller's."
            ));
        }
        let count: u64 = self.other_class.values().map(|(count, _)| count).sum();
        if count == 0 {
            return;
        }
        let examples = self.other_class.iter().take(CLASSES).map(|((logged, class), (count, path))| {
            format!("{count} of class {logged} in the log and {class} by the path, such as {path}")
        });
        let examples: Vec<_> = examples.collect();
        let way = if class_from_log {
            "the configuration has no such class"
        } else {
            "--class-from-log takes the log's class"
        };
        self.notes.push(format!(
            "{count} requests have another class than the log says ({}): {way}.",
            examples.join("; ")
        ));
    }
}

/// Whether an object anywhere in a value has a field of this name.
fn has_field(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(fields) => {
            fields.contains_key(name) || fields.values().any(|value| has_field(value, name))
        }
        Value::Array(list) => list.iter().any(|value| has_field(value, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
