//! The checked configuration: [`Config::from_json`] returns only a configuration that can be in force.
//!
//! `raw` documents the fields; the JSON Schema and the reference are made from it. A configuration is refused as a whole, with its
//! first error.

mod cost;
mod directory;
mod error;
mod headers;
mod json;
mod operators;
mod plans;
mod problem;
mod quoting;
pub mod rate;
mod raw;
mod requests;
pub mod roster;
#[cfg(feature = "schema")]
pub mod schema;
#[cfg(test)]
mod secrecy;
mod strangers;
mod subscribers;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use sha2::{Digest, Sha256};

pub use self::cost::{CostSource, Refund};
pub use self::directory::{DirectorySettings, NotReady, Secret};
pub use self::error::{ConfigError, SECRET_FIELDS};
pub use self::headers::{AllowOrigin, HeaderOptions, LimitHeader, UpstreamHeaders};
use self::json::Json;
pub use self::operators::OperatorSettings;
pub use self::plans::{Class, Entitlement, Entitlements};
use self::plans::{classes, plans};
pub use self::problem::Problem;
pub use self::raw::{Entries, Grants, Parent};
use self::requests::{Paths, key_sources, property_path};
use self::roster::Known;
pub use self::strangers::{ADDRESS_CLASS, StrangerPolicy};
pub use self::subscribers::{Agreement, Catalog, Subscribers, hex, parse_digest, parse_key};
use crate::count::fingerprint::{KeyDigest, Who};
use crate::count::table::{Capacity, MAX_CAPACITY};
use crate::quota::Mode;
use crate::request::classes::{Match, PathMatch};
use crate::request::identity::KeySource;
use crate::request::path::below;
use crate::request::readings::{AmbiguousPath, Readings};

/// A checked configuration.
#[derive(Debug)]
pub struct Config {
    /// The classes and the plans.
    pub catalog: Catalog,
    /// Matches of the requests that pass without identification, counting and headers.
    pub exempt: Vec<Match>,
    /// Whether any match depends on the path.
    pub looks_at_paths: bool,
    /// Prefix that is stripped from a path before matching; `/` for none.
    pub base_path: String,
    /// The ways in which the upstream may read a path.
    pub readings: Readings,
    /// Places where a request may carry its key; at least one.
    pub key_sources: Vec<KeySource>,
    /// The subscribers of the configuration.
    pub subscribers: Subscribers,
    /// Property with the plan of a key without a subscriber: a path, its parts joined by NUL.
    pub plan_source: Option<Vec<u8>>,
    /// Service from which the filter fetches more subscribers.
    pub directory: Option<DirectorySettings>,
    /// Whether keys or subscribers have quotas.
    pub count_by: CountBy,
    /// Policy for requests with an unknown key.
    pub unknown_key: StrangerPolicy,
    /// Policy for requests without a key.
    pub missing_key: StrangerPolicy,
    /// Number of IPv6 address bits that identify a client; 1 to 128.
    pub ipv6_prefix: u8,
    /// Status of the answer to a request of a class that the plan lacks; 400 to 499 except 429.
    pub not_in_plan: u16,
    /// Rate-limit headers of responses.
    pub headers: HeaderOptions,
    /// Match of the requests to the usage endpoint.
    pub usage: Option<Match>,
    /// Whether the filter refuses requests.
    pub enforcement: Mode,
    /// Whether each decision is logged at debug level.
    pub log_decisions: bool,
    /// The requests that the filter describes for access logs.
    pub log_fields: LogFields,
    /// Policy for a request that could not be counted.
    pub on_error: OnError,
    /// Capacity of the counters' tables.
    pub counters: Capacity,
    /// Text that is hashed into the names in shared data.
    pub namespace: String,
    /// The operators' endpoints. If there are any, the filter answers nothing else.
    pub operators: Option<OperatorSettings>,
}

/// The rule that a request falls under, by its method and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It passes untouched.
    Exempt,
    /// The filter answers with the usage of the caller.
    Usage,
    /// It is counted under this class, an index into [`Catalog::classes`].
    Class(usize),
}

/// The owner of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum CountBy {
    /// Each key has a separate quota.
    #[default]
    Key,
    /// The keys of a subscriber share one quota.
    Subscriber,
}

impl CountBy {
    /// Who is counted for requests with this key.
    #[must_use]
    pub fn who(self, key: Known<'_>) -> Who<'_> {
        match self {
            Self::Key => Who::Key(key.digest),
            Self::Subscriber => Who::Subscriber(key.subscriber),
        }
    }
}

/// The requests that the filter describes in the filter state `wasm.weir`, for access logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum LogFields {
    /// None.
    None,
    /// Requests that the filter refuses, and those that it would refuse without shadow mode.
    #[default]
    Refused,
    /// All requests.
    All,
}

