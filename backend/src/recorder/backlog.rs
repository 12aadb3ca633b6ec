//! Clicks that are spooled and not recorded yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::writer::{Part, Sink};
use crate::metrics::Metrics;
use crate::store::{Batch, Progress};

/// The longest that spooled clicks wait for others to be recorded with: recording many takes less for each.
const INTERVAL: Duration = Duration::from_secs(1);
/// As few clicks do not wait for others.
const FEW: usize = 128;
/// As many clicks do not wait for others, and about as many are recorded at once at most.
const MANY: usize = 32_768;
/// Batches of as many bytes do not wait for others, and about as many are recorded at once at most: far fewer than the
/// largest value that a database takes.
const MANY_BYTES: usize = 32 * 1024 * 1024;
/// Clicks in the backlog, beyond which no more are spooled. They take about 50 bytes each.
const MOST: usize = 8 * MANY;
/// Bytes in the backlog, beyond which no more are spooled.
const MOST_BYTES: usize = 4 * MANY_BYTES;

/// Batches that are spooled and not recorded.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: Mutex<Waiting>,
    /// Tells whoever records of a batch, a flush or the end.
    changed: Notify,
    /// Tells whoever spools that something was recorded.
    room: Notify,
    metrics: Metrics,
}

#[derive(Debug)]
struct Waiting {
    batches: VecDeque<Spooled>,
    clicks: usize,
    bytes: usize,
    /// When the oldest batch came, or the last that was recorded was done.
    since: Option<Instant>,
    /// The last batch that was spooled.
    last: i64,
    /// The last batch that is recorded.
    recorded: i64,
    /// Answered once all batches up to the number are recorded.
    flushes: Vec<(i64, oneshot::Sender<()>)>,
    closed: bool,
}

#[derive(Debug)]
struct Spooled {
    number: i64,
    clicks: usize,
    bytes: Vec<u8>,
}

impl Backlog {
    /// A backlog that begins with what another process has left.
    pub(super) fn new(left: Vec<(i64, Vec<u8>)>, metrics: Metrics) -> Self {
        let batches: VecDeque<Spooled> = left
            .into_iter()
            .map(|(number, bytes)| {
                let clicks = Batch::decode(&bytes).map_or(0, |batch| batch.len());
                Spooled { number, clicks, bytes }
            })
            .collect();
        let clicks = batches.iter().map(|batch| batch.clicks).sum();
        let waiting = Waiting {
            clicks,
            bytes: batches.iter().map(|batch| batch.bytes.len()).sum(),
            since: (!batches.is_empty()).then(Instant::now),
            last: batches.back().map_or(0, |batch| batch.number),
            recorded: 0,
            flushes: Vec::new(),
            closed: false,
            batches,
        };
        metrics.spool(waiting.clicks, waiting.bytes);
        Self { waiting: Mutex::new(waiting), changed: Notify::new(), room: Notify::new(), metrics }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once more may be spooled.
    pub(super) async fn room(&self) {
        while self.lock().is_full() {
            self.room.notified().await;
        }
    }

    pub(super) fn push(&self, number: i64, clicks: usize, bytes: Vec<u8>) {
        let mut waiting = self.lock();
        waiting.clicks += clicks;
        waiting.bytes += bytes.len();
        waiting.batches.push_back(Spooled { number, clicks, bytes });
        waiting.last = number;
        waiting.since.get_or_insert_with(Instant::now);
        self.metrics.spool(waiting.clicks, waiting.bytes);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Answers once all that was pushed before is recorded.
    pub(super) fn flush(&self, flushes: Vec<oneshot::Sender<()>>) {
        if flushes.is_empty() {
            return;
        }
        let mut waiting = self.lock();
        let last = waiting.last;
        waiting.flushes.extend(flushes.into_iter().map(|done| (last, done)));
        waiting.answer();
        drop(waiting);
        self.changed.notify_one();
    }

    /// The last batch that is recorded; 0 if none is since this process began.
    pub(super) fn recorded(&self) -> i64 {
        self.lock().recorded
    }

    /// To be recorded is what is here, and nothing more comes.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// What is to be recorded next, and whether the process is to end; None once it is to end and all is recorded.
    async fn next(&self) -> Option<(Vec<Spooled>, bool)> {
        loop {
            let due = {
                let mut waiting = self.lock();
                let due = waiting.since.map(|since| since + INTERVAL);
                let urgent = waiting.closed || !waiting.flushes.is_empty();
                if waiting.batches.is_empty() && waiting.closed {
                    return None;
                }
                let timely = urgent
                    || !(FEW..MANY).contains(&waiting.clicks)
                    || waiting.bytes >= MANY_BYTES
                    || due.is_some_and(|due| due <= Instant::now());
                if !waiting.batches.is_empty() && timely {
                    return Some((waiting.take(), waiting.closed));
                }
                due
            };
            match due {
                None => self.changed.notified().await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = self.changed.notified() => {}
                },
            }
        }
    }

    fn done(&self, batches: &[Spooled]) {
        let mut waiting = self.lock();
        waiting.clicks -= batches.iter().map(|batch| batch.clicks).sum::<usize>();
        waiting.bytes -= batches.iter().map(|batch| batch.bytes.len()).sum::<usize>();
        waiting.recorded = batches.last().map_or(waiting.recorded, |batch| batch.number);
        waiting.since = (!waiting.batches.is_empty()).then(Instant::now);
        waiting.answer();
        self.metrics.spool(waiting.clicks, waiting.bytes);
        drop(waiting);
        self.room.notify_one();
    }
}

impl Waiting {
    fn take(&mut self) -> Vec<Spooled> {
        let (mut clicks, mut bytes) = (0, 0);
        let mut taken = Vec::new();
        while clicks < MANY
            && bytes < MANY_BYTES
            && let Some(batch) = self.batches.pop_front()
        {
            clicks += batch.clicks;
            bytes += batch.bytes.len();
            taken.push(batch);
        }
        taken
    }

