//! Answering operators by the counters that the filter on the public listener keeps.

use std::collections::BTreeSet;

use serde::Serialize;

use super::counting::DecideError;
use super::decision::{Answer, Decided};
use super::host::{Host, LogLevel};
use super::json;
use super::limiter::Limiter;
use super::operators::Call;
use super::refusal::Refusal;
use super::usage::{Subscriber, Usage, usage};
use crate::config::{Config, CountBy, Entitlement, OperatorSettings, Subscribers, hex};
use crate::count::counters::Counters;
use crate::count::fingerprint::Who;
use crate::count::swap::CountError;
use crate::quota::{Mode, Quota};
use crate::request::header_pairs::HeaderPairs;

/// Most keys of a subscriber that an answer lists. Reading the counters of more would hold up the worker.
const MAX_KEYS: usize = 100;

/// Digits of a key's SHA-256 in the audit line.
const KEY_DIGITS: usize = 8;

/// Where a subscriber stands. `GET` and `POST …/reset` answer it.
#[derive(Serialize)]
struct State<'a> {
    subscriber: &'a str,
    counters: Vec<CounterState<'a>>,
    /// Keys of the subscriber beyond those that are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<usize>,
}

/// Where a key stands or, if the subscriber's keys share their quotas, the subscriber.
#[derive(Serialize)]
struct CounterState<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(flatten)]
    usage: Usage<'a>,
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

/// A quota of a class, and whose count of it an operator resets.
struct Reset<'c> {
    who: Who<'c>,
    class: &'c str,
    quota: &'c Quota,
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
    ) -> Decided {
        let answer = self.operate(host, config, operators, headers).unwrap_or_else(|error| {
            self.counting.log_error(host, "an operator could not be answered", error);
            Answer::Refused(Refusal::NoCounters)
        });
        let mut decided = Decided::new(config, false, false);
        decided.answer = Some(Box::new(answer));
        decided
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
            let reset = call.reset.as_ref().map(|(class, quota)| Reset::find(config, &owners, class, quota));
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
        if let Some(reset) = &reset {
            reset.carry_out(counters, host, &call)?;
        }
        let details = if reset.is_some() { "weir_reset" } else { "weir_usage" };
        Ok(Answer::document(details, &State::read(counters, host, config, &call, &owners)?))
    }
}

impl<'c> Reset<'c> {
    /// The enforced quota of this name in the class, as an answer lists it, and whose it is: a key's, its subscriber's or its organisation's.
    fn find(config: &'c Config, owners: &[Subscriber<'c>], class: &str, name: &str) -> Result<Self, Refusal> {
        let classes = &config.catalog.classes;
        let index = classes.iter().position(|known| known.name == class);
        let index = index
            .ok_or_else(|| Refusal::parameter("class", one_of(classes.iter().map(|class| &*class.name))))?;
        let granted = owners.iter().filter_map(|owner| match owner.entitlements.get(index)? {
            Entitlement::Quotas(set) => Some(owner.quotas(set)),
            Entitlement::NotInPlan | Entitlement::Unlimited => None,
        });
        let quotas = granted.flatten().flat_map(|(who, quotas)| quotas.iter().map(move |quota| (who, quota)));
        let enforced: Vec<_> = quotas.filter(|(_, quota)| quota.mode == Mode::Enforced).collect();
        let mut named = enforced.iter().filter(|(_, quota)| quota.name == name);
        let (who, quota) = *named.next().ok_or_else(|| {
            let expected = match enforced.as_slice() {
                [] => "another class, because no quota of this class limits the subscriber".to_owned(),
                enforced => one_of(enforced.iter().map(|(_, quota)| &*quota.name)),
            };
            Refusal::parameter("quota", expected)
        })?;
        if named.any(|(other, _)| *other != who) {
            return Err(Refusal::SeveralKeys);
        }
        Ok(Self { who, class: config.class_name(index), quota })
    }

    /// Resets the quota, and logs that.
    fn carry_out(
        &self,
        counters: &mut Counters,
        host: &mut impl Host,
        call: &Call<'_>,
    ) -> Result<(), CountError> {
        let Self { who, class, quota } = *self;
        let used_before = counters.reset(host, counters.place(who, class), quota)?;
        let audit = Audit {
            operator: call.operator,
            action: "reset",
            subscriber: &call.subscriber,
            organisation: match who {
                Who::Organisation(id) => Some(id),
                Who::Key(_) | Who::Subscriber(_) | Who::Address(_) => None,
            },
            key: key(who).map(|key| key.chars().take(KEY_DIGITS).collect()),
            class,
            quota: &quota.name,
            limit: quota.limit.get(),
            used_before,
            used_after: 0,
            request_id: call.request_id.as_deref(),
        };
        host.log(LogLevel::Warn, format_args!("audit {}", json(&audit)));
        Ok(())
    }
}

impl<'a> State<'a> {
    fn read(
        counters: &mut Counters,
        host: &mut impl Host,
        config: &'a Config,
        call: &'a Call<'_>,
        owners: &[Subscriber<'a>],
    ) -> Result<Self, CountError> {
        let listed = owners.iter().take(MAX_KEYS).map(|owner| {
            let key = key(owner.who).map(|key| format!("sha256:{key}"));
            Ok(CounterState { key, usage: usage(counters, host, config, *owner)? })
        });
        let listed = listed.collect::<Result<Vec<_>, CountError>>()?;
        let omitted = Some(owners.len() - listed.len()).filter(|omitted| *omitted > 0);
        Ok(Self { subscriber: &call.subscriber, counters: listed, omitted })
    }
}

/// The digits of a key's SHA-256; `None` of what is no key.
fn key(who: Who<'_>) -> Option<String> {
    match who {
        Who::Key(key) => Some(hex(key)),
        Who::Subscriber(_) | Who::Organisation(_) | Who::Address(_) => None,
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
        let awaited = config.directory.is_some() && directory.is_none();
        return Err(if awaited { Refusal::NoDirectoryYet } else { Refusal::NoSubscriber });
    }
    let mut owners = Vec::new();
    for (known, agreement) in keys {
        let owner = Subscriber::of_agreement(config, known, agreement);
        // Keys that share their quotas differ only by their agreement.
        let is_new = config.count_by == CountBy::Key || !owners.contains(&owner);
        if is_new && call.key.is_none_or(|key| key == *known.digest) {
            owners.push(owner);
        }
    }
    if owners.is_empty() { Err(Refusal::NoSuchKey) } else { Ok(owners) }
}

fn one_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: BTreeSet<_> = names.collect();
    names.into_iter().collect::<Vec<_>>().join(" or ")
}
