//! The checked configuration: [`Config::from_json`] returns only a configuration that can be in force.
//!
//! [`Settings`] has the fields; the JSON Schema and the reference are made from it. A value checks itself while it is read (`read`), and what fields
//! have to do with each other is checked afterwards, in place. A configuration is refused as a whole, with its first error.
//!
//! Dependencies point one way: this file → `settings` → {`subscribers`, `directory`, `fleet`, `usage`, `operators`, `headers`} → {`strangers`, `roster`,
//! `service`} → `plans` → {`requests`, `cost`, `rate`} → {`leaf`, `digest`}.

mod cost;
mod digest;
mod directory;
mod fleet;
mod headers;
mod leaf;
mod operators;
mod plans;
pub mod quota;
mod requests;
pub mod roster;
mod service;
mod settings;
mod strangers;
mod subscribers;
#[cfg(test)]
mod tests;
mod usage;

use core::mem;

pub use hex::encode as hex;

pub use self::cost::{CostSource, Refund};
pub use self::digest::{digest, parse_key};
pub use self::directory::DirectorySettings;
pub use self::fleet::FleetSettings;
pub use self::headers::{AllowOrigin, HeaderOptions, LimitHeader, UpstreamHeaders};
pub(crate) use self::leaf::instant;
pub use self::operators::OperatorSettings;
pub use self::plans::{Catalog, Class, Entitlement, Entitlements, NO_PLAN};
pub use self::quota::Grants;
pub use self::requests::Match;
use self::requests::check_path;
pub use self::service::{AS_IT_IS, GZIP, Secret};
pub use self::settings::{LogFields, OnError, Settings};
pub use self::strangers::{ADDRESS_CLASS, StrangerPolicy};
pub use self::subscribers::{Agreement, CountBy, Subscribers};
pub use self::usage::{Share, UsageSettings};
use crate::count::holding::Sharing;
use crate::count::table::{Capacity, MAX_CAPACITY};
use crate::quota::{Mode, Quota};
use crate::read::document;
use crate::read::error::{At as _, each};
pub use crate::read::{ConfigError, Entries};
use crate::request::identity::KeySource;
use crate::request::path::below;
use crate::request::readings::{AmbiguousPath, Readings};

/// Most bytes of a configuration. A VM that runs out of memory while it is configured leaves its gateway without limits.
const MAX_BYTES: usize = 4 << 20;

/// Fields that hold secrets or say where secrets are. Messages about them quote neither values nor names that were given.
pub const SECRET_FIELDS: [&str; 5] = ["key_sources", "subscribers", "directory", "operators", "usage"];

/// The JSON Schema of the configuration.
#[cfg(feature = "schema")]
#[must_use]
pub fn schema() -> serde_json::Value {
    crate::read::schema::document::<Settings>("Config", "Configuration of Weir")
}

/// A checked configuration: its settings as they were read, and what has been made of those that refer to others.
#[derive(Debug)]
pub struct Config {
    /// The settings. What the other fields hold has been taken out.
    pub settings: Settings,
    /// The classes and the plans.
    pub catalog: Catalog,
    /// Whether any match depends on the path.
    looks_at_paths: bool,
    /// The ways in which the upstream may read a path.
    pub readings: Readings,
    /// Places where a request may carry its key; at least one.
    pub key_sources: Vec<KeySource>,
    /// The subscribers of the configuration.
    pub subscribers: Subscribers,
    /// Policy for requests with an unknown key.
    pub unknown_key: StrangerPolicy,
    /// Policy for requests without a key.
    pub missing_key: StrangerPolicy,
    /// Policy for requests with an unknown key before the first good answer of the directory, if there is one.
    pub not_ready: Option<StrangerPolicy>,
    /// How the gateways of a fleet share quotas; `None` without a fleet.
    pub fleet: Option<Sharing>,
    /// Whether each request's caller is noted: for a log, or for a report.
    pub notes_callers: bool,
    /// Which requests fall under a rule other than that of the default class: the first match decides.
    rules: Vec<(Match, Rule)>,
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

impl Config {
    /// Parses and checks a configuration.
    ///
    /// # Errors
    /// The first error, with the path of its field.
    pub fn from_json(json: &[u8]) -> Result<Self, ConfigError> {
        Self::read(json).and_then(Self::check).map_err(|error| error.without_secrets(&SECRET_FIELDS))
    }

    fn read(json: &[u8]) -> Result<Settings, ConfigError> {
        if json.trim_ascii().is_empty() {
            let example = r#"{"plans": {"free": {"standard": ["60/minute"]}}}"#;
            return Err(ConfigError::new(format!(
                "the configuration is empty; it needs plans, for example {example}"
            )));
        }
        if json.len() > MAX_BYTES {
            let problem = format!(
                "{} bytes, at most {MAX_BYTES} are possible; use directory for many subscribers",
                json.len()
            );
            return Err(ConfigError::new(problem));
        }
        document(json)
    }

