//! Answering operators by the counters that the filter on the public listener keeps.

use std::collections::BTreeSet;

use serde::Serialize;

use super::counting::{Context, DecideError};
use super::decision::{Answer, Awaited, Scope, Wait};
use super::host::{Host, LogLevel};
use super::json;
use super::limiter::Decider;
use super::operators::Call;
use super::refusal::Refusal;
use super::usage::{Subscriber, Usage};
use super::view::{Known, Stop};
use crate::config::{Config, CountBy, OperatorSettings, hex};
use crate::count::charge::SharedName;
use crate::count::fingerprint::Who;
use crate::directory::Listed;
use crate::fleet::client::MOST_STATEMENTS;
use crate::quota::{Mode, Quota};
use crate::request::line::RequestLine;

/// Most keys of a subscriber that an answer lists. Reading the counters of more would hold up the worker.
const MAX_KEYS: usize = 100;

/// Digits of a key's SHA-256 in the audit line.
const KEY_DIGITS: usize = 8;

/// Where a subscriber stands: each of its keys or, if they share their quotas, all of them. `GET` and `POST …/reset` answer it.
#[derive(Serialize)]
struct State<'a> {
    subscriber: &'a str,
    /// In a fleet, whose use is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Scope>,
    counters: Vec<Usage<'a>>,
    /// Keys of the subscriber beyond those that are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<usize>,
}

/// The line that the log has of a reset.
#[derive(Serialize)]
struct Audit<'a> {
    operator: &'a str,
    action: &'a str,
    subscriber: &'a str,
    /// The organisation, if the quota is one that it shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    organisation: Option<&'a str>,
    /// The first digits of the key's SHA-256.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    class: &'a str,
    quota: &'a str,
    limit: u32,
    used_before: u32,
    used_after: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
}

impl<'a, H: Host> Decider<'a, H> {
    /// Answers a request to the operators' listener. None is passed on. In a fleet, `known` is what the ledger has told since the request came.
    #[cold]
    pub(super) fn answer_operator(
        &mut self,
        operators: &OperatorSettings,
        line: Option<&RequestLine<'_>>,
        known: Option<Known>,
    ) -> Box<Answer> {
        self.operate(operators, line, known).or_else(Stop::answer).unwrap_or_else(|error| {
            self.context.log_error("an operator could not be answered", error);
            Box::new(Answer::Refused(Refusal::NoCounters))
        })
    }

    fn operate(
        &mut self,
        operators: &OperatorSettings,
        line: Option<&RequestLine<'_>>,
        known: Option<Known>,
    ) -> Result<Box<Answer>, Stop> {
        let config = self.context.config;
        let call = Call::read(operators, line.ok_or(DecideError::NoHeaders)?.headers)?;
        let customers = self.customers(&call.subscriber)?;
        let owners = self.owners(&customers, &call)?;
        let reset = call.reset.as_ref().map(|(class, quota)| quota_named(config, &owners, class, quota));
        let reset = reset.transpose()?;
        self.context.open()?;
        if self.context.host.is_of_vm() {
            return Err(Refusal::NoSharedData.into());
        }
        let (listed, omitted) = owners.split_at(listed(config, &owners));
        let scope = match known {
            None => self.context.look(listed)?,
            Some(Known::View(scope) | Known::Reset(scope, true)) => Some(scope),
            Some(Known::Reset(_, false)) => return Err(Refusal::ResetHere.into()),
        };
        if let Some(reset) = &reset
            && !matches!(known, Some(Known::Reset(..)))
        {
            self.context.reset(&call, reset, scope)?;
        }
        let mut counters = Vec::new();
        for owner in listed {
            let mut usage = self.context.usage(*owner)?;
            if let Who::Key(key) = owner.who {
                usage.key = Some(format!("sha256:{}", hex(key)));
            }
            counters.push(usage);
        }
        let omitted = Some(omitted.len()).filter(|omitted| *omitted > 0);
        let state = State { subscriber: &call.subscriber, scope, counters, omitted };
        Ok(Answer::document(if reset.is_some() { "weir_reset" } else { "weir_usage" }, &state))
    }

    /// The keys that a subscriber has in the directory, without those that the configuration has itself.
    fn customers(&mut self, subscriber: &str) -> Result<Vec<Listed>, DecideError> {
        self.look_for_the_first_time()?;
        let Context { host, config, .. } = &mut self.context;
        let Some(directory) = &*self.directory else { return Ok(Vec::new()) };
        let mut customers = directory.of_subscriber(*host, &config.catalog, subscriber)?;
        customers
            .retain(|of| of.known().is_some_and(|(key, _)| config.subscribers.get(key.digest).is_none()));
        Ok(customers)
    }

