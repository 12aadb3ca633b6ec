//! Who sent a request, as far as its log says, and the configuration in which the filter knows them.
//!
//! A log has a key as it is, its SHA-256, or no key and the subscriber in what the filter said of the request. A replay sends a key's SHA-256
//! in a header of its own in place of any of them, and gives the filter a configuration in which that text is the key.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;

use filter::config::{Config, CountBy, digest, hex, parse_key};
use filter::request::header_pairs::{HeaderPairs, serialize};
use filter::request::identity::{Credential, KeySource, credential};
use host_sim::Request;
use serde_json::{Value, json};

use super::line::Entry;

/// The header in which a replay sends what stands for a key.
const HEADER: &str = "access-log-caller";

/// Where a replay's class is asked for by path.
const CLASS_PATH: &str = "/weir-replay/class/of/the/access/log/";

/// By what a log names the callers of its requests: by a key that is known, its SHA-256, the subscriber in the field `weir`, what is no known
/// key, or nothing but the client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Key,
    Hash,
    Subscriber,
    UnknownKey,
    Address,
}

/// The callers that a configuration and its directory know.
#[derive(Debug)]
pub struct Callers {
    /// The hashes of their keys, in digits, with the subscribers.
    pub(super) keys: BTreeMap<String, String>,
    /// The key that stands for a subscriber whose key the log does not have.
    representatives: HashMap<String, String>,
    sources: Vec<KeySource>,
    pub(super) classes: HashSet<String>,
    base_path: String,
    /// Whether there are keys that the configuration does not have, because its directory's were not given.
    pub(super) lacks_keys: bool,
    /// Whether a verified token names plans, so that callers need no key of the configuration.
    pub(super) has_plan_source: bool,
    count_by: CountBy,
    /// Whether there is a quota of requests in flight.
    pub(super) has_in_flight: bool,
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn list_mut<'v>(value: &'v mut Value, name: &str) -> impl Iterator<Item = &'v mut Value> {
    value.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The hash of a key of the configuration.
fn hash_of(key: &Value) -> Option<String> {
    parse_key(key.as_str()?).ok().map(hex)
}

/// The hash of what stands for a key, by the key's hash.
fn stand_in(hash: &str) -> String {
    hex(digest(hash.as_bytes()))
}

impl Callers {
    /// The callers of a configuration and of the document that its directory answers.
    #[must_use]
    pub fn new(config: &Config, configuration: &Value, document: Option<&Value>) -> Self {
        let inline = list(configuration, "subscribers").flat_map(|subscriber| {
            list(subscriber, "keys").filter_map(|key| Some((hash_of(key)?, text(subscriber, "id"))))
        });
        let rows = document.into_iter().flat_map(|document| list(document, "keys"));
        let rows = rows.map(|row| (text(row, "sha256").to_ascii_lowercase(), text(row, "subscriber")));
        let keys: BTreeMap<_, _> =
            inline.chain(rows).map(|(hash, subscriber)| (hash, subscriber.to_owned())).collect();
        let representatives: HashMap<_, _> =
            keys.iter().map(|(hash, subscriber)| (subscriber.clone(), hash.clone())).collect();
        Self {
            sources: config.key_sources.clone(),
            classes: config.catalog.classes.iter().map(|class| class.name.to_string()).collect(),
            base_path: config.settings.base_path.to_string(),
            lacks_keys: config.settings.directory.is_some() && keys.is_empty(),
            has_plan_source: config.settings.plan_source.is_some(),
            count_by: config.settings.count_by,
            has_in_flight: configuration.to_string().contains("\"in_flight\":"),
            keys,
            representatives,
        }
    }

    /// Whether keys of a subscriber that has several are counted apart.
    pub(super) fn counts_keys_apart(&self) -> bool {
        self.count_by == CountBy::Key && self.representatives.len() < self.keys.len()
    }

    fn is_source(&self, header: &str) -> bool {
        self.sources.iter().any(|source| matches!(source, KeySource::Header { name, .. } if name == header))
    }

    /// Who sent a request, and the hash of the key, known or not, by which the filter is to know the caller.
    fn identify(&self, entry: &Entry) -> (By, Option<String>) {
        let path = entry.request.path().as_bytes();
        let logged = entry.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let headers: Vec<_> = std::iter::once((":path", path)).chain(logged).collect();
        let (pairs, none) = (serialize(&headers), |_: &[u8]| Ok::<_, Infallible>(None));
        let found =
            HeaderPairs::parse(&pairs).map(|pairs| credential(&self.sources, pairs, Some(path), none));
        let key = match found {
            Some(Ok(Credential::Key(key))) => Some(key),
            Some(Ok(Credential::Missing | Credential::Ambiguous | Credential::Unreadable(_))) | None => None,
        };
        // The log may have the key without its scheme.
        let bare = headers.iter().filter(|(name, value)| self.is_source(name) && !value.contains(&b' '));
        let mut unknown = None;
        for key in key.as_deref().into_iter().chain(bare.map(|(_, value)| *value)) {
            let hash = hex(digest(key));
            if self.keys.contains_key(&hash) {
                return (By::Key, Some(hash));
            }
            let key = String::from_utf8_lossy(key).to_ascii_lowercase();
            let key = key.strip_prefix("sha256:").unwrap_or(&key);
            if self.keys.contains_key(key) {
                return (By::Hash, Some(key.to_owned()));
            }
            unknown = Some(hash);
        }
        let subscriber = entry.told.as_ref().and_then(|told| told.get("subscriber"));
        match subscriber.and_then(|subscriber| self.representatives.get(&subscriber)) {
            Some(hash) => (By::Subscriber, Some(hash.clone())),
            None if unknown.is_some() => (By::UnknownKey, unknown),
            None => (By::Address, None),
        }
    }

