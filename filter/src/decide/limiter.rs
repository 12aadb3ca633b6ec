//! The way of a request through the filter: read its line, route it, find its account, charge it, decide.

use std::sync::Arc;

use super::account::Accounts;
use super::counting::{Context, Counting, DecideError};
use super::decision::{Answer, Decided, Scope};
use super::host::Host;
use super::outcome::Outcome;
use super::refusal::Refusal;
use super::usage::Subscriber;
use super::view::Stop;
use crate::config::{ADDRESS_CLASS, Config, Rule, StrangerPolicy, digest};
use crate::count::fingerprint::CallerHash;
use crate::count::shared_data::HostError;
use crate::directory::{Keys, Listed, News, Readiness};
use crate::event::Event;
use crate::request::identity::{Credential, credential, is_respelled, text_of_metadata};
use crate::request::line::{KeyLine, LineReader, RequestLine};
use crate::request::readings::AmbiguousPath;

/// The class under which addresses are counted while the directory has not answered. They have a count of their own, because most of these
/// clients have a key that is known later.
const NOT_READY_CLASS: &str = "not-ready";

/// The path and query as the client sent them, in ngx_wasm_module: there, `:path` is decoded and normalised, while nginx may send on what it
/// got.
pub(super) const SENT_PATH: &[u8] = b"ngx\0request_uri";

/// Pairs of headers that ngx_wasm_module hands over at most. A request with as many may have a key behind them.
const MOST_PAIRS_IN_NGINX: usize = 100;

/// Decides on requests by one configuration, within one VM.
#[derive(Debug)]
pub struct Limiter {
    config: Arc<Config>,
    reader: LineReader,
    /// The keys of the directory, if there is one.
    directory: Option<Keys>,
    accounts: Accounts,
    counting: Counting,
    /// Whether the host has [`SENT_PATH`]; `None` until a request has asked.
    has_sent_path: Option<bool>,
}

/// What deciding works with: the host, and the parts of a limiter, each borrowed apart.
pub(super) struct Decider<'a, H> {
    pub(super) context: Context<'a, H>,
    pub(super) directory: &'a mut Option<Keys>,
    accounts: &'a mut Accounts,
    has_sent_path: &'a mut Option<bool>,
}

/// A request with its caller's key, or without one.
struct Keyed<'r> {
    line: &'r RequestLine<'r>,
    /// Whether the caller asks where it stands.
    asks_usage: bool,
    /// Then, whose use the answer counts, once the ledger has been asked.
    scope: Option<Scope>,
}

/// How to decide on the request of somebody without a known key.
struct Stranger<'c> {
    policy: &'c StrangerPolicy,
    /// The class under which its address is counted.
    class: &'static str,
    outcome: Outcome,
    refusal: Refusal,
}

