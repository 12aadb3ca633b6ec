//! Clicks on their way to the store: through a bounded queue, in batches.
//!
//! A redirect waits for a place in the queue, not for the database. What is queued is on its way to the database within
//! [`FLUSH_INTERVAL`], and stored on shutdown. When the database cannot keep up, redirects wait until no click has been
//! held for longer than [`HELD`]: clicks are never dropped, and a process that is killed loses at most those that were
//! answered in such a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::links::PublicUrl;
use crate::metrics::{ClickOutcome, Metrics};
use crate::store::{Click, Store};

/// The longest that a click waits for others to be stored with.
const FLUSH_INTERVAL: Duration = Duration::from_millis(25);
/// How long the oldest click may be held before no more are taken. With the time that answers take, it stays below the
/// 100 ms that are promised.
const HELD: Duration = Duration::from_millis(80);
/// Clicks in one transaction at most.
const BATCH: usize = 4_096;
/// Clicks waiting at most.
const QUEUE: usize = 4 * BATCH;
/// Pause before a batch that the database refused is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Attempts to store the last batches when the process is to end.
const FINAL_ATTEMPTS: u32 = 10;

#[derive(Debug)]
enum Message {
    Click(Box<Click>, Instant),
    /// Answered once all clicks queued before it are stored.
    Flush(oneshot::Sender<()>),
}

/// Takes clicks. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Message>,
    /// When the oldest click came that is being stored.
    oldest: watch::Receiver<Option<Instant>>,
}

/// The task that stores what the recorder takes.
#[derive(Debug)]
pub(crate) struct RecorderTask {
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Recorder {
    pub(crate) fn start(
        store: Store,
        public: PublicUrl,
        announced: Arc<Notify>,
        metrics: Metrics,
    ) -> (Self, RecorderTask) {
        let (queue, queued) = mpsc::channel(QUEUE);
        let stop = Arc::new(Notify::new());
        let (held, oldest) = watch::channel(None);
        let writer = Writer { store, public, announced, metrics, queued, held, stop: Arc::clone(&stop) };
        (Self { queue, oldest }, RecorderTask { stop, task: tokio::spawn(writer.run()) })
    }

    /// Queues a click; waits while the queue is full, or the database is behind.
    pub(crate) async fn record(&self, click: Click) {
        let keeps_up = |oldest: &Option<Instant>| oldest.is_none_or(|oldest| oldest.elapsed() < HELD);
        let behind = !keeps_up(&self.oldest.borrow());
        if behind {
            let mut oldest = self.oldest.clone();
            // An error means that the writer has stopped, which the queue is about to say.
            drop(oldest.wait_for(keeps_up).await);
        }
        if self.queue.send(Message::Click(Box::new(click), Instant::now())).await.is_err() {
            tracing::error!("a click came after the recorder had stopped and is lost");
        }
    }

    /// Returns once all clicks queued before are stored.
    pub(crate) async fn flush(&self) {
        let (done, stored) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            // An error means that the writer has stopped, and it stores everything before it does.
            stored.await.unwrap_or_default();
        }
    }
}

impl RecorderTask {
    /// Stores what is queued and ends the task.
    pub(crate) async fn finish(self) {
        self.stop.notify_one();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the click recorder ended abnormally");
        }
    }
}

struct Writer {
    store: Store,
    public: PublicUrl,
    announced: Arc<Notify>,
    metrics: Metrics,
    queued: mpsc::Receiver<Message>,
    held: watch::Sender<Option<Instant>>,
    stop: Arc<Notify>,
}

impl Writer {
    async fn run(mut self) {
        let mut stopping = false;
        loop {
            let first = tokio::select! {
                biased;
                () = self.stop.notified(), if !stopping => {
                    // What is queued can still be received; nothing more can be queued.
                    self.queued.close();
                    stopping = true;
                    continue;
                }
                message = self.queued.recv() => message,
            };
            let Some(first) = first else { return };
            let (clicks, waiting) = self.gather(first, stopping).await;
            self.store(&clicks, stopping).await;
            self.held.send_replace(None);
            for done in waiting {
                // Whoever asked may have gone.
                let _gone = done.send(());
            }
        }
    }

    /// A batch that starts with `first`: what comes within the interval, up to a flush or a full batch.
    async fn gather(&mut self, first: Message, stopping: bool) -> (Vec<Click>, Vec<oneshot::Sender<()>>) {
        let mut clicks = Vec::new();
        let mut waiting = Vec::new();
        let mut message = Some(first);
        let since = match &message {
            Some(Message::Click(_, since)) => *since,
            Some(Message::Flush(_)) | None => Instant::now(),
        };
        self.held.send_replace(Some(since));
        let deadline = tokio::time::sleep_until(if stopping { since } else { since + FLUSH_INTERVAL });
        tokio::pin!(deadline);
        while let Some(current) = message {
            match current {
                Message::Click(click, _) => clicks.push(*click),
                Message::Flush(done) => {
                    waiting.push(done);
                    break;
                }
            }
            if clicks.len() >= BATCH {
                break;
            }
            message = tokio::select! {
                biased;
                message = self.queued.recv() => message,
                () = &mut deadline => None,
            };
        }
        (clicks, waiting)
    }

    async fn store(&self, clicks: &[Click], stopping: bool) {
        if clicks.is_empty() {
            return;
        }
        let mut attempts = 0;
        loop {
            match self.store.record_clicks(clicks, &self.public).await {
                Ok(recorded) => {
                    self.metrics.clicks(ClickOutcome::Recorded, recorded);
                    if recorded < clicks.len() {
                        self.metrics.clicks(ClickOutcome::Orphaned, clicks.len() - recorded);
                        tracing::debug!(
                            left_out = clicks.len() - recorded,
                            "clicks on links deleted meanwhile"
                        );
                    }
                    self.announced.notify_one();
                    return;
                }
                Err(error) => {
                    attempts += 1;
                    tracing::error!(%error, attempts, clicks = clicks.len(), "clicks could not be stored");
                    if stopping && attempts >= FINAL_ATTEMPTS {
                        tracing::error!(clicks = clicks.len(), "clicks are lost");
                        self.metrics.clicks(ClickOutcome::Lost, clicks.len());
                        return;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}
