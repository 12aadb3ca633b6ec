//! A background task that packs the clicks of past minutes, so that queries over many clicks are fast.

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::store::{Store, StoreError};

/// Delay after the end of a minute before it is packed. Later clicks of the minute are added one by one.
const DELAY: SignedDuration = SignedDuration::from_secs(5);
/// Interval between two runs.
const EVERY: SignedDuration = SignedDuration::from_secs(60);

/// Runs until `stop` is true or its sender is dropped. Several processes may run it on one database.
pub(crate) async fn run(store: Store, clock: Clock, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let now = clock.now();
        if let Err(error) = pack(&store, now, &stop).await {
            tracing::error!(%error, "could not pack clicks");
        }
        let next = now.saturating_add(EVERY).unwrap_or(Timestamp::MAX);
        tokio::select! {
            () = clock.wait_until(next) => {}
            // This branch is also taken when the sender is dropped.
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
}

async fn pack(store: &Store, now: Timestamp, stop: &watch::Receiver<bool>) -> Result<(), StoreError> {
    let until = now.saturating_sub(DELAY).unwrap_or(Timestamp::MIN);
    for workspace in store.unpacked_workspaces(until).await? {
        while !*stop.borrow() && store.pack_clicks(workspace, until).await? {}
    }
    Ok(())
}