/// Policy for a request that could not be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Forward the request.
    #[default]
    Allow,
    /// Answer 503.
    Deny,
}

impl Config {
    /// Parses and checks a configuration.
    ///
    /// # Errors
    /// The first error, with the path of its field.
    pub fn from_json(json: &[u8]) -> Result<Self, ConfigError> {
        Self::parse(json).and_then(Self::check).map_err(ConfigError::without_secrets)
    }

    fn parse(json: &[u8]) -> Result<raw::Config, ConfigError> {
        if json.trim_ascii().is_empty() {
            return Err(ConfigError::new("", Problem::Empty));
        }
        let json: Json = serde_json::from_slice(json)
            .map_err(|error| ConfigError::new("", Problem::Syntax(error.to_string())))?;
        if json.has("fleet") {
            let problem = "fleets are being rebuilt, and this version has none; leave the field out";
            return Err(ConfigError::new("fleet", Problem::Invalid(problem.into())));
        }
        raw::Config::deserialize(json)
    }

    fn check(raw: raw::Config) -> Result<Self, ConfigError> {
        let paths = Paths(Readings::new(raw.upstream_paths));
        let (classes, default_class) = classes(raw.classes, &raw.default_class, &paths)?;
        let plans = plans(raw.plans, &classes).map_err(|error| error.within("plans"))?;
        let catalog = Catalog { classes, default_class, plans };
        let subscribers =
            Subscribers::check(raw.subscribers, &catalog).map_err(|error| error.within("subscribers"))?;
        let counters = capacity(raw.counters, subscribers.records(raw.count_by))
            .map_err(|error| error.within("counters"))?;

        let exempt = paths.matches(raw.exempt).map_err(|error| error.within("exempt"))?;
        let usage = raw
            .usage_path
            .map(|path| paths.checked(path).map_err(|error| error.within("usage_path")))
            .transpose()?
            .map(|path| Match { methods: vec!["GET".to_owned()], path: PathMatch::Exact(path) });
        let operators = raw.operators.map(OperatorSettings::check);
        let operators = operators.transpose().map_err(|error| error.within("operators"))?;
        let of_classes = catalog.classes.iter().flat_map(|class| &class.matches);
        let mut all_matches = of_classes.chain(&exempt).chain(&usage);
        let key_sources = key_sources(raw.key_sources).map_err(|error| error.within("key_sources"))?;

        Ok(Self {
            looks_at_paths: all_matches.any(|rule| rule.path != PathMatch::Any),
            exempt,
            base_path: match raw.base_path {
                path if path.is_empty() => "/".to_owned(),
                path => paths.checked(path).map_err(|error| error.within("base_path"))?,
            },
            readings: paths.0,
            plan_source: raw
                .plan_source
                .map(|source| plan_source(&source, &key_sources).map_err(|error| error.within("plan_source")))
                .transpose()?,
            key_sources,
            directory: raw
                .directory
                .map(DirectorySettings::check)
                .transpose()
                .map_err(|error| error.within("directory"))?,
            usage,
            unknown_key: StrangerPolicy::check(raw.unknown_key)
                .map_err(|error| error.within("unknown_key"))?,
            missing_key: StrangerPolicy::check(raw.missing_key)
                .map_err(|error| error.within("missing_key"))?,
            ipv6_prefix: ipv6_prefix(raw.ipv6_prefix)?,
            not_in_plan: not_in_plan(raw.not_in_plan.status).map_err(|error| error.within("not_in_plan"))?,
            headers: raw.headers.into(),
            enforcement: raw.enforcement,
            log_decisions: raw.log_decisions,
            log_fields: raw.log_fields,
            on_error: raw.on_error,
            catalog,
            subscribers,
            count_by: raw.count_by,
            counters,
            namespace: raw.namespace,
            operators,
        })
    }

    /// Replaces the names of environment variables by their values.
    ///
    /// # Errors
    /// If a variable is not set.
    pub fn with_environment(
        mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        if let Some(directory) = &mut self.directory
            && let Some(Secret::Variable(name)) = &directory.bearer
        {
            let Some(value) = variable(name) else {
                let problem = Problem::Invalid("not set, or this host passes none".into());
                let error = ConfigError::new("env", problem).given(name.as_str());
                return Err(error.within("bearer").within("directory"));
            };
            directory.bearer = Some(Secret::Given(value));
        }
        Ok(self)
    }

