//! The queue of clicks, which the writer takes all at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::shares::{Shares, Taken};
use crate::store::{Click, ClickBuffer};

/// Maximum delay before a click is stored.
const FLUSH_INTERVAL: Duration = Duration::from_millis(40);
/// Maximum age of the oldest unstored click. Beyond it, no more clicks are taken. Together with the time of a response,
/// it stays below the promised 100 ms.
const HELD: Duration = Duration::from_millis(80);
/// From this number of clicks on, they are stored without delay.
const BATCH: usize = 4_096;
/// From this size on, in bytes, clicks are stored without delay.
const BATCH_BYTES: usize = 1024 * 1024;
/// Maximum number of queued clicks.
const QUEUE: usize = 4 * BATCH;
/// Maximum size of the queued clicks, in bytes, without the last click. A batch is then far below the maximum size of a
/// value in both databases.
const QUEUE_BYTES: usize = 16 * BATCH_BYTES;

/// The queue of clicks. It is a list under a lock instead of a channel, so that the writer takes all clicks at once.
#[derive(Debug, Default)]
pub(super) struct Queue {
    held: Mutex<Held>,
    /// Notifies the writer of a first click, a full batch, a flush or the shutdown.
    changed: Notify,
    /// Notifies waiting redirects that there may be room.
    pub(super) room: Notify,
}

#[derive(Debug, Default)]
struct Held {
    clicks: ClickBuffer,
    /// The workspaces of `clicks`, and of the clicks that were taken and are not recorded.
    shares: Shares,
    /// Arrival of the oldest click in `clicks`.
    since: Option<Instant>,
    /// Arrival of the oldest click that is being stored.
    storing_since: Option<Instant>,
    /// Flushes, answered when all earlier clicks are stored.
    flushes: Vec<oneshot::Sender<()>>,
    /// The queue takes no more clicks.
    closed: bool,
    /// The writer has ended.
    ended: bool,
}

impl Held {
    /// Whether the clicks are stored without delay.
    fn is_batch(&self) -> bool {
        self.clicks.len() >= BATCH || self.clicks.bytes() >= BATCH_BYTES
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a click. False if the queue is full, or the workspace has its share of it.
    pub(super) fn offer(&self, click: &Click, workspace: i64) -> bool {
        let now = Instant::now();
        let mut held = self.lock();
        if held.closed {
            tracing::error!("lost a click that arrived after the shutdown of the recorder");
            return true;
        }
        let oldest = held.storing_since.or(held.since);
        let is_full = held.clicks.len() >= QUEUE || held.clicks.bytes() >= QUEUE_BYTES;
        let is_late = oldest.is_some_and(|oldest| now.duration_since(oldest) >= HELD);
        if is_full || is_late || held.shares.is_used_up(workspace) {
            return false;
        }
        held.since.get_or_insert(now);
        let is_first = held.clicks.is_empty();
        let was_batch = held.is_batch();
        let bytes = held.clicks.bytes();
        held.clicks.push(click);
        let bytes = held.clicks.bytes() - bytes;
        held.shares.add(workspace, bytes);
        let is_batch = held.is_batch();
        drop(held);
        if is_first || is_batch != was_batch {
            self.changed.notify_one();
        }
        true
    }

    /// Swaps the queued clicks with the empty `clicks`. Returns their workspaces and the pending flushes.
    pub(super) fn take(&self, clicks: &mut ClickBuffer) -> (Taken, Vec<oneshot::Sender<()>>) {
        let mut held = self.lock();
        std::mem::swap(&mut held.clicks, clicks);
        held.storing_since = held.since.take();
        (held.shares.take(), std::mem::take(&mut held.flushes))
    }

    /// What was taken is recorded, so that the workspaces that it is of may have more.
    pub(super) fn recorded<'a>(&self, taken: impl IntoIterator<Item = &'a Taken>) {
        let mut held = self.lock();
        for taken in taken {
            held.shares.release(taken);
        }
        drop(held);
        self.room.notify_waiters();
    }

    /// Marks the taken clicks as stored.
    pub(super) fn stored(&self) {
        self.lock().storing_since = None;
        self.room.notify_waiters();
    }

    /// Marks the end of the writer.
    pub(super) fn end(&self) {
        let mut held = self.lock();
        held.ended = true;
        // Dropping the senders wakes the flushes that were added since the last batch.
        held.flushes.clear();
    }

    /// Waits until a batch is to be stored. The result is true during a shutdown, and None after the last batch.
    pub(super) async fn wait_for_batch(&self) -> Option<bool> {
        loop {
            let due = {
                let held = self.lock();
                let due = held.since.map(|since| since + FLUSH_INTERVAL);
                if held.closed {
                    return (due.is_some() || !held.flushes.is_empty()).then_some(true);
                }
                if held.is_batch() || !held.flushes.is_empty() {
                    return Some(false);
                }
                due
            };
            match due {
                None => self.changed.notified().await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => return Some(false),
                    () = self.changed.notified() => {}
                },
            }
        }
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
        self.room.notify_waiters();
    }

    /// Answers once all clicks queued before are stored. None if the writer has ended, after it stored everything.
    pub(super) fn flush(&self) -> Option<oneshot::Receiver<()>> {
        let (done, stored) = oneshot::channel();
        {
            let mut held = self.lock();
            if held.ended {
                return None;
            }
            held.flushes.push(done);
        }
        self.changed.notify_one();
        Some(stored)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn long_clicks_fill_the_queue_by_their_bytes() {
        let queue = Queue::default();
        for taken in 0..=16 {
            let mut click = Click::new("link_1", Timestamp::UNIX_EPOCH);
            click.details.url = format!("{taken}{}", "x".repeat(BATCH_BYTES)).into();
            assert_eq!(queue.offer(&click, 1), taken < 16, "after {taken} clicks");
            assert!(queue.lock().is_batch());
            // The test must not depend on time.
            queue.lock().since = None;
        }
    }
}
