//! Charging requests to their counters, and settling what they were charged.

use std::rc::Rc;
use std::sync::Arc;

use super::host::{Host, LogLevel};
use crate::config::Config;
use crate::count::charge::{Charge, Standings, Statements};
use crate::count::counters::{Counted, Counters};
use crate::count::levels::Demand;
use crate::count::settle::Due;
use crate::count::shared_data::HostError;
use crate::count::swap::CountError;
use crate::count::table::OpenError;
use crate::event::{Event, EventSums};
use crate::fleet::client::{Client, Next};
use crate::log_limiter::LogLimiter;
use crate::quota::QuotaSet;
use crate::time::Timestamp;
use crate::usage::meter::Meter;
use crate::usage::report::{NotTaken, Reporter};

/// Why a request could not be decided by its quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecideError {
    #[error("the host handed over no request headers")]
    NoHeaders,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Count(#[from] CountError),
    #[error(transparent)]
    Host(#[from] HostError),
}

/// A request that was charged, or that its quotas had no room for.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub struct Charged {
    /// What it needed.
    pub demand: Demand,
    /// Where the client stands in each quota.
    pub standings: Standings,
    /// The instant of the standings.
    pub at: Timestamp,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub(super) class: usize,
    /// Whether this is a client without a known key.
    pub(super) is_stranger: bool,
    pub(super) is_grpc: bool,
    /// Whether the response, or the end of the stream, is still to settle the charge.
    pub is_open: bool,
    /// Whether the request is counted among those in flight, until its stream ends.
    pub is_in_flight: bool,
    /// The meter that it is added to once the charge is settled, or it has waited.
    pub(super) meter: Option<Rc<Meter>>,
}

impl Charged {
    /// A request that has charged nothing yet.
    #[inline(always)]
    pub(super) fn new(demand: Demand, (class, is_grpc): (usize, bool), is_stranger: bool) -> Self {
        let (standings, at) = (Standings::new(), Timestamp::from_seconds(0));
        Self {
            demand,
            standings,
            at,
            class,
            is_stranger,
            is_grpc,
            is_open: false,
            is_in_flight: false,
            meter: None,
        }
    }

    /// The quotas of the class.
    #[must_use]
    pub fn quotas(&self) -> &Arc<QuotaSet> {
        &self.demand.quotas
    }

    /// Units that the request was charged; at least 1.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.demand.cost
    }
}

/// The counters of a VM, and what goes wrong with them.
#[derive(Debug)]
pub(super) struct Counting {
    /// Opened by the first request or tick, for configuring must not depend on what is stored.
    counters: Option<Counters>,
    /// The client of the fleet's ledger, if there is a fleet.
    client: Option<Client>,
    errors: LogLimiter<DecideError>,
    /// Metadata that names nobody is logged once a minute.
    unreadable: LogLimiter<String, 60>,
    pub(super) events: EventSums,
    /// Reports what callers have used, if that is configured. A batch that is not taken is logged once a minute.
    pub(super) reporter: Option<Reporter>,
    pub(super) not_taken: LogLimiter<NotTaken, 60>,
}

/// What deciding a request works with.
pub(super) struct Context<'a, H> {
    pub(super) host: &'a mut H,
    pub(super) config: &'a Config,
    pub(super) counting: &'a mut Counting,
}

impl Counting {
    pub(super) fn new(config: &Arc<Config>) -> Self {
        let client = config.fleet.map(Client::new);
        let events = EventSums::default();
        Self {
            counters: None,
            client,
            errors: LogLimiter::default(),
            unreadable: LogLimiter::default(),
            events,
            reporter: Reporter::new(config),
            not_taken: LogLimiter::default(),
        }
    }

    /// The counters, if a request has opened them.
    pub(super) fn counters(&self) -> Option<&Counters> {
        self.counters.as_ref()
    }

    /// The client of the ledger.
    pub(super) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// Another configuration follows. Closes the counters until the next request.
    pub(super) fn retire(&mut self) {
        self.client.iter_mut().for_each(Client::retire);
        self.counters = None;
    }

