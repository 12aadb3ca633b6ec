//! Deletes the rows of deleted links, tags and folders in the background. Each transaction is small, so that other writers
//! do not wait long.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::store::{Store, StoreError};

/// Pause between two steps, in which other writers proceed.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// Interval of the checks without a notification. They find the links that other processes have deleted.
const EVERY: SignedDuration = SignedDuration::from_secs(60);

/// Runs until `stop` is true or its sender is dropped. The next process deletes the remaining rows.
pub(crate) async fn run(store: Store, clock: Clock, deleted: Arc<Notify>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let next = clock.now().saturating_add(EVERY).unwrap_or(Timestamp::MAX);
        while !*stop.borrow() {
            match step(&store).await {
                Ok(true) => tokio::time::sleep(PAUSE).await,
                Ok(false) => break,
                Err(error) => {
                    tracing::error!(%error, "could not delete the rows of deleted links, tags and folders");
                    break;
                }
            }
        }
        tokio::select! {
            () = deleted.notified() => {}
            () = clock.wait_until(next) => {}
            // This branch is also taken when the sender is dropped.
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
}

/// Deletes some rows. False if there are none.
async fn step(store: &Store) -> Result<bool, StoreError> {
    Ok(store.delete_rows().await? || store.sweep_tags().await? || store.sweep_folders().await?)
}
