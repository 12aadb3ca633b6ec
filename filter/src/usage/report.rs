//! When what was used is reported, and what becomes of a batch.

use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use ledger_wire::Hex128;

use super::batch::{Batch, Head, News, Writer};
use super::meter::{Caller, Meter, Sums};
use crate::config::Config;
use crate::time::Timestamp;

/// Most meters that have something to report: as many as the accounts of a VM.
const MOST: usize = 114_688;
/// So many have a report made before the interval ends.
const MANY: usize = MOST / 2;
/// The first pause before a batch is sent again, which is doubled up to the interval.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Most shares of quotas that wait to be told.
const MOST_NEWS: usize = 16_384;
/// For how long after its last request a caller of a fleet is looked at: until gateways that are idle have given back what they hold.
const LOOKED_AT: u64 = 10;

/// What the reports need of the gateway.
pub trait Gateway {
    /// What keeps it from naming.
    type Error;

    /// The name of the gateway process, and a random number.
    ///
    /// # Errors
    /// If the host has none.
    fn names(&mut self) -> Result<(Hex128, u64), Self::Error>;

    /// Whether others use the quotas of a caller, so that it may have used a share of one without a request.
    fn shares(&self, meter: &Meter) -> bool;

    /// The shares of its quotas that it has used, and that were not told yet.
    fn news(&mut self, meter: &Rc<Meter>) -> Vec<News>;
}

/// What has become of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The service refuses it for good.
    #[error("the service refuses a batch with status {status}, so the usage of {requests} requests is lost")]
    Refused {
        /// The status.
        status: u16,
        /// The requests in it.
        requests: u64,
    },
    /// The service takes none now.
    #[error("a batch was not taken: the service answered status {0}")]
    Status(u16),
    /// The service does not answer.
    #[error("a batch was not taken: the service did not answer")]
    Unanswered,
}

/// Reports what callers have used.
#[derive(Debug)]
pub struct Reporter {
    config: Arc<Config>,
    interval: Duration,
    /// The number of the next batch, and the random number of this VM once there is one.
    number: u64,
    vm: Option<u64>,
    /// When the interval began.
    began: Timestamp,
    /// Meters that have something to report.
    listed: Vec<Rc<Meter>>,
    /// Shares of quotas that are used.
    news: Vec<News>,
    /// What the interval that ended leaves to be put into batches, and when it began.
    due: (Vec<Rc<Meter>>, Vec<News>, Timestamp),
    /// The meters of strangers by class, once there are any.
    strangers: Vec<Rc<Meter>>,
    /// Batches that the service has not taken: this VM's, and those of configurations that ended.
    untaken: VecDeque<Batch>,
    /// How often in a row the first of them was not taken, and when it is sent again.
    failed: (u32, Timestamp),
    /// Whether the configuration ends.
    is_ending: bool,
    /// Requests whose usage was lost.
    lost: u64,
}

impl Reporter {
    /// The reporter of a configuration; `None` if it reports nothing.
    #[must_use]
    pub fn new(config: &Arc<Config>) -> Option<Self> {
        let settings = config.settings.usage.as_ref()?;
        Some(Self {
            config: Arc::clone(config),
            interval: Duration::from_secs(settings.interval.0.into()),
            number: 0,
            vm: None,
            began: Timestamp::default(),
            listed: Vec::new(),
            news: Vec::new(),
            due: Default::default(),
            strangers: Vec::new(),
            untaken: VecDeque::new(),
            failed: Default::default(),
            is_ending: false,
            lost: 0,
        })
    }

    /// A meter of a caller's requests of a class.
    #[must_use]
    pub fn meter(&self, class: usize, caller: Caller) -> Rc<Meter> {
        Rc::new(Meter::new(Arc::clone(&self.config), class, Some(caller)))
    }

    /// Adds a request that has used so many units, or was refused.
    #[inline]
    pub fn add(&mut self, meter: &Rc<Meter>, used: Option<u32>) {
        if !meter.is_listed.get() && !self.list(meter) {
            return;
        }
        let mut sums = meter.sums.get();
        sums.add(used);
        meter.sums.set(sums);
    }

    /// Adds a stranger's request of a class.
    #[cold]
    pub fn add_stranger(&mut self, class: usize, used: Option<u32>) {
        if self.strangers.is_empty() {
            let meter = |class| Rc::new(Meter::new(Arc::clone(&self.config), class, None));
            self.strangers = (0..self.config.catalog.classes.len()).map(meter).collect();
        }
        if let Some(meter) = self.strangers.get(class).map(Rc::clone) {
            self.add(&meter, used);
        }
    }

    /// Lists a meter that gets something to report. Returns whether there is room for it.
    #[cold]
    fn list(&mut self, meter: &Rc<Meter>) -> bool {
        let has_room = self.listed.len() + self.due.0.len() < MOST;
        match has_room {
            true => self.listed.push(Rc::clone(meter)),
            false => self.lost += 1,
        }
        meter.is_listed.set(has_room);
        has_room
    }

    /// Adds shares of quotas that are used.
    #[cold]
    pub fn tell(&mut self, news: Vec<News>) {
        self.news.extend(news);
        self.lost += self.news.drain(MOST_NEWS.min(self.news.len())..).count() as u64;
    }

