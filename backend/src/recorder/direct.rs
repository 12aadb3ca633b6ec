//! Recording without a spool: in the database, while redirects may wait.
//!
//! The clicks of many workspaces are recorded in one transaction, which takes less time than one for each. A workspace whose clicks
//! take long is recorded apart, at the same time as the others, so that only its own redirects wait.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::queue::TakenLane;
use super::sink::{Fitting, Sink};
use crate::store::{Batch, StoreError};

/// From this number of clicks on, a workspace is recorded apart.
const MANY: usize = 512;
/// Maximum number of transactions at the same time that record a workspace apart. The other connections are for requests.
const APART: usize = 4;
/// A workspace with too many webhook events is recorded apart until it has had fewer for this time.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The workspaces that have had too many webhook events for the others, and when.
type Large = FxHashMap<i64, (Arc<Fitting>, Instant)>;

/// Stores the queued clicks until the queue is closed and empty.
pub(super) async fn record(sink: &Sink) {
    let queue = &sink.queue;
    queue.separate_workspaces();
    let (permits, permit_of_large) = (Arc::new(Semaphore::new(APART)), Arc::new(Semaphore::new(1)));
    let (mut large, mut apart, mut flushes) = (Large::default(), JoinSet::new(), Vec::new());
    loop {
        tokio::select! {
            Some(ended) = apart.join_next() => note(ended, &mut large),
            batch = queue.wait_for_batch() => {
                let Some(stopping) = batch else { break };
                let taken = queue.take();
                flushes.extend(taken.flushes);
                large.retain(|_, (_, seen)| seen.elapsed() < REMEMBERED);
                let is_apart =
                    |taken: &TakenLane| taken.clicks.len() >= MANY || large.contains_key(&taken.lane);
                let (mut alone, together) = taken.lanes.into_iter().partition::<Vec<_>, _>(is_apart);
                let (recorded, refused) = record_together(sink, together, stopping).await;
                queue.stored(recorded);
                // Those of the time before each workspace had a lane.
                queue.recorded([&taken.shares]);
                for refused in refused {
                    large.insert(refused.lane, (Arc::default(), Instant::now()));
                    alone.push(refused);
                }
                for taken in alone {
                    let fitting = large.get(&taken.lane).map(|(fitting, _)| Arc::clone(fitting));
                    let permits = if fitting.is_some() { &permit_of_large } else { &permits };
                    let (pauses, fitting) = (fitting.is_some(), fitting.unwrap_or_default());
                    let sink = Sink { fitting, pauses, ..sink.clone() };
                    apart.spawn(record_apart(sink, Arc::clone(permits), taken, stopping));
                }
            }
        }
        if queue.is_stored() {
            answer(flushes.drain(..));
        }
    }
    while let Some(ended) = apart.join_next().await {
        note(ended, &mut large);
    }
    answer(flushes);
}

/// Remembers a workspace that still has too many events.
fn note(ended: Result<Option<i64>, tokio::task::JoinError>, large: &mut Large) {
    match ended {
        Ok(Some(workspace)) => {
            if let Some((_, seen)) = large.get_mut(&workspace) {
                *seen = Instant::now();
            }
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "the recording of a workspace's clicks panicked"),
    }
}

fn answer(flushes: impl IntoIterator<Item = oneshot::Sender<()>>) {
    for done in flushes {
        // The receiver may have been dropped.
        let _gone = done.send(());
    }
}

/// Records the clicks of several workspaces in one transaction. The second result are those of workspaces with too many events.
async fn record_together(
    sink: &Sink,
    mut lanes: Vec<TakenLane>,
    stopping: bool,
) -> (Vec<TakenLane>, Vec<TakenLane>) {
    let mut refused = Vec::new();
    while !lanes.is_empty() {
        let batches: Vec<Batch<'_>> = lanes.iter().map(|taken| taken.clicks.batch()).collect();
        let joined = match Batch::join(&batches) {
            Ok(joined) => joined,
            Err(error) => {
                tracing::error!(%error, "lost clicks");
                break;
            }
        };
        let of_one = match sink.attempt(&joined, None, stopping).await {
            Some(Ok(_)) => break,
            Some(Err(StoreError::TooManyEvents { mostly_of, .. })) => {
                lanes.iter().position(|taken| Some(taken.lane) == mostly_of)
            }
            Some(Err(_)) | None => None,
        };
        let Some(of_one) = of_one else {
            sink.record_or_lose(&joined, stopping).await;
            break;
        };
        refused.push(lanes.swap_remove(of_one));
    }
    (lanes, refused)
}

/// Records the clicks of one workspace. The result is the workspace, if it has too many events for one transaction.
async fn record_apart(sink: Sink, permits: Arc<Semaphore>, taken: TakenLane, stopping: bool) -> Option<i64> {
    // The semaphore is never closed.
    let _permit = permits.acquire().await;
    sink.record_or_lose(&taken.clicks.batch(), stopping).await;
    let workspace = (!sink.fitting.fit(taken.clicks.len())).then_some(taken.lane);
    sink.queue.stored([taken]);
    workspace
}
