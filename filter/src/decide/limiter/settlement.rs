//! Settling what a request was charged, once its response or the end of its stream decides it.

use std::sync::Arc;

use super::{DecideError, Host, Limiter, Places, open};
use crate::config::{Config, CostSource};
use crate::count::consume::{Charge, Standings};
use crate::count::counters::Place;
use crate::count::settle::{Due, Settlement};
use crate::decide::metric;
use crate::decide::response_headers::Report;
use crate::quota::QuotaSet;
use crate::request::header_pairs::HeaderPairs;
use crate::time::Timestamp;

/// A charge that is to be settled.
#[derive(Clone, Debug)]
pub struct Reservation {
    /// The class, as an index into [`crate::config::Catalog::classes`].
    class: usize,
    places: Places,
    quotas: Arc<QuotaSet>,
    /// Where the counter stood after the charge.
    charged: Standings,
    /// Units that were charged.
    cost: u32,
}

/// What becomes of reservations, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlementEvent {
    /// The response's status gave back what the request was charged.
    Refunded,
    /// No actual cost became known, so the reserve stands.
    UnknownCost,
    /// The settlement could not be stored, so the charge stands.
    Failed,
    /// A caller's charge was given back, because its organisation did not admit the request.
    GivenBack,
}

impl SettlementEvent {
    /// All events.
    pub const ALL: [Self; 4] = [Self::Refunded, Self::UnknownCost, Self::Failed, Self::GivenBack];

    /// The name of the counter.
    #[must_use]
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Refunded => metric::COST_REFUNDED,
            Self::UnknownCost => metric::COST_UNKNOWN,
            Self::Failed => metric::COST_UNSETTLED,
            Self::GivenBack => metric::ORGANISATION_GIVEN_BACK,
        }
    }

    /// Whether the event may occur.
    const fn is_possible(self, settles: bool, gives_back: bool) -> bool {
        match self {
            Self::Refunded | Self::UnknownCost => settles,
            Self::Failed => settles || gives_back,
            Self::GivenBack => gives_back,
        }
    }
}

/// Sums of [`SettlementEvent::ALL`].
pub type SettlementTally = [u32; SettlementEvent::ALL.len()];

impl Reservation {
    /// The reservation that an admitted request of this class has made; `None` if nothing settles its charge.
    pub(super) fn of(config: &Config, class: usize, places: Places, report: &Report) -> Option<Box<Self>> {
        config.catalog.classes.get(class).filter(|class| class.is_settled())?;
        let Report { quotas, standings, cost, .. } = report;
        let (quotas, charged, cost) = (Arc::clone(quotas), standings.clone(), *cost);
        Some(Box::new(Self { class, places, quotas, charged, cost }))
    }
}

impl Limiter {
    /// Settles what the head of the response decides: a refund, or a cost that a header states. `headers` is the response's header map as the
    /// host serializes it. `report` then says where the client stands afterwards. Returns the reservation if it is still to be settled.
    pub fn settle_by_response(
        &mut self,
        host: &mut impl Host,
        reservation: Box<Reservation>,
        headers: &[u8],
        report: &mut Report,
    ) -> Option<Box<Reservation>> {
        let config = Arc::clone(&self.config);
        let class = config.catalog.classes.get(reservation.class)?;
        let headers = HeaderPairs::parse(headers);
        let refunds = headers.and_then(status).is_some_and(|status| class.refund.contains(status));
        let due = match &class.actual {
            _ if refunds => Due::Refund,
            Some(CostSource::ResponseHeader(name)) => match headers.and_then(|headers| stated(headers, name))
            {
                Some(units) => Due::Units(units),
                None => return Some(reservation),
            },
            Some(CostSource::Metadata(_)) => return Some(reservation),
            None => return None,
        };
        if refunds {
            self.tally(SettlementEvent::Refunded);
        }
        self.settle(host, &config, &reservation, due, Some(report));
        None
    }

