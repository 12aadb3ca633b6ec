//! Calls to the rate-limit service: which are made, for how many units, and what is noted of them.

use super::{Event, FleetHost, PausedStreams, Subject};
use crate::config::{Config, FleetSettings, Limits};
use crate::count::consume::Shortage;
use crate::count::lease::WindowTime;
use crate::decide::host::LogLevel;
use crate::decide::limiter::{Asked, LeasedRequest, Limiter};
use crate::fleet::breaker::Sent;
use crate::fleet::lease_size;
use crate::fleet::protocol::Request;
use crate::time::Timestamp;
use crate::window::Window;

/// A call in flight.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) subject: Subject,
    pub(super) request: LeasedRequest,
    pub(super) asked: Asked,
    pub(super) sent: Sent,
    pub(super) at: Timestamp,
}

/// The result of [`PausedStreams::ask`].
pub(super) enum Ask {
    /// The call was sent.
    Sent(u32),
    /// A call in flight serves the requests.
    Served,
    /// It cannot be sent now.
    Later,
    /// The service does not answer.
    Unavailable,
}

fn message(
    config: &Config,
    fleet: &FleetSettings,
    request: &LeasedRequest,
    asked: Asked,
    index: u32,
) -> Vec<u8> {
    let quota = request.quota(asked.quota);
    let message = Request {
        domain: &fleet.domain,
        class: config.class_name(request.class),
        window: quota.map_or(Window::CalendarMonth, |quota| quota.window),
        plan: (fleet.limits == Limits::Configured).then(|| config.plan_name(request.plan)),
        index: fleet.window_index.then_some(index),
        who: &request.who,
        limit: quota.filter(|_| fleet.limits == Limits::Sent).map(|quota| quota.limit.get()),
        units: asked.units,
    };
    message.encode()
}

impl<S> PausedStreams<S> {
    /// Notes that a call is not in flight any more.
    pub(super) fn ended(&mut self, subject: Subject, asked: Asked) {
        if asked.refill {
            self.refilling.remove(&subject);
        }
        let Some(queue) = self.queues.get_mut(&subject) else { return };
        queue.calls = queue.calls.saturating_sub(1);
        queue.asked = queue.asked.saturating_sub(asked.units.into());
        if queue.streams.is_empty() && queue.calls == 0 {
            self.queues.remove(&subject);
        } else {
            self.has_unasked |= queue.unasked() > 0;
        }
    }

