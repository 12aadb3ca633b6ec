//! Charging requests to their counters, and settling what they were charged.
//!
//! A caller of an organisation has two levels of quotas: its own, and those that its organisation shares. The caller's quotas are charged
//! first, and then the organisation's. If those do not admit the request, the caller's charge is given back to the counts that hold it. So no
//! quota is ever exceeded, and a caller whose own quotas are used up takes nothing from its organisation. Until the charge is given back, a
//! concurrent request of the same caller may be refused. A VM that dies in between leaves the caller's charge until its window ends.

use std::sync::Arc;

use ledger_wire::Answer;

use super::host::{Host, LogLevel};
use super::log_limiter::LogLimiter;
use super::places::{WaitingPlace, WaitingPlaces};
use crate::config::Config;
use crate::count::charge::{Admission, Charge, Standings, Turn};
use crate::count::counters::{Counted, Counters};
use crate::count::holding::Terms;
use crate::count::settle::{Due, Settlement};
use crate::count::shared_data::HostError;
use crate::count::sharing::{Answered, Ask, SharedName, Statements};
use crate::count::swap::{CountError, Place};
use crate::count::table::OpenError;
use crate::event::{Event, EventSums};
use crate::quota::{Quota, QuotaSet};
use crate::time::Timestamp;

/// Why a request could not be decided by its quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecideError {
    #[error("the host handed over no request headers")]
    NoHeaders,
    #[error("the class has no quotas")]
    NoQuotas,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Count(#[from] CountError),
    #[error(transparent)]
    Host(#[from] HostError),
}

/// The places of the records that a request is charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Of the caller's counter.
    pub(super) own: Place,
    /// What not every caller has.
    pub(super) others: Option<Arc<Others>>,
}

/// The places of a caller beyond its own counter's, and what a fleet needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Others {
    /// Of the counter that the caller's organisation shares.
    pub(super) organisation: Option<Place>,
    /// In a fleet, the names of both counters.
    pub(super) names: Option<[SharedName; 2]>,
}

/// What a request has asked of the ledger about one record.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The counter.
    pub place: Place,
    /// The statements.
    pub statements: Statements,
}

/// A request that was charged, or that its quotas had no room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charged {
    /// The quotas of the class.
    pub quotas: Arc<QuotaSet>,
    /// Where the client stands in each quota.
    pub standings: Standings,
    /// Units that the request was charged; at least 1.
    pub cost: u32,
    /// The instant of the standings.
    pub at: Timestamp,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub(super) class: usize,
    pub(super) places: Places,
    /// Whether this is a client without a known key.
    pub(super) is_stranger: bool,
    pub(super) is_grpc: bool,
    /// Whether the response, or the end of the stream, is still to settle the charge.
    pub is_open: bool,
}

impl Charged {
    /// Where the caller's own counter is.
    #[must_use]
    pub fn place(&self) -> Place {
        self.places.own
    }

    /// Where the counters are that the request is charged to.
    pub fn all_places(&self) -> impl Iterator<Item = Place> {
        [Some(self.places.own), self.places.organisation()].into_iter().flatten()
    }
}

/// The counters of a VM, and what goes wrong with them.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// Opened at the first request, for configuring must not depend on what is stored.
    counters: Option<Counters>,
    errors: LogLimiter<DecideError>,
    /// The requests that wait for the ledger.
    waiting: WaitingPlaces,
    pub(super) events: EventSums,
}

/// A counter, and those of the class's quotas that are counted there.
type Level<'q> = (Place, &'q [Quota]);

impl Places {
    fn organisation(&self) -> Option<Place> {
        self.others.as_ref()?.organisation
    }

    /// The quotas of each record that a request is charged to.
    fn with<'q>(&self, quotas: &'q QuotaSet) -> [Option<Level<'q>>; 2] {
        let own = Some((self.own, quotas.own()));
        let shared = self.organisation().map(|place| (place, quotas.shared()));
        [own, shared].map(|part| part.filter(|(_, quotas)| !quotas.is_empty()))
    }
}

impl Counting {
    /// The counters, if a request has opened them.
    pub(super) fn opened(&self) -> Option<&Counters> {
        self.counters.as_ref()
    }

    pub(super) fn open(
        &mut self,
        host: &mut impl Host,
        config: &Config,
    ) -> Result<&mut Counters, DecideError> {
        match &mut self.counters {
            Some(counters) => Ok(counters),
            counters => {
                let opened = open_counters(host, config)?;
                Ok(counters.insert(opened))
            }
        }
    }

