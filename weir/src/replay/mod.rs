//! "What would this filter have refused last week": access logs, sent through the filter by the log's own clock.
//!
//! A line is read by [`Fields`], lines are put in the order of their time by [`Log`], and [`Callers`] says what of the log identifies the
//! caller, so that the filter can know it. Each [`Side`] has the filter with one configuration.

mod baseline;
mod callers;
mod doubts;
mod line;
mod log;
mod plot;
mod record;
mod report;
mod summary;
mod table;
mod told;

use std::collections::BTreeMap;
use std::time::Duration;

use host_sim::{End, Host, Response, Stream};
use jiff::Timestamp;

use self::baseline::Comparison;
use self::callers::By;
pub use self::callers::Callers;
pub use self::doubts::Doubt;
use self::doubts::Seen;
pub use self::line::{Entry, Fields, LineError};
pub use self::log::{Log, LogError, Skipped};
pub use self::report::Report;
use self::summary::Summary;
pub use self::table::aligned;
use self::told::SHADOW;
pub use self::told::Told;

/// The filter state that the filter describes its decision in.
const STATE: &str = "wasm.weir";

/// A filter with a configuration, and the callers that it knows.
#[derive(Debug)]
pub struct Side {
    /// Runs the filter. Its clock must stand at the log's beginning or before.
    pub host: Host,
    callers: Callers,
    class_from_log: bool,
    seen: Seen,
}

/// What the filter decided.
#[derive(Debug, Clone, Default)]
struct Decided {
    /// By which answer it refused, if it did.
    refused: Option<String>,
    told: Told,
}

/// A request that has begun, on each side.
type UnderWay = (Entry, Vec<(By, Stream)>);

impl Side {
    /// A filter, the callers of its configuration, and whether requests have the class that the log says they had.
    #[must_use]
    pub fn new(host: Host, callers: Callers, class_from_log: bool) -> Self {
        Self { host, callers, class_from_log, seen: Seen::default() }
    }

    /// Lets time pass, with the timers on the way.
    fn wait_until(&self, time: Timestamp) {
        let (now, then) = (self.host.clock().wall(), since_epoch(time));
        if then > now {
            self.host.advance(then - now);
        }
    }

    fn begin(&self, entry: &Entry) -> (By, Stream) {
        self.wait_until(entry.time);
        let (by, request) = self.callers.request(entry, self.class_from_log);
        (by, self.host.stream(&request, true))
    }

    /// Ends a request, whose upstream answers what the log says.
    fn end(&mut self, entry: &Entry, (by, mut stream): (By, Stream)) -> Decided {
        self.wait_until(entry.ends());
        if stream.is_forwarded() {
            stream.respond(Response::new(entry.status));
        }
        let outcome = stream.finish();
        let told = outcome.filter_state(STATE).and_then(|line| Told::read(&line)).unwrap_or_default();
        let refused = match outcome.end() {
            End::Forwarded => told.is(SHADOW).then(|| SHADOW.to_owned()),
            End::LocalReply | End::Reset | End::Paused => {
                Some(format!("{} {}", outcome.status(), outcome.details()).trim_end().to_owned())
            }
        };
        let decided = Decided { refused, told };
        self.seen.add(entry, by, &decided);
        decided
    }
}

/// Sends the requests of a log through one filter, or through the filter before a change and the one after it.
///
/// A request is under way for as long as the log says that it took.
///
/// # Errors
/// When the log cannot be read, its lines are too far out of order, or it does not say who its callers are.
///
/// # Panics
/// When a host runs no filter.
pub fn replay(sides: &mut [Side], log: &mut Log) -> Result<Report, LogError> {
    let mut summary = Summary::default();
    let mut comparison = match &*sides {
        [before, after] => Some(Comparison::of(&before.callers, &after.callers)),
        _ => None,
    };
    run(sides, log, |entry, decided| match (decided, &mut comparison) {
        ([before, after], Some(comparison)) => comparison.count(entry, before, after),
        _ => decided.iter().for_each(|decided| summary.count(entry, decided)),
    })?;
    log.is_mostly_read()?;
    for side in &*sides {
        side.seen.is_worth_a_replay(log, &side.callers)?;
    }
    let notes = sides.last().map(|side| side.seen.notes(log, &side.callers, side.class_from_log));
    let report = comparison.map_or_else(|| summary.report(), |comparison| comparison.report());
    Ok(Report { notes: notes.unwrap_or_default(), ..report })
}

fn run(sides: &mut [Side], log: &mut Log, mut count: impl FnMut(&Entry, &[Decided])) -> Result<(), LogError> {
    // By their ends, and then in the order in which they began.
    let mut under_way: BTreeMap<(Timestamp, u64), UnderWay> = BTreeMap::new();
    for number in 0.. {
        let next = log.next()?;
        while let Some(first) = under_way.first_entry()
            && next.as_ref().is_none_or(|next| first.key().0 <= next.time)
        {
            let (entry, streams) = first.remove();
            let ended = sides.iter_mut().zip(streams).map(|(side, stream)| side.end(&entry, stream));
            count(&entry, &ended.collect::<Vec<_>>());
        }
        let Some(entry) = next else { break };
        let streams = sides.iter().map(|side| side.begin(&entry)).collect();
        under_way.insert((entry.ends(), number), (entry, streams));
    }
    Ok(())
}

/// A time as the host's clock has it.
#[must_use]
pub fn since_epoch(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
}
