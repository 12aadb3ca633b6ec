//! Keeps the directory's list current for one configuration, and shows its requests what has changed.

use core::time::Duration;

use super::log::logged;
use super::metrics::Metrics;
use crate::config::AS_IT_IS;
use crate::count::shared_data::HostError;
use crate::count::swap::CounterHost as _;
use crate::decide::limiter::Limiter;
use crate::directory::{Directory, News, PAGE_BYTES, Poll};
use crate::host::{self, Gateway};
use crate::request::header_pairs::HeaderPairs;
use crate::time::Timestamp;

/// Rows that are stored on a tick. A worker needs some milliseconds for them, and serves requests until the next tick.
const AT_ONCE: usize = 1000;
/// Time between two looks at the list. A tick in between that has nothing to store ends at once.
const LOOK: Duration = Duration::from_millis(100);

/// The directory of a configuration, and the poll that is in flight.
pub(super) struct Poller {
    directory: Directory,
    in_flight: Option<u32>,
    looked: Timestamp,
}

impl Poller {
    pub(super) fn new(directory: Directory) -> Self {
        Self { directory, in_flight: None, looked: Timestamp::default() }
    }

    /// Takes or renews the lead, and does what a leader has to do. Within a callback of the root context.
    pub(super) fn tick(&mut self, limiter: &mut Limiter, metrics: &mut Metrics) {
        let Ok(now) = Gateway.now() else { return };
        // A clock that has stepped back makes a look due.
        let looks = now < self.looked || now.duration_since(self.looked) >= LOOK;
        if looks {
            self.looked = now;
            log(logged(self.directory.look(&mut Gateway, now)));
        } else if !self.directory.has_work() {
            return;
        }
        log(self.directory.work(&mut Gateway, AT_ONCE, now));
        self.poll(now);
        if looks {
            limiter.count(self.directory.drain_events());
            if let Some(status) = self.directory.status() {
                metrics.show(status);
            }
            log(logged(limiter.look_at_directory(&mut Gateway)));
        }
    }

    /// Takes the answer to a call, if that is the poll in flight; `answered` is false if there is none. Its rows are stored on the next ticks.
    pub(super) fn answer(&mut self, limiter: &Limiter, call: u32, answered: bool, body_size: usize) {
        if self.in_flight.take_if(|poll| *poll == call).is_none() {
            return;
        }
        // One byte more than fits says that the rest is too long. A VM never gives memory back.
        let (head, body) = logged(host::call_answer(answered, body_size.min(PAGE_BYTES + 1)));
        let head = HeaderPairs::parse(head.as_ref());
        let head = head.and_then(|head| Some((head.get(":status")?, head.get("etag"))));
        let Ok(now) = Gateway.now() else { return };
        let catalog = &limiter.config().catalog;
        log(self.directory.answer(&mut Gateway, catalog, head, &body, now));
        self.poll(now);
    }

    /// Gives the lead up.
    pub(super) fn give_up(&mut self) {
        logged(self.directory.give_up(&mut Gateway));
    }

    pub(super) fn retire(&mut self) {
        self.directory.retire();
    }

    /// Sends the poll that is due.
    fn poll(&mut self, now: Timestamp) {
        if self.in_flight.is_some() {
            return;
        }
        match self.directory.poll(now).map(|poll| send(&poll)) {
            None => {}
            Some(Ok(call)) => self.in_flight = Some(call),
            Some(Err(error)) => log(self.directory.not_sent(&mut Gateway, error, now)),
        }
    }
}

fn log(news: Option<News>) {
    if let Some(news) = news {
        Gateway.log(news.level(), format_args!("weir: directory: {news}"));
    }
}

fn send(Poll { service, path, if_none_match }: &Poll<'_>) -> Result<u32, HostError> {
    let authorization = service.bearer.as_ref().map(|bearer| format!("Bearer {}", bearer.expose()));
    let mut headers = vec![
        (":method", "GET"),
        (":path", path),
        (":authority", service.authority()),
        ("accept", "application/json"),
        AS_IT_IS,
    ];
    headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
    headers.extend(if_none_match.as_deref().map(|etag| ("if-none-match", etag)));
    host::http_call(&service.cluster, headers, None, service.timeout_milliseconds())
}
