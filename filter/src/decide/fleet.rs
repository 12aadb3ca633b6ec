//! One VM's part in a fleet: the leases it has asked for, and the requests that wait for them.
//!
//! A worker asks for one lease of a counter at a time, whoever needs it; what all workers of a gateway hold is one record in shared data.
//! A request waits only if nothing is left to draw from, and never longer than the timeout: afterwards, as when the service is known not
//! to answer, `on_unavailable` decides.

use std::collections::HashMap;

use crate::config::{Config, FleetSettings, Limits, OnUnavailable};
use crate::count::counters::Place;
use crate::count::draw::{Answer, Ask, Beyond};
use crate::count::shared_data::HostError;
use crate::decide::limiter::{Drawing, Host, Limiter, LogLevel, Verdict};
use crate::decide::metric;
use crate::fleet::protocol::{Request, Response, Unusable};
use crate::time::Timestamp;

/// The pause after a call that failed, in milliseconds: this, doubled with each further one,
const FIRST_PAUSE: u32 = 500;
/// up to this.
const LONGEST_PAUSE: u32 = 8_000;

/// How much longer than the timeout a request waits while the service's clock is in another window than the gateway's, in milliseconds.
const SKEW: u32 = 1_000;

/// The host as a fleet needs it.
pub trait FleetHost: Host {
    /// Sends `message` to the rate-limit service; what tells its answer from others.
    ///
    /// # Errors
    /// If the host does not send it.
    fn call(&mut self, fleet: &FleetSettings, message: &[u8]) -> Result<u32, HostError>;

    /// Whether a stream still exists.
    fn lives(&mut self, stream: u32) -> bool;
}

/// What becomes of a call, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was sent.
    Called,
    /// Units were granted.
    Granted,
    /// The limit was exceeded.
    OverLimit,
    /// There was no answer, or none of use.
    Failed,
    /// The answer was about another window.
    Dropped,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Called, Self::Granted, Self::OverLimit, Self::Failed, Self::Dropped];

    /// The metric.
    #[must_use]
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Called => metric::FLEET_CALLS,
            Self::Granted => metric::FLEET_UNITS,
            Self::OverLimit => metric::FLEET_OVER_LIMIT,
            Self::Failed => metric::FLEET_FAILED,
            Self::Dropped => metric::FLEET_DROPPED,
        }
    }
}

/// A lease that a decision wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The request that was decided on.
    pub drawing: Drawing,
    /// The lease.
    pub ask: Ask,
    /// Whether the request waits for it.
    pub waits: bool,
}

/// A request that waits for a lease.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Its stream.
    pub stream: u32,
    /// Whether its client reads gRPC.
    pub is_grpc: bool,
    /// Whether a browser's script has sent it, to which the response may have to name our headers.
    pub has_origin: bool,
}

#[derive(Debug)]
struct Waiter {
    waiting: Waiting,
    drawing: Drawing,
    since: Timestamp,
    /// In another window than the service; it asks again at the next tick.
    skewed: bool,
}

#[derive(Debug)]
struct Call {
    drawing: Drawing,
    ask: Ask,
    waiters: Vec<Waiter>,
}

/// What a call is about: a counter, which of its quotas, and which window of that.
type Subject = (Place, usize, u32);

fn subject(drawing: &Drawing, ask: Ask) -> Subject {
    (drawing.counter, ask.quota, ask.index)
}

/// Requests that were decided on after they had waited.
pub type Decided = Vec<(Waiting, Verdict)>;

/// The calls of one configuration in one VM.
#[derive(Debug)]
pub struct Fleet {
    /// Whether [`Fleet::tick`] will be called.
    ticks: bool,
    calls: HashMap<u32, Call>,
    under_way: HashMap<Subject, u32>,
    parked: Vec<Waiter>,
    breaker: Breaker,
    decided: Decided,
    /// By the events' places in [`Event::ALL`].
    tally: [u32; Event::ALL.len()],
}

impl Fleet {
    /// Without ticks, nobody waits until two clocks are in the same window.
    #[must_use]
    pub fn new(ticks: bool) -> Self {
        Self {
            ticks,
            calls: HashMap::default(),
            under_way: HashMap::default(),
            parked: Vec::new(),
            breaker: Breaker::default(),
            decided: Vec::new(),
            tally: Default::default(),
        }
    }

    /// Sees to a lease that a decision wants. A request that cannot wait for it is among [`Fleet::decided`].
    pub fn want(
        &mut self,
        host: &mut impl FleetHost,
        limiter: &mut Limiter,
        wanted: Wanted,
        waiting: Option<Waiting>,
    ) {
        let Wanted { drawing, ask, waits } = wanted;
        let since = host.now().unwrap_or(Timestamp::from_seconds(0));
        let waiter = waiting.filter(|_| waits).map(|waiting| {
            let drawing = drawing.clone();
            Waiter { waiting, drawing, since, skewed: false }
        });
        self.ask(host, limiter, drawing, ask, waiter.into_iter().collect());
    }