    /// Sends a call for the requests of `subject` that no call is in flight for.
    pub(super) fn ask<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        subject: Subject,
        now: Timestamp,
    ) -> Ask {
        let config = limiter.config().clone();
        let (Some(fleet), Some(queue)) = (&config.fleet, self.queues.get_mut(&subject)) else {
            return Ask::Served;
        };
        let in_flight = u32::try_from(queue.asked).unwrap_or(u32::MAX);
        let (unasked, Shortage { quota: index, count, lacking }) = (queue.unasked(), queue.shortage);
        let Some(request) = queue.streams.back().map(|paused| paused.request.clone()) else {
            return Ask::Served;
        };
        let Some(quota) = request.quota(index) else { return Ask::Served };
        if unasked == 0 {
            return Ask::Served;
        }
        // While the stored window is ahead of the clock, the service would charge another window.
        if WindowTime::of(quota.window, count.index, now).is_none() {
            return Ask::Later;
        }
        if queue.calls >= queue.most_calls {
            return Ask::Served;
        }
        if self.breaker.is_open() {
            return Ask::Unavailable;
        }
        let Some(sent) = self.breaker.permits(now) else { return Ask::Unavailable };
        // What the gateway owes is used up already, so that it is asked for whole.
        let debt = lacking.saturating_sub(request.cost);
        let most = debt.saturating_add(lease_size::most_for_waiting(quota, request.cost));
        let mut asked = Asked {
            quota: index,
            units: u32::try_from(unasked).unwrap_or(u32::MAX).min(most),
            refill: false,
        };
        if !self.refilling.contains(&subject)
            && let Some(refill) = limiter.claim_refill(
                host,
                &request,
                index,
                fleet.call_timeout(),
                (in_flight.saturating_add(asked.units).max(1), 0),
            )
        {
            // While requests wait, the key's rate has just risen, and a call for more than is left loses all that it asks for.
            asked = Asked { units: asked.units.saturating_add(refill.units).min(most), ..refill };
            self.refilling.insert(subject);
        }
        match host.call(fleet, &message(&config, fleet, &request, asked, count.index), fleet.call_timeout()) {
            Ok(call) => {
                queue.calls += 1;
                queue.asked += u64::from(asked.units);
                self.calls.insert(call, Call { subject, request, asked, sent, at: now });
                self.tally(Event::Called, 1);
                Ask::Sent(call)
            }
            Err(error) => {
                self.ended(subject, Asked { units: 0, ..asked });
                if error.is_refused() {
                    self.overloaded(subject);
                    return Ask::Later;
                }
                self.failed(host, sent, &error);
                Ask::Unavailable
            }
        }
    }

    pub(super) fn refill<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        fleet: &FleetSettings,
        subject: Subject,
        request: LeasedRequest,
        now: Timestamp,
    ) {
        if self.refilling.contains(&subject) {
            return;
        }
        let at_least = u32::from(self.breaker.is_open());
        let Some(sent) = self.breaker.permits(now) else { return };
        let (_, index) = subject;
        let in_flight = self.queues.get(&subject).map_or(0, |queue| queue.asked);
        let bounds = (u32::try_from(in_flight).unwrap_or(u32::MAX), at_least);
        let asked = limiter.claim_refill(host, &request, index, fleet.call_timeout(), bounds);
        let Some((asked, quota)) = asked.and_then(|asked| Some((asked, request.quota(index)?))) else {
            return self.breaker.withdrawn();
        };
        let window = quota.window.at(now).index;
        match host.call(
            fleet,
            &message(limiter.config(), fleet, &request, asked, window),
            fleet.call_timeout(),
        ) {
            Ok(call) => {
                self.refilling.insert(subject);
                self.calls.insert(call, Call { subject, request, asked, sent, at: now });
                self.tally(Event::Called, 1);
            }
            Err(error) => {
                self.breaker.withdrawn();
                if !error.is_refused() {
                    self.failed(host, sent, &error);
                }
            }
        }
    }

    /// Notes that the gateway did not send a call, because too many are in flight: not an outage. Those that wait for it ask again when
    /// others are answered.
    pub(super) fn overloaded(&mut self, subject: Subject) {
        self.breaker.withdrawn();
        if let Some(queue) = self.queues.get_mut(&subject) {
            queue.most_calls = queue.calls.max(1);
        }
        self.has_unasked = true;
    }

    pub(super) fn failed<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        sent: Sent,
        error: &dyn core::fmt::Display,
    ) {
        self.tally(Event::Failed, 1);
        // Without a time the pause ends at once, and the next call tries again.
        let now = host.now().unwrap_or(Timestamp::from_seconds(0));
        if self.breaker.failed(sent, now) {
            host.log(LogLevel::Error, format_args!("weir: fleet: {error}; on_unavailable decides"));
        }
    }

    pub(super) fn report_unconfigured<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        config: &Config,
        request: &LeasedRequest,
        asked: Asked,
    ) {
        if core::mem::replace(&mut self.reported_unconfigured, true) {
            return;
        }
        let window = request.quota(asked.quota).map_or(Window::CalendarMonth, |quota| quota.window);
        host.log(
            LogLevel::Error,
            format_args!(
                "weir: fleet: the rate-limit service has no limit for class {} and window {}; configure it (weir-limits prints the \
                 limits) or set fleet.limits to \"sent\"; on_unavailable decides",
                config.class_name(request.class),
                window.short_name()
            ),
        );
    }
}
