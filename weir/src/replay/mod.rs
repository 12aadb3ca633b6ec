//! "What would this filter have refused last week": access logs, sent through the filter by the log's own clock.
//!
//! A line is read by [`Fields`], lines are put in the order of their time by [`Log`], and [`Callers`] says what of the log identifies the
//! caller, so that the filter can know it. Each [`Side`] has the filter with one configuration.

mod baseline;
mod callers;
mod line;
mod log;
mod notes;
mod page;
mod plot;
mod record;
mod report;
mod summary;
mod told;

use std::time::Duration;

use host_sim::{End, Host, Request, Response};
use jiff::Timestamp;

pub use self::baseline::Comparison;
pub use self::callers::{By, Callers, Seen};
pub use self::line::{Entry, Fields, LineError};
pub use self::log::{Log, LogError, Skipped};
pub use self::notes::Doubt;
pub use self::page::page;
pub use self::summary::{Bucket, Outcomes, Summary};
pub use self::told::Told;

/// The filter state that the filter describes its decision in.
const STATE: &str = "wasm.weir";

/// A filter with a configuration, and the callers that it knows.
#[derive(Debug)]
pub struct Side<'c> {
    /// Runs the filter. Its clock must stand at the log's beginning or before.
    pub host: Host,
    /// Made of the filter's configuration.
    pub callers: &'c Callers,
    /// Whether requests have the class that the log says they had.
    pub class_from_log: bool,
}

/// What the filter decided.
#[derive(Debug, Clone, Default)]
struct Decided {
    /// By which answer it refused, if it did.
    refused: Option<String>,
    told: Option<Told>,
}

impl Side<'_> {
    /// Sends a request. The clock goes on to its time, and timers fire on the way.
    fn send(&self, entry: &Entry, number: u64) -> Decided {
        let host = &self.host;
        let now = host.clock().wall();
        let then = since_epoch(entry.time);
        if then > now {
            host.advance(then - now);
        }
        let worker = usize::try_from(number).unwrap_or(0) % host.workers();
        let request = self.callers.request(entry, self.class_from_log);
        let outcome = host.worker(worker).send(request, |_: &Request| Response::new(entry.status));
        let told = outcome.filter_state(STATE).and_then(|line| Told::read(&line));
        let reply = || format!("{} {}", outcome.status(), outcome.details()).trim_end().to_owned();
        let refused = match outcome.end() {
            End::Forwarded => {
                told.as_ref().filter(|told| told.is("shadow_limited")).map(|_| "shadow_limited".to_owned())
            }
            End::LocalReply | End::Reset | End::Paused => Some(reply()),
        };
        Decided { refused, told }
    }
}

/// Sends the requests of a log through the filter, dealt out to its workers in turn. The upstream answers what the log says.
///
/// `seen` is called with each request that is read, and with the bytes of each line.
///
/// # Errors
/// When the log cannot be read, or its lines are too far out of order.
///
/// # Panics
/// When the host runs no filter.
pub fn replay(
    side: &Side<'_>,
    log: &mut Log,
    mut seen: impl FnMut(Option<&Entry>, usize),
) -> Result<Summary, LogError> {
    let mut summary = Summary::default();
    while let Some(entry) = log.next(&mut seen)? {
        let decided = side.send(&entry, summary.requests);
        summary.count(&entry, &decided);
    }
    Ok(summary)
}

/// Sends the requests of a log through both filters.
///
/// # Errors
/// As [`replay`].
///
/// # Panics
/// As [`replay`].
pub fn compare(
    [before, after]: [&Side<'_>; 2],
    log: &mut Log,
    mut seen: impl FnMut(Option<&Entry>, usize),
) -> Result<Comparison, LogError> {
    let mut comparison = Comparison::of(before.callers, after.callers);
    while let Some(entry) = log.next(&mut seen)? {
        let number = comparison.requests();
        comparison.count(&entry, &before.send(&entry, number), &after.send(&entry, number));
    }
    Ok(comparison)
}

/// A time as the host's clock has it.
#[must_use]
pub fn since_epoch(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
}