    /// The owners of counters that a call is about; at least one.
    fn owners<'c>(&self, customers: &'c [Listed], call: &Call<'_>) -> Result<Vec<Subscriber<'c>>, Refusal>
    where
        'a: 'c,
    {
        let config = self.context.config;
        let mut keys = config.subscribers.keys_of(&call.subscriber);
        keys.extend(customers.iter().filter_map(Listed::known));
        if keys.is_empty() {
            return Err(match self.awaits_directory() {
                true => Refusal::NoDirectoryYet,
                false => Refusal::NoSubscriber,
            });
        }
        let mut owners = Vec::new();
        for (known, agreement) in keys {
            let owner = Subscriber::of_agreement(config, known, agreement);
            // Keys that share their quotas differ only by their agreement.
            let is_new = config.settings.count_by == CountBy::Key || !owners.contains(&owner);
            if is_new && call.key.is_none_or(|key| key == *known.digest) {
                owners.push(owner);
            }
        }
        if owners.is_empty() { Err(Refusal::NoSuchKey) } else { Ok(owners) }
    }
}

impl<H: Host> Context<'_, H> {
    /// Resets a quota. Stops with the answer for now if the ledger is to know it.
    fn reset(&mut self, call: &Call<'_>, reset: &Reset<'_>, scope: Option<Scope>) -> Result<(), Stop> {
        let Reset { who, class, quota, quotas } = *reset;
        let namespace = &self.config.settings.namespace;
        let (counters, client, host) = self.opened()?;
        let counter = counters.counter(who, class);
        let of_window: Vec<_> = quotas.iter().filter(|other| other.window == quota.window).cloned().collect();
        let (used, later) = match client
            .zip(scope)
            .filter(|(client, _)| quota.window.is_shared() && !client.sharing().in_shadow)
        {
            None => (counters.reset(host, &counter, &of_window, None)?.0, None),
            Some((client, scope)) => {
                if !client.has_place(counter) {
                    return Err(Refusal::NoPlace.into());
                }
                let shared = (SharedName::new(namespace, who, class), client.sharing());
                let (used, statements) = counters.reset(host, &counter, &of_window, Some(shared))?;
                let waiting = client.reset(counters, host, counter, statements)?;
                (used, Some(Wait::new(Awaited::Reset(scope), waiting)))
            }
        };
        host.log(LogLevel::Warn, format_args!("audit {}", json(&Audit::of_reset(call, reset, used))));
        later.map_or(Ok(()), |wait| Err(Stop::Answer(wait.into())))
    }
}

/// How many owners of counters an answer lists: in a fleet, as many as one call can ask about.
fn listed(config: &Config, owners: &[Subscriber<'_>]) -> usize {
    let mut statements = 0;
    let fits = |owner: &&Subscriber<'_>| {
        statements += owner.statements(config);
        config.fleet.is_none() || statements <= MOST_STATEMENTS
    };
    owners.iter().take(MAX_KEYS).take_while(fits).count().max(1).min(owners.len())
}

impl<'a> Audit<'a> {
    fn of_reset(call: &'a Call<'_>, reset: &Reset<'a>, used: u32) -> Self {
        let Reset { who, class, quota, .. } = *reset;
        let (key, organisation) = match who {
            Who::Key(key) => (Some(hex(key).chars().take(KEY_DIGITS).collect()), None),
            Who::Organisation(id) => (None, Some(id)),
            Who::Subscriber(_) | Who::Address(_) => (None, None),
        };
        Self {
            operator: call.operator,
            action: "reset",
            subscriber: &call.subscriber,
            organisation,
            key,
            class,
            quota: &quota.name,
            limit: quota.limit.get(),
            used_before: used,
            used_after: 0,
            request_id: call.request_id.as_deref(),
        }
    }
}

/// A quota to reset.
#[derive(Clone, Copy)]
struct Reset<'c> {
    /// Whose it is: a key's, its subscriber's or its organisation's.
    who: Who<'c>,
    class: &'c str,
    quota: &'c Quota,
    /// All that `who` has in the class.
    quotas: &'c [Quota],
}

/// The enforced quota of this name in the class, as an answer lists it.
fn quota_named<'c>(
    config: &'c Config,
    owners: &[Subscriber<'c>],
    class: &str,
    name: &str,
) -> Result<Reset<'c>, Refusal> {
    let classes = config.catalog.classes.iter().map(|class| &*class.name);
    let Some(index) = classes.clone().position(|known| known == class) else {
        return Err(Refusal::parameter("class", one_of(classes)));
    };
    let granted = owners.iter().filter_map(|owner| Some(owner.quotas(owner.entitlements.get(index)?)));
    let class = config.class_name(index);
    let of = |(who, quotas): (Who<'c>, &'c [Quota])| {
        quotas.iter().map(move |quota| Reset { who, class, quota, quotas })
    };
    let enforced: Vec<_> =
        granted.flatten().flat_map(of).filter(|reset| reset.quota.mode == Mode::Enforced).collect();
    let mut named = enforced.iter().filter(|reset| reset.quota.name == name);
    let Some(reset) = named.next() else {
        let expected = match enforced.as_slice() {
            [] => "another class, because no quota of this class limits the subscriber".to_owned(),
            enforced => one_of(enforced.iter().map(|reset| reset.quota.name.as_str())),
        };
        return Err(Refusal::parameter("quota", expected));
    };
    if named.any(|other| other.who != reset.who) { Err(Refusal::SeveralKeys) } else { Ok(*reset) }
}

fn one_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: BTreeSet<_> = names.collect();
    names.into_iter().collect::<Vec<_>>().join(" or ")
}
