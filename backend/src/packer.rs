//! Packs the clicks of past minutes, so that questions about many of them are answered quickly.

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::store::{Store, StoreError};

/// How long a minute is past before it is packed. Clicks that come later still are folded in one by one.
const DELAY: SignedDuration = SignedDuration::from_secs(5);
/// How often past minutes are looked for.
const EVERY: SignedDuration = SignedDuration::from_secs(60);

/// Runs until `stop` turns true or its sender is gone. Several processes on one database may do so at once.
pub(crate) async fn run(store: Store, clock: Clock, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let now = clock.now();
        if let Err(error) = pack(&store, now, &stop).await {
            tracing::error!(%error, "clicks could not be packed");
        }
        let next = now.saturating_add(EVERY).unwrap_or(Timestamp::MAX);
        tokio::select! {
            () = clock.wait_until(next) => {}
            // Also if nobody is left who could turn it.
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
