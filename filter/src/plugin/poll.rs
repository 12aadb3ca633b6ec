//! Polls the directory for one configuration.

use std::sync::Arc;

use super::log::logged;
use crate::config::DirectorySettings;
use crate::count::shared_data::HostError;
use crate::count::swap::CounterHost as _;
use crate::decide::host::{Host as _, LogLevel};
use crate::decide::limiter::Limiter;
use crate::decide::metric::Event;
use crate::directory::{Directory, DirectoryError, LeftOut, Poll, Update, entitled};
use crate::host::{self, Gateway};
use crate::request::header_pairs::HeaderPairs;

/// The directory of a configuration, and the poll that is in flight.
pub(super) struct Poller {
    directory: Directory,
    in_flight: Option<u32>,
}

impl Poller {
    pub(super) fn new(directory: Directory) -> Self {
        Self { directory, in_flight: None }
    }

    /// The directory as a new configuration with `settings` takes it over, if it is the same one and has answered.
    pub(super) fn take_over(&self, settings: &DirectorySettings) -> Option<Directory> {
        let known = self.directory.settings();
        let is_same = (&known.cluster, known.authority(), &known.path, &known.bearer)
            == (&settings.cluster, settings.authority(), &settings.path, &settings.bearer);
        (is_same && self.directory.roster().is_some()).then(|| self.directory.take_over(settings.clone()))
    }

    /// Sends the poll that is due. Within a callback of the root context.
    pub(super) fn poll(&mut self, limiter: &mut Limiter) {
        let Ok(now) = Gateway.now() else { return };
        if self.directory.expire(now) {
            let problem = format_args!("weir: directory: too stale, its keys are not known any more");
            Gateway.log(LogLevel::Error, problem);
            limiter.set_directory(None);
        }
        if self.in_flight.is_some() {
            return;
        }
        match self.directory.poll(now).map(|poll| send(&poll)) {
            None => {}
            Some(Ok(call)) => self.in_flight = Some(call),
            Some(Err(error)) => {
                let error = self.directory.not_sent(error, now);
                self.failed(limiter, &error);
            }
        }
    }

    /// Takes the answer to a call, if that is the poll in flight; `answered` is false if there is none.
    pub(super) fn answer(&mut self, limiter: &mut Limiter, call: u32, answered: bool, body_size: usize) {
        if self.in_flight.take_if(|poll| *poll == call).is_none() {
            return;
        }
        let (head, body) = logged(host::call_answer(answered, body_size));
        let head = HeaderPairs::parse(head.as_ref());
        let head = head.and_then(|head| Some((head.get(":status")?, head.get("etag"))));
        let Ok(now) = Gateway.now() else { return };
        let update = match self.directory.answer(head, body.as_ref(), now) {
            Ok(update) => update,
            Err(error) => return self.failed(limiter, &error),
        };
        if self.directory.is_news(None) {
            Gateway.log(LogLevel::Info, format_args!("weir: directory: answers again"));
        }
        match update {
            Update::Unchanged => limiter.count(Event::DirectoryUnchanged, 1),
            Update::Replaced { skipped } => {
                limiter.count(Event::DirectoryUpdated, 1);
                limiter.count(Event::DirectorySkipped, skipped);
                self.resolve(limiter);
            }
        }
    }

    fn failed(&mut self, limiter: &mut Limiter, error: &DirectoryError) {
        if self.directory.is_news(Some(error)) {
            let kept = match self.directory.roster() {
                Some(_) => "its last keys stay known",
                None => "no keys are known",
            };
            Gateway.log(LogLevel::Error, format_args!("weir: directory: {error}; {kept}"));
        }
        limiter.count(Event::DirectoryFailed, 1);
    }

    /// Brings what the directory knows into force. Counts the keys that this configuration leaves out.
    pub(super) fn resolve(&self, limiter: &mut Limiter) {
        let Some(roster) = self.directory.roster() else { return };
        let config = limiter.config();
        let (subscribers, LeftOut { without_agreement, over_capacity }) =
            entitled(Arc::clone(roster), config);
        if over_capacity > 0 {
            Gateway.log(
                LogLevel::Error,
                format_args!(
                    "weir: directory: unknown keys: {over_capacity}, because the keys before them need all {} records of \
                     counters.known",
                    config.settings.counters.known
                ),
            );
        }
        limiter.count(Event::DirectorySkipped, without_agreement);
        limiter.count(Event::DirectoryOverCapacity, over_capacity);
        limiter.set_directory(Some(Arc::new(subscribers)));
    }
}

fn send(poll: &Poll<'_>) -> Result<u32, HostError> {
    let mut headers = vec![
        (":method", "GET"),
        (":path", poll.path),
        (":authority", poll.authority),
        ("accept", "application/json"),
    ];
    headers.extend(poll.authorization.as_deref().map(|value| ("authorization", value)));
    // An ETag of other bytes is not sent back, and the answer comes whole.
    let etag = poll.if_none_match.and_then(|etag| core::str::from_utf8(etag).ok());
    headers.extend(etag.map(|etag| ("if-none-match", etag)));
    host::http_call(poll.cluster, headers, None, poll.timeout)
}