    /// Takes over what a configuration that ends has not stated to the ledger yet, and what it has not reported.
    pub(super) fn take_over(&mut self, ended: &mut Self) {
        if let (Some(client), Some(ended)) = (&mut self.client, &mut ended.client) {
            client.take_over(ended);
        }
        if let (Some(reporter), Some(ended)) = (&mut self.reporter, &mut ended.reporter) {
            reporter.take_over(ended);
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
        let noted = self.counters.as_mut().map(Counters::take_noted).unwrap_or_default();
        if noted.repairs > 0 {
            self.events.add(Event::CountersRepaired, noted.repairs);
            let repairs = noted.repairs;
            host.log(
                LogLevel::Error,
                format_args!("{repairs} malformed entries of the counters in shared data were begun again"),
            );
        }
        self.events.add(Event::CountsDropped, noted.dropped);
        self.events.add(Event::OrganisationGivenBack, noted.given_back);
        if let Some((times, error)) = noted.not_given_back {
            self.events.add(Event::CostUnsettled, times);
            self.log_error(host, "a charge could not be settled", error.into());
        }
        if let Some(client) = &mut self.client {
            self.events.add_all(client.events.drain());
        }
        if let Some(reporter) = &mut self.reporter {
            self.events.add(Event::UsageLost, reporter.take_lost());
        }
        self.events.drain()
    }
}

impl<H: Host> Context<'_, H> {
    pub(super) fn open(&mut self) -> Result<&mut Counters, DecideError> {
        self.opened().map(|(counters, ..)| counters)
    }

    /// The counters, the client of the ledger and the host.
    pub(super) fn opened(&mut self) -> Result<(&mut Counters, Option<&mut Client>, &mut H), DecideError> {
        let Counting { counters, client, .. } = &mut *self.counting;
        let counters = match counters {
            Some(counters) => counters,
            none => none.insert(open(self.host, self.config)?),
        };
        Ok((counters, client.as_mut(), self.host))
    }

    /// Whether quotas are decided by what the gateway holds of them.
    pub(super) fn is_shared(&self) -> bool {
        self.config.fleet.is_some_and(|sharing| !sharing.in_shadow)
    }

    /// Charges a request to all its quotas, or to none. `charged` receives where the client stands.
    pub(super) fn charge(&mut self, charged: &mut Charged) -> Result<Counted, DecideError> {
        let Charged { demand, standings, .. } = charged;
        let charge = Charge { quotas: demand.quotas.own(), cost: demand.cost, shared: None };
        let (counters, _, host) = self.opened()?;
        Ok(counters.charge(host, &demand.levels.own, charge, standings, &mut Statements::new())?)
    }

    /// The same of a caller of an organisation or a fleet, who may have to wait.
    #[cold]
    pub(super) fn charge_levels(&mut self, charged: &mut Charged) -> Result<Next, DecideError> {
        let Charged { demand, standings, .. } = charged;
        let is_shared = self.is_shared() && demand.levels.are_shared();
        let (counters, client, host) = self.opened()?;
        Ok(match client.filter(|_| is_shared) {
            Some(client) => client.charge(counters, host, demand, standings)?,
            None => Next::Counted(counters.charge_levels(host, demand, None, standings)?.counted),
        })
    }

    /// Settles a charge, and if the request ends, which is in flight, it is so no longer. `charged` then says where the client stands afterwards. The
    /// ledger does not know of it yet.
    pub(super) fn settle(&mut self, charged: &mut Charged, due: Due, ends: bool) {
        charged.is_open = false;
        let changes = due != Due::Units(charged.cost());
        if !changes && !ends {
            return;
        }
        let Charged { demand, standings, at, .. } = charged;
        let settled = self.opened().and_then(|(counters, client, host)| {
            client.filter(|_| changes).into_iter().for_each(|client| client.settled(demand));
            Ok(counters.settle_levels(host, demand, (due, ends), standings)?)
        });
        match settled {
            Ok(settled) => *at = settled.unwrap_or(*at),
            Err(error) => self.unsettled(error),
        }
    }

    #[cold]
    fn unsettled(&mut self, error: DecideError) {
        self.counting.events.add(Event::CostUnsettled, 1);
        self.log_error("a charge could not be settled", error);
    }

    /// Logs that the value of a claim names nobody, but each claim at most once a minute.
    #[cold]
    pub(super) fn log_unreadable(&mut self, claim: &str) {
        let now = self.host.now().ok();
        if let Some(left_out) = self.counting.unreadable.admit(claim.to_owned(), now) {
            let expected = "is neither a text nor a whole number below 2^53, so it names nobody";
            self.host.log(LogLevel::Warn, format_args!("{claim} {expected}{left_out}"));
        }
    }

    /// Logs an error, but each at most once a second.
    #[cold]
    pub(super) fn log_error(&mut self, what: &str, error: DecideError) {
        self.counting.log_error(self.host, what, error);
    }
}

#[cold]
fn open(host: &mut impl Host, config: &Config) -> Result<Counters, DecideError> {
    let wanted = config.settings.counters;
    let salt = host.random()?;
    let in_fleet = config.fleet.is_some_and(|sharing| !sharing.in_shadow);
    let counters = Counters::open(host, salt, &config.settings.namespace, wanted)?.in_fleet(in_fleet);
    if host.is_of_vm() {
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
