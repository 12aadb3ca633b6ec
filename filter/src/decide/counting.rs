//! Charging requests to their counters, and settling what they were charged.
//!
//! A caller of an organisation has two levels of quotas: its own, and those that its organisation shares. The caller's quotas are charged
//! first, and then the organisation's. If those do not admit the request, the caller's charge is given back to the counts that hold it. So no
//! quota is ever exceeded, and a caller whose own quotas are used up takes nothing from its organisation. Until the charge is given back, a
//! concurrent request of the same caller may be refused. A VM that dies in between leaves the caller's charge until its window ends.

use std::sync::Arc;

use super::host::{Host, LogLevel};
use super::log_limiter::LogLimiter;
use super::metric::{Event, EventSums};
use crate::config::Config;
use crate::count::charge::{Charge, Standings};
use crate::count::counters::{Counted, Counters};
use crate::count::settle::{Due, Settlement};
use crate::count::shared_data::HostError;
use crate::count::swap::{CountError, Place};
use crate::count::table::OpenError;
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
    /// Of the counter that the caller's organisation shares.
    pub(super) organisation: Option<Box<Place>>,
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

/// The counters of a VM, and what goes wrong with them.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// Opened at the first request, for configuring must not depend on what is stored.
    counters: Option<Counters>,
    errors: LogLimiter<DecideError>,
    pub(super) events: EventSums,
}

impl Places {
    /// The quotas of each record that a request is charged to.
    fn with<'q>(&self, quotas: &'q QuotaSet) -> [Option<(Place, &'q [Quota])>; 2] {
        let own = Some((self.own, quotas.own()));
        let shared = self.organisation.as_ref().map(|place| (**place, quotas.shared()));
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

    /// Charges a request to all its quotas, or to none. `charged` says which, and receives where the client stands afterwards.
    pub(super) fn charge(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        charged: &mut Charged,
    ) -> Result<Counted, DecideError> {
        if charged.places.organisation.is_some() {
            return self.charge_levels(host, config, charged);
        }
        let Charged { quotas, standings, places, cost, at, .. } = charged;
        let charge = Charge { quotas: quotas.own(), cost: *cost };
        let counted = self.open(host, config)?.charge(host, places.own, charge, standings)?;
        *at = counted.at;
        Ok(counted)
    }

    /// Charges a request to the quotas of its caller, and then to those that the caller's organisation shares.
    #[cold]
    fn charge_levels(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        charged: &mut Charged,
    ) -> Result<Counted, DecideError> {
        let quotas = Arc::clone(&charged.quotas);
        let [own, shared] = charged.places.with(&quotas);
        let (Some(first), second) = (own.or(shared), own.and(shared)) else {
            return Err(DecideError::NoQuotas);
        };
        let (place, quotas) = first;
        let charge = Charge { quotas, cost: charged.cost };
        let counted = self.open(host, config)?.charge(host, place, charge, &mut charged.standings)?;
        charged.at = counted.at;
        match second {
            Some(second) if counted.admitted => {
                self.charge_organisation(host, config, (place, charge), second, charged)
            }
            Some(_) | None => Ok(counted),
        }
    }

    /// Charges a request, which its caller's quotas have admitted, to its organisation's.
    fn charge_organisation(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        (own, charge): (Place, Charge<'_>),
        (place, quotas): (Place, &[Quota]),
        charged: &mut Charged,
    ) -> Result<Counted, DecideError> {
        let mut standings = Standings::new();
        let shared = Charge { quotas, ..charge };
        let counted = self.open(host, config)?.charge(host, place, shared, &mut standings);
        if !matches!(counted, Ok(Counted { admitted: true, .. })) {
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
    let counters = Counters::open(host, salt, &config.settings.namespace, wanted)?;
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
