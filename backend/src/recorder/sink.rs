//! The sink: records clicks in the database, and sets aside those that it refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::queue::Queue;
use crate::clock::Clock;
use crate::links::PublicUrl;
use crate::metrics::{ClickOutcome, Metrics};
use crate::store::{Batch, Progress, Recorded, Store, StoreError};

/// Pause before a failed batch is retried.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Maximum pause after a transaction.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of attempts for a batch during a shutdown.
const FINAL_ATTEMPTS: u32 = 10;

/// The database, and what recording notifies. Cheap to clone.
#[derive(Clone)]
pub(super) struct Sink {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) public: PublicUrl,
    pub(super) announced: Arc<Notify>,
    pub(super) metrics: Metrics,
    pub(super) queue: Arc<Queue>,
    pub(super) fitting: Arc<Fitting>,
    /// Whether to pause after each transaction, in proportion to the time that it took.
    pub(super) pauses: bool,
}

/// About how many clicks have webhook events that fit into one transaction. It saves most attempts with more than that, which
/// others would wait for.
#[derive(Debug)]
pub(super) struct Fitting(AtomicUsize);

impl Default for Fitting {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl Fitting {
    pub(super) fn fit(&self, clicks: usize) -> bool {
        clicks <= self.0.load(Ordering::Relaxed)
    }

    /// Clicks were recorded in one transaction. A few more may fit.
    fn recorded(&self, clicks: usize) {
        let most = self.0.load(Ordering::Relaxed);
        if clicks > most / 2 {
            self.0.store(most.saturating_add(most / 16 + 1), Ordering::Relaxed);
        }
    }

    /// Clicks have too many events for one transaction.
    fn refused(&self, clicks: usize) {
        self.0.store((clicks / 2).max(1), Ordering::Relaxed);
    }
}

/// The part of a spool that a batch was read from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// How far the spool is recorded before the batch is.
    pub(super) from: Progress,
    /// How far it is with the batch.
    pub(super) to: Progress,
}

impl Part {
    /// The parts that the first `clicks` clicks were read from, and the others.
    fn split(self, clicks: usize) -> (Self, Self) {
        let clicks = self.from.clicks.saturating_add_unsigned(clicks as u64);
        let middle = Progress { clicks, ..self.from };
        (Self { to: middle, ..self }, Self { from: middle, ..self })
    }
}

impl Sink {
    /// Records a batch, retries until it succeeds, and returns how long its transaction took. None if it fails during a
    /// shutdown.
    pub(super) async fn record(
        &self,
        batch: &Batch<'_>,
        part: Option<Part>,
        stopping: bool,
    ) -> Option<Duration> {
        if !self.fitting.fit(batch.len())
            && let Ok(Some(halves)) = batch.halves()
        {
            return self.record_both(halves, part, stopping).await;
        }
        match self.attempt(batch, part, stopping).await? {
            Ok(recorded) => {
                self.fitting.recorded(batch.len());
                if self.pauses && !stopping {
                    let pause = self.store.pause_of_busy() * recorded.took;
                    tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
                }
                Some(recorded.took)
            }
            Err(refusal) => {
                if let StoreError::TooManyEvents { bytes, mostly_of } = refusal {
                    self.fitting.refused(batch.len());
                    if let Some(workspace) = mostly_of {
                        self.queue.limit_events(workspace, bytes / batch.len().max(1));
                    }
                }
                self.record_in_parts(batch, part, stopping, &refusal).await
            }
        }
    }

    /// Records a batch in one transaction, unless the database refuses it. None if it fails during a shutdown.
    pub(super) async fn attempt(
        &self,
        batch: &Batch<'_>,
        part: Option<Part>,
        stopping: bool,
    ) -> Option<Result<Recorded, StoreError>> {
        let reached = part.map(|part| part.to);
        let record = || self.store.record_batch(batch, &self.public, reached);
        let recorded = self.insist(batch.len(), stopping, record).await?;
        if let Ok(recorded) = &recorded {
            self.metrics.clicks(ClickOutcome::Recorded, recorded.clicks);
            let left_out = batch.len() - recorded.clicks;
            if left_out > 0 {
                self.metrics.clicks(ClickOutcome::Orphaned, left_out);
                tracing::debug!(left_out, "left out clicks on deleted links");
            }
            self.announced.notify_one();
        }
        Some(recorded)
    }

