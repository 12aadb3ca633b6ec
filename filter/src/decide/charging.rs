//! What a request is charged, and what follows from it: it is decided, or waits for the ledger.

use std::sync::Arc;

use super::account::Account;
use super::counting::{Charged, Context, DecideError};
use super::decision::{Awaited, Decided, Wait};
use super::host::Host;
use super::outcome::Outcome;
use super::refusal::Refusal;
use super::usage::Subscriber;
use crate::config::{Class, Entitlement, LogFields};
use crate::count::charge::{Admission, SharedName};
use crate::count::counters::Counted;
use crate::count::fingerprint::{ClientAddress, KeyDigest, Who};
use crate::count::levels::{Demand, Levels, Others};
use crate::directory::SeenRow;
use crate::fleet::client::Next;
use crate::quota::{Mode, QuotaSet};

impl<H: Host> Context<'_, H> {
    /// The account of a caller in a class, by its key. `row` is the directory's, if it is from one.
    pub(super) fn account(
        &mut self,
        subscriber: &Subscriber<'_>,
        class: usize,
        (key, row): (&KeyDigest, Option<Arc<SeenRow>>),
    ) -> Result<Account, DecideError> {
        let (config, is_shared) = (self.config, self.is_shared());
        let counters = self.open()?;
        let name = config.class_name(class);
        let organisation = subscriber.organisation.map(Who::Organisation);
        let names = is_shared.then(|| {
            [subscriber.who, organisation.unwrap_or(subscriber.who)]
                .map(|who| SharedName::new(&config.settings.namespace, who, name))
        });
        let others = Others { organisation: organisation.map(|who| counters.counter(who, name)), names };
        let has_others = organisation.is_some() || is_shared;
        let levels = Levels {
            own: counters.counter(subscriber.who, name),
            others: has_others.then(|| Arc::new(others)),
        };
        Ok(Account {
            plan: subscriber.plan,
            subscriber: subscriber.id.map(Arc::from),
            entitlement: subscriber.entitlements.get(class).cloned().unwrap_or(Entitlement::NotInPlan),
            meter: self.meter(subscriber, class, key, &levels),
            levels,
            row,
            under: 0,
        })
    }

    /// Charges a request to the quotas of its client's address. It costs one unit, whatever its class.
    pub(super) fn charge_address(
        &mut self,
        decided: &mut Decided,
        quotas: &Arc<QuotaSet>,
        class: &str,
    ) -> Result<(), DecideError> {
        let address = self.host.property(b"source\0address")?.unwrap_or_default();
        let who = Who::Address(ClientAddress::parse(&address, self.config.settings.ipv6_prefix.0));
        let own = self.open()?.counter(who, class);
        let demand = Demand { quotas: Arc::clone(quotas), levels: Levels { own, others: None }, cost: 1 };
        self.charge_demand(decided, demand, true)
    }

    /// Charges a request to its caller's account.
    pub(super) fn charge_account(
        &mut self,
        decided: &mut Decided,
        account: &Account,
    ) -> Result<(), DecideError> {
        decided.plan = Some(account.plan);
        match &account.entitlement {
            Entitlement::Unlimited => {
                decided.pass(Outcome::Allowed);
                if account.meter.is_some() {
                    self.open_unlimited(decided, account);
                }
            }
            Entitlement::NotInPlan => {
                decided.refuse(self.config, Outcome::NotInPlan, Refusal::NotInPlan);
            }
            Entitlement::Quotas(quotas) => {
                let cost = self.config.catalog.classes.get(decided.class).map_or(1, Class::units);
                let demand = Demand { quotas: quotas.clone(), levels: account.levels.clone(), cost };
                if let Err(error) = self.charge_demand(decided, demand, false) {
                    decided.subscriber.clone_from(&account.subscriber);
                    if let Some(meter) = &account.meter {
                        self.measure_failed(decided.class, meter);
                    }
                    return Err(error);
                }
            }
        }
        if decided.is_refused || decided.answer.is_some() || self.config.notes_callers {
            self.note(decided, account);
        }
        Ok(())
    }

    /// Notes whose request it is, for logs, and for the reports of what was used.
    fn note(&mut self, decided: &mut Decided, account: &Account) {
        let settings = &self.config.settings;
        let is_logged = settings.log_fields == LogFields::All || settings.log_decisions;
        if decided.is_refused || decided.answer.is_some() || is_logged {
            decided.subscriber.clone_from(&account.subscriber);
        }
        if let Some(meter) = &account.meter {
            self.measure(decided, meter);
        }
    }

    /// Has the response settle what a request of a class without quotas has used, where responses do.
    #[cold]
    fn open_unlimited(&self, decided: &mut Decided, account: &Account) {
        let class = self.config.catalog.classes.get(decided.class).filter(|class| class.is_settled());
        decided.charged = class.map(|class| Charged {
            is_open: true,
            ..Charged::new(
                Demand {
                    quotas: Arc::new(QuotaSet::new(Vec::new())),
                    levels: account.levels.clone(),
                    cost: class.units(),
                },
                (decided.class, decided.is_grpc),
                false,
            )
        });
    }

    /// Charges what a request needs, and decides it.
    pub(super) fn charge_demand(
        &mut self,
        decided: &mut Decided,
        demand: Demand,
        is_stranger: bool,
    ) -> Result<(), DecideError> {
        let (class, is_grpc) = (decided.class, decided.is_grpc);
        let charged =
            decided.charged.get_or_insert_with(|| Charged::new(demand, (class, is_grpc), is_stranger));
        let followed = match charged.demand.levels.others {
            None => self.charge(charged).map(|counted| self.conclude(decided, counted)),
            Some(_) => self.charge_levels(charged).map(|next| self.follow(decided, next)),
        };
        if followed.is_err() {
            decided.charged = None;
        }
        followed
    }

    /// What follows from how a request was charged.
    pub(super) fn follow(&self, decided: &mut Decided, next: Next) {
        match next {
            Next::Counted(counted) => self.conclude(decided, counted),
            Next::Waits(waiting) => {
                decided.answer = Some(Wait::new(Awaited::Units, waiting).into());
            }
        }
    }

    /// Decides a request that was charged, or for which a quota has no room.
    fn conclude(&self, decided: &mut Decided, counted: Counted) {
        let config = self.config;
        let Some(charged) = &mut decided.charged else { return };
        charged.at = counted.at;
        let admitted = counted.is_admitted();
        let class = config.catalog.classes.get(charged.class).filter(|_| !charged.is_stranger);
        charged.is_open = admitted && class.is_some_and(Class::is_settled);
        charged.is_in_flight = admitted && charged.quotas().are_in_flight();
        let (is_stranger, is_exhausted_in_shadow) = (charged.is_stranger, admitted && charged.is_exhausted());
        if counted.overflowed {
            // It ends where it was counted, though the entry may have a place for it by then.
            charged.demand.levels.own = charged.demand.levels.own.overflow();
            decided.pass(Outcome::Overflow);
        }
        match counted.admission {
            Admission::Admitted => {
                if !is_stranger {
                    decided.pass(Outcome::Allowed);
                }
                if is_exhausted_in_shadow {
                    decided.pass(Outcome::ShadowLimited);
                    decided.is_refused = true;
                }
            }
            Admission::Refused | Admission::Lacking => {
                let outcome = match config.settings.enforcement {
                    Mode::Enforced => Outcome::Limited,
                    Mode::Shadow => Outcome::ShadowLimited,
                };
                decided.refuse(config, outcome, Refusal::Limited);
            }
            Admission::Denied => {
                decided.charged = None;
                decided.refuse(config, Outcome::Error, Refusal::NoLedger);
            }
            Admission::Full => {
                decided.charged = None;
                decided.refuse(config, Outcome::Error, Refusal::NoPlace);
            }
        }
    }
}
