//! Keeps the directory's list current for one configuration, and shows its requests what has changed.

use core::time::Duration;

use super::log::logged;
use super::metrics::Metrics;
use crate::count::shared_data::HostError;
use crate::count::swap::CounterHost as _;
use crate::decide::host::LogLevel;
use crate::decide::limiter::Limiter;
use crate::directory::{Directory, News, Pace, Poll, Readiness, Report};
use crate::event::Event;
use crate::host::{self, Gateway};
use crate::request::header_pairs::HeaderPairs;

/// Interval of the tick on which a VM looks at the list, in milliseconds.
pub(super) const TICK: u32 = 100;
/// The same while it has rows to store: at least half of its time is the requests'.
const WORKING_TICK: u32 = 2;

/// Slices between which a worker has a round of its event loop.
const SHORT: Pace = Pace { slice: Duration::from_millis(2), most_units: 1024 };
/// Where the interval of ticks can be set but once.
const LONG: Pace = Pace { slice: Duration::from_millis(20), most_units: 10 * 1024 };

/// The directory of a configuration, and the poll that is in flight.
pub(super) struct Poller {
    directory: Directory,
    in_flight: Option<u32>,
    /// `None` before there was work.
    pace: Option<Pace>,
    is_working: bool,
}

impl Poller {
    pub(super) fn new(directory: Directory) -> Self {
        Self { directory, in_flight: None, pace: None, is_working: false }
    }

    /// Takes or renews the lead, and does what a leader has to do. Within a callback of the root context.
    pub(super) fn tick(&mut self, limiter: &mut Limiter, metrics: &mut Metrics) {
        let Ok(now) = Gateway.now() else { return };
        logged(self.directory.tick(&mut Gateway, now));
        self.work(limiter, metrics);
    }

    /// Takes the answer to a call, if that is the poll in flight; `answered` is false if there is none.
    pub(super) fn answer(
        &mut self,
        (limiter, metrics): (&mut Limiter, &mut Metrics),
        call: u32,
        answered: bool,
        body_size: usize,
    ) {
        if self.in_flight.take_if(|poll| *poll == call).is_none() {
            return;
        }
        let (head, body) = logged(host::call_answer(answered, body_size));
        let head = HeaderPairs::parse(head.as_ref());
        let head = head.and_then(|head| Some((head.get(":status")?, head.get("etag"))));
        let Ok(now) = Gateway.now() else { return };
        log(self.directory.answer(&mut Gateway, head, body, now));
        self.work(limiter, metrics);
    }

    /// Gives the lead up.
    pub(super) fn give_up(&mut self) {
        logged(self.directory.give_up(&mut Gateway));
    }

    pub(super) fn retire(&mut self) {
        self.directory.retire();
    }

    fn work(&mut self, limiter: &mut Limiter, metrics: &mut Metrics) {
        if self.directory.has_work() {
            let pace = *self.pace.get_or_insert_with(|| {
                match logged(self.directory.host_sets_ticks_again(&mut Gateway)) {
                    true => SHORT,
                    false => LONG,
                }
            });
            log(self.directory.work(&mut Gateway, &limiter.config().catalog, pace));
        }
        self.poll();
        let is_working = self.directory.has_work() && self.pace == Some(SHORT);
        if core::mem::replace(&mut self.is_working, is_working) != is_working {
            logged(host::set_tick_period(if is_working { WORKING_TICK } else { TICK }));
        }
        self.report(limiter);
        if let Some(status) = self.directory.status() {
            metrics.show(status);
        }
        match logged(limiter.look_at_directory(&mut Gateway)) {
            Some(Readiness::Stale) => {
                let problem = format_args!("weir: directory: too stale, its keys are not known any more");
                Gateway.log(LogLevel::Error, problem);
            }
            Some(Readiness::Foreign) => Gateway.log(
                LogLevel::Warn,
                format_args!(
                    "weir: directory: the list of keys is that of another configuration's directory; it changes hands when this one answers. \
                     Where both are to stay, give one of them a namespace"
                ),
            ),
            Some(Readiness::Partial | Readiness::Complete) | None => {}
        }
    }

    /// Sends the poll that is due.
    fn poll(&mut self) {
        let Ok(now) = Gateway.now() else { return };
        if self.in_flight.is_some() {
            return;
        }
        match self.directory.poll(now).map(|poll| send(&poll)) {
            None => {}
            Some(Ok(call)) => self.in_flight = Some(call),
            Some(Err(error)) => log(self.directory.not_sent(&mut Gateway, error, now)),
        }
    }

    fn report(&mut self, limiter: &mut Limiter) {
        let Report { changed, unchanged, failed, malformed, broken_off, bytes, skipped, led } =
            self.directory.report();
        let sums = [
            (Event::DirectoryChanged, changed),
            (Event::DirectoryUnchanged, unchanged),
            (Event::DirectoryFailed, failed),
            (Event::DirectoryMalformed, malformed),
            (Event::DirectoryBrokenOff, broken_off),
            (Event::DirectoryBytes, bytes),
            (Event::DirectorySkipped, skipped),
            (Event::DirectoryLed, led),
        ];
        for (event, times) in sums {
            limiter.count(event, times);
        }
        if led > 0 {
            Gateway.log(LogLevel::Info, format_args!("weir: directory: this VM polls it from now on"));
        }
    }
}

fn log(news: Option<News>) {
    match news {
        None => {}
        Some(News::Failure(failure)) => {
            Gateway.log(LogLevel::Error, format_args!("weir: directory: {failure}"));
        }
        Some(News::AnswersAgain) => {
            Gateway.log(LogLevel::Info, format_args!("weir: directory: answers again"));
        }
    }
}

fn send(poll: &Poll<'_>) -> Result<u32, HostError> {
    let mut headers = vec![
        (":method", "GET"),
        (":path", poll.path.as_str()),
        (":authority", poll.authority),
        ("accept", "application/json"),
    ];
    headers.extend(poll.authorization.as_deref().map(|value| ("authorization", value)));
    headers.extend(poll.if_none_match.as_deref().map(|etag| ("if-none-match", etag)));
    host::http_call(poll.cluster, headers, None, poll.timeout)
}
