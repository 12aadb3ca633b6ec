//! The configuration, checked: what [`Config::from_json`] returns cannot be wrong.
//!
//! The fields and their defaults are in the README. A configuration is refused whole, by the first thing that is wrong with it.

mod directory;
mod error;
mod fleet;
pub mod rate;
mod raw;
mod requests;
pub mod roster;
mod subscribers;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use self::directory::{DirectorySettings, NotReady};
pub use self::error::{ConfigError, Problem};
pub use self::fleet::{FleetSettings, Limits, OnUnavailable};
use self::rate::{Grant, QuotaTerms};
pub use self::raw::Grants;
use self::requests::{Paths, key_sources, property_path};
pub use self::subscribers::{Agreement, Catalog, Subscribers, parse_digest};
use crate::count::consume::MAX_QUOTAS;
use crate::count::fingerprint::KeyDigest;
use crate::count::lease::is_leasable;
use crate::count::table::{Capacity, MAX_CAPACITY};
use crate::quota::{Mode, Quota, QuotaSet};
use crate::request::classes::{Match, PathMatch};
use crate::request::identity::KeySource;
use crate::request::path::below;
use crate::request::readings::{AmbiguousPath, Readings};

/// A configuration in force.
#[derive(Debug)]
pub struct Config {
    /// The classes, the plans and what they grant.
    pub catalog: Catalog,
    /// Requests that pass untouched.
    pub exempt: Vec<Match>,
    /// Whether any match depends on the path.
    pub looks_at_paths: bool,
    /// Stripped from a path before it is matched; `/` for none.
    pub base_path: String,
    /// What the upstream may take a path for.
    pub readings: Readings,
    /// Where a request may carry its key.
    pub key_sources: Vec<KeySource>,
    /// Who has which plan, as the configuration itself says.
    pub subscribers: Subscribers,
    /// Where the plan of a key is found that no subscriber has: a property's path, its parts joined by NUL.
    pub plan_source: Option<Vec<u8>>,
    /// Where more subscribers are found.
    pub directory: Option<DirectorySettings>,
    /// What quota is counted by.
    pub count_by: CountBy,
    /// What happens to a request with a key that nobody has.
    pub unknown_key: StrangerPolicy,
    /// What happens to a request without a key.
    pub missing_key: StrangerPolicy,
    /// Bits of an IPv6 address that tell one stranger from another.
    pub ipv6_prefix: u8,
    /// Status of the reply to a request of a class that the plan lacks.
    pub not_in_plan: u16,
    /// Which headers clients get.
    pub headers: HeaderOptions,
    /// Requests that the filter answers with where the caller stands.
    pub usage: Option<Match>,
    /// Whether the filter refuses at all.
    pub enforcement: Mode,
    /// What happens to a request that could not be counted.
    pub on_error: OnError,
    /// Capacity of the counters' tables.
    pub counters: Capacity,
    /// Keeps two Weir plugins of one process apart.
    pub namespace: String,
    /// What gateways share their quotas through, if they do.
    pub fleet: Option<FleetSettings>,
}

/// A class of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Units that a request uses; at least 1.
    pub cost: u32,
    /// What belongs to it, unless an earlier class has it.
    pub matches: Vec<Match>,
}

/// The rule that a request falls under, by its method and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It passes untouched.
    Exempt,
    /// The filter answers where the caller stands.
    Usage,
    /// It is counted under this class, an index into the catalog's.
    Class(usize),
}

/// What a plan, or a subscriber's agreement, gives for a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entitlement {
    /// Nothing: the class is not in the plan.
    NotInPlan,
    /// Everything.
    Unlimited,
    /// These quotas, all of which apply.
    Quotas(Arc<QuotaSet>),
}

/// An entitlement for each class, in the classes' order.
pub type Entitlements = Vec<Entitlement>;

/// Who shares a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountBy {
    /// Nobody: each key has its own.
    Key,
    /// The keys of a subscriber.
    Subscriber,
}

/// What happens to a request whose key is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrangerPolicy {
    /// Counted per client address, then passed on.
    Limit(Arc<QuotaSet>),
    /// Refused with 401.
    Reject,
    /// Passed on.
    Pass,
}

