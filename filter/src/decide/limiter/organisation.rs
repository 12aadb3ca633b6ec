//! Two levels of quotas: the caller's, and those that its organisation shares.
//!
//! The caller's quotas are charged first, and then the organisation's. If those do not admit the request, the caller's charge is given back to
//! the counts that hold it. So no quota is ever exceeded, and a caller whose own quotas are used up takes nothing from its organisation. Until
//! the charge is given back, a concurrent request of the same caller may be refused. A VM that dies in between leaves the caller's charge until
//! its window ends.

use std::sync::Arc;

use super::{DecideError, Host, Limiter, Places, open};
use crate::count::consume::{Charge, Standings};
use crate::count::counters::{Counted, Place};
use crate::count::settle::{Due, Settlement};
use crate::decide::limiter::settlement::SettlementEvent;
use crate::decide::response_headers::Report;
use crate::quota::{Quota, QuotaSet};

impl Places {
    /// The quotas of each record that a request is charged to.
    pub(super) fn parts(self, quotas: &QuotaSet) -> impl Iterator<Item = (Place, &[Quota])> {
        let own = Some((self.own, quotas.own()));
        let shared = self.organisation.map(|place| (place, quotas.shared()));
        own.into_iter().chain(shared).filter(|(_, quotas)| !quotas.is_empty())
    }
}

impl Limiter {
    /// Charges a request, which its caller's quotas have admitted, to its organisation's.
    pub(super) fn charge_organisation(
        &mut self,
        host: &mut impl Host,
        (own, charge): (Place, Charge<'_>),
        (place, quotas): (Place, &[Quota]),
        report: &mut Report,
    ) -> Result<Counted, DecideError> {
        let counters = open(&mut self.counters, &self.config, host)?;
        let mut standings = Standings::new();
        let shared = Charge { fingerprint: place.fingerprint(), quotas, ..charge };
        let counted = counters.charge(host, place, shared, &mut standings);
        if !matches!(counted, Ok(Counted { admitted: true, .. })) {
            self.give_back(host, own, charge, report);
        }
        let counted = counted?;
        report.standings.extend(standings);
        report.at = counted.at;
        Ok(counted)
    }

    fn give_back(&mut self, host: &mut impl Host, own: Place, charge: Charge<'_>, report: &mut Report) {
        let config = Arc::clone(&self.config);
        let settlement = Settlement { charge, charged: &report.standings, due: Due::Units(0) };
        if let Some((standings, _)) = self.settle_record(host, &config, own, &settlement) {
            self.tally(SettlementEvent::GivenBack);
            report.standings = standings;
        }
    }
}
