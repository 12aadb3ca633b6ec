//! "What would this filter have refused last week": an access log, sent through the filter by the log's own clock.
//!
//! The log is Envoy's in JSON, a line a request. Its fields are found under the names that Envoy's and Istio's formats
//! use; request headers that the filter needs, such as the API key's, must have been logged and are named with
//! [`Fields::header`].

mod line;
mod page;
mod plot;
mod summary;

use std::io;
use std::time::Duration;

use host_sim::{Host, Request, Response};
use jiff::Timestamp;

pub use self::line::{Entry, Fields, LineError};
pub use self::page::page;
pub use self::summary::{Bucket, Outcomes, Skipped, Summary};

/// Sends the lines of a log through a host's filter, dealt out to its workers in turn. The host's clock must stand at
/// the log's beginning (see [`Entry::time`]) or before; it goes on as the log does, and timers fire on the way. A line
/// that began before the one ahead of it counts as of the same instant. The upstream answers what the log says.
///
/// `progress` is called after each line with the line's length in bytes.
///
/// # Errors
/// When the log cannot be read. Lines that are no request are skipped and counted.
///
/// # Panics
/// When the host runs no filter.
pub fn replay(
    host: &Host,
    mut log: impl io::BufRead,
    fields: &Fields,
    mut progress: impl FnMut(u64),
) -> io::Result<Summary> {
    let mut summary = Summary::default();
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        let read = log.read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        number += 1;
        if !line.trim_ascii().is_empty() {
            match fields.read(&line) {
                Ok(entry) => send(host, entry, &mut summary),
                Err(error) => summary.skip(number, error),
            }
        }
        progress(read as u64);
    }
    summary.metrics = host.metrics().all();
    Ok(summary)
}

fn send(host: &Host, entry: Entry, summary: &mut Summary) {
    let now = host.clock().wall();
    let then = since_epoch(entry.time);
    if then > now {
        host.advance(then - now);
    }
    let worker = usize::try_from(summary.requests).unwrap_or(0) % host.workers();
    let status = entry.status;
    let outcome = host.worker(worker).send(entry.request, |_: &Request| Response::new(status));
    summary.count(entry.time, &entry.path, &entry.client, &outcome);
}

fn since_epoch(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
}
