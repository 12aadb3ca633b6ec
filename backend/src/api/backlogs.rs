//! Counts the webhook events that wait, for the metrics. Of a large outbox, that takes seconds.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::domain::load::OutboxBacklog;
use crate::store::{Store, StoreError};

/// Maximum wait for a count.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts within the time limit of analytics.
async fn count(store: &Store, now: Timestamp) -> Result<OutboxBacklog, StoreError> {
    let mut reader = store.reader_for_metrics().await?;
    store.outbox_backlog(&mut reader, now).await
}

/// The count that runs, or the last one. There is at most one at a time.
#[derive(Debug, Default)]
pub(crate) struct Counting(Mutex<Option<watch::Receiver<Option<OutboxBacklog>>>>);

impl Counting {
    /// The result of the count that runs, or of a new one. None if it fails or does not end in time. It continues then, because the
    /// database still works on it.
    pub(crate) async fn result(&self, store: &Store, now: Timestamp) -> Option<OutboxBacklog> {
        let mut result = self.join(store, now);
        match tokio::time::timeout(PATIENCE, result.wait_for(Option::is_some)).await {
            Ok(Ok(counted)) => counted.clone(),
            // The reason is logged.
            Ok(Err(_failed)) => None,
            Err(_elapsed) => {
                tracing::warn!("counting the outbox took too long");
                None
            }
        }
    }

    fn join(&self, store: &Store, now: Timestamp) -> watch::Receiver<Option<OutboxBacklog>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) =
            last.as_ref().filter(|last| last.borrow().is_none() && last.has_changed().is_ok())
        {
            return running.clone();
        }
        let (send, result) = watch::channel(None);
        let store = store.clone();
        tokio::spawn(async move {
            match count(&store, now).await {
                Ok(counted) => drop(send.send_replace(Some(counted))),
                Err(error) => {
                    tracing::warn!(%error, "could not count the outbox");
                }
            }
        });
        last.insert(result).clone()
    }
}