impl Limiter {
    /// A limiter that has not touched the host yet.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        let settings = &config.settings;
        Self {
            reader: LineReader::new(&config.key_sources).strict(settings.strict_headers),
            directory: settings.directory.as_ref().map(|of| Keys::new(of, &settings.namespace)),
            accounts: Accounts::default(),
            counting: Counting::new(&config),
            has_sent_path: None,
            config,
        }
    }

    /// What counting works with.
    pub(super) fn context<'a, H>(&'a mut self, host: &'a mut H) -> Context<'a, H> {
        Context { host, config: &self.config, counting: &mut self.counting }
    }

    /// What deciding works with, and what reads requests.
    pub(super) fn decider<'a, H>(&'a mut self, host: &'a mut H) -> (Decider<'a, H>, &'a LineReader) {
        let Self { config, reader, directory, accounts, counting, has_sent_path } = self;
        (Decider { context: Context { host, config, counting }, directory, accounts, has_sent_path }, reader)
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(super) fn counting(&self) -> &Counting {
        &self.counting
    }

    pub(super) fn counting_mut(&mut self) -> &mut Counting {
        &mut self.counting
    }

    /// Looks whether the directory's list has changed since the last time. What is remembered of callers is then read again, when they call.
    /// Returns what is to be logged.
    ///
    /// # Errors
    /// If a host call fails. What was known stays known.
    pub fn look_at_directory(&mut self, host: &mut impl Host) -> Result<Option<News>, HostError> {
        let before = self.directory.as_ref().map(Keys::readiness);
        self.decider(host).0.look_at_directory()?;
        let readiness = self.directory.as_ref().map(Keys::readiness).filter(|now| Some(*now) != before);
        Ok(readiness.and_then(News::of_readiness))
    }

    /// Gives back the memory of what only makes requests cheaper: callers, and what was written to shared data last. A request finds it out
    /// again.
    pub fn retire(&mut self) {
        self.accounts.clear();
        self.counting.retire();
    }

    /// Takes over what a configuration that ends has not stated to the ledger yet, and what it has not reported. Whether it counts in the same
    /// namespace.
    pub fn take_over(&mut self, ended: &mut Self) -> bool {
        let is_same = self.config.settings.namespace == ended.config.settings.namespace;
        if is_same {
            self.counting.take_over(&mut ended.counting);
        }
        is_same
    }

    /// Adds to the sums of events, in the order of [`Event::ALL`].
    pub fn count(&mut self, events: [u32; Event::ALL.len()]) {
        self.counting.events.add_all(events);
    }

    /// Takes the sums of events since the last time, in the order of [`Event::ALL`].
    pub fn drain_events(&mut self, host: &mut impl Host) -> [u32; Event::ALL.len()] {
        self.counting.drain(host)
    }

    /// Decides on a request. `headers` is its header map as `proxy_get_header_map_pairs` serializes it. `decided` is in the initial state; it is
    /// filled in place, because moving it would cost as much as looking up a caller.
    pub fn decide(&mut self, host: &mut impl Host, headers: &[u8], decided: &mut Decided) {
        let (mut decider, reader) = self.decider(host);
        decider.decide(decided, reader.read(headers).as_ref());
    }
}

