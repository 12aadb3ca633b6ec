//! Answering operators by the counters that the filter on the public listener keeps.

use std::collections::BTreeSet;

use super::counting::DecideError;
use super::decision::{Answer, Decided, Decision};
use super::host::{Host, LogLevel};
use super::limiter::Limiter;
use super::operators::{Action, Audit, Call, CounterState, State};
use super::refusal::{OperatorRefusal as Refusal, Refusal as RequestRefusal};
use super::usage::{Subscriber, usage};
use crate::config::{Agreement, Config, CountBy, Entitlement, OperatorSettings, Subscribers, hex};
use crate::count::fingerprint::{KeyDigest, Who};
use crate::quota::{Mode, Quota};
use crate::request::header_pairs::HeaderPairs;

/// Most keys of a subscriber that an answer lists. Reading the counters of more would hold up the worker.
const MAX_KEYS: usize = 100;

/// Digits of a key's SHA-256 in the audit line.
const KEY_DIGITS: usize = 8;

/// The owner of counters, one for each class.
struct Owner<'c> {
    /// `None` if the keys of the subscriber share their quotas.
    key: Option<&'c KeyDigest>,
    who: Who<'c>,
    agreement: &'c Agreement,
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
        let answer = match headers {
            Some(headers) => self.operate(host, config, operators, headers),
            None => Err(self.failure(host, DecideError::NoHeaders)),
        };
        let answer = answer.unwrap_or_else(|refusal| Answer::Refused(RequestRefusal::Operator(refusal)));
        let mut decided = Decided::new(config, None);
        decided.decision = Decision::Answer(Box::new(answer));
        decided
    }

    fn operate(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        operators: &OperatorSettings,
        headers: HeaderPairs<'_>,
    ) -> Result<Answer, Refusal> {
        let call = Call::read(operators, headers)?;
        let directory = self.directory.clone();
        let owners = owners(config, directory.as_deref(), &call)?;
        match self.counting.open(host, config).map(|counters| counters.is_local()) {
            Ok(false) => {}
            Ok(true) => return Err(Refusal::NoSharedData),
            Err(error) => return Err(self.failure(host, error)),
        }
        if let Action::Reset { class, quota } = &call.action {
            self.reset(host, config, &call, &owners, class, quota)?;
        }
        let state = self.state(host, config, &call, &owners).map_err(|error| self.failure(host, error))?;
        Ok(call.answer(&state))
    }

    /// Resets a quota by name, and logs that.
    fn reset(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        call: &Call<'_>,
        owners: &[Owner<'_>],
        class: &str,
        quota: &str,
    ) -> Result<(), Refusal> {
        let (who, quota) = quota_named(config, owners, class, quota)?;
        let used = self.counting.open(host, config).and_then(|counters| {
            let place = counters.place(who, class);
            Ok(counters.reset(host, place, quota)?)
        });
        let used = used.map_err(|error| self.failure(host, error))?;
        let audit = Audit {
            operator: call.operator,
            action: "reset",
            subscriber: &call.subscriber,
            organisation: match who {
                Who::Organisation(id) => Some(id),
                Who::Key(_) | Who::Subscriber(_) | Who::Address(_) => None,
            },
            key: match who {
                Who::Key(key) => Some(hex(key).chars().take(KEY_DIGITS).collect()),
                Who::Subscriber(_) | Who::Organisation(_) | Who::Address(_) => None,
            },
            class,
            quota: &quota.name,
            limit: quota.limit.get(),
            used_before: used,
            used_after: 0,
            request_id: call.request_id.as_deref(),
        };
        // Serializing strings and numbers into memory cannot fail.
        let json = serde_json::to_string(&audit).unwrap_or_default();
        host.log(LogLevel::Warn, format_args!("audit {json}"));
        Ok(())
    }

    fn state<'a>(
        &mut self,
        host: &mut impl Host,
        config: &'a Config,
        call: &'a Call<'_>,
        owners: &[Owner<'a>],
    ) -> Result<State<'a>, DecideError> {
        let counters = self.counting.open(host, config)?;
        let listed = owners.iter().take(MAX_KEYS).map(|Owner { key, who, agreement }| {
            let Agreement { plan, entitlements, organisation } = agreement;
            let organisation = organisation.as_deref();
            let id = Some(call.subscriber.as_str());
            let subscriber = Subscriber { who: *who, id, organisation, plan: *plan, entitlements };
            let usage = usage(counters, host, config, subscriber)?;
            Ok(CounterState { key: key.map(|key| format!("sha256:{}", hex(key))), usage })
        });
        let listed = listed.collect::<Result<Vec<_>, DecideError>>()?;
        let omitted = owners.len() - listed.len();
        Ok(State { subscriber: &call.subscriber, counters: listed, omitted })
    }

    fn failure(&mut self, host: &mut impl Host, error: DecideError) -> Refusal {
        self.counting.log_error(host, "an operator could not be answered", error);
        Refusal::Failed
    }
}