/// Which headers clients get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOptions {
    /// The three `X-RateLimit-*` headers, and what the first of them states.
    pub x_ratelimit: Option<LimitHeader>,
    /// `RateLimit` and `RateLimit-Policy`.
    pub ietf: bool,
    /// Whether they are named in `Access-Control-Expose-Headers`.
    pub expose_cors: bool,
}

/// What `X-RateLimit-Limit` states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitHeader {
    /// What the quota allows in an hour.
    PerHour,
    /// The quota's limit.
    PerWindow,
}

/// What happens to a request that could not be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It passes.
    Allow,
    /// It is refused with 503.
    Deny,
}

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// The first thing that is wrong, with the path of its field.
    pub fn from_json(json: &[u8]) -> Result<Self, ConfigError> {
        if json.trim_ascii().is_empty() {
            return Err(ConfigError::new("", Problem::Empty));
        }
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let raw = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let path = error.path().to_string();
            let path = if path == "." { String::new() } else { path };
            ConfigError::new(path, Problem::Invalid(without_position(error.inner())))
        })?;
        deserializer.end().map_err(|error| ConfigError::new("", Problem::Invalid(error.to_string())))?;
        Self::check(raw)
    }

    fn check(raw: raw::Config) -> Result<Self, ConfigError> {
        let fleet = raw.fleet.map(FleetSettings::check).transpose().map_err(|error| error.within("fleet"))?;
        let paths = Paths(Readings::new(raw.upstream_paths));
        let (classes, default_class) = classes(raw.classes, &raw.default_class, &paths)?;
        if raw.plans.0.is_empty() {
            return Err(ConfigError::new("plans", Problem::NoneGiven));
        }
        let mut plans = Vec::new();
        for (name, limits) in raw.plans.0 {
            let path = format!("plans.{name}");
            check_name(&name, PLAN_NAME, is_plan_name).map_err(|error| error.within("plans"))?;
            let none = vec![Entitlement::NotInPlan; classes.len()];
            let granted = entitlements(&limits.0, none, &classes, fleet.is_some())
                .map_err(|error| error.within(&path))?;
            plans.push((name, granted));
        }
        let catalog = Catalog { classes, default_class, plans, leased: fleet.is_some() };
        let subscribers = Subscribers::check(raw.subscribers, &catalog)?;
        let count_by = match raw.count_by {
            raw::CountBy::Key => CountBy::Key,
            raw::CountBy::Subscriber => CountBy::Subscriber,
        };
        let counters = capacity(&raw.counters, subscribers.records(count_by))?;

        let exempt = paths.matches(raw.exempt).map_err(|error| error.within("exempt"))?;
        let usage = raw
            .usage_path
            .map(|path| paths.checked(path).map_err(|error| error.within("usage_path")))
            .transpose()?
            .map(|path| Match { methods: vec!["GET".to_owned()], path: PathMatch::Exact(path) });
        let of_classes = catalog.classes.iter().flat_map(|class| &class.matches);
        let mut all_matches = of_classes.chain(&exempt).chain(&usage);

        Ok(Self {
            looks_at_paths: all_matches.any(|rule| rule.path != PathMatch::Any),
            exempt,
            base_path: match raw.base_path {
                path if path.is_empty() => "/".to_owned(),
                path => paths.checked(path).map_err(|error| error.within("base_path"))?,
            },
            readings: paths.0,
            key_sources: key_sources(raw.key_sources)?,
            plan_source: raw
                .plan_source
                .map(|source| property_path(&source.metadata).map_err(|error| error.within("plan_source")))
                .transpose()?,
            directory: raw.directory.map(DirectorySettings::check).transpose()?,
            usage,
            unknown_key: stranger(raw.unknown_key).map_err(|error| error.within("unknown_key"))?,
            missing_key: stranger(raw.missing_key).map_err(|error| error.within("missing_key"))?,
            ipv6_prefix: match raw.ipv6_prefix {
                Some(bits) if !(1..=128).contains(&bits) => {
                    let problem = Problem::Range { given: bits.into(), expected: "1 to 128 bits" };
                    return Err(ConfigError::new("ipv6_prefix", problem));
                }
                bits => bits.unwrap_or(64),
            },
            not_in_plan: match raw.not_in_plan.status {
                status @ (400..=428 | 430..=499) => status,
                status => {
                    let expected = "a status from 400 to 499 but 429, after which clients would retry";
                    let problem = Problem::Range { given: status.into(), expected };
                    return Err(ConfigError::new("not_in_plan.status", problem));
                }
            },
            headers: HeaderOptions {
                x_ratelimit: raw.headers.x_ratelimit.then_some(match raw.headers.x_ratelimit_limit {
                    raw::LimitHeader::PerHour => LimitHeader::PerHour,
                    raw::LimitHeader::PerWindow => LimitHeader::PerWindow,
                }),
                ietf: raw.headers.ietf,
                expose_cors: raw.headers.expose_cors,
            },
            enforcement: match raw.enforcement {
                raw::Enforcement::Enforced => Mode::Enforced,
                raw::Enforcement::Shadow => Mode::Shadow,
            },
            on_error: match raw.on_error {
                raw::OnError::Allow => OnError::Allow,
                raw::OnError::Deny => OnError::Deny,
            },
            catalog,
            subscribers,
            count_by,
            counters,
            namespace: raw.namespace,
            fleet,
        })
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

/// serde_json ends its messages with a position, which a path makes superfluous; a syntax error has no path and keeps it.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&position) {
        Some(message) if error.is_data() => message.to_owned(),
        _ => message,
    }
}