    /// Closes the counters until the next request, unless they are this VM's alone.
    pub(super) fn close(&mut self) {
        self.counters.take_if(|counters| !counters.is_local());
    }

    /// Charges a request to all its quotas, or to none. `charged` receives where the client stands afterwards.
    pub(super) fn charge(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        charged: &mut Charged,
    ) -> Result<Counted, DecideError> {
        if charged.places.others.is_some() {
            return self.charge_in_turn(host, config, charged, config.fleet.as_ref().map(Turn::First));
        }
        let Charged { quotas, standings, places, cost, at, .. } = charged;
        let charge = Charge { quotas: quotas.own(), cost: *cost };
        let counted = self.open(host, config)?.charge(host, places.own, charge, standings)?;
        *at = counted.at;
        Ok(counted)
    }

    /// The same of a caller of an organisation or a fleet: to the quotas of the caller, and then to those that its organisation shares. `turn` is
    /// `None` in no fleet.
    #[cold]
    pub(super) fn charge_in_turn(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        charged: &mut Charged,
        turn: Option<Turn<'_>>,
    ) -> Result<Counted, DecideError> {
        let counted = self.charge_levels(host, config, charged, turn)?;
        if let Some(Turn::First(_)) = turn {
            match counted.admission {
                Admission::Admitted => self.events.add(Event::FleetDecidedByShare, 1),
                Admission::Refused => self.events.add(Event::FleetDecidedByLedger, 1),
                Admission::Lacking => {}
            }
        }
        Ok(counted)
    }

    fn charge_levels(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        charged: &mut Charged,
        turn: Option<Turn<'_>>,
    ) -> Result<Counted, DecideError> {
        let quotas = Arc::clone(&charged.quotas);
        let [own, shared] = charged.places.with(&quotas);
        let (Some(first), second) = (own.or(shared), own.and(shared)) else {
            return Err(DecideError::NoQuotas);
        };
        let counted =
            self.charge_record(host, config, first, (charged.cost, turn), &mut charged.standings)?;
        charged.at = counted.at;
        match second {
            Some(second) if counted.is_admitted() => {
                self.charge_organisation(host, config, (first, second), charged, turn)
            }
            Some(_) | None => Ok(counted),
        }
    }

