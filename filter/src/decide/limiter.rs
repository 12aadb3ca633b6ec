//! The way of a request through the filter: exempt or not, whose, of which class, and whether its quotas have room.

use core::hash::BuildHasherDefault;
use std::collections::HashMap;
use std::sync::Arc;

use nohash_hasher::NoHashHasher;

use crate::config::{
    ADDRESS_CLASS, Class, Config, Entitlement, NotReady, OnError, Rule, StrangerPolicy, Subscribers, digest,
};
use crate::count::consume::{Charge, Standings};
use crate::count::counters::{CountError, Counter, Counters, Place};
use crate::count::fingerprint::{ClientAddress, KeyHash, Who};
use crate::count::shared_data::HostError;
use crate::count::table::OpenError;
use crate::decide::host::{Host, LogLevel};
use crate::decide::log_limiter::LogLimiter;
use crate::decide::outcome::Outcome;
use crate::decide::reply::{Reply, Units};
use crate::decide::response_headers::Report;
use crate::decide::usage;
use crate::decide::verdict::Verdict;
use crate::quota::{Mode, QuotaSet};
use crate::request::header_pairs::HeaderPairs;
use crate::request::identity::{Credential, credential, only_line};
use crate::request::readings::AmbiguousPath;
use crate::time::Timestamp;

mod caller;
mod explanation;
mod operators;
mod organisation;
mod settlement;

use self::caller::{Caller, Remembered};
pub use self::settlement::{Reservation, SettlementEvent, SettlementTally};

/// Decides on requests by one configuration, within one VM.
#[derive(Debug)]
pub struct Limiter {
    config: Arc<Config>,
    /// What the directory answered last; `None` if there is no directory, or no answer yet.
    directory: Option<Arc<Subscribers>>,
    /// Opened at the first request, for configuring must not depend on what is stored.
    counters: Option<Counters>,
    remembered: HashMap<KeyHash, Remembered, BuildHasherDefault<NoHashHasher<KeyHash>>>,
    errors: LogLimiter<DecideError>,
    /// By the events' places in [`SettlementEvent::ALL`].
    settlements: SettlementTally,
}

/// The places of the records that a request is charged to.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// Of the caller's counter.
    own: Place,
    /// Of the counter that the caller's organisation shares.
    organisation: Option<Place>,
}

