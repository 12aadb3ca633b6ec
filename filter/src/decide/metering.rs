//! Adding up what callers have used, and reporting it.
//!
//! A request that went on counts with the units that it was due: at once, or when its charge is settled. One that the filter answered in the
//! upstream's place was refused.

use std::rc::Rc;
use std::sync::Arc;

use ledger_wire::Hex128;

use super::counting::{Charged, Context, DecideError};
use super::decision::{Answer, Decided};
use super::host::{Host, LogLevel};
use super::limiter::Limiter;
use super::usage::Subscriber;
use crate::config::{Class, Entitlement};
use crate::count::charge::{SharedName, Standing, Standings};
use crate::count::fingerprint::{KeyDigest, Who};
use crate::count::levels::Levels;
use crate::count::settle::Due;
use crate::fleet::messages::gateway;
use crate::quota::{Mode, QuotaSet};
use crate::usage::batch::News;
use crate::usage::meter::{Caller, Meter, Tightest};
use crate::usage::report::{Gateway, NotTaken, Reporter};
use crate::usage::threshold::{Crossed, Watch};

impl Limiter {
    /// The batch that is to be posted now, if there is one. It is the same until [`Limiter::reported`] says what has become of it.
    pub fn report(&mut self, host: &mut impl Host) -> Option<&[u8]> {
        // Taken out, because a batch needs the counters as well.
        let mut reporter = self.counting_mut().reporter.take()?;
        let mut context = self.context(host);
        let is_ready = context.is_ready(&mut reporter).unwrap_or_else(|error| {
            context.log_error("usage could not be reported", error);
            false
        });
        self.counting_mut().reporter.insert(reporter).batch().filter(|_| is_ready)
    }

    /// The batch was answered with this status, or not at all.
    pub fn reported(&mut self, host: &mut impl Host, status: Option<u16>) {
        let now = host.now().unwrap_or_default();
        let counting = self.counting_mut();
        let Some(Err(error)) = counting.reporter.as_mut().map(|reporter| reporter.answered(status, now))
        else {
            return;
        };
        let level = match error {
            NotTaken::Refused { .. } => LogLevel::Error,
            NotTaken::Status(_) | NotTaken::Unanswered => LogLevel::Warn,
        };
        if let Some(left_out) = counting.not_taken.admit(error.clone(), Some(now)) {
            host.log(level, format_args!("weir: usage: {error}{left_out}"));
        }
    }

    /// The configuration ends. Returns whether something is still to be reported.
    pub fn end_reports(&mut self) -> bool {
        self.counting_mut().reporter.as_mut().is_some_and(Reporter::end)
    }

    /// Whether the configuration ends, and all was reported that could be.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.counting().reporter.as_ref().is_some_and(Reporter::has_ended)
    }
}

impl<H: Host> Gateway for Context<'_, H> {
    type Error = DecideError;

    fn names(&mut self) -> Result<(Hex128, u64), DecideError> {
        let source = gateway(self.open()?.salt());
        let random = self.host.random()?;
        Ok((source, random.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))))
    }

    fn shares(&self, meter: &Meter) -> bool {
        self.is_shared() && meter.watch().is_some()
    }

    fn news(&mut self, meter: &Rc<Meter>) -> Vec<News> {
        let standings = self.standings(meter).unwrap_or_else(|error| {
            self.log_error("what a caller has used could not be read", error);
            Standings::new()
        });
        self.news_of(meter, &standings)
    }
}

