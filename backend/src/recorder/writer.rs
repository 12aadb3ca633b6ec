//! The writer: stores the queued clicks, in the spool if the database has one.

use std::sync::Arc;

use super::backlog::{self, Backlog};
use super::direct;
use super::queue::TakenLanes;
use super::sink::{RETRY_PAUSE, Sink};
use crate::store::{Batch, Left, Spool, StoreError};

/// Stores the queued clicks until the queue is closed and empty.
pub(super) async fn run(sink: Sink) {
    match sink.store.open_spool().await {
        Ok(Some((spool, left))) => through_spool(&sink, spool, left).await,
        Ok(None) => direct::record(&sink).await,
        Err(error) => {
            tracing::error!(%error, "could not open the spool; clicks are recorded directly");
            direct::record(&sink).await;
        }
    }
    sink.queue.end();
}

async fn through_spool(sink: &Sink, mut spool: Spool, left: Left) {
    let backlog = Arc::new(Backlog::new(left.batches, sink.metrics.clone()));
    let recording = tokio::spawn(backlog::record(Arc::clone(&backlog), sink.clone(), left.recorded_clicks));
    let queue = &sink.queue;
    while let Some(stopping) = queue.wait_for_batch().await {
        let TakenLanes { lanes, shares, flushes } = queue.take();
        // There is one lane.
        if let Some(taken) = lanes.first() {
            backlog.room().await;
            let batch = taken.clicks.batch();
            match append(sink, &mut spool, &backlog, &batch, stopping).await {
                Some((number, bytes)) => backlog.push(number, batch.len(), bytes, shares),
                None => queue.recorded([&shares]),
            }
        }
        queue.stored(lanes);
        backlog.flush(flushes);
    }
    backlog.close();
    if let Err(error) = recording.await {
        tracing::error!(%error, "the recording of spooled clicks panicked");
    }
    if let Err(error) = spool.close(backlog.recorded()).await {
        tracing::warn!(%error, "could not close the spool");
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
                tracing::error!(%error, clicks = batch.len(), "could not spool clicks");
                if stopping || error.is_refusal() {
                    sink.record_or_lose(batch, stopping).await;
                    return None;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}