/// Why a request could not be decided by its quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum DecideError {
    #[error("the host handed over no request headers")]
    NoHeaders,
    #[error("the class has no quotas")]
    NoQuotas,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Count(#[from] CountError),
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Limiter {
    /// A limiter that has not touched the host yet.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            directory: None,
            counters: None,
            remembered: HashMap::default(),
            errors: LogLimiter::default(),
            settlements: SettlementTally::default(),
        }
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Puts the directory's subscribers in the place of those before; `None` if they are not known.
    pub fn set_directory(&mut self, directory: Option<Arc<Subscribers>>) {
        self.directory = directory;
        self.remembered.clear();
    }

    /// Decides on a request. `headers` is its header map as `proxy_get_header_map_pairs` serializes it.
    pub fn decide(&mut self, host: &mut impl Host, headers: &[u8]) -> Verdict {
        let config = Arc::clone(&self.config);
        if let Some(operators) = &config.operators {
            return self.answer_operator(host, &config, operators, headers);
        }
        let mut request = Request { plan: None, class: config.catalog.default_class };
        let Some(headers) = HeaderPairs::parse(headers) else {
            return self.failed(host, &request, DecideError::NoHeaders);
        };
        let method = headers.get(":method").unwrap_or_default();
        let path = if config.looks_at_paths { headers.get(":path") } else { None };
        let rule = config.rule(method, path);
        match rule {
            Ok(Rule::Exempt) => return request.verdict([Outcome::Exempt]),
            Ok(Rule::Class(class)) => request.class = class,
            Err(AmbiguousPath) if config.enforcement == Mode::Enforced => {
                return request.refused(&config, [Outcome::AmbiguousPath], Reply::ambiguous_path());
            }
            Ok(Rule::Usage) | Err(AmbiguousPath) => {}
        }
        let decided = self.decide_for(host, &config, &mut request, headers, rule == Ok(Rule::Usage));
        let mut verdict = decided.unwrap_or_else(|error| self.failed(host, &request, error));
        if rule.is_err() {
            let _ = verdict.outcomes.try_push(Outcome::AmbiguousPath);
        }
        verdict
    }

    fn decide_for(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        request: &mut Request,
        headers: HeaderPairs<'_>,
        usage: bool,
    ) -> Result<Verdict, DecideError> {
        let line = self.counters.as_ref().and_then(|counters| {
            let (source, value) = only_line(&config.key_sources, headers)?;
            Some(counters.salt().key_hash(source, value, request.class))
        });
        if let Some(remembered) = line.and_then(|line| self.remembered.get(&line))
            && !usage
        {
            return self.remembered_subscriber(host, config, request, remembered.clone());
        }
        self.decide_for_caller(host, config, request, headers, line, usage)
    }

    /// Decides on a request of somebody who has to be found out first. Apart, so that the way of nearly all requests is short in the
    /// module, too: with a cold cache each line of code counts.
    #[cold]
    fn decide_for_caller(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        request: &mut Request,
        headers: HeaderPairs<'_>,
        line: Option<KeyHash>,
        usage: bool,
    ) -> Result<Verdict, DecideError> {
        let directory = self.directory.clone();
        let digest_of_key;
        let caller = match credential(&config.key_sources, headers, |path| host.property(path))? {
            Credential::Missing => Caller::Keyless,
            Credential::Ambiguous => Caller::Ambiguous,
            Credential::Key(key) => {
                let salt = *open(&mut self.counters, config, host)?.salt();
                let remembered_by =
                    line.unwrap_or_else(|| salt.key_hash(config.key_sources.len(), &key, request.class));
                if let Some(remembered) = self.remembered.get(&remembered_by)
                    && !usage
                {
                    return self.remembered_subscriber(host, config, request, remembered.clone());
                }
                digest_of_key = digest(&key);
                let directory = directory.as_deref();
                self.caller(host, config, directory, request.class, &digest_of_key, remembered_by)?
            }
        };
        let mut verdict = match caller {
            Caller::Known { who, organisation, counter, plan, granted } => {
                request.plan = Some(plan);
                return if usage {
                    let caller = usage::Caller { who, organisation, plan };
                    let usage = usage::usage(self.open(host)?, host, config, caller, granted)?;
                    let mut verdict = Request { plan: None, ..*request }.verdict([Outcome::Exempt]);
                    verdict.reply = Some(Box::new(Reply::usage(&usage)));
                    Ok(verdict)
                } else {
                    self.subscriber(host, config, request, counter, granted.get(request.class))
                };
            }
            Caller::Ambiguous => request.refused(config, [Outcome::UnknownKey], Reply::ambiguous_key()),
            Caller::NotYetKnown => match config.directory.as_ref().map(|directory| &directory.not_ready) {
                Some(NotReady::Unavailable) => {
                    request.refused(config, [Outcome::UnknownKey], Reply::not_ready())
                }
                Some(NotReady::Limit(quotas)) => {
                    let policy = StrangerPolicy::Limit(Arc::clone(quotas));
                    self.stranger(host, config, request, &policy, Outcome::UnknownKey)?
                }
                Some(NotReady::Pass) | None => request.verdict([Outcome::UnknownKey]),
            },
            Caller::Unknown => {
                self.stranger(host, config, request, &config.unknown_key, Outcome::UnknownKey)?
            }
            Caller::Keyless => {
                self.stranger(host, config, request, &config.missing_key, Outcome::MissingKey)?
            }
        };
        if usage && verdict.reply.is_none() {
            verdict.reply = Some(Box::new(Reply::unknown_key()));
        }
        Ok(verdict)
    }

    fn remembered_subscriber(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        request: &mut Request,
        Remembered { counter, plan, granted }: Remembered,
    ) -> Result<Verdict, DecideError> {
        request.plan = Some(plan);
        self.subscriber(host, config, request, counter, granted.as_ref())
    }

    fn subscriber(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        request: &Request,
        counter: Places,
        granted: Option<&Entitlement>,
    ) -> Result<Verdict, DecideError> {
        match granted {
            Some(Entitlement::Unlimited) => Ok(request.verdict([Outcome::Allowed])),
            Some(Entitlement::Quotas(quotas)) => self.count(host, config, request, counter, quotas, None),
            Some(Entitlement::NotInPlan) | None => {
                let plan = request.plan_name(config).unwrap_or_default();
                let reply = Reply::not_in_plan(config.not_in_plan, config.class_name(request.class), plan);
                Ok(request.refused(config, [Outcome::NotInPlan], reply))
            }
        }
    }

    fn stranger(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        request: &Request,
        policy: &StrangerPolicy,
        outcome: Outcome,
    ) -> Result<Verdict, DecideError> {
        match policy {
            StrangerPolicy::Pass => Ok(request.verdict([outcome])),
            StrangerPolicy::Reject => {
                let reply = match outcome {
                    Outcome::MissingKey => Reply::missing_key(),
                    _ => Reply::unknown_key(),
                };
                Ok(request.refused(config, [outcome], reply))
            }
            StrangerPolicy::Limit(quotas) => {
                let address = host.property(b"source\0address")?.unwrap_or_default();
                let who = Who::Address(ClientAddress::parse(&address, config.ipv6_prefix));
                let counter = self.open(host)?.place(Counter { who, class: ADDRESS_CLASS });
                let places = Places { own: counter, organisation: None };
                Ok(self.count(host, config, request, places, quotas, Some(outcome))?)
            }
        }
    }

    /// Charges a request to its quotas, and makes its verdict.
    fn count(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        request: &Request,
        places: Places,
        quotas: &Arc<QuotaSet>,
        stranger: Option<Outcome>,
    ) -> Result<Verdict, DecideError> {
        let cost = match (stranger, config.catalog.classes.get(request.class)) {
            (Some(_), _) | (_, None) => 1,
            (None, Some(class)) => class.cost,
        };
        // In a box, because it is handed on several times until the response is there.
        let at = Timestamp::from_seconds(0);
        let mut report = Box::new(Report {
            quotas: Arc::clone(quotas),
            standings: Standings::new(),
            cost,
            counter: places.own.fingerprint(),
            at,
        });
        let mut parts = places.parts(quotas);
        let Some((place, part)) = parts.next() else { return Err(DecideError::NoQuotas) };
        let charge = Charge { fingerprint: place.fingerprint(), quotas: part, cost };
        let mut counted = self.open(host)?.charge(host, place, charge, &mut report.standings)?;
        report.at = counted.at;
        if let (true, Some(organisation)) = (counted.admitted, parts.next()) {
            counted = self.charge_organisation(host, (place, charge), organisation, &mut report)?;
        }
        // A stranger pays one unit, whatever the class.
        let reservation = match stranger {
            None if counted.admitted => Reservation::of(config, request.class, places, &report),
            None | Some(_) => None,
        };
        let mut verdict = conclude(config, request, report, stranger, counted.overflowed, counted.admitted);
        verdict.reservation = reservation;
        Ok(verdict)
    }

    /// Decides by `on_error` on a request that could not be counted.
    #[cold]
    fn failed(&mut self, host: &mut impl Host, request: &Request, error: DecideError) -> Verdict {
        self.log_error(host, "a request could not be counted", error);
        match self.config.on_error {
            OnError::Allow => request.verdict([Outcome::Error]),
            OnError::Deny => request.refused(&self.config, [Outcome::Error], Reply::count_failed()),
        }
    }

    /// Logs an error, but each at most once a second.
    fn log_error(&mut self, host: &mut impl Host, what: &str, error: DecideError) {
        let now = host.now().ok();
        if let Some(left_out) = self.errors.admit(error, now) {
            host.log(LogLevel::Error, format_args!("{what}: {error}{left_out}"));
        }
    }

    fn open(&mut self, host: &mut impl Host) -> Result<&mut Counters, DecideError> {
        open(&mut self.counters, &self.config, host)
    }
}

