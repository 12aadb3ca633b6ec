//! Who sent a request, as far as its log says, and the configuration in which the filter knows them.
//!
//! A log has a key as it is, its SHA-256, or no key and the subscriber in what the filter said of the request. A replay gives the filter a
//! configuration in which each of them is a key: the hash as a text, and a token for each subscriber.

use std::collections::{BTreeMap, HashSet};

use filter::config::{Config, digest, hex, parse_key};
use filter::request::identity::KeySource;
use serde_json::{Value, json};

use super::line::Entry;

/// The header in which a replay sends what stands for a key.
const HEADER: &str = "x-weir-replayed-caller";

/// Where a replay's class is asked for by path.
const CLASS_PATH: &str = "/weir-replay/class/of/the/access/log/";

/// By what a log names the callers of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// By a key that is known.
    Key,
    /// By the SHA-256 of a key that is known.
    Hash,
    /// By the subscriber in the field `weir`.
    Subscriber,
    /// By what is no known key.
    UnknownKey,
    /// By nothing but the client's address.
    Address,
}

/// What was seen of a log's callers.
#[derive(Debug, Default)]
pub struct Seen {
    by: BTreeMap<By, u64>,
    /// Headers that a line had.
    pub(super) headers: HashSet<String>,
    /// Requests whose subscriber is in the field `weir` and not in the configuration.
    pub(super) strange: u64,
    /// Lines with the field `weir`, and those of them that were not refused.
    pub(super) told: u64,
    pub(super) told_passed: u64,
    /// Whether there is no more to be seen.
    pub is_whole: bool,
}

impl Seen {
    /// What was seen of a log with one request.
    #[must_use]
    pub fn of(callers: &Callers, entry: &Entry) -> Self {
        let mut seen = Self { is_whole: true, ..Self::default() };
        seen.add(callers, entry);
        seen
    }

    /// How often the log names callers in this way.
    pub(super) fn by(&self, by: By) -> u64 {
        self.by.get(&by).copied().unwrap_or(0)
    }

    /// Takes note of a request.
    pub fn add(&mut self, callers: &Callers, entry: &Entry) {
        let by = callers.identify(entry).0;
        *self.by.entry(by).or_default() += 1;
        for (name, _) in &entry.headers {
            if !self.headers.contains(name) {
                self.headers.insert(name.clone());
            }
        }
        if let Some(told) = &entry.told {
            self.told += 1;
            self.told_passed += u64::from(!told.is_refused());
            self.strange += u64::from(by == By::Address && told.subscriber.is_some());
        }
    }
}

/// The callers that a configuration and its directory know.
#[derive(Debug)]
pub struct Callers {
    /// The hashes of their keys, in digits, with the subscribers.
    keys: BTreeMap<String, String>,
    subscribers: HashSet<String>,
    sources: Vec<KeySource>,
    classes: HashSet<String>,
    base_path: String,
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// The token that stands for a subscriber.
fn token(subscriber: &str) -> String {
    format!("subscriber-{}", hex(digest(subscriber.as_bytes())))
}

impl Callers {
    /// The callers of a configuration and of the document that its directory answers.
    #[must_use]
    pub fn new(config: &Config, configuration: &Value, document: Option<&Value>) -> Self {
        let mut keys = BTreeMap::new();
        for subscriber in list(configuration, "subscribers") {
            for key in
                list(subscriber, "keys").filter_map(Value::as_str).filter_map(|key| parse_key(key).ok())
            {
                keys.insert(hex(key), text(subscriber, "id").to_owned());
            }
        }
        for row in document.into_iter().flat_map(|document| list(document, "keys")) {
            keys.insert(text(row, "sha256").to_ascii_lowercase(), text(row, "subscriber").to_owned());
        }
        Self {
            subscribers: keys.values().cloned().collect(),
            keys,
            sources: config.key_sources.clone(),
            classes: config.catalog.classes.iter().map(|class| class.name.to_string()).collect(),
            base_path: config.settings.base_path.to_string(),
        }
    }

    /// The hashes of the keys, with the subscribers that have them.
    pub(super) fn keys(&self) -> &BTreeMap<String, String> {
        &self.keys
    }

    /// Whether a subscriber has several keys.
    pub(super) fn has_several_keys(&self) -> bool {
        self.subscribers.len() < self.keys.len()
    }

    pub(super) fn classes(&self) -> &HashSet<String> {
        &self.classes
    }