    fn charge_record(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        (place, quotas): Level<'_>,
        (cost, turn): (u32, Option<Turn<'_>>),
        standings: &mut Standings,
    ) -> Result<Counted, DecideError> {
        let (counters, charge) = (self.open(host, config)?, Charge { quotas, cost });
        Ok(match turn {
            Some(turn) => counters.charge_shared(host, place, charge, turn, standings)?,
            None => counters.charge(host, place, charge, standings)?,
        })
    }

    /// Charges a request, which its caller's quotas have admitted, to its organisation's.
    fn charge_organisation(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        ((own, quotas), shared): (Level<'_>, Level<'_>),
        charged: &mut Charged,
        turn: Option<Turn<'_>>,
    ) -> Result<Counted, DecideError> {
        let mut standings = Standings::new();
        let counted = self.charge_record(host, config, shared, (charged.cost, turn), &mut standings);
        if !matches!(counted, Ok(Counted { admission: Admission::Admitted, .. })) {
            let charge = Charge { quotas, cost: charged.cost };
            let settlement = Settlement { charge, charged: &charged.standings, due: Due::Units(0) };
            if let Some((standings, _)) = self.settle_record(host, config, own, &settlement) {
                self.events.add(Event::OrganisationGivenBack, 1);
                charged.standings = standings;
            }
        }
        let counted = counted?;
        charged.standings.extend(standings);
        charged.at = counted.at;
        Ok(counted)
    }

    /// Takes a place for a request that waits for the ledger's word on a counter; `None` if there is none.
    pub(super) fn take_place(&mut self, counter: Place) -> Option<WaitingPlace> {
        let place = self.waiting.take(counter.fingerprint());
        if place.is_none() {
            self.events.add(Event::FleetPlacesFull, 1);
        }
        place
    }

    /// Asks for what a request lacks of its quotas.
    pub(super) fn ask(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        charged: &Charged,
        again: bool,
        terms: Terms,
    ) -> Result<Vec<Asked>, DecideError> {
        let names = charged.places.others.as_ref().and_then(|others| others.names);
        let Some(names) = names else { return Ok(Vec::new()) };
        let mut asked = Vec::new();
        let records = charged.places.with(&charged.quotas).into_iter().zip(names);
        for (record, name) in records {
            let Some((place, quotas)) = record else { continue };
            let of = Ask { quotas, cost: charged.cost, again };
            let statements = self.open(host, config)?.ask(host, place, name, of, terms)?;
            if !statements.is_empty() {
                asked.push(Asked { place, statements });
            }
        }
        Ok(asked)
    }

    /// Takes up the answers to what a request has asked, in the order of the statements; without answers, forgets that it waits.
    pub(super) fn take_up(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        asked: &[Asked],
        answers: Option<(&[Answer], u32)>,
        terms: Terms,
    ) -> Result<Answered, DecideError> {
        let mut all = Answered { is_refused: false, is_decided: answers.is_some() || asked.is_empty() };
        let mut answers = answers;
        for Asked { place, statements } in asked {
            let counters = self.open(host, config)?;
            match &mut answers {
                Some((rest, epoch)) => {
                    let (of_record, others) = rest.split_at_checked(statements.len()).unwrap_or((rest, &[]));
                    *rest = others;
                    let answered = counters.take_up(host, *place, statements, (of_record, *epoch), terms)?;
                    all.is_refused |= answered.is_refused;
                    all.is_decided &= answered.is_decided;
                }
                None => counters.leave(host, *place, statements)?,
            }
        }
        Ok(all)
    }

    /// Settles a charge. `charged` then says where the client stands afterwards.
    pub(super) fn settle(&mut self, host: &mut impl Host, config: &Config, charged: &mut Charged, due: Due) {
        charged.is_open = false;
        if due == Due::Units(charged.cost) {
            return;
        }
        let quotas = Arc::clone(&charged.quotas);
        let mut before = charged.standings.as_slice();
        let mut after = Standings::new();
        for (place, quotas) in charged.places.with(&quotas).into_iter().flatten() {
            let charge = Charge { quotas, cost: charged.cost };
            let (of_record, others) = before.split_at_checked(quotas.len()).unwrap_or_default();
            before = others;
            match self.settle_record(host, config, place, &Settlement { charge, charged: of_record, due }) {
                Some((standings, at)) => {
                    charged.at = at;
                    after.extend(standings);
                }
                None => after.extend(of_record.iter().copied()),
            }
        }
        charged.standings = after;
    }

    /// Settles the charge of one record. Returns where the counter stands afterwards, and the instant. A settlement that could not be stored
    /// is counted and logged.
    fn settle_record(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        place: Place,
        settlement: &Settlement<'_>,
    ) -> Option<(Standings, Timestamp)> {
        let mut standings = Standings::new();
        let settled = self.open(host, config).and_then(|counters| {
            counters.settle(host, place, settlement, &mut standings).map_err(DecideError::from)
        });
        match settled {
            Ok(at) => Some((standings, at)),
            Err(error) => {
                self.events.add(Event::CostUnsettled, 1);
                self.log_error(host, "a charge could not be settled", error);
                None
            }
        }
    }

    /// Logs an error, but each at most once a second.
    #[cold]
    pub(super) fn log_error(&mut self, host: &mut impl Host, what: &str, error: DecideError) {
        let now = host.now().ok();
        if let Some(left_out) = self.errors.admit(error, now) {
            host.log(LogLevel::Error, format_args!("{what}: {error}{left_out}"));
        }
    }

    /// Takes the sums of events since the last time, and logs entries that were begun again.
    pub(super) fn drain(&mut self, host: &mut impl Host) -> [u32; Event::ALL.len()] {
        if let Some(repairs @ 1..) = self.counters.as_mut().map(Counters::take_repairs) {
            self.events.add(Event::CountersRepaired, repairs);
            host.log(
                LogLevel::Error,
                format_args!("{repairs} malformed entries of the counters in shared data were begun again"),
            );
        }
        self.events.drain()
    }
}

#[cold]
fn open_counters(host: &mut impl Host, config: &Config) -> Result<Counters, DecideError> {
    let wanted = config.settings.counters;
    let salt = host.random()?;
    let counters =
        Counters::open(host, salt, &config.settings.namespace, wanted)?.in_fleet(config.fleet.is_some());
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