    /// Takes the requests that were decided on since the last time.
    pub fn decided(&mut self) -> Decided {
        core::mem::take(&mut self.decided)
    }

    /// Takes how often each of [`Event::ALL`] has come since the last time; units of [`Event::Granted`].
    pub fn drain(&mut self) -> [u32; Event::ALL.len()] {
        core::mem::take(&mut self.tally)
    }

    fn tally(&mut self, event: Event, amount: u32) {
        if let Some(sum) = self.tally.get_mut(event as usize) {
            *sum = sum.saturating_add(amount);
        }
    }

    /// Whether this fleet has made the call.
    #[must_use]
    pub fn has_made(&self, call: u32) -> bool {
        self.calls.contains_key(&call)
    }

    /// Takes the answer to a call: first into the record, also if nobody waits for it any more, then for those who wait.
    pub fn answer(
        &mut self,
        host: &mut impl FleetHost,
        limiter: &mut Limiter,
        call: u32,
        response: Result<Response, Unusable>,
    ) {
        let Some(Call { drawing, ask, waiters }) = self.calls.remove(&call) else { return };
        self.under_way.remove(&subject(&drawing, ask));
        let answered = response.map_err(|error| error.to_string());
        let answered = answered.and_then(|response| match host.now() {
            Ok(now) => Ok((response, now)),
            Err(error) => Err(error.to_string()),
        });
        let (response, now) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                self.fail(host, &error);
                limiter.settle(host, &drawing, ask, Answer::Nothing);
                return self.decide_without(host, limiter, waiters);
            }
        };
        if self.breaker.succeeds() {
            host.log(LogLevel::Info, format_args!("weir: fleet: the rate-limit service answers again"));
        }
        let skewed = is_of_another_window(&drawing, ask, response, now);
        let answer = match response {
            _ if skewed => Answer::Nothing,
            Response { over_limit: true, left, .. } => Answer::OverLimit { left },
            Response { over_limit: false, left, .. } => Answer::Granted { left },
        };
        let settled = limiter.settle(host, &drawing, ask, answer);
        match answer {
            Answer::Granted { .. } if settled => self.tally(Event::Granted, ask.units),
            Answer::OverLimit { .. } if settled => self.tally(Event::OverLimit, 1),
            _ => self.tally(Event::Dropped, 1),
        }
        match (skewed, self.ticks) {
            (true, true) => {
                let skewed = |waiter| Waiter { skewed: true, ..waiter };
                self.parked.extend(waiters.into_iter().map(skewed));
            }
            (true, false) => self.decide_without(host, limiter, waiters),
            (false, _) => self.decide(host, limiter, waiters, now),
        }
    }

    /// Asks again for those who wait until their gateway's clock and the service's are in one window.
    pub fn tick(&mut self, host: &mut impl FleetHost, limiter: &mut Limiter) {
        if self.parked.is_empty() {
            return;
        }
        let parked = core::mem::take(&mut self.parked);
        match host.now() {
            Ok(now) => self.decide(host, limiter, parked, now),
            Err(_) => self.decide_without(host, limiter, parked),
        }
    }

    /// Decides on all who wait, as nobody will answer any more.
    pub fn end(&mut self, host: &mut impl FleetHost, limiter: &mut Limiter) {
        self.under_way.clear();
        let calls = core::mem::take(&mut self.calls).into_values().flat_map(|call| call.waiters);
        let waiters = calls.chain(core::mem::take(&mut self.parked)).collect();
        self.decide_without(host, limiter, waiters);
    }

    fn ask(
        &mut self,
        host: &mut impl FleetHost,
        limiter: &mut Limiter,
        drawing: Drawing,
        ask: Ask,
        waiters: Vec<Waiter>,
    ) {
        let subject = subject(&drawing, ask);
        if let Some(call) = self.under_way.get(&subject).and_then(|call| self.calls.get_mut(call)) {
            call.waiters.extend(waiters);
            return;
        }
        let may_call = host.now().is_ok_and(|now| self.breaker.may_call(now));
        let config = limiter.config().clone();
        let called = match &config.fleet {
            Some(fleet) if may_call => {
                host.call(fleet, &message(&config, fleet, &drawing, ask)).map_err(Some)
            }
            _ => Err(None),
        };
        match called {
            Ok(call) => {
                self.tally(Event::Called, 1);
                self.under_way.insert(subject, call);
                self.calls.insert(call, Call { drawing, ask, waiters });
            }
            Err(error) => {
                if let Some(error) = error {
                    self.fail(host, &error);
                }
                limiter.settle(host, &drawing, ask, Answer::Nothing);
                self.decide_without(host, limiter, waiters);
            }
        }
    }

    /// Takes note of a call that came to nothing.
    fn fail(&mut self, host: &mut impl FleetHost, error: &dyn core::fmt::Display) {
        self.tally(Event::Failed, 1);
        // Without a time the pause ends at once, and the next call tries again.
        let now = host.now().unwrap_or(Timestamp::from_seconds(0));
        if self.breaker.fails(now) {
            host.log(LogLevel::Error, format_args!("weir: fleet: {error}; on_unavailable decides"));
        }
    }

    /// Decides again on those who have waited; some may have to go on waiting.
    fn decide(
        &mut self,
        host: &mut impl FleetHost,
        limiter: &mut Limiter,
        waiters: Vec<Waiter>,
        now: Timestamp,
    ) {
        let timeout = limiter.config().fleet.as_ref().map_or(0, |fleet| fleet.terms.timeout);
        for waiter in waiters {
            let Waiter { waiting, drawing, since, skewed } = waiter;
            if !host.lives(waiting.stream) {
                continue;
            }
            let mut verdict = limiter.draw(host, &drawing, Beyond::Ask);
            let wanted = verdict.lease.take();
            let waits = wanted.as_ref().is_some_and(|wanted| wanted.waits);
            let patience = if skewed { timeout.saturating_add(SKEW) } else { timeout };
            let waiter = match waits {
                false => {
                    self.decided.push((waiting, verdict));
                    None
                }
                true => Some(Waiter { waiting, drawing, since, skewed }),
            };
            match (wanted, waiter) {
                (_, Some(waiter)) if now.milliseconds_after(waiter.since) >= patience => {
                    self.decide_without(host, limiter, vec![waiter]);
                }
                (Some(wanted), waiter) => {
                    let Wanted { drawing, ask, .. } = *wanted;
                    self.ask(host, limiter, drawing, ask, waiter.into_iter().collect());
                }
                (None, _) => {}
            }
        }
    }

    /// Decides on those for whom the service has no answer.
    fn decide_without(&mut self, host: &mut impl FleetHost, limiter: &mut Limiter, waiters: Vec<Waiter>) {
        for Waiter { waiting, drawing, .. } in waiters {
            if host.lives(waiting.stream) {
                let verdict = limiter.draw_without_service(host, &drawing);
                self.decided.push((waiting, verdict));
            }
        }
    }
}