    /// The scheme of a header that carries a key, `None` for a header that carries none.
    fn source(&self, header: &str) -> Option<Option<&str>> {
        self.sources.iter().find_map(|source| match source {
            KeySource::Header { name, scheme } if header.eq_ignore_ascii_case(name) => {
                Some(scheme.as_deref())
            }
            KeySource::Header { .. } | KeySource::Query { .. } | KeySource::Metadata { .. } => None,
        })
    }

    /// Who sent a request, and what stands for the caller's key if the key itself does not.
    fn identify(&self, entry: &Entry) -> (By, Option<String>) {
        let mut is_unknown = false;
        for (_, value) in entry.headers.iter().filter(|(name, _)| self.source(name).is_some()) {
            // What follows a scheme.
            let key = value.rsplit(' ').next().unwrap_or_default();
            if self.keys.contains_key(&hex(digest(key.as_bytes()))) {
                return (By::Key, None);
            }
            let hash = key.strip_prefix("sha256:").unwrap_or(key).to_ascii_lowercase();
            if self.keys.contains_key(&hash) {
                return (By::Hash, Some(hash));
            }
            is_unknown = true;
        }
        let query = entry.request.path().split_once('?').map_or("", |(_, query)| query);
        let in_query = |source: &KeySource| {
            let KeySource::Query { name } = source else { return None };
            query.split('&').find_map(|pair| pair.strip_prefix(name.as_str())?.strip_prefix('='))
        };
        if let Some(key) = self.sources.iter().find_map(in_query) {
            let is_known = self.keys.contains_key(&hex(digest(key.as_bytes())));
            return (if is_known { By::Key } else { By::UnknownKey }, None);
        }
        let subscriber = entry.told.as_ref().and_then(|told| told.subscriber.as_deref());
        match subscriber.filter(|subscriber| self.subscribers.contains(*subscriber)) {
            Some(subscriber) => (By::Subscriber, Some(token(subscriber))),
            None if is_unknown => (By::UnknownKey, None),
            None => (By::Address, None),
        }
    }

    /// The request as the filter is to see it: with the key or what stands for it, and in the log's own class if that is asked for.
    #[must_use]
    pub fn request(&self, entry: &Entry, class_from_log: bool) -> host_sim::Request {
        let (_, stand_in) = self.identify(entry);
        let mut request = entry.request.clone();
        for (name, value) in &entry.headers {
            let value = match self.source(name) {
                Some(_) if stand_in.is_some() => continue,
                // The log may have the key alone.
                Some(Some(scheme)) if !value.contains(' ') => format!("{scheme} {value}"),
                Some(_) | None => value.clone(),
            };
            request = request.header(name.clone(), value);
        }
        if let Some(stand_in) = stand_in {
            request = request.header(HEADER, stand_in);
        }
        let class = entry
            .told
            .as_ref()
            .filter(|told| class_from_log && !told.is("exempt"))
            .and_then(|told| told.class.as_ref());
        match class.filter(|class| self.classes.contains(*class)) {
            Some(class) => {
                let query = request.path().find('?').map_or("", |at| &request.path()[at..]);
                let path = format!("{}{CLASS_PATH}{class}{query}", self.base_path);
                request.without(":path").header(":path", path)
            }
            None => request,
        }
    }

    /// The configuration for a replay: the filter says of each request what it decides, refuses where it would only count, and counts by
    /// itself what a fleet counts together, for the log is that of all gateways.
    #[must_use]
    pub fn for_replay(&self, configuration: Value, seen: &Seen, class_from_log: bool) -> Value {
        let mut configuration = self.known_in(configuration, seen);
        let Some(fields) = configuration.as_object_mut() else { return configuration };
        fields.insert("log_fields".to_owned(), "all".into());
        fields.insert("enforcement".to_owned(), "enforced".into());
        fields.remove("fleet");
        let classes = fields.get_mut("classes").and_then(Value::as_array_mut).filter(|_| class_from_log);
        for class in classes.into_iter().flatten() {
            let path = json!({"path": format!("{CLASS_PATH}{}", text(class, "name"))});
            match class.get_mut("match").and_then(Value::as_array_mut) {
                Some(matches) => matches.insert(0, path),
                None => class["match"] = json!([path]),
            }
        }
        configuration
    }

