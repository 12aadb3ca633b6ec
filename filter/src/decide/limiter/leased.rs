//! Deciding where a fleet shares its quotas: by leases, and without its service by what the configuration says.

use std::sync::Arc;

use super::{DecideError, Host, Limiter, Request, Verdict, conclude, open};
use crate::config::{Config, OnUnavailable};
use crate::count::consume::Standings;
use crate::count::counters::{Counted, Place};
use crate::count::draw::{Answer, Ask, Beyond, Draw, Drawn};
use crate::decide::fleet::{Wanted, local_share};
use crate::decide::outcome::Outcome;
use crate::decide::reply::Reply;
use crate::decide::response_headers::Report;
use crate::fleet::protocol::FleetId;
use crate::quota::{Mode, QuotaSet};
use crate::time::Timestamp;

/// A request that draws on leases: all that deciding on it again needs.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// The subscriber's plan, as an index into [`crate::config::Catalog::plans`].
    pub plan: usize,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub class: usize,
    /// Where its record is.
    pub counter: Place,
    /// Who is counted, as the fleet names it.
    pub who: FleetId,
    /// The quotas of the class.
    pub quotas: Arc<QuotaSet>,
    /// Units that the request costs.
    pub cost: u32,
}

impl Drawing {
    fn request(&self) -> Request {
        Request { plan: Some(self.plan), class: self.class }
    }
}

impl Limiter {
    /// Decides on a request by its leases, once more or for the first time.
    pub fn draw(&mut self, host: &mut impl Host, drawing: &Drawing, beyond: Beyond) -> Verdict {
        let config = Arc::clone(&self.config);
        match self.try_to_draw(host, &config, drawing, beyond) {
            Ok(verdict) => verdict,
            Err(error) => self.failed(host, &drawing.request(), error),
        }
    }

    /// Decides on a request that finds too little leased while the rate-limit service does not answer.
    pub fn draw_without_service(&mut self, host: &mut impl Host, drawing: &Drawing) -> Verdict {
        let config = Arc::clone(&self.config);
        match config.fleet.as_ref().map(|fleet| fleet.on_unavailable) {
            Some(OnUnavailable::Deny) => {
                drawing.request().refused(&config, [Outcome::Error], Reply::fleet_unavailable())
            }
            Some(OnUnavailable::Allow) => self.draw(host, drawing, Beyond::Pass),
            Some(share @ OnUnavailable::Local(_)) => {
                self.grant_itself(host, drawing, share);
                self.draw(host, drawing, Beyond::Nothing)
            }
            None => self.draw(host, drawing, Beyond::Nothing),
        }
    }

    /// Lets the gateway use its own share of each quota.
    fn grant_itself(&mut self, host: &mut impl Host, drawing: &Drawing, on_unavailable: OnUnavailable) {
        let Ok(now) = host.now() else { return };
        for (place, quota) in drawing.quotas.quotas().iter().enumerate() {
            if let Some(units) = local_share(on_unavailable, quota.limit.get())
                && quota.mode == Mode::Enforced
            {
                let ask = Ask { quota: place, index: quota.window.at(now).index, units };
                self.settle(host, drawing, ask, Answer::Own(units));
            }
        }
    }

    /// Brings the answer to `ask` into the record of `drawing`; whether its window lasts.
    pub fn settle(&mut self, host: &mut impl Host, drawing: &Drawing, ask: Ask, answer: Answer) -> bool {
        let Some(quota) = drawing.quotas.quotas().get(ask.quota) else { return false };
        let counters = open(&mut self.counters, &self.config, host);
        let settled =
            counters.and_then(|counters| Ok(counters.settle(host, drawing.counter, quota, ask, answer)?));
        settled.unwrap_or_else(|error| {
            self.log_error(host, "a lease could not be taken into account", error);
            false
        })
    }

    pub(super) fn try_to_draw(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        drawing: &Drawing,
        beyond: Beyond,
    ) -> Result<Verdict, DecideError> {
        let Some(fleet) = &config.fleet else { return Err(DecideError::NoFleet) };
        let at = Timestamp::from_seconds(0);
        let (quotas, cost) = (Arc::clone(&drawing.quotas), drawing.cost);
        let mut report = Box::new(Report { quotas, standings: Standings::new(), cost, at });
        let fingerprint = drawing.counter.fingerprint();
        let quotas = drawing.quotas.quotas();
        let draw = Draw { fingerprint, quotas, cost, terms: &fleet.terms, beyond };
        let (drawn, at) = self.open(host)?.draw(host, drawing.counter, &draw, &mut report.standings)?;
        report.at = at;

        let request = drawing.request();
        let wanted = |ask, waits| Some(Box::new(Wanted { drawing: drawing.clone(), ask, waits }));
        let counted = |admitted| Counted { admitted, at, overflowed: false, fingerprint };
        Ok(match drawn {
            Drawn::Short(ask) => Verdict { lease: wanted(ask, true), ..request.verdict([]) },
            Drawn::Admitted(low) => Verdict {
                lease: low.and_then(|ask| wanted(ask, false)),
                ..conclude(host, config, &request, report, None, &counted(true))
            },
            Drawn::Refused { .. } => conclude(host, config, &request, report, None, &counted(false)),
        })
    }
}