    /// Tries until the database does, or refuses, what is to be done with clicks. None if the process is to end and it has
    /// done neither.
    async fn insist<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        clicks: usize,
        stopping: bool,
        attempt: impl Fn() -> F,
    ) -> Option<Result<T, StoreError>> {
        let mut attempts = 0;
        loop {
            match attempt().await {
                Ok(done) => return Some(Ok(done)),
                Err(refusal) if refusal.is_refusal() && clicks > 0 => return Some(Err(refusal)),
                Err(error) => {
                    attempts += 1;
                    tracing::error!(%error, attempts, clicks, "could not record clicks");
                    if stopping && attempts >= FINAL_ATTEMPTS {
                        return None;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Records the halves of a refused batch, and their halves, until only the refused clicks are left out.
    async fn record_in_parts(
        &self,
        batch: &Batch<'_>,
        part: Option<Part>,
        stopping: bool,
        refusal: &StoreError,
    ) -> Option<Duration> {
        match batch.halves() {
            Ok(Some(halves)) => self.record_both(halves, part, stopping).await,
            Ok(None) | Err(_) => self.set_click_aside(batch, part, stopping, refusal).await,
        }
    }

    /// Records the halves of a batch, one after the other. Each says how far the spool is recorded with it, so that a process that is
    /// killed in between records none twice.
    async fn record_both(
        &self,
        (first, second): (Batch<'_>, Batch<'_>),
        part: Option<Part>,
        stopping: bool,
    ) -> Option<Duration> {
        let (of_first, of_second) = part.map(|part| part.split(first.len())).unzip();
        let first = Box::pin(self.record(&first, of_first, stopping)).await?;
        let second = Box::pin(self.record(&second, of_second, stopping)).await?;
        Some(first + second)
    }

    async fn set_click_aside(
        &self,
        batch: &Batch<'_>,
        part: Option<Part>,
        stopping: bool,
        refusal: &StoreError,
    ) -> Option<Duration> {
        let (click, link) = batch.first().unwrap_or_default();
        tracing::error!(error = %refusal, click, link, "set aside a click that the database refused");
        match batch.encode() {
            Ok(bytes) => {
                let is_done = self.set_aside(click, &bytes, refusal, part, stopping).await;
                is_done.then_some(Duration::ZERO)
            }
            Err(error) => {
                tracing::error!(%error, click, "a click could not be set aside and is lost");
                self.metrics.clicks(ClickOutcome::Lost, batch.len());
                // An empty batch marks the spooled batch as recorded.
                Box::pin(self.record(&Batch::default(), part, stopping)).await
            }
        }
    }

    /// Sets an encoded batch aside. False if the process is to end and it could not be.
    pub(super) async fn set_aside(
        &self,
        id: &str,
        bytes: &[u8],
        reason: &StoreError,
        part: Option<Part>,
        stopping: bool,
    ) -> bool {
        let (reason, reached) = (reason.to_string(), part.map(|part| part.to));
        let set_aside = || self.store.set_aside(id, bytes, &reason, reached, self.clock.now());
        let outcome = match self.insist(1, stopping, set_aside).await {
            None => return false,
            Some(Ok(true)) => ClickOutcome::SetAside,
            Some(Ok(false)) => {
                tracing::error!(id, "the table of set-aside clicks is full; this click is lost");
                ClickOutcome::Lost
            }
            Some(Err(error)) => {
                tracing::error!(%error, id, "a click could not be set aside and is lost");
                self.metrics.clicks(ClickOutcome::Lost, 1);
                return Box::pin(self.record(&Batch::default(), part, stopping)).await.is_some();
            }
        };
        self.metrics.clicks(outcome, 1);
        true
    }

    pub(super) async fn record_or_lose(&self, batch: &Batch<'_>, stopping: bool) {
        if self.record(batch, None, stopping).await.is_none() {
            tracing::error!(clicks = batch.len(), "lost clicks");
            self.metrics.clicks(ClickOutcome::Lost, batch.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_batches_are_too_large_after_one_was_refused() {
        let fitting = Fitting::default();
        assert!(fitting.fit(1_000_000));
        fitting.refused(30);
        assert!(fitting.fit(15) && !fitting.fit(16));
        // Fewer clicks say nothing about more.
        fitting.recorded(3);
        assert!(!fitting.fit(16));
        let halves_until_more_fit = (0..100).take_while(|_| {
            fitting.recorded(15);
            !fitting.fit(30)
        });
        assert!(halves_until_more_fit.count() > 5);
        fitting.refused(1);
        assert!(fitting.fit(1) && !fitting.fit(2));
    }
}