    fn check(mut settings: Settings) -> Result<Self, ConfigError> {
        let readings = Readings::new(settings.upstream_paths);
        let (plans, classes) = (mem::take(&mut settings.plans), mem::take(&mut settings.classes));
        let mut catalog = Catalog::check(plans, classes, &settings.default_class, &readings)?;
        let subscribers =
            Subscribers::check(mem::take(&mut settings.subscribers), &catalog).at("subscribers")?;
        check_capacity(settings.counters, subscribers.records(settings.count_by)).at("counters")?;
        let key_sources = mem::take(&mut settings.key_sources.0);
        let has_subject = key_sources.iter().any(|source| matches!(source, KeySource::Metadata { .. }));
        if settings.plan_source.is_some() && !has_subject {
            return Err(ConfigError::new(WITHOUT_SUBJECT)).at("plan_source");
        }
        each(&settings.exempt, |rule| rule.check(&readings)).at("exempt")?;
        if let Some(path) = &settings.usage_path {
            check_path(path, &readings).at("usage_path")?;
        }
        if !settings.base_path.is_empty() {
            check_path(&settings.base_path, &readings).at("base_path")?;
        }
        let exempt = mem::take(&mut settings.exempt).into_iter().map(|of| (of, Rule::Exempt));
        let usage = settings.usage_path.take().map(|path| (Match::get(path), Rule::Usage));
        let classes = catalog.classes.iter_mut().enumerate().flat_map(|(place, class)| {
            mem::take(&mut class.matches).into_iter().map(move |of| (of, Rule::Class(place)))
        });
        let rules: Vec<_> = exempt.chain(usage).chain(classes).collect();
        Ok(Self {
            looks_at_paths: rules.iter().any(|(of, _)| of.looks_at_path()),
            rules,
            catalog,
            readings,
            key_sources,
            subscribers,
            unknown_key: settings.unknown_key.clone(),
            missing_key: settings.missing_key.clone(),
            not_ready: settings.directory.as_ref().map(|directory| directory.not_ready.0.clone()),
            fleet: settings.fleet.as_ref().map(|fleet| fleet.sharing(settings.enforcement == Mode::Shadow)),
            notes_callers: settings.log_decisions
                || settings.log_fields == LogFields::All
                || settings.usage.is_some(),
            settings,
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
        let Settings { directory, fleet, usage, .. } = &mut self.settings;
        let directory = directory.as_mut().and_then(|directory| directory.bearer.as_mut());
        let fleet = fleet.as_mut().and_then(|fleet| fleet.bearer.as_mut());
        let usage = usage.as_mut().and_then(|usage| usage.bearer.as_mut());
        for (field, secret) in [("directory", directory), ("fleet", fleet), ("usage", usage)] {
            secret.map_or(Ok(()), |secret| secret.read_variable(&variable)).at(field)?;
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
            let found = self.rules.iter().find(|(of, _)| of.matches(method, path));
            found.map_or(Rule::Class(self.catalog.default_class), |(_, rule)| *rule)
        };
        match path {
            // Outside the base path nothing but the method can match.
            Some(path) if self.looks_at_paths => {
                self.readings.select(path, |reading| rule(below(&self.settings.base_path, reading)))
            }
            Some(_) | None => Ok(rule(None)),
        }
    }

    /// The matches of classes that no request reaches, because an earlier one of another rule matches all of its requests: the class, the place of
    /// the match in the class, and the rule of the earlier one.
    pub fn hidden(&self) -> impl Iterator<Item = (usize, usize, Rule)> {
        self.rules.iter().enumerate().filter_map(|(place, (of, rule))| {
            let Rule::Class(class) = *rule else { return None };
            let before = self.rules.get(..place)?;
            let (_, by) = before.iter().find(|(earlier, by)| by != rule && earlier.covers(of))?;
            Some((class, before.iter().filter(|(_, of)| of == rule).count(), *by))
        })
    }

    /// The name of a class.
    #[must_use]
    pub fn class_name(&self, class: usize) -> &str {
        self.catalog.classes.get(class).map_or("", |class| &class.name)
    }

    /// A plan and a class whose enforced quotas have a window of a day or longer, if no ledger counts it: the count is lost with the gateway's
    /// process.
    #[must_use]
    pub fn lost_with_process(&self) -> Option<(usize, usize)> {
        let is_lost = |quota: &Quota| quota.mode == Mode::Enforced && quota.window.is_long();
        self.with_quota(is_lost).filter(|_| self.fleet.is_none())
    }

    /// A plan and a class that have an enforced quota which each gateway of the fleet counts by itself.
    #[must_use]
    pub fn apart_in_fleet(&self) -> Option<(usize, usize)> {
        let is_apart = |quota: &Quota| quota.mode == Mode::Enforced && !quota.window.is_shared();
        self.with_quota(is_apart).filter(|_| self.fleet.is_some())
    }

    /// A plan and a class that have such a quota. The limits of a subscriber count as those of its plan.
    #[must_use]
    pub fn with_quota(&self, is_such: impl Fn(&Quota) -> bool) -> Option<(usize, usize)> {
        let granted = self.catalog.plans.iter().map(|(_, granted)| granted).enumerate();
        let agreed = self.subscribers.agreements().iter().map(|agreed| (agreed.plan, &agreed.entitlements));
        granted.chain(agreed).find_map(|(plan, entitlements)| {
            let class = entitlements.iter().position(|given| given.quotas().iter().any(&is_such))?;
            Some((plan, class))
        })
    }

    /// The name of a plan.
    #[must_use]
    pub fn plan_name(&self, plan: usize) -> &str {
        self.catalog.plans.get(plan).map_or("", |(name, _)| name)
    }
}

const WITHOUT_SUBJECT: &str = r#"needs a key source from metadata: otherwise every refreshed token would get a fresh quota; add to key_sources the token's subject, for example {"metadata": ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]}"#;

fn check_capacity(Capacity { known, strangers }: Capacity, needed: usize) -> Result<(), ConfigError> {
    for (field, given) in [("known", known), ("strangers", strangers)] {
        if !(1..=MAX_CAPACITY / 2).contains(&given) {
            let problem = format!("expected 1 to {} records", MAX_CAPACITY / 2);
            return Err(ConfigError::new(problem).given(&given)).at(field);
        }
    }
    if usize::try_from(known).is_ok_and(|known| known < needed) {
        let problem = format!("the configured keys need {needed} records, more than {known}");
        return Err(ConfigError::new(problem)).at("known");
    }
    Ok(())
}
