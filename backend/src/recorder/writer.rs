//! Batches of clicks taken from the queue and stored: through the spool where the database has one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::Queue;
use super::backlog::{self, Backlog};
use crate::links::PublicUrl;
use crate::metrics::{ClickOutcome, Metrics};
use crate::store::{Batch, ClickBuffer, Spool, Store, StoreError};

/// Pause before a batch that the database refused is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Attempts to store the last batches when the process is to end.
const FINAL_ATTEMPTS: u32 = 10;

/// Where clicks are recorded. Cheap to clone.
#[derive(Clone)]
pub(super) struct Sink {
    pub(super) store: Store,
    pub(super) public: PublicUrl,
    pub(super) announced: Arc<Notify>,
    pub(super) metrics: Metrics,
}

impl Sink {
    /// Records a batch, however often it has to be tried, and returns how long its transaction took. None if the process is
    /// to end and it could not be.
    pub(super) async fn record(
        &self,
        batch: &Batch<'_>,
        spooled: Option<i64>,
        stopping: bool,
    ) -> Option<Duration> {
        let mut attempts = 0;
        loop {
            match self.store.record_batch(batch, &self.public, spooled).await {
                Ok(recorded) => {
                    self.metrics.clicks(ClickOutcome::Recorded, recorded.clicks);
                    let left_out = batch.len() - recorded.clicks;
                    if left_out > 0 {
                        self.metrics.clicks(ClickOutcome::Orphaned, left_out);
                        tracing::debug!(left_out, "clicks on links deleted meanwhile");
                    }
                    self.announced.notify_one();
                    return Some(recorded.took);
                }
                Err(error) if error.is_refusal() && batch.len() > 0 => {
                    return self.record_in_parts(batch, spooled, stopping, &error).await;
                }
                Err(error) => {
                    attempts += 1;
                    tracing::error!(%error, attempts, clicks = batch.len(), "clicks could not be recorded");
                    if stopping && attempts >= FINAL_ATTEMPTS {
                        return None;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Records the halves of a batch that the database refuses, and so on, until only the clicks that it refuses are left
    /// out. After a process was killed in between, the first half may be recorded twice.
    async fn record_in_parts(
        &self,
        batch: &Batch<'_>,
        spooled: Option<i64>,
        stopping: bool,
        refusal: &StoreError,
    ) -> Option<Duration> {
        match batch.halves() {
            Ok(Some((first, second))) => {
                let first = Box::pin(self.record(&first, None, stopping)).await?;
                let second = Box::pin(self.record(&second, spooled, stopping)).await?;
                Some(first + second)
            }
            Ok(None) | Err(_) => {
                let (click, link) = batch.first().unwrap_or_default();
                tracing::error!(error = %refusal, click, link, "the database refuses a click, which is set aside");
                self.metrics.clicks(ClickOutcome::SetAside, batch.len());
                // The spool has to know that it is done with.
                Box::pin(self.record(&Batch::default(), spooled, stopping)).await
            }
        }
    }

    /// Counts a spooled batch that cannot be read.
    pub(super) fn damaged_batch(&self) {
        self.metrics.clicks(ClickOutcome::SetAside, 1);
    }

    async fn record_or_lose(&self, batch: &Batch<'_>, stopping: bool) {
        if self.record(batch, None, stopping).await.is_none() {
            tracing::error!(clicks = batch.len(), "clicks are lost");
            self.metrics.clicks(ClickOutcome::Lost, batch.len());
        }
    }
}

/// Stores what is queued until the queue is closed and empty.
pub(super) async fn run(sink: Sink, queue: Arc<Queue>) {
    match sink.store.open_spool().await {
        Ok(Some((spool, left))) => through_spool(&sink, &queue, spool, left).await,
        Ok(None) => directly(&sink, &queue).await,
        Err(error) => {
            tracing::error!(%error, "clicks cannot be spooled, and are recorded as they come");
            directly(&sink, &queue).await;
        }
    }
    queue.end();
}

async fn directly(sink: &Sink, queue: &Queue) {
    let mut clicks = ClickBuffer::default();
    while let Some(stopping) = queue.wait_for_batch().await {
        let (taken, flushes) = queue.take(&mut clicks);
        if !clicks.is_empty() {
            sink.record_or_lose(&clicks.batch(), stopping).await;
        }
        clicks.clear();
        queue.recorded([&taken]);
        queue.stored();
        for done in flushes {
            // Whoever asked may have gone.
            let _gone = done.send(());
        }
    }
}

async fn through_spool(sink: &Sink, queue: &Arc<Queue>, mut spool: Spool, left: Vec<(i64, Vec<u8>)>) {
    let backlog = Arc::new(Backlog::new(left));
    let recording = tokio::spawn(backlog::record(Arc::clone(&backlog), sink.clone(), Arc::clone(queue)));
    let mut clicks = ClickBuffer::default();
    while let Some(stopping) = queue.wait_for_batch().await {
        let (taken, flushes) = queue.take(&mut clicks);
        if !clicks.is_empty() {
            backlog.room().await;
            let batch = clicks.batch();
            match append(sink, &mut spool, &backlog, &batch, stopping).await {
                Some((number, bytes)) => backlog.push(number, batch.len(), bytes, taken),
                None => queue.recorded([&taken]),
            }
        }
        clicks.clear();
        queue.stored();
        backlog.flush(flushes);
    }
    backlog.close();
    if let Err(error) = recording.await {
        tracing::error!(%error, "the recording of spooled clicks ended abnormally");
    }
    if let Err(error) = spool.close(backlog.recorded()).await {
        tracing::warn!(%error, "the spool could not be closed");
    }
}

/// Spools a batch, and returns its number and its bytes. None if it could not be, and was recorded instead.
async fn append(
    sink: &Sink,
    spool: &mut Spool,
    backlog: &Backlog,
    batch: &Batch<'_>,
    stopping: bool,
) -> Option<(i64, Vec<u8>)> {
    loop {
        let appended = async {
            let bytes = batch.encode()?;
            let number = spool.append(&bytes, backlog.recorded()).await?;
            Ok::<_, StoreError>((number, bytes))
        };
        match appended.await {
            Ok(appended) => return Some(appended),
            Err(error) => {
                tracing::error!(%error, clicks = batch.len(), "clicks could not be spooled");
                if stopping || error.is_refusal() {
                    sink.record_or_lose(batch, stopping).await;
                    return None;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}