    /// The request as the filter is to see it: with what stands for the key, and in the log's own class if that is asked for.
    pub(super) fn request(&self, entry: &Entry, class_from_log: bool) -> (By, Request) {
        let (by, caller) = self.identify(entry);
        let caller = caller.map(|caller| (HEADER.to_owned(), caller));
        let request = entry
            .headers
            .iter()
            .cloned()
            .chain(caller)
            .fold(entry.request.clone(), |request, (name, value)| request.header(name, value));
        let told = entry.told.as_ref().filter(|told| class_from_log && !told.is("exempt"));
        let class = told.and_then(|told| told.get("class")).filter(|class| self.classes.contains(class));
        let Some(class) = class else { return (by, request) };
        let query = request.path().find('?').map_or("", |at| &request.path()[at..]);
        let path = format!("{}{CLASS_PATH}{class}{query}", self.base_path);
        (by, request.without(":path").header(":path", path))
    }

    /// The request of a line for a filter with the configuration of [`known_in`](Self::known_in).
    #[must_use]
    pub fn request_of(&self, entry: &Entry) -> Request {
        self.request(entry, false).1
    }

    /// The configuration for a replay: the filter says of each request what it decides, refuses where it would only count, and counts by
    /// itself what a fleet counts together, for the log is that of all gateways.
    #[must_use]
    pub fn for_replay(configuration: Value, class_from_log: bool) -> Value {
        let mut configuration = Self::known_in(configuration);
        let Some(fields) = configuration.as_object_mut() else { return configuration };
        fields.insert("log_fields".to_owned(), "all".into());
        fields.insert("enforcement".to_owned(), "enforced".into());
        fields.remove("fleet");
        for class in list_mut(&mut configuration, "classes").filter(|_| class_from_log) {
            let path = json!({"path": format!("{CLASS_PATH}{}", text(class, "name"))});
            let matches = list(class, "match").cloned();
            class["match"] = std::iter::once(path).chain(matches).collect();
        }
        configuration
    }

    /// The configuration in which callers are known by what stands for their keys.
    #[must_use]
    pub fn known_in(mut configuration: Value) -> Value {
        let metadata = list(&configuration, "key_sources").filter(|source| source.get("metadata").is_some());
        let sources: Value = metadata.cloned().chain([json!({"header": HEADER})]).collect();
        for key in list_mut(&mut configuration, "subscribers").flat_map(|of| list_mut(of, "keys")) {
            if let Some(hash) = hash_of(key) {
                *key = format!("sha256:{}", stand_in(&hash)).into();
            }
        }
        if let Some(fields) = configuration.as_object_mut() {
            fields.insert("key_sources".to_owned(), sources);
        }
        configuration
    }

    /// The document of the directory for the same.
    #[must_use]
    pub fn document(mut document: Value) -> Value {
        for row in list_mut(&mut document, "keys") {
            row["sha256"] = stand_in(&text(row, "sha256").to_ascii_lowercase()).into();
        }
        document
    }
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
        let any = [hash("k"), hash(&digits)].into_iter().max();
        let rows = [
            ("Bearer k", "", "/", By::Key, Some(hash("k"))),
            ("k", "", "/", By::Key, Some(hash("k"))),
            (&digits, "outcome=allowed subscriber=acme", "/", By::Key, Some(hash(&digits))),
            (&format!("sha256:{}", hash("k")), "", "/", By::Hash, Some(hash("k"))),
            (&hash("d").to_uppercase(), "", "/", By::Hash, Some(hash("d"))),
            ("Bearer x", "", "/", By::UnknownKey, Some(hash("x"))),
            ("Basic x", "", "/", By::Address, None),
            ("Bearer x", "outcome=allowed subscriber=acme", "/", By::Subscriber, any),
            ("-", "outcome=allowed subscriber=of-directory", "/", By::Subscriber, Some(hash("d"))),
            ("-", "outcome=allowed subscriber=gone", "/", By::Address, None),
            ("-", "outcome=allowed subscriber=acme", "/?key=%6b", By::Key, Some(hash("k"))),
            ("-", "", "/?a&key=x", By::UnknownKey, Some(hash("x"))),
            ("-", "", "/", By::Address, None),
        ];
        for (value, weir, path, by, caller) in rows {
            let line = json!({"time": "2026-01-01T00:00:00Z", "path": path, "auth": value, "weir": weir})
                .to_string();
            let entry = Fields::default().header("Authorization", "auth").read(line.as_bytes()).unwrap();
            assert_eq!(callers.identify(&entry), (by, caller), "{line}");
        }
    }
}