fn open<'c>(
    counters: &'c mut Option<Counters>,
    config: &Config,
    host: &mut impl Host,
) -> Result<&'c mut Counters, DecideError> {
    match counters {
        Some(counters) => Ok(counters),
        counters => {
            let opened = open_counters(config, host)?;
            Ok(counters.insert(opened))
        }
    }
}

/// The verdict on a request that was counted.
fn conclude(
    config: &Config,
    request: &Request,
    report: Box<Report>,
    stranger: Option<Outcome>,
    overflowed: bool,
    admitted: bool,
) -> Verdict {
    let mut verdict = request.verdict(stranger);
    let mut and = |outcome| {
        // Four have room: who it was, that it overflowed, how it ended, and that its path was ambiguous.
        let _ = verdict.outcomes.try_push(outcome);
    };
    if overflowed {
        and(Outcome::Overflow);
    }
    match (admitted, config.enforcement) {
        (true, _) => {
            if stranger.is_none() {
                and(Outcome::Allowed);
            }
            if report.exhausted_in_shadow() {
                and(Outcome::ShadowLimited);
            }
        }
        (false, Mode::Shadow) => and(Outcome::ShadowLimited),
        (false, Mode::Enforced) => and(Outcome::Limited),
    }
    if !admitted && config.enforcement == Mode::Enforced {
        let class = config.catalog.classes.get(request.class).filter(|_| stranger.is_none());
        let units = match class {
            Some(Class { cost, actual, .. }) if *cost > 1 || actual.is_some() => Units::Units,
            Some(_) | None => Units::Requests,
        };
        verdict.reply = Some(Box::new(Reply::limited(&report, request.plan_name(config), units)));
    }
    verdict.report = Some(report);
    verdict
}