    /// The configuration in which the callers are known by what the log has of them.
    #[must_use]
    pub fn known_in(&self, mut configuration: Value, seen: &Seen) -> Value {
        let Some(fields) = configuration.as_object_mut() else { return configuration };
        let usual = || json!([{"header": "authorization", "scheme": "Bearer"}]);
        if let Some(sources) = fields.entry("key_sources").or_insert_with(usual).as_array_mut() {
            sources.push(json!({"header": HEADER}));
        }
        for subscriber in fields.get_mut("subscribers").and_then(Value::as_array_mut).into_iter().flatten() {
            let keys = list(subscriber, "keys").filter_map(|key| parse_key(key.as_str()?).ok()).map(hex);
            let named = token(text(subscriber, "id"));
            let keys = stand_ins(keys, Some(named), seen);
            subscriber["keys"] = keys.map(|key| Value::from(format!("sha256:{key}"))).collect();
        }
        configuration
    }

    /// The document of the directory for the same.
    #[must_use]
    pub fn document(mut document: Value, seen: &Seen) -> Value {
        let mut named = HashSet::new();
        let mut rows = Vec::new();
        for row in list(&document, "keys") {
            let (key, subscriber) = (text(row, "sha256").to_ascii_lowercase(), text(row, "subscriber"));
            let token = named.insert(subscriber.to_owned()).then(|| token(subscriber));
            for key in stand_ins(std::iter::once(key), token, seen) {
                let mut row = row.clone();
                row["sha256"] = key.into();
                rows.push(row);
            }
        }
        document["keys"] = rows.into();
        document
    }
}

/// What is a key in the place of a subscriber's keys, in the form of their hashes: what the log has of them.
fn stand_ins(
    keys: impl Iterator<Item = String>,
    token: Option<String>,
    seen: &Seen,
) -> impl Iterator<Item = String> {
    let [by_key, by_hash, by_subscriber] =
        [By::Key, By::Hash, By::Subscriber].map(|by| !seen.is_whole || seen.by(by) > 0);
    let stays = by_key || !by_hash && !by_subscriber;
    let hashed = |key: String| hex(digest(key.as_bytes()));
    let keys = keys.flat_map(move |key| {
        let hash = by_hash.then(|| hashed(key.clone()));
        Some(key).filter(|_| stays).into_iter().chain(hash)
    });
    keys.chain(token.filter(|_| by_subscriber).map(hashed))
}

#[cfg(test)]
mod tests {
    use super::super::line::Fields;
    use super::*;

    #[test]
    fn a_caller_is_known_by_whatever_the_log_has_of_its_key() {
        let hash = |key: &str| hex(digest(key.as_bytes()));
        // A key may look like a hash.
        let digits = "ab".repeat(32);
        let configuration = json!({
            "plans": {"free": {"standard": ["1/minute"]}},
            "key_sources": [{"header": "authorization", "scheme": "Bearer"}, {"query": "key"}],
            "subscribers": [{"id": "acme", "plan": "free", "keys": [format!("sha256:{}", hash("k")), format!("sha256:{}", hash(&digits))]}],
        });
        let config = Config::from_json(configuration.to_string().as_bytes()).unwrap();
        let callers = Callers::new(
            &config,
            &configuration,
            Some(&json!({"keys": [{"sha256": hash("d"), "subscriber": "of-directory"}]})),
        );
        let stand_in = |name: &str| Some(hash(name)).map(|_| token(name));
        let rows = [
            ("Bearer k", "", "/", By::Key, None),
            ("k", "", "/", By::Key, None),
            (&digits, "outcome=allowed subscriber=acme", "/", By::Key, None),
            (&format!("sha256:{}", hash("k")), "", "/", By::Hash, Some(hash("k"))),
            (&hash("d").to_uppercase(), "", "/", By::Hash, Some(hash("d"))),
            ("Bearer x", "", "/", By::UnknownKey, None),
            ("Bearer x", "outcome=allowed subscriber=acme", "/", By::Subscriber, stand_in("acme")),
            ("-", "outcome=allowed subscriber=of-directory", "/", By::Subscriber, stand_in("of-directory")),
            ("-", "outcome=allowed subscriber=gone", "/", By::Address, None),
            ("-", "outcome=allowed subscriber=acme", "/?key=k", By::Key, None),
            ("-", "", "/?a&key=x", By::UnknownKey, None),
            ("-", "", "/", By::Address, None),
        ];
        for (value, weir, path, by, stand_in) in rows {
            let line = json!({"time": "2026-01-01T00:00:00Z", "path": path, "auth": value, "weir": weir})
                .to_string();
            let entry = Fields::default().header("Authorization", "auth").read(line.as_bytes()).unwrap();
            assert_eq!(callers.identify(&entry), (by, stand_in), "{line}");
        }
    }
}