impl<H: Host> Decider<'_, H> {
    fn decide(&mut self, decided: &mut Decided, line: Option<&RequestLine<'_>>) {
        let config = self.context.config;
        decided.class = config.catalog.default_class;
        if let Some(operators) = &config.settings.operators {
            decided.answer = Some(self.answer_operator(operators, line, None));
            return;
        }
        let result = line.ok_or(DecideError::NoHeaders).and_then(|line| self.decide_line(decided, line));
        if let Err(error) = result {
            self.context.log_error("a request could not be counted", error);
            decided.fail(config);
        }
    }

    fn decide_line(&mut self, decided: &mut Decided, line: &RequestLine<'_>) -> Result<(), DecideError> {
        decided.is_grpc = line.is_grpc;
        decided.has_origin = line.origin.is_some();
        match *self.has_sent_path {
            Some(false) => self.decide_as_sent(decided, line),
            Some(true) | None => self.decide_in_nginx(decided, line),
        }
    }

    /// Decides on a request in nginx, or on the first one of a VM, which finds out where it is.
    #[cold]
    fn decide_in_nginx(&mut self, decided: &mut Decided, line: &RequestLine<'_>) -> Result<(), DecideError> {
        let sent = self.context.host.property(SENT_PATH)?;
        self.has_sent_path.get_or_insert(sent.is_some());
        if sent.is_some() && line.headers.iter().count() >= MOST_PAIRS_IN_NGINX {
            decided.refuse(self.context.config, Outcome::UnknownKey, Refusal::TooManyHeaders);
            if decided.answer.is_some() {
                return Ok(());
            }
        }
        self.decide_as_sent(decided, &RequestLine { path: sent.as_deref().or(line.path), ..*line })
    }

    /// Decides on a request whose path is as the client sent it.
    fn decide_as_sent(&mut self, decided: &mut Decided, line: &RequestLine<'_>) -> Result<(), DecideError> {
        let rule = self.context.config.rule(line.method, line.path);
        match rule {
            Ok(Rule::Exempt) => {
                decided.pass(Outcome::Exempt);
                return Ok(());
            }
            Ok(Rule::Class(class)) => decided.class = class,
            Ok(Rule::Usage) => {}
            Err(AmbiguousPath) => {
                decided.refuse(self.context.config, Outcome::AmbiguousPath, Refusal::AmbiguousPath);
                if decided.answer.is_some() {
                    return Ok(());
                }
            }
        }
        let keyed = Keyed { line, asks_usage: rule == Ok(Rule::Usage), scope: None };
        self.decide_for(decided, &keyed)
    }

    fn decide_for(&mut self, decided: &mut Decided, keyed: &Keyed<'_>) -> Result<(), DecideError> {
        if let KeyLine::One { source, value } = keyed.line.key
            && let Some(counters) = self.context.counting.counters()
        {
            let caller = counters.salt().caller_hash(source, value, decided.class);
            let under = self.accounts.under();
            if !keyed.asks_usage
                && let Some(account) = self.accounts.get(caller)
                && account.under == under
            {
                return self.context.charge_account(decided, account);
            }
        }
        self.decide_for_caller(decided, keyed)
    }

    /// Decides on a request of somebody who has to be found out first. Apart, so that the way of nearly all requests is short in the
    /// module, too: with a cold cache each line of code counts.
    #[cold]
    fn decide_for_caller(&mut self, decided: &mut Decided, keyed: &Keyed<'_>) -> Result<(), DecideError> {
        let config = self.context.config;
        let credential = match keyed.line.key {
            KeyLine::None => Credential::Missing,
            KeyLine::One { .. } | KeyLine::Several => {
                let property = |path: &[u8]| self.context.host.property(path);
                credential(&config.key_sources, keyed.line.headers, keyed.line.path, property)?
            }
        };
        self.look_for_the_first_time()?;
        let unknown = Stranger {
            policy: &config.unknown_key,
            class: ADDRESS_CLASS,
            outcome: Outcome::UnknownKey,
            refusal: Refusal::UnknownKey,
        };
        if config.settings.strict_headers
            && is_respelled(&config.key_sources, keyed.line.headers, keyed.line.path)
        {
            let (policy, refusal) = (&StrangerPolicy::Refuse, Refusal::RespelledKey);
            return self.decide_for_stranger(decided, keyed, Stranger { policy, refusal, ..unknown });
        }
        match credential {
            Credential::Unreadable(source) => {
                self.context.log_unreadable(&format!("key_sources: the value of {source}"));
                self.decide_for_stranger(decided, keyed, unknown)
            }
            Credential::Key(key) => self.decide_for_key(decided, keyed, &key, unknown),
            Credential::Missing => {
                let (outcome, refusal) = (Outcome::MissingKey, Refusal::MissingKey);
                let missing = Stranger { policy: &config.missing_key, outcome, refusal, ..unknown };
                self.decide_for_stranger(decided, keyed, missing)
            }
            Credential::Ambiguous => {
                let (policy, refusal) = (&StrangerPolicy::Refuse, Refusal::AmbiguousKey);
                self.decide_for_stranger(decided, keyed, Stranger { policy, refusal, ..unknown })
            }
        }
    }

    fn decide_for_key(
        &mut self,
        decided: &mut Decided,
        keyed: &Keyed<'_>,
        key: &[u8],
        unknown: Stranger<'_>,
    ) -> Result<(), DecideError> {
        let config = self.context.config;
        let salt = *self.context.open()?.salt();
        let mut remembered_by = match keyed.line.key {
            KeyLine::One { source, value } => salt.caller_hash(source, value, decided.class),
            KeyLine::None | KeyLine::Several => {
                salt.caller_hash(config.key_sources.len(), key, decided.class)
            }
        };
        let (mut listed, mut of_plan) = (None, None);
        if self.charge_remembered(decided, keyed, remembered_by, &mut listed)? {
            return Ok(());
        }
        if let Some(source) = &config.settings.plan_source {
            let plan = self.context.host.property(&source.metadata.0)?.unwrap_or_default();
            let plan = text_of_metadata(plan).unwrap_or_else(|| {
                let path = String::from_utf8_lossy(&source.metadata.0).replace('\0', ".");
                self.context.log_unreadable(&format!("plan_source: the value of metadata {path}"));
                Vec::new()
            });
            // Another place than any key's.
            let caller = salt.caller_hash(config.key_sources.len() + 1, &plan, decided.class);
            let caller = remembered_by.with(caller);
            if self.charge_remembered(decided, keyed, caller, &mut listed)? {
                return Ok(());
            }
            of_plan = Some((plan, caller));
        }
        let key = digest(key);
        let own = config.subscribers.get(&key);
        if let (None, None, Some(directory)) = (own, &listed, &*self.directory) {
            listed = Some(directory.find(self.context.host, &config.catalog, &key)?);
        }
        let known = own.or_else(|| listed.as_ref()?.known());
        let subscriber = match (known, &of_plan) {
            (Some((known, agreement)), _) => Some(Subscriber::of_agreement(config, known, agreement)),
            (None, Some((plan, caller))) => {
                remembered_by = *caller;
                Subscriber::of_plan(config, &key, plan)
            }
            (None, None) => None,
        };
        let Some(subscriber) = subscriber else {
            let stranger = match &config.not_ready {
                Some(policy) if self.awaits_directory() => {
                    let (outcome, refusal) = (Outcome::NotReady, Refusal::NotReady);
                    Stranger { policy, class: NOT_READY_CLASS, outcome, refusal }
                }
                _ => unknown,
            };
            return self.decide_for_stranger(decided, keyed, stranger);
        };
        if keyed.asks_usage {
            decided.subscriber = subscriber.id.map(Arc::from);
            let answer = self.context.answer_usage(subscriber, keyed.scope).or_else(Stop::answer)?;
            if !matches!(*answer, Answer::Later(_)) {
                decided.pass(Outcome::Exempt);
            }
            decided.answer = Some(answer);
            return Ok(());
        }
        let row = listed.as_ref().map(|listed| Arc::clone(&listed.row));
        let account = self.context.account(&subscriber, decided.class, (&key, row))?;
        let account = self.accounts.insert(remembered_by, account);
        self.context.charge_account(decided, account)
    }

    /// Looks whether the directory's list has changed.
    fn look_at_directory(&mut self) -> Result<(), HostError> {
        let Some(directory) = &mut *self.directory else { return Ok(()) };
        let now = self.context.host.now()?;
        if directory.look(self.context.host, now)? {
            self.accounts.doubt();
        }
        Ok(())
    }

    /// The same at the first request of a VM that has not ticked yet.
    pub(super) fn look_for_the_first_time(&mut self) -> Result<(), HostError> {
        match &*self.directory {
            Some(directory) if directory.view().is_none() => self.look_at_directory(),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a key that is not known may become so.
    pub(super) fn awaits_directory(&self) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.readiness() != Readiness::Complete)
    }

    /// Goes on with the request of a caller that asks where it stands, once the ledger has been asked.
    pub(super) fn go_on_with_usage(
        &mut self,
        decided: &mut Decided,
        line: &RequestLine<'_>,
        scope: Option<Scope>,
    ) -> Result<(), DecideError> {
        self.decide_for_caller(decided, &Keyed { line, asks_usage: true, scope })
    }

    /// Charges the request if its caller is remembered. If the directory's list has changed since, the caller's row is read
    /// again; `listed` takes one that says something else.
    fn charge_remembered(
        &mut self,
        decided: &mut Decided,
        keyed: &Keyed<'_>,
        caller: CallerHash,
        listed: &mut Option<Box<Listed>>,
    ) -> Result<bool, DecideError> {
        let under = self.accounts.under();
        let Some(account) = self.accounts.get(caller).filter(|_| !keyed.asks_usage) else {
            return Ok(false);
        };
        if account.under != under
            && let (Some(row), Some(directory)) = (&account.row, &*self.directory)
            && let Some(now) = directory.find_again(self.context.host, &self.context.config.catalog, row)?
        {
            *listed = Some(now);
            self.accounts.remove(caller);
            return Ok(false);
        }
        account.under = under;
        self.context.charge_account(decided, account).map(|()| true)
    }

    fn decide_for_stranger(
        &mut self,
        decided: &mut Decided,
        keyed: &Keyed<'_>,
        stranger: Stranger<'_>,
    ) -> Result<(), DecideError> {
        let Stranger { policy, class, outcome, refusal } = stranger;
        match policy {
            StrangerPolicy::Pass => decided.pass(outcome),
            StrangerPolicy::Refuse => decided.refuse(self.context.config, outcome, refusal),
            StrangerPolicy::Limit(quotas) => {
                self.context.charge_address(decided, quotas, class)?;
                decided.pass(outcome);
            }
        }
        if !keyed.asks_usage {
            self.context.measure_stranger(decided);
        } else if decided.answer.is_none() {
            decided.answer = Some(Box::new(Answer::Refused(Refusal::UnknownKey)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
