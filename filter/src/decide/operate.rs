//! Answering operators by the counters that the filter on the public listener keeps.

use std::collections::BTreeSet;

use serde::Serialize;

use super::counting::DecideError;
use super::decision::Answer;
use super::host::{Host, LogLevel};
use super::json;
use super::limiter::Limiter;
use super::operators::Call;
use super::refusal::Refusal;
use super::usage::{Subscriber, Usage, usage};
use crate::config::{Config, CountBy, Entitlement, OperatorSettings, Subscribers, hex};
use crate::count::fingerprint::Who;
use crate::quota::{Mode, Quota};
use crate::request::header_pairs::HeaderPairs;

/// Most keys of a subscriber that an answer lists. Reading the counters of more would hold up the worker.
const MAX_KEYS: usize = 100;

/// Digits of a key's SHA-256 in the audit line.
const KEY_DIGITS: usize = 8;

/// Where a subscriber stands: each of its keys or, if they share their quotas, all of them. `GET` and `POST …/reset` answer it.
#[derive(Serialize)]
struct State<'a> {
    subscriber: &'a str,
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

impl Limiter {
    /// Answers a request to the operators' listener. None is passed on.
    #[cold]
    pub(super) fn answer_operator(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        operators: &OperatorSettings,
        headers: Option<HeaderPairs<'_>>,
    ) -> Answer {
        self.operate(host, config, operators, headers).unwrap_or_else(|error| {
            self.counting.log_error(host, "an operator could not be answered", error);
            Answer::Refused(Refusal::NoCounters)
        })
    }

    fn operate(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        operators: &OperatorSettings,
        headers: Option<HeaderPairs<'_>>,
    ) -> Result<Answer, DecideError> {
        let headers = headers.ok_or(DecideError::NoHeaders)?;
        let directory = self.directory.clone();
        let asked = Call::read(operators, headers).and_then(|call| {
            let owners = owners(config, directory.as_deref(), &call)?;
            let reset = call.reset.as_ref().map(|(class, quota)| quota_named(config, &owners, class, quota));
            Ok((reset.transpose()?, owners, call))
        });
        let (reset, owners, call) = match asked {
            Ok(asked) => asked,
            Err(refusal) => return Ok(Answer::Refused(refusal)),
        };
        let counters = self.counting.open(host, config)?;
        if counters.is_local() {
            return Ok(Answer::Refused(Refusal::NoSharedData));
        }
        if let Some((who, class, quota)) = reset {
            let used = counters.reset(host, counters.place(who, class), quota)?;
            let audit = Audit::of_reset(&call, who, class, quota, used);
            host.log(LogLevel::Warn, format_args!("audit {}", json(&audit)));
        }
        let mut listed = Vec::new();
        for owner in owners.iter().take(MAX_KEYS) {
            let mut usage = usage(counters, host, config, *owner)?;
            if let Who::Key(key) = owner.who {
                usage.key = Some(format!("sha256:{}", hex(key)));
            }
            listed.push(usage);
        }
        let omitted = Some(owners.len() - listed.len()).filter(|omitted| *omitted > 0);
        let state = State { subscriber: &call.subscriber, counters: listed, omitted };
        Ok(Answer::document(if reset.is_some() { "weir_reset" } else { "weir_usage" }, &state))
    }
}

impl<'a> Audit<'a> {
    fn of_reset(call: &'a Call<'_>, who: Who<'a>, class: &'a str, quota: &'a Quota, used: u32) -> Self {
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

/// The owners of counters that a call is about; at least one.
fn owners<'c>(
    config: &'c Config,
    directory: Option<&'c Subscribers>,
    call: &Call<'_>,
) -> Result<Vec<Subscriber<'c>>, Refusal> {
    let keys = config.keys_of(directory, &call.subscriber);
    if keys.is_empty() {
        let awaited = config.settings.directory.is_some() && directory.is_none();
        return Err(if awaited { Refusal::NoDirectoryYet } else { Refusal::NoSubscriber });
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

/// The enforced quota of this name in the class, as an answer lists it, and whose it is: a key's, its subscriber's or its organisation's.
fn quota_named<'c>(
    config: &'c Config,
    owners: &[Subscriber<'c>],
    class: &str,
    name: &str,
) -> Result<(Who<'c>, &'c str, &'c Quota), Refusal> {
    let classes = config.catalog.classes.iter().map(|class| &*class.name);
    let Some(index) = classes.clone().position(|known| known == class) else {
        return Err(Refusal::parameter("class", one_of(classes)));
    };
    let granted = owners.iter().filter_map(|owner| match owner.entitlements.get(index)? {
        Entitlement::Quotas(set) => Some(owner.quotas(set)),
        Entitlement::NotInPlan | Entitlement::Unlimited => None,
    });
    let quotas = granted.flatten().flat_map(|(who, quotas)| quotas.iter().map(move |quota| (who, quota)));
    let enforced: Vec<_> = quotas.filter(|(_, quota)| quota.mode == Mode::Enforced).collect();
    let mut named = enforced.iter().filter(|(_, quota)| quota.name == name);
    let Some((who, quota)) = named.next() else {
        let expected = match enforced.as_slice() {
            [] => "another class, because no quota of this class limits the subscriber".to_owned(),
            enforced => one_of(enforced.iter().map(|(_, quota)| quota.name.as_str())),
        };
        return Err(Refusal::parameter("quota", expected));
    };
    match named.any(|(other, _)| other != who) {
        true => Err(Refusal::SeveralKeys),
        false => Ok((*who, config.class_name(index), quota)),
    }
}

fn one_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: BTreeSet<_> = names.collect();
    names.into_iter().collect::<Vec<_>>().join(" or ")
}
