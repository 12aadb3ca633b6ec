//! The recording of clicks: a bounded queue, and batches that go to the spool or the database.
//!
//! A redirect waits for room in the queue, never for the database. Queued clicks are stored after at most 40 ms (without a spool,
//! 20 ms), and during a shutdown. While the database is slow or the disk is full, redirects wait until no click is older than 80 ms;
//! without a spool, only redirects of the same workspace do. Clicks are dropped only with [`WhenFull::Drop`]. A killed process loses
//! at most the clicks of such a period. The next process records the spooled clicks.

mod backlog;
mod direct;
mod queue;
mod shares;
mod sink;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::queue::Queue;
use self::sink::Sink;
use crate::clock::Clock;
use crate::links::PublicUrl;
use crate::metrics::{ClickOutcome, Metrics};
use crate::store::{ClickRef, Store};

/// Behaviour of a redirect while the click buffer is full, because the database is slow or unavailable or the disk is
/// full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The redirect waits, and no click is lost.
    #[default]
    Wait,
    /// The redirect continues, and its click is not counted.
    Drop,
}

/// Queues clicks. Dropping it closes the queue; the queued clicks are still stored.
#[derive(Debug)]
pub(crate) struct Recorder {
    queue: Arc<Queue>,
    metrics: Metrics,
    when_full: WhenFull,
}

/// The task that stores the queued clicks.
#[derive(Debug)]
pub(crate) struct RecorderTask {
    queue: Arc<Queue>,
    task: JoinHandle<()>,
}

impl Recorder {
    pub(crate) fn start(
        store: Store,
        clock: Clock,
        public: PublicUrl,
        announced: Arc<Notify>,
        metrics: Metrics,
        when_full: WhenFull,
    ) -> (Self, RecorderTask) {
        let queue = Arc::new(Queue::default());
        let sink = Sink {
            store,
            clock,
            public,
            announced,
            metrics: metrics.clone(),
            queue: Arc::clone(&queue),
            fitting: Arc::default(),
            pauses: false,
        };
        let task = tokio::spawn(writer::run(sink));
        (Self { queue: Arc::clone(&queue), metrics, when_full }, RecorderTask { queue, task })
    }

    /// Queues a click on a link of a workspace. While the queue is full, or the database is behind, or the workspace has half
    /// of the clicks that may wait, it waits or drops the click, depending on [`WhenFull`].
    pub(crate) async fn record(&self, click: &ClickRef<'_>, workspace: i64) {
        if self.queue.offer(click, workspace) {
            return;
        }
        match self.when_full {
            // Boxed, so that the usual case does not carry this future.
            WhenFull::Wait => Box::pin(self.record_once_there_is_room(click, workspace)).await,
            WhenFull::Drop => self.metrics.clicks(ClickOutcome::Dropped, 1),
        }
    }

    async fn record_once_there_is_room(&self, click: &ClickRef<'_>, workspace: i64) {
        loop {
            let mut room = std::pin::pin!(self.queue.room.notified());
            // Notifications count from here on. There may have been room since the click was refused, so the queue is
            // tried again.
            room.as_mut().enable();
            if self.queue.offer(click, workspace) {
                return;
            }
            room.await;
        }
    }

    /// Number of clicks in the spool that are not recorded yet; 0 without a spool.
    pub(crate) fn spooled(&self) -> u64 {
        self.metrics.spooled_clicks()
    }

    /// Waits until all clicks queued before are stored.
    pub(crate) async fn flush(&self) {
        if let Some(stored) = self.queue.flush() {
            // An error means that the writer has ended, after it stored everything.
            stored.await.unwrap_or_default();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl RecorderTask {
    /// Stores the queued clicks and ends the task. After the time limit, what is spooled stays in the spool.
    pub(crate) async fn finish(mut self, limit: Duration) {
        self.queue.close();
        match tokio::time::timeout(limit, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the click recorder panicked"),
            Err(_elapsed) => {
                tracing::warn!("the last clicks could not be recorded in time");
                self.task.abort();
            }
        }
    }
}
