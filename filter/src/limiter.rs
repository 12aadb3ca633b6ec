//! The way of a request through the filter: exempt or not, whose, of which class, and whether its quotas have room.

use core::fmt;
use std::collections::HashMap;
use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::classes::{below, normalize};
use crate::config::{
    ADDRESS_CLASS, Config, CountBy, Entitlement, Entitlements, NotReady, OnError, StrangerPolicy,
    Subscribers, digest,
};
use crate::counters::{CountError, Counter, CounterHost, Counters};
use crate::fingerprint::{ClientAddress, KeyDigest, Who};
use crate::header_pairs::HeaderPairs;
use crate::headers::Report;
use crate::identity::{Credential, credential};
use crate::outcome::{NO_PLAN, Outcome};
use crate::quota::{Mode, QuotaSet};
use crate::reply::Reply;
use crate::shared_data::HostError;
use crate::table::OpenError;
use crate::usage;

/// Keys whose subscriber is remembered, so that their requests need no SHA-256. The memory is emptied when it is full: about
/// 300 KiB for each VM.
const REMEMBERED_KEYS: usize = 8192;

/// The levels of `proxy_log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Refusals, one line each.
    Debug,
    /// Start-up.
    Info,
    /// What an operator should know and nothing suffers from.
    Warn,
    /// What goes wrong.
    Error,
}

/// The host as the limiter needs it.
pub trait Host: CounterHost {
    /// `proxy_get_property`, its path's parts joined by NUL; `None` if the request has none, or one without a value.
    ///
    /// # Errors
    /// Any status but Ok, NotFound and SerializationFailure, which is how a null comes.
    fn property(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, HostError>;

    /// 16 bytes of WASI's `random_get`.
    ///
    /// # Errors
    /// Any answer but success.
    fn random(&mut self) -> Result<[u8; 16], HostError>;

    /// `proxy_log`.
    fn log(&mut self, level: LogLevel, message: fmt::Arguments<'_>);
}

/// What is to be done with a request.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The subscriber's plan, as an index into [`crate::config::Catalog::plans`]; `None` for a stranger.
    pub plan: Option<usize>,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub class: usize,
    /// What to count in metrics.
    pub outcomes: ArrayVec<Outcome, 3>,
    /// What to tell the client in headers of the response, whoever sends that.
    pub report: Option<Report>,
    /// The reply to send instead of passing the request on.
    pub reply: Option<Box<Reply>>,
}

/// Decides on requests by one configuration, within one VM.
#[derive(Debug)]
pub struct Limiter {
    config: Arc<Config>,
    /// What the directory answered last; `None` if there is no directory, or no answer yet.
    directory: Option<Arc<Subscribers>>,
    /// Opened at the first request, for configuring must not depend on what is stored.
    counters: Option<Counters>,
    remembered: HashMap<u128, Place>,
}

/// Where a known key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Configuration(usize),
    Directory(usize),
}

/// Who is calling.
enum Caller<'c> {
    /// A key of this plan.
    Known { who: Who<'c>, plan: usize, granted: &'c Entitlements },
    /// A key that nobody has.
    Unknown,
    /// A key that the directory, which has not answered yet, may know.
    NotYetKnown,
    /// No key.
    Keyless,
    /// Several keys.
    Ambiguous,
}