    fn is_full(&self) -> bool {
        self.clicks >= MOST || self.bytes >= MOST_BYTES
    }

    fn answer(&mut self) {
        let recorded = self.recorded;
        let empty = self.clicks == 0 && self.batches.is_empty();
        for (_, done) in self.flushes.extract_if(.., |(last, _)| empty || *last <= recorded) {
            // Whoever asked may have gone.
            let _gone = done.send(());
        }
    }
}

/// Records the backlog until it is closed and empty. Of what another process has left, the first clicks may be recorded.
pub(super) async fn record(backlog: Arc<Backlog>, sink: Sink, mut recorded_clicks: i64) {
    while let Some((batches, stopping)) = backlog.next().await {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else { continue };
        let mut readable = Vec::with_capacity(batches.len());
        for batch in &batches {
            match Batch::decode(&batch.bytes) {
                Ok(batch) => readable.push(batch),
                Err(error) => {
                    // How many clicks it had cannot be told.
                    tracing::error!(%error, batch = batch.number, "a batch is damaged and set aside");
                    let id = sink.store.spooled_batch_id(batch.number);
                    if !sink.set_aside(&id, &batch.bytes, &error, None, stopping).await {
                        tracing::warn!(batch = batch.number, "a damaged batch is left to the next process");
                        return;
                    }
                }
            }
        }
        let from = Progress { batch: first.number - 1, clicks: std::mem::take(&mut recorded_clicks) };
        let part = Part { from, to: Progress { batch: last.number, clicks: 0 } };
        let skipped = usize::try_from(from.clicks).unwrap_or_default();
        match Batch::join(&readable).and_then(|joined| joined.without_first(skipped)) {
            Ok(joined) => {
                if !sink.record(&joined, Some(part), stopping).await {
                    tracing::warn!(clicks = joined.len(), "clicks are left to the next process");
                    return;
                }
            }
            Err(error) => tracing::error!(%error, "batches are lost"),
        }
        backlog.done(&batches);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn batches_are_taken_and_held_back_by_their_bytes() {
        let backlog = Backlog::new(Vec::new(), Metrics::new());
        for number in 1..=4 {
            assert!(!backlog.lock().is_full(), "before batch {number}");
            backlog.push(number, 1, vec![0; MANY_BYTES]);
        }
        assert!(backlog.lock().is_full());
        for number in 1..=4 {
            let (taken, _) = backlog.next().await.unwrap();
            assert_eq!(taken.iter().map(|batch| batch.number).collect::<Vec<_>>(), [number]);
            backlog.done(&taken);
            assert!(!backlog.lock().is_full(), "after batch {number}");
        }
    }
}