    /// Takes over the memory of `earlier` where it holds the same, so that the configurations of a VM, which live on until their streams
    /// end, hold equal plans and subscribers once.
    pub fn share_with(&mut self, earlier: &Self) {
        self.catalog.share_with(&earlier.catalog);
        self.subscribers.share_with(&earlier.subscribers, &self.catalog);
    }

    /// Whether the response to a request, or the end of its stream, may change what the request was charged.
    #[must_use]
    pub fn settles(&self) -> bool {
        self.catalog.classes.iter().any(Class::is_settled)
    }

    /// The rule for a request. `path` is its `:path`, if it has one.
    ///
    /// # Errors
    /// Upstreams may read the path in ways that select different rules.
    pub fn rule(&self, method: &[u8], path: Option<&[u8]>) -> Result<Rule, AmbiguousPath> {
        let rule = |path: Option<&[u8]>| {
            let matched = |rules: &[Match]| rules.iter().any(|rule| rule.matches(method, path));
            if matched(&self.exempt) {
                return Rule::Exempt;
            }
            if matched(self.usage.as_slice()) {
                return Rule::Usage;
            }
            let class = self.catalog.classes.iter().position(|class| matched(&class.matches));
            Rule::Class(class.unwrap_or(self.catalog.default_class))
        };
        match path {
            // Outside the base path nothing but the method can match.
            Some(path) if self.looks_at_paths => {
                self.readings.select(path, |reading| rule(below(&self.base_path, reading)))
            }
            Some(_) | None => Ok(rule(None)),
        }
    }

    /// A known key and its agreement: one of this configuration, or else of `directory`.
    #[must_use]
    pub fn known<'c>(
        &'c self,
        directory: Option<&'c Subscribers>,
        key: &KeyDigest,
    ) -> Option<(Known<'c>, &'c Agreement)> {
        self.subscribers.get(key).or_else(|| directory?.get(key))
    }

    /// The known keys of a subscriber and their agreements: those of this configuration, then those of `directory`, in the order of each list.
    #[must_use]
    pub fn keys_of<'c>(
        &'c self,
        directory: Option<&'c Subscribers>,
        subscriber: &str,
    ) -> Vec<(Known<'c>, &'c Agreement)> {
        let mut keys = self.subscribers.keys_of(subscriber);
        let of_directory = directory.map(|directory| directory.keys_of(subscriber)).unwrap_or_default();
        keys.extend(
            of_directory.into_iter().filter(|(known, _)| self.subscribers.get(known.digest).is_none()),
        );
        keys
    }

    /// The name of a class.
    #[must_use]
    pub fn class_name(&self, class: usize) -> &str {
        self.catalog.classes.get(class).map_or("", |class| &class.name)
    }

    /// The name of a plan.
    #[must_use]
    pub fn plan_name(&self, plan: usize) -> &str {
        self.catalog.plans.get(plan).map_or("", |(name, _)| name)
    }
}

fn plan_source(raw: &raw::PlanSource, key_sources: &[KeySource]) -> Result<Vec<u8>, ConfigError> {
    if !key_sources.iter().any(|source| matches!(source, KeySource::Metadata { .. })) {
        return Err(ConfigError::new("", Problem::PlanWithoutSubject));
    }
    property_path(&raw.metadata)
}

fn ipv6_prefix(bits: u32) -> Result<u8, ConfigError> {
    u8::try_from(bits).ok().filter(|bits| (1..=128).contains(bits)).ok_or_else(|| {
        ConfigError::new("ipv6_prefix", Problem::Range { expected: "1 to 128 bits" }).given(bits)
    })
}

fn not_in_plan(status: u32) -> Result<u16, ConfigError> {
    u16::try_from(status).ok().filter(|status| matches!(status, 400..=428 | 430..=499)).ok_or_else(|| {
        let expected = "a status from 400 to 499 except 429, after which clients would retry";
        ConfigError::new("status", Problem::Range { expected }).given(status)
    })
}

fn capacity(counters: Capacity, needed: usize) -> Result<Capacity, ConfigError> {
    for (field, given) in [("known", counters.known), ("strangers", counters.strangers)] {
        if !(1..=MAX_CAPACITY / 2).contains(&given) {
            return Err(
                ConfigError::new(field, Problem::Range { expected: "1 to 33554426 records" }).given(given)
            );
        }
    }
    let available = counters.known;
    if usize::try_from(available).is_ok_and(|available| available < needed) {
        return Err(ConfigError::new("known", Problem::Capacity { available, needed }));
    }
    Ok(counters)
}

/// SHA-256 of an API key.
#[must_use]
pub fn digest(key: &[u8]) -> KeyDigest {
    Sha256::digest(key).into()
}