/// Why a request could not be decided by its quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum DecideError {
    #[error("the host handed over no request headers")]
    NoHeaders,
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
        Self { config, directory: None, counters: None, remembered: HashMap::new() }
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
        let Some(headers) = HeaderPairs::parse(headers) else {
            let request = Request { plan: None, class: config.catalog.default_class };
            return request.failed(&config, host, DecideError::NoHeaders);
        };
        let method = headers.get(":method").unwrap_or_default();
        let path = headers.get(":path").map(normalize);
        // Outside the base path nothing but the method can match.
        let path = path.as_deref().and_then(|path| below(&config.base_path, path));
        let mut request = Request { plan: None, class: config.class_of(method, path) };
        if config.exempt.iter().any(|rule| rule.matches(method, path)) {
            return request.verdict([Outcome::Exempt]);
        }
        let usage = config.usage.as_ref().is_some_and(|usage| usage.matches(method, path));
        match self.decide_for(host, &config, &mut request, headers, usage) {
            Ok(verdict) => verdict,
            Err(error) => request.failed(&config, host, error),
        }
    }

    fn decide_for(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        request: &mut Request,
        headers: HeaderPairs<'_>,
        usage: bool,
    ) -> Result<Verdict, DecideError> {
        let directory = self.directory.clone();
        let mut digest = KeyDigest::default();
        let caller = self.caller(host, config, directory.as_deref(), headers, &mut digest)?;
        let mut verdict = match caller {
            Caller::Known { who, plan, granted } => {
                request.plan = Some(plan);
                return if usage {
                    let body = usage::report(self.open(host)?, host, config, who, plan, granted)?;
                    let mut verdict = Request { plan: None, ..*request }.verdict([Outcome::Exempt]);
                    verdict.reply = Some(Box::new(Reply::usage(body)));
                    Ok(verdict)
                } else {
                    self.subscriber(host, config, request, who, granted.get(request.class))
                };
            }
            Caller::Ambiguous => request.refused(config, [Outcome::UnknownKey], Reply::ambiguous_key()),
            Caller::NotYetKnown => match config.directory.as_ref().map(|directory| directory.not_ready) {
                Some(NotReady::Unavailable) => {
                    request.refused(config, [Outcome::UnknownKey], Reply::not_ready())
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

    /// Who is calling. `digest` is room for the SHA-256 of a key that trusted metadata vouches for.
    fn caller<'c>(
        &mut self,
        host: &mut impl Host,
        config: &'c Config,
        directory: Option<&'c Subscribers>,
        headers: HeaderPairs<'_>,
        digest_of_key: &'c mut KeyDigest,
    ) -> Result<Caller<'c>, DecideError> {
        let key = match credential(&config.key_sources, headers, |path| host.property(path))? {
            Credential::Ambiguous => return Ok(Caller::Ambiguous),
            Credential::Missing => return Ok(Caller::Keyless),
            Credential::Key(key) => key,
        };
        let hash = self.open(host)?.salt().key_hash(&key);
        let place = match self.remembered.get(&hash) {
            Some(place) => Some(*place),
            None => {
                *digest_of_key = digest(&key);
                let place = config.subscribers.find(digest_of_key).map(Place::Configuration);
                let place = place.or_else(|| directory?.find(digest_of_key).map(Place::Directory));
                if let Some(place) = place {
                    if self.remembered.len() >= REMEMBERED_KEYS {
                        self.remembered.clear();
                    }
                    self.remembered.insert(hash, place);
                }
                place
            }
        };
        let known = match place {
            Some(Place::Configuration(place)) => config.subscribers.at(place),
            Some(Place::Directory(place)) => directory.and_then(|directory| directory.at(place)),
            None => None,
        };
        if let Some((known, agreement)) = known {
            let who = match config.count_by {
                CountBy::Key => Who::Key(known.digest),
                CountBy::Subscriber => Who::Subscriber(known.subscriber),
            };
            return Ok(Caller::Known { who, plan: agreement.plan, granted: &agreement.entitlements });
        }
        if let Some(path) = &config.plan_source {
            let name = host.property(path)?.unwrap_or_default();
            let plans = &config.catalog.plans;
            let plan = plans.iter().enumerate().find(|(_, (plan, _))| plan.as_bytes() == name);
            if let Some((plan, (_, granted))) = plan {
                return Ok(Caller::Known { who: Who::Key(digest_of_key), plan, granted });
            }
        }
        let awaited = config.directory.is_some() && directory.is_none();
        Ok(if awaited { Caller::NotYetKnown } else { Caller::Unknown })
    }

    fn subscriber(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        request: &Request,
        who: Who<'_>,
        granted: Option<&Entitlement>,
    ) -> Result<Verdict, DecideError> {
        match granted {
            Some(Entitlement::Unlimited) => Ok(request.verdict([Outcome::Allowed])),
            Some(Entitlement::Quotas(quotas)) => self.count(host, config, request, who, quotas, None),
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
                self.count(host, config, request, who, quotas, Some(outcome))
            }
        }
    }

    fn count(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        request: &Request,
        who: Who<'_>,
        quotas: &Arc<QuotaSet>,
        stranger: Option<Outcome>,
    ) -> Result<Verdict, DecideError> {
        let (class, cost) = match (who, config.catalog.classes.get(request.class)) {
            (Who::Address(_), _) | (_, None) => (ADDRESS_CLASS, 1),
            (Who::Key(_) | Who::Subscriber(_), Some(class)) => (class.name.as_str(), class.cost),
        };
        let counted = self.open(host)?.count(host, Counter { who, class }, quotas.quotas(), cost)?;

        let mut verdict = request.verdict(stranger);
        let report =
            Report { quotas: Arc::clone(quotas), standings: counted.standings, cost, at: counted.at };
        let outcomes = match (counted.admitted, config.enforcement) {
            (true, _) => [
                (Outcome::Allowed, stranger.is_none()),
                (Outcome::ShadowLimited, report.exhausted_in_shadow()),
            ],
            (false, Mode::Shadow) => [(Outcome::ShadowLimited, true), (Outcome::Limited, false)],
            (false, Mode::Enforced) => [(Outcome::ShadowLimited, false), (Outcome::Limited, true)],
        };
        for (outcome, applies) in [(Outcome::Overflow, counted.overflowed)].into_iter().chain(outcomes) {
            if applies {
                // Three have room: who it was, that it overflowed, and how it ended.
                let _ = verdict.outcomes.try_push(outcome);
            }
        }
        if !counted.admitted && config.enforcement == Mode::Enforced {
            let plan = request.plan_name(config);
            host.log(
                LogLevel::Debug,
                format_args!(
                    "limited: plan {}, class {class}, counter {:08x}",
                    plan.unwrap_or(NO_PLAN),
                    counted.fingerprint.get() >> 32
                ),
            );
            verdict.reply = Some(Box::new(Reply::limited(&report, plan)));
        }
        verdict.report = Some(report);
        Ok(verdict)
    }

    fn open(&mut self, host: &mut impl Host) -> Result<&mut Counters, DecideError> {
        let counters = match self.counters.take() {
            Some(counters) => counters,
            None => self.open_first(host)?,
        };
        Ok(self.counters.insert(counters))
    }

    fn open_first(&self, host: &mut impl Host) -> Result<Counters, DecideError> {
        let wanted = self.config.counters;
        let salt = host.random()?;
        let counters = Counters::open(host, salt, &self.config.namespace, wanted)?;
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
            reply: None,
        }
    }

    /// Refuses the request, unless the whole filter is in shadow mode.
    fn refused(&self, config: &Config, outcomes: [Outcome; 1], reply: Reply) -> Verdict {
        let mut verdict = self.verdict(outcomes);
        if config.enforcement == Mode::Enforced {
            verdict.reply = Some(Box::new(reply));
        }
        verdict
    }

    fn failed(&self, config: &Config, host: &mut impl Host, error: DecideError) -> Verdict {
        host.log(LogLevel::Error, format_args!("a request could not be counted: {error}"));
        match config.on_error {
            OnError::Allow => self.verdict([Outcome::Error]),
            OnError::Deny => self.refused(config, [Outcome::Error], Reply::count_failed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::CounterHost;
    use crate::header_pairs::serialize;
    use crate::shared_data::{Cas, SharedData, Swap, VmLocalData};
    use crate::time::Timestamp;

    struct TestHost {
        data: VmLocalData,
        fails: bool,
        address: &'static str,
        subject: Option<&'static str>,
        plan: Option<&'static str>,
        logged: Vec<String>,
    }

    impl SharedData for TestHost {
        fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
            if self.fails {
                Err(HostError { call: "proxy_get_shared_data", status: 10 })
            } else {
                self.data.get(name)
            }
        }
        fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
            self.data.set(name, value, cas)
        }
    }

    impl CounterHost for TestHost {
        fn now(&mut self) -> Result<Timestamp, HostError> {
            Ok(Timestamp::from_seconds(60))
        }
    }

    impl Host for TestHost {
        fn property(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, HostError> {
            Ok(match path {
                b"source\0address" => Some(self.address.as_bytes().to_vec()),
                b"metadata\0jwt\0sub" => self.subject.map(|subject| subject.as_bytes().to_vec()),
                b"metadata\0jwt\0plan" => self.plan.map(|plan| plan.as_bytes().to_vec()),
                _ => None,
            })
        }
        fn random(&mut self) -> Result<[u8; 16], HostError> {
            Ok([7; 16])
        }
        fn log(&mut self, _: LogLevel, message: fmt::Arguments<'_>) {
            self.logged.push(message.to_string());
        }
    }

    /// A filter of two plans, two classes and three keys, and one host for all its requests.
    struct Filter {
        limiter: Limiter,
        host: TestHost,
    }

    impl Filter {
        fn with(fields: &str) -> Self {
            let key = |key: &str| digest(key.as_bytes()).map(|byte| format!("{byte:02x}")).concat();
            let json = format!(
                r#"{{"plans": {{"free": {{"standard": ["2/minute"]}}, "pro": {{"standard": ["3/minute"], "analytics": ["1/second"]}}}},
                    "classes": [{{"name": "analytics", "match": [{{"methods": ["GET"], "path": "/analytics"}}]}}],
                    "exempt": [{{"methods": ["OPTIONS"]}}, {{"path_prefix": "/r"}}],
                    "subscribers": [{{"id": "f", "plan": "free", "keys": ["sha256:{}", "sha256:{}"]}},
                                    {{"id": "p", "plan": "pro", "keys": ["sha256:{}"]}}]{}{fields}}}"#,
                key("free-1"),
                key("free-2"),
                key("pro"),
                if fields.is_empty() { "" } else { "," }
            );
            let config = Config::from_json(json.as_bytes()).unwrap();
            let host = TestHost {
                data: VmLocalData::default(),
                fails: false,
                address: "192.0.2.1:80",
                subject: None,
                plan: None,
                logged: Vec::new(),
            };
            Self { limiter: Limiter::new(Arc::new(config)), host }
        }

        fn send(&mut self, method: &str, path: &str, authorization: &str) -> Verdict {
            let mut headers: Vec<(&str, &[u8])> =
                vec![(":method", method.as_bytes()), (":path", path.as_bytes())];
            if !authorization.is_empty() {
                headers.push(("authorization", authorization.as_bytes()));
            }
            self.limiter.decide(&mut self.host, &serialize(&headers))
        }
    }

    fn status(verdict: &Verdict) -> u16 {
        verdict.reply.as_ref().map_or(0, |reply| reply.status)
    }

    #[test]
    fn a_request_takes_the_way_of_its_key_and_class() {
        let mut filter = Filter::with("");
        use Outcome::{Allowed, Exempt, Limited, MissingKey, NotInPlan, UnknownKey};
        let steps = [
            // status 0: passed on
            ("GET", "/links", "Bearer free-1", 0, &[Allowed][..]),
            ("GET", "/links", "Bearer free-1", 0, &[Allowed]),
            ("GET", "/links", "Bearer free-1", 429, &[Limited]),
            ("GET", "/links", "Bearer free-2", 0, &[Allowed]),
            ("GET", "/%61nalytics/", "Bearer free-2", 403, &[NotInPlan]),
            ("GET", "/analytics", "Bearer pro", 0, &[Allowed]),
            ("GET", "/analytics", "Bearer pro", 429, &[Limited]),
            ("POST", "/analytics", "Bearer pro", 0, &[Allowed]),
            ("OPTIONS", "/links", "Bearer free-1", 0, &[Exempt]),
            ("GET", "/x/../r/abc", "", 0, &[Exempt]),
            ("GET", "/links", "Bearer nobody", 0, &[UnknownKey]),
            ("GET", "/links", "", 0, &[MissingKey]),
            ("GET", "/links", "Basic free-1", 0, &[MissingKey]),
            ("GET", "/links", "Bearer free-1, Bearer pro", 400, &[UnknownKey]),
        ];
        for (method, path, authorization, expected, outcomes) in steps {
            let verdict = filter.send(method, path, authorization);
            assert_eq!(
                (status(&verdict), verdict.outcomes.as_slice()),
                (expected, outcomes),
                "{method} {path} {authorization}"
            );
            let counted = !matches!(outcomes, [Exempt | NotInPlan]) && expected != 400;
            assert_eq!(verdict.report.is_some(), counted, "{method} {path} {authorization}");
        }
        assert!(filter.host.logged.iter().all(|line| !line.contains("free-1")), "{:?}", filter.host.logged);
    }

    #[test]
    fn keys_of_a_subscriber_share_a_quota_if_it_is_counted_by_subscriber() {
        let mut filter = Filter::with(r#""count_by": "subscriber""#);
        let statuses = ["free-1", "free-2", "free-1", "free-2"]
            .map(|key| status(&filter.send("GET", "/", &format!("Bearer {key}"))));
        assert_eq!(statuses, [0, 0, 429, 429]);
    }

    #[test]
    fn strangers_are_counted_by_address_whatever_they_send() {
        let mut filter = Filter::with(
            r#""unknown_key": {"action": "limit", "quotas": ["2/minute"]}, "missing_key": {"action": "limit", "quotas": ["2/minute"]}"#,
        );
        let steps = [
            ("192.0.2.1:1", "Bearer x", 0),
            ("192.0.2.1:2", "", 0),
            ("192.0.2.1:3", "Bearer y", 429),
            ("192.0.2.1:3", "", 429),
            ("192.0.2.2:1", "Bearer x", 0),
            ("[2001:db8::1]:1", "", 0),
            ("[2001:db8::2]:1", "", 0),
            ("[2001:db8::3]:1", "", 429),
            ("/unix", "", 0),
        ];
        for (address, authorization, expected) in steps {
            filter.host.address = address;
            let verdict = filter.send("GET", "/", authorization);
            assert_eq!(status(&verdict), expected, "{address} {authorization}");
        }
    }

    #[test]
    fn strangers_are_rejected_or_passed_if_that_is_configured() {
        let mut filter =
            Filter::with(r#""unknown_key": {"action": "reject"}, "missing_key": {"action": "pass"}"#);
        assert_eq!(status(&filter.send("GET", "/", "Bearer x")), 401);
        let passed = filter.send("GET", "/", "");
        assert!(passed.reply.is_none() && passed.report.is_none());
    }

    #[test]
    fn a_filter_in_shadow_mode_refuses_nothing_and_says_what_it_would_have() {
        let mut filter = Filter::with(r#""enforcement": "shadow", "unknown_key": {"action": "reject"}"#);
        let steps = [
            ("/", "Bearer free-1", Outcome::Allowed),
            ("/", "Bearer free-1", Outcome::Allowed),
            ("/", "Bearer free-1", Outcome::ShadowLimited),
            ("/analytics", "Bearer free-1", Outcome::NotInPlan),
            ("/", "Bearer x", Outcome::UnknownKey),
            ("/", "Bearer x,Bearer y", Outcome::UnknownKey),
        ];
        for (path, authorization, outcome) in steps {
            let verdict = filter.send("GET", path, authorization);
            assert!(verdict.reply.is_none(), "{path} {authorization}");
            assert_eq!(verdict.outcomes.as_slice(), [outcome], "{path} {authorization}");
        }
    }

    #[test]
    fn what_cannot_be_counted_goes_by_on_error() {
        for (on_error, expected) in [("allow", 0), ("deny", 503)] {
            let mut filter = Filter::with(&format!(r#""on_error": "{on_error}""#));
            filter.host.fails = true;
            for authorization in ["Bearer free-1", "Bearer x", ""] {
                let verdict = filter.send("GET", "/", authorization);
                assert_eq!(status(&verdict), expected, "{on_error} {authorization}");
                assert_eq!(verdict.outcomes.as_slice(), [Outcome::Error]);
            }
            let no_headers = filter.limiter.decide(&mut filter.host, &[]);
            assert_eq!(status(&no_headers), expected);
            filter.host.fails = false;
            assert_eq!(filter.send("GET", "/", "Bearer free-1").outcomes.as_slice(), [Outcome::Allowed]);
        }
    }

    #[test]
    fn more_keys_than_are_remembered_are_still_found() {
        let mut filter = Filter::with("");
        for number in 0..=REMEMBERED_KEYS {
            filter.limiter.remembered.insert(number as u128, Place::Configuration(usize::MAX));
        }
        for _ in 0..2 {
            assert_eq!(filter.send("GET", "/", "Bearer pro").outcomes.as_slice(), [Outcome::Allowed]);
        }
        assert_eq!(filter.limiter.remembered.len(), 1);
    }

    #[test]
    fn trusted_metadata_says_who_is_calling_and_on_which_plan() {
        let mut filter = Filter::with(
            r#""key_sources": [{"metadata": ["jwt", "sub"]}], "plan_source": {"metadata": ["jwt", "plan"]}"#,
        );
        let steps = [
            (Some("alice"), Some("free"), Outcome::Allowed),
            (Some("alice"), Some("free"), Outcome::Allowed),
            (Some("alice"), Some("free"), Outcome::Limited),
            (Some("bob"), Some("free"), Outcome::Allowed),
            (Some("alice"), Some("pro"), Outcome::Allowed), // what was used stays used: one of three is left
            (Some("alice"), Some("pro"), Outcome::Limited),
            (Some("alice"), Some("gold"), Outcome::UnknownKey),
            (Some("alice"), None, Outcome::UnknownKey),
            (Some("free-1"), Some("pro"), Outcome::Allowed), // a subscriber of the configuration keeps its plan
            (None, Some("pro"), Outcome::MissingKey),
        ];
        for (subject, plan, outcome) in steps {
            (filter.host.subject, filter.host.plan) = (subject, plan);
            let verdict = filter.send("GET", "/", "Bearer ignored");
            assert_eq!(verdict.outcomes.as_slice(), [outcome], "{subject:?} {plan:?}");
            if subject == Some("free-1") {
                assert_eq!(verdict.plan, Some(0));
            }
        }
    }

    #[test]
    fn a_caller_is_told_where_it_stands_free_of_charge_and_a_stranger_is_not() {
        let mut filter = Filter::with(
            r#""usage_path": "/quota", "unknown_key": {"action": "limit", "quotas": ["1/minute"]}, "missing_key": {"action": "pass"}"#,
        );
        filter.send("GET", "/links", "Bearer free-1");
        let bodies = [(); 3].map(|()| {
            let verdict = filter.send("GET", "/quota", "Bearer free-1");
            let reply = verdict.reply.unwrap();
            assert_eq!((reply.status, verdict.outcomes.as_slice()), (200, &[Outcome::Exempt][..]));
            assert!(verdict.report.is_none());
            reply.body
        });
        assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
        insta::assert_snapshot!(bodies[0], @r#"{"plan":"free","classes":[{"name":"analytics","included":false,"unlimited":false,"cost":1,"quotas":[]},{"name":"standard","included":true,"unlimited":false,"cost":1,"quotas":[{"name":"standard","limit":2,"window":60,"remaining":1,"reset":120}]}]}"#);
        let steps = [
            ("GET", "Bearer nobody", 401),
            ("GET", "Bearer nobody", 429),
            ("GET", "", 401),
            ("HEAD", "Bearer free-1", 200),
            ("POST", "Bearer free-1", 0),
        ];
        for (method, authorization, expected) in steps {
            let verdict = filter.send(method, "/quota?x", authorization);
            assert_eq!(status(&verdict), expected, "{method} {authorization}");
        }
    }

    #[test]
    fn unknown_keys_wait_for_the_directory_as_configured_and_then_it_knows_them() {
        use crate::roster::{RosterBuilder, Terms};
        for (not_ready, before) in [("pass", 0), ("unavailable", 503)] {
            let mut filter = Filter::with(&format!(
                r#""unknown_key": {{"action": "reject"}}, "directory": {{"cluster": "c", "path": "/k", "not_ready": "{not_ready}"}}"#
            ));
            let mut roster = RosterBuilder::default();
            for (key, plan) in [("new", "pro"), ("odd", "gold")] {
                let terms = Terms { plan: plan.to_owned(), limits: Vec::new() };
                roster.add(digest(key.as_bytes()), key, terms).unwrap();
            }
            let directory = Subscribers::new(Arc::new(roster.build().0), &filter.limiter.config().catalog);
            assert_eq!(directory.without_agreement(), 1);
            let mut ask = |directory: Option<Subscribers>| {
                filter.limiter.set_directory(directory.map(Arc::new));
                ["new", "odd", "free-1"].map(|key| status(&filter.send("GET", "/", &format!("Bearer {key}"))))
            };
            assert_eq!(ask(None), [before, before, 0], "{not_ready}");
            assert_eq!(ask(Some(directory)), [0, 401, 0], "{not_ready}");
            assert_eq!(ask(None), [before, before, 429], "{not_ready}");
        }
    }

    #[test]
    fn an_endpoint_is_classed_below_the_base_path_only() {
        let mut filter = Filter::with(r#""base_path": "/v1""#);
        let rows = [
            ("/v1/analytics", Outcome::NotInPlan),
            ("/v1/./analytics?x", Outcome::NotInPlan),
            ("/v1/r/x", Outcome::Exempt),
            ("/analytics", Outcome::Allowed),
            ("/r/x", Outcome::Allowed),
            ("/v10/analytics", Outcome::Limited),
        ];
        for (path, outcome) in rows {
            assert_eq!(filter.send("GET", path, "Bearer free-1").outcomes.as_slice(), [outcome], "{path}");
        }
    }
}
