//! Who is calling, and what a key's plan grants it.

use super::{DecideError, Host, Limiter, Places, open};
use crate::config::{Agreement, Config, Entitlement, Entitlements, Subscribers};
use crate::count::counters::Counter;
use crate::count::fingerprint::{KeyDigest, KeyHash, Who};

/// Keys, each in one class, that are remembered, so that their requests need neither SHA-256 nor the way to their plan and counter.
/// The memory is emptied when it is full: about 1 MiB for each VM.
pub(super) const REMEMBERED_KEYS: usize = 8192;

/// What needs not be found out twice about a known key's requests of one class.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    pub(super) counter: Places,
    pub(super) plan: usize,
    pub(super) granted: Option<Entitlement>,
}

/// Who is calling.
pub(super) enum Caller<'c> {
    /// A key of this plan.
    Known {
        who: Who<'c>,
        organisation: Option<&'c str>,
        counter: Places,
        plan: usize,
        granted: &'c Entitlements,
    },
    /// An unknown key.
    Unknown,
    /// A key that the directory, which has not answered yet, may know.
    NotYetKnown,
    /// No key.
    Keyless,
    /// Several keys.
    Ambiguous,
}

impl Limiter {
    /// Who is calling with a key of this digest, which is remembered by `remembered_by` if it is listed.
    pub(super) fn caller<'c>(
        &mut self,
        host: &mut impl Host,
        config: &'c Config,
        directory: Option<&'c Subscribers>,
        class: usize,
        digest_of_key: &'c KeyDigest,
        remembered_by: KeyHash,
    ) -> Result<Caller<'c>, DecideError> {
        let counters = open(&mut self.counters, config, host)?;
        let place = |who: Who<'_>| counters.place(Counter { who, class: config.class_name(class) });
        let counter = |who, organisation: Option<&str>| Places {
            own: place(who),
            organisation: organisation.map(|id| place(Who::Organisation(id))),
        };
        let known = config.known(directory, digest_of_key);
        if let Some((known, Agreement { plan, entitlements, organisation })) = known {
            let who = config.count_by.who(known);
            let (counter, granted) =
                (counter(who, organisation.as_deref()), entitlements.get(class).cloned());
            if self.remembered.len() >= REMEMBERED_KEYS {
                self.remembered.clear();
            }
            self.remembered.insert(remembered_by, Remembered { counter, plan: *plan, granted });
            let organisation = organisation.as_deref();
            return Ok(Caller::Known { who, organisation, counter, plan: *plan, granted: entitlements });
        }
        if let Some(path) = &config.plan_source {
            let name = host.property(path)?.unwrap_or_default();
            let plans = &config.catalog.plans;
            let plan = plans.iter().enumerate().find(|(_, (plan, _))| plan.as_bytes() == name);
            if let Some((plan, (_, granted))) = plan {
                let who = Who::Key(digest_of_key);
                let counter = counter(who, None);
                return Ok(Caller::Known { who, organisation: None, counter, plan, granted });
            }
        }
        let awaited = config.directory.is_some() && directory.is_none();
        Ok(if awaited { Caller::NotYetKnown } else { Caller::Unknown })
    }
}