    /// Whether a batch is to be sent now: that of [`Reporter::batch`]. If there is none, it is made.
    ///
    /// # Errors
    /// If the gateway has no names.
    pub fn is_ready<G: Gateway>(&mut self, now: Timestamp, gateway: &mut G) -> Result<bool, G::Error> {
        if self.untaken.is_empty() && self.is_due(now) {
            let (source, random) = gateway.names()?;
            let vm = *self.vm.get_or_insert(random);
            let batch = self.make(&Head { source, vm, number: self.number }, now, gateway);
            self.number += u64::from(batch.is_some());
            self.untaken.extend(batch);
        }
        // A clock that has stepped back has nobody wait for it.
        let (failures, until) = self.failed;
        let waits = failures > 0 && now < until && until.duration_since(now) <= self.interval;
        Ok(!self.untaken.is_empty() && (!waits || self.is_ending))
    }

    /// The batch that the service is to take next.
    #[must_use]
    pub fn batch(&self) -> Option<&[u8]> {
        self.untaken.front().map(|batch| batch.body.as_slice())
    }

    /// Whether there is something for a batch.
    fn is_due(&mut self, now: Timestamp) -> bool {
        if self.began == Timestamp::default() {
            self.began = now;
        }
        let is_over = now < self.began || now.duration_since(self.began) >= self.interval;
        if !self.has_due() && (is_over || self.is_ending || self.listed.len() >= MANY) {
            self.due = (core::mem::take(&mut self.listed), core::mem::take(&mut self.news), self.began);
            self.began = now;
        }
        self.has_due()
    }

    fn has_due(&self) -> bool {
        !(self.due.0.is_empty() && self.due.1.is_empty())
    }

    fn make(&mut self, head: &Head, now: Timestamp, gateway: &mut impl Gateway) -> Option<Batch> {
        let (due, news, from) = &mut self.due;
        let mut writer = Writer::new(head, *from, now);
        while let Some(crossed) = news.pop() {
            if !writer.push_crossed(&crossed) && !writer.is_empty() {
                news.push(crossed);
                return writer.finish();
            }
        }
        while let Some(meter) = due.pop() {
            if gateway.shares(&meter) && !self.is_ending {
                // They follow in the next batch.
                news.extend(gateway.news(&meter));
                let looks = meter.looks.get().saturating_sub(1);
                let all = (LOOKED_AT / self.interval.as_secs().max(1)) as u32 + 1;
                meter.looks.set(if meter.sums.get() == Sums::default() { looks } else { all });
            }
            if meter.sums.get() == Sums::default() {
                meter.is_listed.set(meter.looks.get() > 0);
                self.listed.extend(Some(meter).filter(|meter| meter.looks.get() > 0));
                continue;
            }
            if !writer.push(&meter) {
                if !writer.is_empty() {
                    due.push(meter);
                    break;
                }
                // Its names alone are longer than a batch may be.
                self.lost += meter.sums.get().all();
            }
            meter.sums.take();
            meter.is_listed.set(meter.looks.get() > 0);
            self.listed.extend(Some(meter).filter(|meter| meter.looks.get() > 0));
        }
        if due.is_empty() {
            // Its memory is that of a busy interval.
            *due = Vec::new();
        }
        writer.finish()
    }

    /// The first batch was answered with this status, or not at all.
    ///
    /// # Errors
    /// If it was not taken.
    pub fn answered(&mut self, status: Option<u16>, now: Timestamp) -> Result<(), NotTaken> {
        let result = match status {
            Some(200..=299) => Ok(()),
            Some(status @ 400..=499) if ![401, 403, 408, 429].contains(&status) => {
                let requests = self.untaken.front().map_or(0, |batch| batch.requests);
                self.lost += requests;
                Err(NotTaken::Refused { status, requests })
            }
            status => {
                let failures = self.failed.0.saturating_add(1);
                let pause = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(self.interval);
                self.failed = (failures, now.after(pause));
                if self.is_ending {
                    self.lose_all();
                }
                return Err(status.map_or(NotTaken::Unanswered, NotTaken::Status));
            }
        };
        self.failed = Default::default();
        self.untaken.pop_front();
        result
    }

    /// The configuration ends. Returns whether something is still to be reported, which then is so at once.
    pub fn end(&mut self) -> bool {
        self.is_ending = true;
        self.has_left()
    }

    /// Whether the configuration ends, and all was reported that could be.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_ending && !self.has_left()
    }

    fn has_left(&self) -> bool {
        !(self.untaken.is_empty() && self.listed.is_empty() && self.news.is_empty()) || self.has_due()
    }

    fn lose_all(&mut self) {
        self.news.clear();
        self.due.1.clear();
        let batches = self.untaken.drain(..).map(|batch| batch.requests);
        let meters = self.due.0.drain(..).chain(self.listed.drain(..)).map(|meter| meter.sums.take().all());
        self.lost += batches.sum::<u64>() + meters.sum::<u64>();
    }

    /// Takes over what a configuration that ends has not reported.
    pub fn take_over(&mut self, ended: &mut Self) {
        self.untaken.append(&mut ended.untaken);
        self.listed.append(&mut ended.due.0);
        self.listed.append(&mut ended.listed);
        self.tell(core::mem::take(&mut ended.due.1));
        self.tell(core::mem::take(&mut ended.news));
        for meter in self.listed.split_off(self.listed.len().min(MOST)) {
            self.lost += meter.sums.take().all();
        }
        self.lost += core::mem::take(&mut ended.lost);
        // It may have been used before this one's interval began, which the first tick does.
        let began = [self.began, ended.began].into_iter().filter(|began| *began != Timestamp::default());
        self.began = began.min().unwrap_or_default();
    }

    /// Takes the number of requests whose usage was lost.
    pub fn take_lost(&mut self) -> u64 {
        core::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests;