/// The owners of counters that a call is about; at least one.
fn owners<'c>(
    config: &'c Config,
    directory: Option<&'c Subscribers>,
    call: &Call<'_>,
) -> Result<Vec<Owner<'c>>, Refusal> {
    let keys = config.keys_of(directory, &call.subscriber);
    if keys.is_empty() {
        let awaited = config.settings.directory.is_some() && directory.is_none();
        return Err(if awaited { Refusal::NotReady } else { Refusal::NoSubscriber });
    }
    let mut owners: Vec<Owner<'_>> = Vec::new();
    for (known, agreement) in keys {
        let is_meant = call.key.is_none_or(|key| key == *known.digest);
        let key = (config.settings.count_by == CountBy::Key).then_some(known.digest);
        // Keys that share their quotas differ only by their agreement.
        if is_meant && (key.is_some() || owners.iter().all(|other| other.agreement != agreement)) {
            owners.push(Owner { key, who: config.settings.count_by.who(known), agreement });
        }
    }
    if owners.is_empty() { Err(Refusal::NoKey) } else { Ok(owners) }
}

/// The enforced quota of this name in the class, as an answer lists it, and whose it is: a key's, its subscriber's or its organisation's.
fn quota_named<'c>(
    config: &'c Config,
    owners: &[Owner<'c>],
    class: &str,
    name: &str,
) -> Result<(Who<'c>, &'c Quota), Refusal> {
    let classes = &config.catalog.classes;
    let index = classes.iter().position(|known| *known.name == *class).ok_or_else(|| Refusal::Parameter {
        name: "class",
        expected: one_of(classes.iter().map(|class| &*class.name)),
    })?;
    let granted = owners.iter().filter_map(|Owner { who, agreement, .. }| {
        let Entitlement::Quotas(set) = agreement.entitlements.get(index)? else { return None };
        let organisation = agreement.organisation.as_deref().map(Who::Organisation);
        Some([(Some(*who), set.own()), (organisation, set.shared())])
    });
    let mut enforced: Vec<(Who<'_>, &Quota)> = Vec::new();
    for (who, quotas) in granted.flatten() {
        let quotas = quotas.iter().filter(|quota| quota.mode == Mode::Enforced);
        enforced.extend(quotas.filter_map(|quota| Some((who?, quota))));
    }
    let mut named = enforced.iter().copied().filter(|(_, quota)| quota.name == name);
    let found = named.next().ok_or_else(|| Refusal::Parameter {
        name: "quota",
        expected: match enforced.as_slice() {
            [] => "another class, because no quota of this class limits the subscriber".to_owned(),
            enforced => one_of(enforced.iter().map(|(_, quota)| quota.name.as_str())),
        },
    })?;
    if named.any(|(who, _)| who != found.0) { Err(Refusal::SeveralKeys) } else { Ok(found) }
}

fn one_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: BTreeSet<_> = names.collect();
    names.into_iter().collect::<Vec<_>>().join(" or ")
}
