//! Counts what waits in the database, for the metrics. Of a large outbox, that takes seconds.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::background::Priority;
use crate::store::{OutboxBacklog, Store, StoreError};

/// Maximum wait for a count.
const PATIENCE: Duration = Duration::from_secs(1);

/// What waits in the database.
#[derive(Clone, Debug)]
pub(crate) struct Backlogs {
    pub(crate) outbox: OutboxBacklog,
    /// Number of entries that are set aside.
    pub(crate) set_aside: i64,
}

impl Backlogs {
    /// Counts on a connection for lists, with their time limit.
    async fn of(store: &Store, now: Timestamp) -> Result<Self, StoreError> {
        let mut reader = store.reader(Priority::Usual).await?;
        let outbox = store.outbox_backlog(&mut reader, now).await?;
        Ok(Self { outbox, set_aside: store.set_aside_entries(&mut reader).await? })
    }
}

/// The count that runs, or the last one. There is at most one at a time.
#[derive(Debug, Default)]
pub(crate) struct Counting(Mutex<Option<watch::Receiver<Option<Backlogs>>>>);

impl Counting {
    /// The result of the count that runs, or of a new one. None if it fails or does not end in time. It continues then, because the
    /// database still works on it.
    pub(crate) async fn result(&self, store: &Store, now: Timestamp) -> Option<Backlogs> {
        let mut result = self.join(store, now);
        match tokio::time::timeout(PATIENCE, result.wait_for(Option::is_some)).await {
            Ok(Ok(counted)) => counted.clone(),
            // The reason is logged.
            Ok(Err(_failed)) => None,
            Err(_elapsed) => {
                tracing::warn!("counting the outbox and the entries set aside took too long");
                None
            }
        }
    }

    fn join(&self, store: &Store, now: Timestamp) -> watch::Receiver<Option<Backlogs>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) =
            last.as_ref().filter(|last| last.borrow().is_none() && last.has_changed().is_ok())
        {
            return running.clone();
        }
        let (send, result) = watch::channel(None);
        let store = store.clone();
        tokio::spawn(async move {
            match Backlogs::of(&store, now).await {
                Ok(counted) => drop(send.send_replace(Some(counted))),
                Err(error) => {
                    tracing::warn!(%error, "could not count the outbox and the entries set aside");
                }
            }
        });
        last.insert(result).clone()
    }
}