    /// Settles a reservation that is left when the stream ends. Its metadata may state the cost.
    pub fn settle_at_end(&mut self, host: &mut impl Host, reservation: &Reservation) {
        let config = Arc::clone(&self.config);
        let source = config.catalog.classes.get(reservation.class).map(|class| &class.actual);
        let units = match source {
            Some(Some(CostSource::Metadata(path))) => host.property(path).map(|value| units(&value?)),
            Some(Some(CostSource::ResponseHeader(_))) => Ok(None),
            // A response that was not refunded, or none.
            Some(None) | None => return,
        };
        match units {
            Ok(Some(units)) => self.settle(host, &config, reservation, Due::Units(units), None),
            Ok(None) => self.tally(SettlementEvent::UnknownCost),
            Err(error) => {
                self.tally(SettlementEvent::UnknownCost);
                self.log_error(host, "the cost of a request could not be read", error.into());
            }
        }
    }

    /// Whether an event may occur, by the configuration and by what the directory answered last.
    #[must_use]
    pub fn may_see(&self, event: SettlementEvent) -> bool {
        let gives_back = self.config.subscribers.has_organisations()
            || self.directory.as_ref().is_some_and(|directory| directory.has_organisations());
        event.is_possible(self.config.settles(), gives_back)
    }

    /// Takes the sums of [`SettlementEvent::ALL`] since the last time.
    pub fn drain_settlements(&mut self) -> SettlementTally {
        core::mem::take(&mut self.settlements)
    }

    fn settle(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        reservation: &Reservation,
        due: Due,
        report: Option<&mut Report>,
    ) {
        let Reservation { places, quotas, charged, cost, .. } = reservation;
        if due == Due::Units(*cost) {
            return;
        }
        let mut charged = charged.as_slice();
        let (mut after, mut at) = (Standings::new(), None);
        for (place, quotas) in places.parts(quotas) {
            let charge = Charge { fingerprint: place.fingerprint(), quotas, cost: *cost };
            let (of_part, others) = charged.split_at_checked(quotas.len()).unwrap_or_default();
            charged = others;
            let settlement = Settlement { charge, charged: of_part, due };
            match self.settle_record(host, config, place, &settlement) {
                Some((standings, instant)) => {
                    at = Some(instant);
                    after.extend(standings);
                }
                None => after.extend(of_part.iter().copied()),
            }
        }
        if let (Some(at), Some(report)) = (at, report) {
            (report.standings, report.at) = (after, at);
        }
    }

    /// Settles the charge of one record. Returns where the counter stands afterwards, and the instant. A settlement that could not be stored
    /// is counted and logged.
    pub(super) fn settle_record(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        place: Place,
        settlement: &Settlement<'_>,
    ) -> Option<(Standings, Timestamp)> {
        let mut standings = Standings::new();
        let counters = open(&mut self.counters, config, host);
        let settled = counters.and_then(|counters| {
            counters.settle(host, place, settlement, &mut standings).map_err(DecideError::from)
        });
        match settled {
            Ok(at) => Some((standings, at)),
            Err(error) => {
                self.tally(SettlementEvent::Failed);
                self.log_error(host, "a charge could not be settled", error);
                None
            }
        }
    }

    pub(super) fn tally(&mut self, event: SettlementEvent) {
        if let Some(sum) = self.settlements.get_mut(event as usize) {
            *sum = sum.saturating_add(1);
        }
    }
}

fn status(headers: HeaderPairs<'_>) -> Option<u16> {
    str::from_utf8(headers.get(":status")?).ok()?.parse().ok()
}

/// The cost in a header; `None` unless the response has exactly one of this name.
fn stated(headers: HeaderPairs<'_>, name: &str) -> Option<u32> {
    let mut values = headers.get_all(name);
    let value = values.next().filter(|_| values.next().is_none())?;
    whole_number(value.trim_ascii())
}

/// The cost in a metadata value. Hosts hand over a number as eight bytes: those of a double, or of an integer. A double that is a whole number
/// from 1 is an integer of at least 2⁶¹, which no request costs.
fn units(value: &[u8]) -> Option<u32> {
    whole_number(value).or_else(|| {
        let bytes = value.as_array::<8>()?;
        let (double, integer) = (f64::from_le_bytes(*bytes), u64::from_le_bytes(*bytes));
        if double >= 1.0 && double.fract() == 0.0 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
            return Some(double as u32);
        }
        (integer < 1 << 61).then(|| u32::try_from(integer).unwrap_or(u32::MAX))
    })
}

/// A whole number in decimal digits; the largest that a count holds for a larger one.
fn whole_number(text: &[u8]) -> Option<u32> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let add = |sum: u32, digit: &u8| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    digits.then(|| text.iter().fold(0, add))
}
