//! The one path of clicks: redirect, click log, database.
//!
//! A redirect encodes its click and goes on. After at most 40 ms, all new clicks are appended to the click log, a file of this process. A
//! killed process therefore loses the clicks of less than 100 ms. A second task moves groups of clicks from the log into the database, each
//! click once, and then removes them from the log. What is in the log when a process ends is moved by the next one, and what that finds in
//! the database already, it leaves out.
//!
//! The log is bounded. While it is full, because the database has been away or slow for long, clicks are dropped and counted. No redirect waits.

mod log;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub use self::log::ClickLogError;
use self::log::{Log, entry};
use self::writer::Writer;
use crate::domain::click::{ClickOutcome, ClickRef};
use crate::metrics::Metrics;
use crate::store::Store;

/// Maximum size of the clicks that are not in the database, in bytes. A click takes 200 to 400 bytes.
const MOST_BYTES: u64 = 256 * 1024 * 1024;
/// Maximum size of the clicks in memory, in bytes. It is reached only while the log cannot be written.
const MOST_IN_MEMORY: usize = 16 * 1024 * 1024;

/// Accepts clicks. Dropping it ends the writer; the accepted clicks are still written.
#[derive(Debug)]
pub(crate) struct Recorder {
    accepted: Arc<Accepted>,
    metrics: Metrics,
}

/// The task that writes the accepted clicks.
#[derive(Debug)]
pub(crate) struct RecorderTask {
    accepted: Arc<Accepted>,
    task: JoinHandle<()>,
}

/// The clicks between the redirects and the log.
#[derive(Debug)]
struct Accepted {
    waiting: Mutex<Waiting>,
    /// Notifies the writer of a first click, a flush or the shutdown.
    changed: Notify,
    /// The position up to which clicks are in the database. It is the smallest number until the log is open.
    moved: watch::Sender<i64>,
    /// Clicks in the log that are not in the database.
    in_log: AtomicU64,
    most_bytes: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Entries that are not in the log.
    entries: Vec<u8>,
    clicks: u64,
    /// The position of the end of the entries.
    end: i64,
    /// A flush waits for the entries.
    urgent: bool,
    /// No more clicks are accepted.
    closed: bool,
}

impl Recorder {
    /// Starts the writer. Requires a tokio runtime.
    pub(crate) fn start(store: Store, announced: Arc<Notify>, metrics: Metrics) -> (Self, RecorderTask) {
        let accepted = Arc::new(Accepted::new(MOST_BYTES));
        let writer = Writer { store, announced, metrics: metrics.clone(), accepted: Arc::clone(&accepted) };
        let task = tokio::spawn(writer.run());
        (Self { accepted: Arc::clone(&accepted), metrics }, RecorderTask { accepted, task })
    }

    /// Accepts a click, or drops and counts it if the log is full.
    pub(crate) fn record(&self, click: &ClickRef<'_>) {
        let accepted = entry(click).is_some_and(|entry| self.accepted.add(&entry));
        if !accepted {
            self.metrics.clicks(ClickOutcome::Dropped, 1);
        }
    }

    /// Number of clicks in the log that are not in the database.
    pub(crate) fn logged(&self) -> u64 {
        self.accepted.in_log.load(Ordering::Relaxed)
    }

    /// Waits until all clicks that were accepted before are in the database.
    pub(crate) async fn flush(&self) {
        let end = {
            let mut waiting = self.accepted.lock();
            waiting.urgent = true;
            waiting.end
        };
        self.accepted.changed.notify_one();
        // The sender is not dropped before this.
        let mut moved = self.accepted.moved.subscribe();
        let _moved = moved.wait_for(|moved| *moved >= end).await;
    }
}

impl Accepted {
    fn new(most_bytes: u64) -> Self {
        Self {
            waiting: Mutex::default(),
            changed: Notify::new(),
            moved: watch::Sender::new(i64::MIN),
            in_log: AtomicU64::new(0),
            most_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry. False if the log is full or no more clicks are accepted.
    fn add(&self, entry: &[u8]) -> bool {
        let moved = *self.moved.borrow();
        let mut waiting = self.lock();
        // Before the log is open, only the maximum in memory counts.
        let unmoved = if moved == i64::MIN { 0 } else { waiting.end.abs_diff(moved) };
        let size = entry.len();
        if waiting.closed
            || unmoved + size as u64 > self.most_bytes
            || waiting.entries.len() + size > MOST_IN_MEMORY
        {
            return false;
        }
        let is_first = waiting.entries.is_empty();
        waiting.entries.extend_from_slice(entry);
        waiting.clicks += 1;
        waiting.end += size as i64;
        drop(waiting);
        if is_first {
            self.changed.notify_one();
        }
        true
    }

    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.accepted.close();
    }
}

impl RecorderTask {
    /// Writes the accepted clicks and ends the task. After the time limit, what is in the log stays there.
    pub(crate) async fn finish(mut self, limit: Duration) {
        self.accepted.close();
        match tokio::time::timeout(limit, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the click writer panicked"),
            Err(_elapsed) => {
                tracing::warn!("the last clicks could not be recorded in time");
                self.task.abort();
            }
        }
    }
}

/// Checks that a file can be the click log of this process, and creates it.
///
/// # Errors
/// [`ClickLogError`] if it cannot be read and written, or another process uses it.
pub fn check_click_log(path: &Path) -> Result<(), ClickLogError> {
    Log::open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clicks_are_accepted_up_to_the_maximum_of_what_is_not_in_the_database() {
        let accepted = Accepted::new(100);
        accepted.moved.send_replace(-50);
        //  position up to which clicks are in the database, size of a click, whether it is accepted
        for (moved, size, expected) in [
            (-50, 50, true),
            (-50, 1, false),
            (-1, 50, false),
            (0, 50, true),
            (0, 1, false),
            (100, 100, true),
        ] {
            accepted.moved.send_replace(moved);
            assert_eq!(accepted.add(&vec![0; size]), expected, "{size} bytes, moved up to {moved}");
        }
        accepted.close();
        accepted.moved.send_replace(200);
        assert!(!accepted.add(&[0]));
    }

    #[test]
    fn clicks_wait_in_memory_up_to_a_maximum_while_the_log_cannot_be_written() {
        let accepted = Accepted::new(u64::MAX);
        let entry = vec![0; MOST_IN_MEMORY / 4];
        assert!((0..4).all(|_| accepted.add(&entry)) && !accepted.add(&entry));
        accepted.lock().entries.clear();
        assert!(accepted.add(&entry));
    }
}