/// Whether the answer is about another window than the ask: the service's clock differs by so much.
fn is_of_another_window(drawing: &Drawing, ask: Ask, response: Response, now: Timestamp) -> bool {
    let (Some(quota), Some(until_reset)) = (drawing.quotas.quotas().get(ask.quota), response.until_reset)
    else {
        return false;
    };
    let period = quota.window.period(ask.index);
    let end = now.seconds().saturating_add(until_reset);
    2 * end.abs_diff(period.end) > period.end.saturating_sub(period.start)
}

fn message(config: &Config, fleet: &FleetSettings, drawing: &Drawing, ask: Ask) -> Vec<u8> {
    let quota = drawing.quotas.quotas().get(ask.quota);
    let request = Request {
        domain: &fleet.domain,
        class: config.class_name(drawing.class),
        window: quota.map_or(crate::window::Window::CalendarMonth, |quota| quota.window),
        plan: (fleet.limits == Limits::Configured).then(|| config.plan_name(drawing.plan)),
        index: fleet.window_index.then_some(ask.index),
        who: &drawing.who,
        limit: quota.filter(|_| fleet.limits == Limits::Sent).map(|quota| quota.limit.get()),
        units: ask.units,
    };
    request.encode()
}

/// How many units of `limit` a gateway may use in a window by itself, if it may.
pub(crate) fn local_share(on_unavailable: OnUnavailable, limit: u32) -> Option<u32> {
    match on_unavailable {
        OnUnavailable::Local(percent) => u32::try_from(u64::from(limit) * u64::from(percent) / 100).ok(),
        OnUnavailable::Allow | OnUnavailable::Deny => None,
    }
}

/// Keeps requests from waiting for a service that does not answer: after a failure it is not called for a while, and then once.
#[derive(Debug, Default)]
struct Breaker {
    /// Milliseconds; 0 while the service answers.
    pause: u32,
    failed: Option<Timestamp>,
    /// Whether the one call is under way.
    tries: bool,
}

impl Breaker {
    fn may_call(&mut self, now: Timestamp) -> bool {
        match self.failed {
            None => true,
            // A clock that steps back ends the pause, too.
            Some(failed) if failed <= now && now.milliseconds_after(failed) < self.pause => false,
            Some(_) => !core::mem::replace(&mut self.tries, true),
        }
    }

    /// Takes note of a failure; whether the service answered until now.
    fn fails(&mut self, now: Timestamp) -> bool {
        let first = self.failed.is_none();
        // Calls that were under way when the first of them failed say nothing new.
        if first || self.tries {
            self.pause = if first { FIRST_PAUSE } else { (2 * self.pause).min(LONGEST_PAUSE) };
            self.failed = Some(now);
        }
        self.tries = false;
        first
    }

    /// Takes note of an answer; whether there was none before.
    fn succeeds(&mut self) -> bool {
        core::mem::take(self).failed.is_some()
    }
}

#[cfg(test)]
mod tests;
