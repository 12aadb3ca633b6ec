//! What a request is charged, and what follows from it: it is decided, or waits for the ledger.

use std::sync::Arc;

use super::account::Account;
use super::counting::{Charged, Counting, DecideError, Places};
use super::decision::{Answer, Awaited, Decided, Wait};
use super::host::Host;
use super::outcome::Outcome;
use super::refusal::Refusal;
use crate::config::{Class, Config, Entitlement, LogFields};
use crate::count::charge::{Admission, Standings};
use crate::count::counters::Counted;
use crate::quota::{Mode, QuotaSet};
use crate::time::Timestamp;

/// Charges a request to its caller's account.
pub(super) fn charge_account(
    counting: &mut Counting,
    host: &mut impl Host,
    config: &Config,
    decided: &mut Decided,
    account: &Account,
) -> Result<(), DecideError> {
    decided.plan = Some(account.plan);
    match &account.entitlement {
        Entitlement::Unlimited => decided.pass(Outcome::Allowed),
        Entitlement::NotInPlan => decided.refuse(config, Outcome::NotInPlan, Refusal::NotInPlan),
        Entitlement::Quotas(quotas) => {
            let to = (quotas, account.places.clone());
            if let Err(error) = charge(counting, host, config, decided, to, Some(decided.class)) {
                decided.subscriber.clone_from(&account.subscriber);
                return Err(error);
            }
        }
    }
    let is_logged = config.settings.log_fields == LogFields::All || config.settings.log_decisions;
    if decided.is_refused || decided.answer.is_some() || is_logged {
        decided.subscriber.clone_from(&account.subscriber);
    }
    Ok(())
}

/// Charges a request to these quotas at these places, and decides it. `class` is a subscriber's class; `None` for a stranger.
pub(super) fn charge(
    counting: &mut Counting,
    host: &mut impl Host,
    config: &Config,
    decided: &mut Decided,
    (quotas, places): (&Arc<QuotaSet>, Places),
    class: Option<usize>,
) -> Result<(), DecideError> {
    let terms = class.and_then(|class| config.catalog.classes.get(class));
    let charged = decided.charged.insert(Charged {
        quotas: Arc::clone(quotas),
        standings: Standings::new(),
        cost: terms.map_or(1, Class::units),
        at: Timestamp::from_seconds(0),
        class: decided.class,
        places,
        is_stranger: class.is_none(),
        is_grpc: decided.is_grpc,
        is_open: false,
    });
    let counted = match counting.charge(host, config, charged) {
        Ok(counted) => counted,
        Err(error) => {
            decided.charged = None;
            return Err(error);
        }
    };
    if counted.admission == Admission::Lacking {
        return begin_to_wait(counting, host, config, decided, counted.at);
    }
    conclude(config, decided, counted, class);
    Ok(())
}

/// Decides a request that was charged, or for which a quota has no room.
pub(super) fn conclude(config: &Config, decided: &mut Decided, counted: Counted, class: Option<usize>) {
    let Some(charged) = &mut decided.charged else { return };
    let terms = class.and_then(|class| config.catalog.classes.get(class));
    let admitted = counted.is_admitted();
    charged.is_open = admitted && terms.is_some_and(Class::is_settled);
    let is_exhausted_in_shadow = admitted && charged.is_exhausted_in_shadow();
    if counted.overflowed {
        decided.pass(Outcome::Overflow);
    }
    if admitted {
        if class.is_some() {
            decided.pass(Outcome::Allowed);
        }
        if is_exhausted_in_shadow {
            decided.pass(Outcome::ShadowLimited);
            decided.is_refused = true;
        }
    } else {
        let outcome = match config.settings.enforcement {
            Mode::Enforced => Outcome::Limited,
            Mode::Shadow => Outcome::ShadowLimited,
        };
        decided.refuse(config, outcome, Refusal::Limited);
    }
}

/// Asks the ledger for the units that a request lacks, and makes the request wait from `now` on. Refuses it if no place is free.
#[cold]
fn begin_to_wait(
    counting: &mut Counting,
    host: &mut impl Host,
    config: &Config,
    decided: &mut Decided,
    now: Timestamp,
) -> Result<(), DecideError> {
    let (Some(charged), Some(terms)) = (&decided.charged, config.fleet) else { return Ok(()) };
    let Some(place) = counting.take_place(charged.place()) else {
        decided.charged = None;
        decided.refuse(config, Outcome::Error, Refusal::NoPlace);
        return Ok(());
    };
    let asked = counting.ask(host, config, charged, false, terms)?;
    decided.answer = Some(Box::new(Answer::Later(Wait::new(Awaited::Units, now, asked, place))));
    Ok(())
}
