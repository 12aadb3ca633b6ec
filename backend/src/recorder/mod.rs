//! Clicks on their way to the store: through a bounded queue, in batches.
//!
//! A redirect waits for a place in the queue, not for the database. What is queued is on its way to the disk within
//! [`FLUSH_INTERVAL`], and stored on shutdown. When the database cannot keep up, or the disk is full, redirects wait until
//! no click has been held for longer than [`HELD`]: clicks are dropped only if that is asked for, and a process that is killed loses at most
//! those that were answered in such a time. Those that are spooled are recorded by the process that is started next.

mod backlog;
mod shares;
mod writer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::shares::{Shares, Taken};
use self::writer::Sink;
use crate::links::PublicUrl;
use crate::metrics::{ClickOutcome, Metrics};
use crate::store::{Click, ClickBuffer, Store};

/// The longest that a click waits for others to be stored with.
const FLUSH_INTERVAL: Duration = Duration::from_millis(40);
/// How long the oldest click may be held before no more are taken. With the time that answers take, it stays below the
/// 100 ms that are promised.
const HELD: Duration = Duration::from_millis(80);
/// As many clicks do not wait for more.
const BATCH: usize = 4_096;
/// Clicks of as many bytes do not wait for more.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Clicks waiting at most.
const QUEUE: usize = 4 * BATCH;
/// Bytes of the clicks waiting at most, but for the last click's. A batch is then far from the largest value that a
/// database takes.
const QUEUE_BYTES: usize = 4 * BATCH_BYTES;

/// What becomes of a click that there is no room for, while the database does not keep up or the disk is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Its redirect waits: no click is lost.
    #[default]
    Wait,
    /// It is not counted: no redirect waits.
    Drop,
}

/// Takes clicks. What it has taken is still stored once it is dropped.
#[derive(Debug)]
pub(crate) struct Recorder {
    queue: Arc<Queue>,
    metrics: Metrics,
    when_full: WhenFull,
}

/// The task that stores what the recorder takes.
#[derive(Debug)]
pub(crate) struct RecorderTask {
    queue: Arc<Queue>,
    task: JoinHandle<()>,
}

/// Where clicks wait. A list under a lock, and not a channel, so that a click costs its writer nothing until it is taken
/// with all others.
#[derive(Debug, Default)]
struct Queue {
    held: Mutex<Held>,
    /// Tells the writer of a first click, a full batch, a flush or the end.
    changed: Notify,
    /// Tells those who wait for a place that there may be one.
    room: Notify,
}

#[derive(Debug, Default)]
struct Held {
    clicks: ClickBuffer,
    /// Whose they are, and whose those are that were taken and are not recorded.
    shares: Shares,
    /// When the oldest of `clicks` came.
    since: Option<Instant>,
    /// When the oldest click came of those that are being stored.
    storing_since: Option<Instant>,
    /// Answered once all clicks queued before are stored.
    flushes: Vec<oneshot::Sender<()>>,
    /// Nothing more is taken.
    closed: bool,
    /// All is stored that ever will be.
    ended: bool,
}

impl Held {
    /// Whether the clicks are to be stored without waiting for more.
    fn is_batch(&self) -> bool {
        self.clicks.len() >= BATCH || self.clicks.bytes() >= BATCH_BYTES
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a click; false while there is no room, or the workspace has its share of it.
    fn offer(&self, click: &Click, workspace: i64) -> bool {
        let now = Instant::now();
        let mut held = self.lock();
        if held.closed {
            tracing::error!("a click came after the recorder had stopped and is lost");
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

    /// Swaps what is queued for `clicks`, which is to be stored, and returns whose they are and who waits for that.
    fn take(&self, clicks: &mut ClickBuffer) -> (Taken, Vec<oneshot::Sender<()>>) {
        let mut held = self.lock();
        std::mem::swap(&mut held.clicks, clicks);
        held.storing_since = held.since.take();
        (held.shares.take(), std::mem::take(&mut held.flushes))
    }

    /// What was taken is recorded, so that the workspaces that it is of may have more.
    fn recorded<'a>(&self, taken: impl IntoIterator<Item = &'a Taken>) {
        let mut held = self.lock();
        for taken in taken {
            held.shares.release(taken);
        }
        drop(held);
        self.room.notify_waiters();
    }

    /// What was taken is stored.
    fn stored(&self) {
        self.lock().storing_since = None;
        self.room.notify_waiters();
    }

    /// Nobody stores anything any more.
    fn end(&self) {
        let mut held = self.lock();
        held.ended = true;
        // Whoever asked since the last look finds out by this.
        held.flushes.clear();
    }

    /// Returns once a batch is to be stored, with whether the process is to end; None if that is so and all is stored.
    async fn wait_for_batch(&self) -> Option<bool> {
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

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
        self.room.notify_waiters();
    }
}

impl Recorder {
    pub(crate) fn start(
        store: Store,
        public: PublicUrl,
        announced: Arc<Notify>,
        metrics: Metrics,
        when_full: WhenFull,
    ) -> (Self, RecorderTask) {
        let queue = Arc::new(Queue::default());
        let sink = Sink { store, public, announced, metrics: metrics.clone() };
        let task = tokio::spawn(writer::run(sink, Arc::clone(&queue)));
        (Self { queue: Arc::clone(&queue), metrics, when_full }, RecorderTask { queue, task })
    }

    /// Queues a click on a link of a workspace. While the queue is full, or the database is behind, or the workspace has half
    /// of the clicks that may wait, it waits or is dropped.
    pub(crate) async fn record(&self, click: &Click, workspace: i64) {
        if self.queue.offer(click, workspace) {
            return;
        }
        match self.when_full {
            // On the heap, so that those who need not wait do not carry it along.
            WhenFull::Wait => Box::pin(self.record_once_there_is_room(click, workspace)).await,
            WhenFull::Drop => self.metrics.clicks(ClickOutcome::Dropped, 1),
        }
    }

    async fn record_once_there_is_room(&self, click: &Click, workspace: i64) {
        loop {
            let mut room = std::pin::pin!(self.queue.room.notified());
            // From here on no call is missed, and there may have been one since the click was refused.
            room.as_mut().enable();
            if self.queue.offer(click, workspace) {
                return;
            }
            room.await;
        }
    }

    /// Returns once all clicks queued before are stored.
    pub(crate) async fn flush(&self) {
        let (done, stored) = oneshot::channel();
        {
            let mut held = self.queue.lock();
            if held.ended {
                return;
            }
            held.flushes.push(done);
        }
        self.queue.changed.notify_one();
        // An error means that the writer has stopped, and it stores everything before it does.
        stored.await.unwrap_or_default();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl RecorderTask {
    /// Stores what is queued and ends the task.
    pub(crate) async fn finish(self) {
        self.queue.close();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the click recorder ended abnormally");
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn long_clicks_fill_the_queue_by_their_bytes() {
        let queue = Queue::default();
        for taken in 0..=4 {
            let mut click = Click::new("link_1", Timestamp::UNIX_EPOCH);
            click.details.url = format!("{taken}{}", "x".repeat(BATCH_BYTES)).into();
            assert_eq!(queue.offer(&click, 1), taken < 4, "after {taken} clicks");
            assert!(queue.lock().is_batch());
            // How long this takes is not the matter.
            queue.lock().since = None;
        }
    }
}