impl<H: Host> Context<'_, H> {
    fn is_ready(&mut self, reporter: &mut Reporter) -> Result<bool, DecideError> {
        reporter.is_ready(self.host.now()?, self)
    }

    /// Where a caller stands.
    fn standings(&mut self, meter: &Meter) -> Result<Standings, DecideError> {
        let Some((quotas, watch)) = meter.watch() else { return Ok(Standings::new()) };
        let (counters, _, host) = self.opened()?;
        let mut standings = Standings::new();
        for (counter, quotas) in watch.levels.counters().zip([quotas.own(), quotas.shared()]) {
            standings.extend(counters.standing(host, &counter, quotas)?);
        }
        Ok(standings)
    }

    /// The shares of its quotas that a caller who stands there has used, and that were not told yet.
    fn news_of(&mut self, meter: &Rc<Meter>, standings: &[Standing]) -> Vec<News> {
        let config = Arc::clone(&meter.config);
        let (Some((quotas, watch)), Some(settings)) = (meter.watch(), &config.settings.usage) else {
            return Vec::new();
        };
        let cost = config.catalog.classes.get(meter.class).map_or(1, Class::units);
        let news = watch.news(quotas, cost, &settings.thresholds, standings).into_iter();
        news.filter_map(|crossed| {
            let reset = self.reset_number(quotas, watch, &crossed).unwrap_or_else(|error| {
                self.log_error("the reset of a quota could not be read", error);
                0
            });
            let id = watch.id(quotas, &crossed, reset)?;
            Some(News { meter: Rc::clone(meter), crossed, id })
        })
        .collect()
    }

    fn reset_number(
        &mut self,
        quotas: &QuotaSet,
        watch: &Watch,
        crossed: &Crossed,
    ) -> Result<u64, DecideError> {
        let is_own = crossed.place < quotas.own().len();
        let counter = watch.levels.counters().nth(usize::from(!is_own));
        let (Some(counter), Some(quota)) = (counter, quotas.quotas().get(crossed.place)) else {
            return Ok(0);
        };
        let (counters, _, host) = self.opened()?;
        Ok(counters.reset_number(host, &counter, quota, &crossed.standing)?)
    }

    /// The meter of a caller's requests of a class, if they are reported.
    pub(super) fn meter(
        &self,
        subscriber: &Subscriber<'_>,
        class: usize,
        key: &KeyDigest,
        levels: &Levels,
    ) -> Option<Rc<Meter>> {
        let reporter = self.counting.reporter.as_ref()?;
        let quotas = match subscriber.entitlements.get(class) {
            Some(Entitlement::Quotas(quotas)) => Some(Arc::clone(quotas)),
            Some(Entitlement::Unlimited | Entitlement::NotInPlan) | None => None,
        };
        let config = self.config;
        let names = || {
            let organisation = subscriber.organisation.map_or(subscriber.who, Who::Organisation);
            let class = config.class_name(class);
            [subscriber.who, organisation].map(|who| SharedName::new(&config.settings.namespace, who, class))
        };
        let is_told = config.settings.enforcement == Mode::Enforced
            && config.settings.usage.as_ref().is_some_and(|usage| !usage.thresholds.is_empty());
        let watch = quotas.as_ref().filter(|_| is_told).and_then(|quotas| Watch::new(quotas, levels, names));
        let caller = Caller {
            subscriber: subscriber.id.map(Arc::from),
            key: key.first_chunk().copied().unwrap_or_default(),
            organisation: subscriber.organisation.map(Arc::from),
            plan: subscriber.plan,
            quotas,
            watch,
        };
        Some(reporter.meter(class, caller))
    }

    /// Adds a caller's request to its meter, or has it added when its charge is settled, or it has waited.
    pub(super) fn measure(&mut self, decided: &mut Decided, meter: &Rc<Meter>) {
        let waits = matches!(decided.answer.as_deref(), Some(Answer::Later(_)));
        let passes = decided.answer.is_none();
        let cost = self.config.catalog.classes.get(decided.class).map_or(1, Class::units);
        match &mut decided.charged {
            Some(charged) if waits || charged.is_open => charged.meter = Some(Rc::clone(meter)),
            charged => self.add(meter, charged.as_ref(), passes.then_some(cost)),
        }
    }

    /// Adds a request whose charge is settled.
    pub(super) fn measure_settled(&mut self, charged: &mut Charged, due: Due) {
        let Some(meter) = charged.meter.take() else { return };
        let units = match due {
            Due::Units(units) => units,
            Due::Refund => 0,
        };
        self.add(&meter, Some(charged), Some(units));
    }

    /// Adds a caller's request that could not be counted.
    #[cold]
    pub(super) fn measure_failed(&mut self, class: usize, meter: &Rc<Meter>) {
        let mut failed = Decided { class, ..Decided::default() };
        failed.fail(self.config);
        self.measure(&mut failed, meter);
    }

    /// Adds a stranger's request.
    #[cold]
    pub(super) fn measure_stranger(&mut self, decided: &Decided) {
        if let Some(reporter) = &mut self.counting.reporter {
            // It is charged one unit, whatever its class.
            reporter.add_stranger(decided.class, decided.answer.is_none().then_some(1));
        }
    }

    fn add(&mut self, meter: &Rc<Meter>, charged: Option<&Charged>, used: Option<u32>) {
        let Some(reporter) = &mut self.counting.reporter else { return };
        reporter.add(meter, used);
        if let Some(charged) = charged {
            match (charged.quotas().quotas(), charged.standings.as_slice()) {
                // Nearly all classes have one quota, of a window.
                ([quota], [standing]) if quota.mode == Mode::Enforced && quota.window.is_shared() => {
                    meter.stands(Tightest { place: 0, used: standing.used, to: standing.reset(quota) });
                }
                _ => stands(meter, charged),
            }
            if let Some((_, watch)) = meter.watch()
                && watch.is_news(&charged.standings)
            {
                let news = self.news_of(meter, &charged.standings);
                if let Some(reporter) = &mut self.counting.reporter {
                    reporter.tell(news);
                }
            }
        }
    }
}

/// Notes where a caller stands in the tightest of several quotas.
fn stands(meter: &Meter, charged: &Charged) {
    let Some(tightest) = charged.tightest() else { return };
    let mut quotas = charged.quotas().quotas().iter();
    let place = quotas.position(|quota| core::ptr::eq(quota, tightest.quota)).unwrap_or_default();
    meter.stands(Tightest { place, used: tightest.standing.used, to: tightest.reset });
}