#[cold]
fn open_counters(config: &Config, host: &mut impl Host) -> Result<Counters, DecideError> {
    let wanted = config.counters;
    let salt = host.random()?;
    let counters = Counters::open(host, salt, &config.namespace, wanted)?;
    if counters.is_local() {
        host.log(
            LogLevel::Warn,
            format_args!(
                "this host has no shared data: each VM counts by itself, so a quota applies to each VM"
            ),
        );
    }
    let used = counters.capacity();
    if used != wanted {
        host.log(
            LogLevel::Warn,
            format_args!(
                "counters: {} known and {} strangers stay in force until a restart; {} and {} are configured",
                used.known, used.strangers, wanted.known, wanted.strangers
            ),
        );
    }
    Ok(counters)
}

/// A request, as metrics and messages name it.
struct Request {
    plan: Option<usize>,
    class: usize,
}

impl Request {
    fn plan_name<'c>(&self, config: &'c Config) -> Option<&'c str> {
        Some(config.plan_name(self.plan?))
    }

    fn verdict(&self, outcomes: impl IntoIterator<Item = Outcome>) -> Verdict {
        Verdict {
            plan: self.plan,
            class: self.class,
            outcomes: outcomes.into_iter().collect(),
            report: None,
            reservation: None,
            reply: None,
        }
    }

    /// Refuses the request, unless the whole filter is in shadow mode.
    #[cold]
    fn refused(&self, config: &Config, outcomes: [Outcome; 1], reply: Reply) -> Verdict {
        let mut verdict = self.verdict(outcomes);
        if config.enforcement == Mode::Enforced {
            verdict.reply = Some(Box::new(reply));
        }
        verdict
    }
}

#[cfg(test)]
mod tests;
