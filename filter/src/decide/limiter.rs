//! The way of a request through the filter: read its line, route it, find its account, charge it, decide.

use std::sync::Arc;

use super::account::{Account, Accounts};
use super::counting::{Context, Counting, DecideError};
use super::decision::{Answer, Decided, Scope};
use super::host::Host;
use super::known::{Customer, DirectoryKeys, Listed};
use super::outcome::Outcome;
use super::refusal::Refusal;
use super::usage::{Subscriber, usage};
use super::view::View;
use crate::config::{ADDRESS_CLASS, Config, Entitlement, Rule, StrangerPolicy, digest};
use crate::count::charge::SharedName;
use crate::count::fingerprint::{CallerHash, ClientAddress, Who};
use crate::count::levels::{Demand, Levels, Others};
use crate::count::shared_data::HostError;
use crate::directory::Readiness;
use crate::event::Event;
use crate::quota::QuotaSet;
use crate::request::identity::{Credential, credential};
use crate::request::line::{KeyLine, LineReader, RequestLine};
use crate::request::readings::AmbiguousPath;

/// The class under which addresses are counted while the directory has not answered. They have a count of their own, because most of these
/// clients have a key that is known later.
const NOT_READY_CLASS: &str = "not-ready";

/// The path as the client sent it, in ngx_wasm_module: there, `:path` is decoded and normalised, while nginx may send on what it got.
const SENT_PATH: &[u8] = b"ngx\0request_uri";

/// Decides on requests by one configuration, within one VM.
#[derive(Debug)]
pub struct Limiter {
    pub(super) config: Arc<Config>,
    reader: LineReader,
    /// The keys of the directory, if there is one.
    pub(super) directory: Option<DirectoryKeys>,
    /// The number of the view of the directory in force.
    under: u32,
    accounts: Accounts,
    pub(super) counting: Counting,
    /// Whether the host has [`SENT_PATH`]; `None` until a request has asked.
    has_sent_path: Option<bool>,
}

/// Who is calling.
enum Caller<'c> {
    /// A key with a plan.
    /// The hash is what its account is remembered by.
    Known(Subscriber<'c>, CallerHash),
    /// An unknown key.
    Unknown,
    /// A key that the directory, which has not answered yet, may know.
    NotYetKnown,
    /// No key.
    Keyless,
    /// Several keys.
    Ambiguous,
}

/// A request with its caller's key, or without one.
struct Keyed<'r> {
    line: &'r RequestLine<'r>,
    class: usize,
    /// Whether the caller asks where it stands.
    asks_usage: bool,
    /// Then, whose use the answer counts, once the ledger has been asked.
    scope: Option<Scope>,
}