const NAME: &str = "1 to 32 of a-z, 0-9, _ and -";
const PLAN_NAME: &str = "1 to 64 of A-Z, a-z, 0-9, _ and -, and not \"none\", which is the plan of strangers";

fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

fn is_plan_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name != crate::decide::outcome::NO_PLAN
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn check_name(name: &str, expected: &'static str, valid: fn(&str) -> bool) -> Result<(), ConfigError> {
    if valid(name) {
        Ok(())
    } else {
        Err(ConfigError::new("", Problem::Name { name: name.to_owned(), expected }))
    }
}

/// The classes with the default one among them, and its index.
fn classes(raw: Vec<raw::Class>, default: &str, paths: &Paths) -> Result<(Vec<Class>, usize), ConfigError> {
    let mut classes: Vec<Class> = Vec::new();
    for (index, class) in raw.into_iter().enumerate() {
        let checked = (|| {
            check_name(&class.name, NAME, is_name).map_err(|error| error.within("name"))?;
            if classes.iter().any(|other| other.name == class.name) {
                return Err(ConfigError::new("name", Problem::Duplicate(class.name.clone())));
            }
            let cost = class.cost.unwrap_or(1);
            if cost == 0 {
                let problem =
                    Problem::Range { given: 0, expected: "1 or more; what is free of charge is exempt" };
                return Err(ConfigError::new("cost", problem));
            }
            let matches = paths.matches(class.matches).map_err(|error| error.within("match"))?;
            Ok(Class { name: class.name, cost, matches })
        })();
        classes.push(checked.map_err(|error| error.within(format_args!("classes[{index}]")))?);
    }
    let default_class = match classes.iter().position(|class| class.name == default) {
        Some(index) => index,
        None => {
            check_name(default, NAME, is_name).map_err(|error| error.within("default_class"))?;
            classes.push(Class { name: default.to_owned(), cost: 1, matches: Vec::new() });
            classes.len() - 1
        }
    };
    Ok((classes, default_class))
}

/// `base` with the classes that `limits` names replaced. `leased`: a fleet shares their quotas.
fn entitlements(
    limits: &[(String, Grant)],
    mut base: Entitlements,
    classes: &[Class],
    leased: bool,
) -> Result<Entitlements, ConfigError> {
    for (name, grant) in limits {
        let class = classes.iter().position(|class| class.name == *name);
        let Some((class, entitlement)) =
            class.and_then(|class| Some((classes.get(class)?, base.get_mut(class)?)))
        else {
            let expected = classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
            let problem = Problem::Unknown { kind: "class", name: name.clone(), expected };
            return Err(ConfigError::new(name.as_str(), problem));
        };
        *entitlement = match grant {
            Grant::Unlimited => Entitlement::Unlimited,
            Grant::Quotas(list) => Entitlement::Quotas(
                quotas(list, &class.name, class.cost, leased).map_err(|error| error.within(name))?,
            ),
        };
    }
    Ok(base)
}