impl Limiter {
    /// A limiter that has not touched the host yet.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            reader: LineReader::new(&config.key_sources),
            directory: DirectoryKeys::of(&config),
            under: 0,
            accounts: Accounts::default(),
            counting: Counting::new(&config),
            has_sent_path: None,
            config,
        }
    }

    pub(super) fn context<'a, H>(&'a mut self, host: &'a mut H, config: &'a Config) -> Context<'a, H> {
        Context { host, config, counting: &mut self.counting }
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Looks whether the directory's list has changed since the last time. What is remembered of callers is then read again, when they call.
    /// Returns how far the list can be relied on, if that is news.
    ///
    /// # Errors
    /// If a host call fails. What was known stays known.
    pub fn look_at_directory(&mut self, host: &mut impl Host) -> Result<Option<Readiness>, HostError> {
        let Some(directory) = &mut self.directory else { return Ok(None) };
        let before = directory.readiness();
        if directory.look(host)? {
            self.under = self.under.wrapping_add(1);
        }
        let readiness = directory.readiness();
        Ok(Some(readiness).filter(|readiness| *readiness != before))
    }

    /// The same at the first request of a VM that has not ticked yet.
    pub(super) fn look_for_the_first_time(&mut self, host: &mut impl Host) -> Result<(), HostError> {
        if self.directory.as_ref().is_some_and(|directory| !directory.has_looked()) {
            self.look_at_directory(host)?;
        }
        Ok(())
    }

    /// Gives back the memory of what only makes requests cheaper: callers, and what was written to shared data last. A request finds it out
    /// again.
    pub fn retire(&mut self) {
        self.accounts.clear();
        self.counting.retire();
    }

    /// Takes over what a configuration that ends has not stated to the ledger yet. Whether it counts in the same namespace.
    pub fn take_over(&mut self, ended: &mut Self) -> bool {
        let is_same = self.config.settings.namespace == ended.config.settings.namespace;
        if is_same {
            self.counting.take_over(&mut ended.counting);
        }
        is_same
    }

    /// Adds `times` to the sum of an event.
    pub fn count(&mut self, event: Event, times: usize) {
        self.counting.events.add(event, u32::try_from(times).unwrap_or(u32::MAX));
    }

    /// Takes the sums of events since the last time, in the order of [`Event::ALL`].
    pub fn drain_events(&mut self, host: &mut impl Host) -> [u32; Event::ALL.len()] {
        self.counting.drain(host)
    }

    /// Decides on a request. `headers` is its header map as `proxy_get_header_map_pairs` serializes it. `decided` is in the initial state; it is
    /// filled in place, because moving it would cost as much as looking up a caller.
    pub fn decide(&mut self, host: &mut impl Host, headers: &[u8], decided: &mut Decided) {
        let config = Arc::clone(&self.config);
        decided.class = config.catalog.default_class;
        let line = self.reader.read(headers);
        if let Some(operators) = &config.settings.operators {
            let headers = line.map(|line| line.headers);
            decided.answer = Some(Box::new(self.answer_operator(host, &config, operators, headers, None)));
            return;
        }
        let result = match &line {
            Some(line) => self.decide_line(host, &config, decided, line),
            None => Err(DecideError::NoHeaders),
        };
        if let Err(error) = result {
            self.counting.log_error(host, "a request could not be counted", error);
            decided.fail(&config);
        }
    }

    fn decide_line(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        decided: &mut Decided,
        line: &RequestLine<'_>,
    ) -> Result<(), DecideError> {
        decided.is_grpc = line.is_grpc;
        decided.has_origin = line.origin.is_some();
        let rule = self.route(host, config, line)?;
        match rule {
            Ok(Rule::Exempt) => {
                decided.pass(Outcome::Exempt);
                return Ok(());
            }
            Ok(Rule::Class(class)) => decided.class = class,
            Ok(Rule::Usage) => {}
            Err(AmbiguousPath) => {
                decided.refuse(config, Outcome::AmbiguousPath, Refusal::AmbiguousPath);
                if decided.answer.is_some() {
                    return Ok(());
                }
            }
        }
        let keyed = Keyed { line, class: decided.class, asks_usage: rule == Ok(Rule::Usage), scope: None };
        self.decide_for(host, config, decided, &keyed)
    }

    /// The rule of a request, by its method and path.
    fn route(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        line: &RequestLine<'_>,
    ) -> Result<Result<Rule, AmbiguousPath>, HostError> {
        if !config.looks_at_paths || self.has_sent_path == Some(false) {
            return Ok(config.rule(line.method, line.path));
        }
        let sent = host.property(SENT_PATH)?;
        self.has_sent_path.get_or_insert(sent.is_some());
        Ok(config.rule(line.method, sent.as_deref().or(line.path)))
    }

    fn decide_for(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        decided: &mut Decided,
        keyed: &Keyed<'_>,
    ) -> Result<(), DecideError> {
        if let KeyLine::One { source, value } = keyed.line.key
            && let Some(counters) = self.counting.counters()
        {
            let caller = counters.salt().caller_hash(source, value, keyed.class);
            if !keyed.asks_usage
                && let Some(account) = self.accounts.get(caller)
                && account.under == self.under
            {
                return Context { host, config, counting: &mut self.counting }
                    .charge_account(decided, account);
            }
        }
        self.decide_for_caller(host, config, decided, keyed)
    }

    /// Decides on a request of somebody who has to be found out first. Apart, so that the way of nearly all requests is short in the
    /// module, too: with a cold cache each line of code counts.
    #[cold]
    fn decide_for_caller(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        decided: &mut Decided,
        keyed: &Keyed<'_>,
    ) -> Result<(), DecideError> {
        let credential = match keyed.line.key {
            KeyLine::None => Credential::Missing,
            KeyLine::One { .. } | KeyLine::Several => {
                credential(&config.key_sources, keyed.line.headers, |path| host.property(path))?
            }
        };
        self.look_for_the_first_time(host)?;
        let (key_digest, mut plan_name);
        let mut listed = None;
        let caller = match credential {
            Credential::Missing => Caller::Keyless,
            Credential::Ambiguous => Caller::Ambiguous,
            Credential::Key(key) => {
                let salt = *self.context(host, config).open()?.salt();
                let mut remembered_by = match keyed.line.key {
                    KeyLine::One { source, value } => salt.caller_hash(source, value, keyed.class),
                    _ => salt.caller_hash(config.key_sources.len(), &key, keyed.class),
                };
                if self.charge_remembered(host, config, decided, keyed, remembered_by, &mut listed)? {
                    return Ok(());
                }
                plan_name = None;
                if let Some(source) = &config.settings.plan_source {
                    let name = host.property(&source.metadata.0)?.unwrap_or_default();
                    // Another place than any key's.
                    let with_plan = salt.caller_hash(config.key_sources.len() + 1, &name, keyed.class);
                    let with_plan = remembered_by.with(with_plan);
                    if self.charge_remembered(host, config, decided, keyed, with_plan, &mut listed)? {
                        return Ok(());
                    }
                    plan_name = Some((name, with_plan));
                }
                key_digest = digest(&key);
                let own = config.subscribers.get(&key_digest);
                if let (None, None, Some(directory)) = (own, &listed, &self.directory) {
                    listed = Some(directory.listed(host, config, &key_digest)?);
                }
                let customer = listed.as_ref().and_then(|listed| listed.customer.as_ref());
                let known = own.or_else(|| customer.map(Customer::known));
                let subscriber = match (known, plan_name.as_ref()) {
                    (Some((known, agreement)), _) => Some(Subscriber::of_agreement(config, known, agreement)),
                    (None, Some((name, with_plan))) => {
                        remembered_by = *with_plan;
                        Subscriber::of_plan(config, &key_digest, name)
                    }
                    (None, None) => None,
                };
                match subscriber {
                    Some(subscriber) => Caller::Known(subscriber, remembered_by),
                    None if self.directory.as_ref().is_some_and(|directory| !directory.is_complete()) => {
                        Caller::NotYetKnown
                    }
                    None => Caller::Unknown,
                }
            }
        };
        match caller {
            Caller::Known(subscriber, _) if keyed.asks_usage => {
                decided.subscriber = subscriber.id.map(Arc::from);
                let answer = self.answer_usage(host, config, subscriber, keyed.scope)?;
                if !matches!(answer, Answer::Later(_)) {
                    decided.pass(Outcome::Exempt);
                }
                decided.answer = Some(Box::new(answer));
                return Ok(());
            }
            Caller::Known(subscriber, remembered_by) => {
                let mut account = self.account(host, config, &subscriber, keyed.class)?;
                account.of_row = listed.map(|listed| listed.row);
                self.accounts.insert(remembered_by, account.clone());
                return self.context(host, config).charge_account(decided, &account);
            }
            Caller::Ambiguous => decided.refuse(config, Outcome::UnknownKey, Refusal::AmbiguousKey),
            Caller::NotYetKnown => {
                let policy = config.not_ready.as_ref().unwrap_or(&config.unknown_key);
                let refusal = (Outcome::NotReady, Refusal::NotReady);
                self.decide_stranger(host, config, decided, policy, NOT_READY_CLASS, refusal)?;
            }
            Caller::Unknown => {
                let refusal = (Outcome::UnknownKey, Refusal::UnknownKey);
                self.decide_stranger(host, config, decided, &config.unknown_key, ADDRESS_CLASS, refusal)?;
            }
            Caller::Keyless => {
                let refusal = (Outcome::MissingKey, Refusal::MissingKey);
                self.decide_stranger(host, config, decided, &config.missing_key, ADDRESS_CLASS, refusal)?;
            }
        }
        if keyed.asks_usage && decided.answer.is_none() {
            decided.answer = Some(Box::new(Answer::Refused(Refusal::UnknownKey)));
        }
        Ok(())
    }

    /// Where a caller stands. In a fleet the ledger is asked first, and `scope` then says what came of it.
    fn answer_usage(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        subscriber: Subscriber<'_>,
        scope: Option<Scope>,
    ) -> Result<Answer, DecideError> {
        let scope = match scope {
            Some(_) => scope,
            None => match self.context(host, config).look(&[subscriber])? {
                View::Seen(scope) => scope,
                View::Not(answer) => return Ok(answer),
            },
        };
        let mut context = self.context(host, config);
        let (counters, _, host) = context.opened()?;
        let mut usage = usage(counters, host, config, subscriber)?;
        usage.scope = scope;
        Ok(Answer::document("weir_usage", &usage))
    }

    /// Goes on with the request of a caller that asks where it stands, once the ledger has been asked.
    pub(super) fn go_on_with_usage(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        headers: &[u8],
        decided: &mut Decided,
        scope: Option<Scope>,
    ) -> Result<(), DecideError> {
        let line = self.reader.read(headers).ok_or(DecideError::NoHeaders)?;
        let keyed = Keyed { line: &line, class: decided.class, asks_usage: true, scope };
        self.decide_for_caller(host, config, decided, &keyed)
    }

    /// Charges the request if its caller is remembered. If the directory's list has changed since, the caller's row is read
    /// again; `listed` takes one that says something else.
    fn charge_remembered(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        decided: &mut Decided,
        keyed: &Keyed<'_>,
        caller: CallerHash,
        listed: &mut Option<Box<Listed>>,
    ) -> Result<bool, DecideError> {
        let Some(account) = self.accounts.get(caller).filter(|_| !keyed.asks_usage) else {
            return Ok(false);
        };
        if account.under != self.under
            && let (Some(row), Some(directory)) = (&account.of_row, &self.directory)
            && let Some(now) = directory.listed_again(host, config, row)?
        {
            *listed = Some(now);
            self.accounts.remove(caller);
            return Ok(false);
        }
        account.under = self.under;
        Context { host, config, counting: &mut self.counting }.charge_account(decided, account).map(|()| true)
    }

    fn account(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        subscriber: &Subscriber<'_>,
        class: usize,
    ) -> Result<Account, DecideError> {
        let under = self.under;
        let mut context = self.context(host, config);
        let counters = context.open()?;
        let name = config.class_name(class);
        let organisation = subscriber.organisation.map(Who::Organisation);
        let names = config.fleet.filter(|sharing| !sharing.in_shadow).map(|_| {
            [subscriber.who, organisation.unwrap_or(subscriber.who)]
                .map(|who| SharedName::new(&config.settings.namespace, who, name))
        });
        let others = Others { organisation: organisation.map(|who| counters.counter(who, name)), names };
        let own = counters.counter(subscriber.who, name);
        Ok(Account {
            plan: subscriber.plan,
            subscriber: subscriber.id.map(Arc::from),
            entitlement: subscriber.entitlements.get(class).cloned().unwrap_or(Entitlement::NotInPlan),
            levels: Levels {
                own,
                others: (organisation.is_some() || names.is_some()).then(|| Arc::new(others)),
            },
            of_row: None,
            under,
        })
    }

    fn decide_stranger(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        decided: &mut Decided,
        policy: &StrangerPolicy,
        class: &str,
        (outcome, refusal): (Outcome, Refusal),
    ) -> Result<(), DecideError> {
        match policy {
            StrangerPolicy::Pass => {
                decided.pass(outcome);
                Ok(())
            }
            StrangerPolicy::Refuse => {
                decided.refuse(config, outcome, refusal);
                Ok(())
            }
            StrangerPolicy::Limit(quotas) => {
                self.charge_address(host, config, decided, quotas, class, outcome)
            }
        }
    }

    /// Charges a request to the quotas of its client's address. It costs one unit, whatever its class.
    fn charge_address(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        decided: &mut Decided,
        quotas: &Arc<QuotaSet>,
        class: &str,
        outcome: Outcome,
    ) -> Result<(), DecideError> {
        let address = host.property(b"source\0address")?.unwrap_or_default();
        let who = Who::Address(ClientAddress::parse(&address, config.settings.ipv6_prefix.0));
        let mut context = self.context(host, config);
        let own = context.open()?.counter(who, class);
        let demand = Demand { quotas: Arc::clone(quotas), levels: Levels { own, others: None }, cost: 1 };
        context.charge_demand(decided, demand, true)?;
        decided.pass(outcome);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