fn quotas(raw: &[QuotaTerms], class: &str, cost: u32, leased: bool) -> Result<Arc<QuotaSet>, ConfigError> {
    if raw.is_empty() {
        return Err(ConfigError::new("", Problem::NoneGiven));
    }
    if raw.len() > MAX_QUOTAS {
        return Err(ConfigError::new("", Problem::TooManyQuotas(raw.len())));
    }
    let single = raw.len() == 1;
    let mut quotas: Vec<Quota> = Vec::with_capacity(raw.len());
    for (index, QuotaTerms { rate, name, mode }) in raw.iter().enumerate() {
        let refuse =
            |path: &str, problem| Err(ConfigError::new(path, problem).within(format_args!("[{index}]")));
        let name = match name {
            Some(name) if !is_name(name) => {
                return refuse("name", Problem::Name { name: name.clone(), expected: NAME });
            }
            Some(name) => name.clone(),
            None if single => class.to_owned(),
            None => format!("{class}-{}", rate.window.short_name()),
        };
        if quotas.iter().any(|other| other.name == name) {
            return refuse("name", Problem::Duplicate(name));
        }
        let same = |other: &Quota| other.window == rate.window && other.mode == *mode;
        if quotas.iter().any(same) {
            return refuse("", Problem::SameWindow);
        }
        if rate.limit.get() < cost {
            return refuse("", Problem::CostOverLimit { class: class.to_owned(), cost });
        }
        if leased && *mode == Mode::Enforced && !is_leasable(rate.window) {
            return refuse("", Problem::NotLeasable);
        }
        quotas.push(Quota { name, limit: rate.limit, window: rate.window, mode: *mode });
    }
    Ok(Arc::new(QuotaSet::new(quotas)))
}

/// The class name under which strangers' addresses are counted.
pub const ADDRESS_CLASS: &str = "address";

fn stranger(raw: raw::Stranger) -> Result<StrangerPolicy, ConfigError> {
    match (raw.action, raw.quotas) {
        (raw::Action::Limit, None) => {
            let minute = "60/minute".parse().map_err(|error: crate::config::rate::RateError| {
                ConfigError::new("quotas", Problem::Invalid(error.to_string()))
            })?;
            let default = QuotaTerms { rate: minute, name: None, mode: Mode::Enforced };
            quotas(&[default], ADDRESS_CLASS, 1, false).map(StrangerPolicy::Limit)
        }
        (raw::Action::Limit, Some(list)) => {
            let list: Vec<_> = list.into_iter().map(|raw::Quota(terms)| terms).collect();
            quotas(&list, ADDRESS_CLASS, 1, false)
                .map(StrangerPolicy::Limit)
                .map_err(|error| error.within("quotas"))
        }
        (_, Some(_)) => Err(ConfigError::new(
            "quotas",
            Problem::Invalid(r#"only the action "limit" has quotas"#.to_owned()),
        )),
        (raw::Action::Reject, None) => Ok(StrangerPolicy::Reject),
        (raw::Action::Pass, None) => Ok(StrangerPolicy::Pass),
    }
}

fn capacity(raw: &raw::Counters, needed: usize) -> Result<Capacity, ConfigError> {
    let largest = MAX_CAPACITY / 2;
    for (field, given) in [("known", raw.known), ("strangers", raw.strangers)] {
        if !(1..=largest).contains(&given) {
            let problem = Problem::Range { given: given.into(), expected: "1 to 33554426 records" };
            return Err(ConfigError::new(format!("counters.{field}"), problem));
        }
    }
    if usize::try_from(raw.known).is_ok_and(|known| known < needed) {
        return Err(ConfigError::new("counters.known", Problem::Capacity { available: raw.known, needed }));
    }
    Ok(Capacity { known: raw.known, strangers: raw.strangers })
}

/// SHA-256 of an API key.
#[must_use]
pub fn digest(key: &[u8]) -> KeyDigest {
    Sha256::digest(key).into()
}
