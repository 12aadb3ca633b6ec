//! The backlog: spooled clicks that are not recorded yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::shares::{MOST, MOST_BYTES, Taken};
use super::sink::{Part, Sink};
use crate::metrics::Metrics;
use crate::store::{Batch, Progress};

/// Maximum delay before spooled clicks are recorded. Recording many clicks together takes less time per click.
const INTERVAL: Duration = Duration::from_secs(1);
/// Up to this number of clicks are recorded without delay.
const FEW: usize = 128;
/// Maximum number of clicks in a transaction, approximately.
const MANY: usize = 65_536;
/// The first transaction records about this many clicks. Its duration decides how many the next one records.
const AT_FIRST: usize = 2 * FEW;
/// A transaction that takes longer than this makes the next ones smaller. A click on a large link that webhooks hear of takes a hundred
/// times as long as another.
const LONG: Duration = Duration::from_millis(500);
/// The same while customers write. SQLite has one writer, and they wait for it.
const LONG_FOR_OTHERS: Duration = Duration::from_millis(5);
/// On a slow disk, even a small transaction takes longer than [`LONG_FOR_OTHERS`]. Others may then take this many times as long.
const TIMES_SMALL: u32 = 3;
/// Maximum number of clicks of a small transaction.
const SMALL: usize = 8;
/// From this size on, in bytes, batches are recorded without delay. It is also the approximate maximum of a transaction.
const MANY_BYTES: usize = 2 * 1024 * 1024;

/// Spooled batches that are not recorded.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: Mutex<Waiting>,
    /// Notifies the recording task of a batch, a flush or the shutdown.
    changed: Notify,
    /// Notifies the spooling task that batches were recorded.
    room: Notify,
    metrics: Metrics,
}

#[derive(Debug)]
struct Waiting {
    batches: VecDeque<Spooled>,
    clicks: usize,
    bytes: usize,
    /// From this number of clicks on, they are recorded without delay. It is also about the size of the next transaction.
    at_once: usize,
    /// How long the last small transaction took.
    small_took: Duration,
    /// The arrival of the oldest batch or the end of the last transaction, whichever is later.
    since: Option<Instant>,
    /// The number of the last spooled batch.
    last: i64,
    /// The number of the last recorded batch.
    recorded: i64,
    /// Flushes, each answered when all batches up to its number are recorded.
    flushes: Vec<(i64, oneshot::Sender<()>)>,
    closed: bool,
}

#[derive(Debug)]
struct Spooled {
    number: i64,
    clicks: usize,
    bytes: Vec<u8>,
    /// Whose clicks they are; empty for those that another process has left.
    taken: Taken,
}

impl Backlog {
    /// A backlog with the batches that an earlier process left.
    pub(super) fn new(left: Vec<(i64, Vec<u8>)>, metrics: Metrics) -> Self {
        let batches: VecDeque<Spooled> = left
            .into_iter()
            .map(|(number, bytes)| {
                let clicks = Batch::decode(&bytes).map_or(0, |batch| batch.len());
                Spooled { number, clicks, bytes, taken: Taken::default() }
            })
            .collect();
        let clicks = batches.iter().map(|batch| batch.clicks).sum();
        let waiting = Waiting {
            clicks,
            bytes: batches.iter().map(|batch| batch.bytes.len()).sum(),
            at_once: AT_FIRST,
            small_took: Duration::ZERO,
            since: (!batches.is_empty()).then(Instant::now),
            last: batches.back().map_or(0, |batch| batch.number),
            recorded: 0,
            flushes: Vec::new(),
            closed: false,
            batches,
        };
        waiting.gauge(&metrics);
        Self { waiting: Mutex::new(waiting), changed: Notify::new(), room: Notify::new(), metrics }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the backlog has room.
    pub(super) async fn room(&self) {
        while self.lock().is_full() {
            self.room.notified().await;
        }
    }

    pub(super) fn push(&self, number: i64, clicks: usize, bytes: Vec<u8>, taken: Taken) {
        let mut waiting = self.lock();
        waiting.clicks += clicks;
        waiting.bytes += bytes.len();
        waiting.batches.push_back(Spooled { number, clicks, bytes, taken });
        waiting.last = number;
        waiting.since.get_or_insert_with(Instant::now);
        waiting.gauge(&self.metrics);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Answers the flushes when all batches that were pushed before are recorded.
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

    /// The number of the last recorded batch. 0 if this process has recorded none.
    pub(super) fn recorded(&self) -> i64 {
        self.lock().recorded
    }

    /// Closes the backlog. The remaining batches are still recorded.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Waits for the next batches to record. The boolean is true if the backlog is closed. None if it is closed and
    /// empty.
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
                    || !(FEW..waiting.at_once).contains(&waiting.clicks)
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

    /// Forgets batches that are recorded, by a transaction that took this long.
    fn done(&self, batches: &[Spooled], took: Duration, others_wait: bool) {
        let clicks = batches.iter().map(|batch| batch.clicks).sum::<usize>();
        let long = if others_wait { LONG_FOR_OTHERS } else { LONG };
        let mut waiting = self.lock();
        waiting.adapt(clicks, took, long);
        waiting.clicks -= clicks;
        waiting.bytes -= batches.iter().map(|batch| batch.bytes.len()).sum::<usize>();
        waiting.recorded = batches.last().map_or(waiting.recorded, |batch| batch.number);
        waiting.since = (!waiting.batches.is_empty()).then(Instant::now);
        waiting.answer();
        waiting.gauge(&self.metrics);
        drop(waiting);
        self.room.notify_one();
    }
}

impl Waiting {
    /// Decides how many clicks are recorded at once from now on.
    fn adapt(&mut self, clicks: usize, took: Duration, long: Duration) {
        if clicks <= SMALL {
            self.small_took = took;
        }
        let long = long.max(TIMES_SMALL * self.small_took);
        if took > long {
            let times = usize::try_from(took.as_nanos().div_ceil(long.as_nanos())).unwrap_or(usize::MAX);
            self.at_once = (clicks / times.max(2)).max(1);
        } else if clicks >= self.at_once && took < long / 2 {
            self.at_once = (2 * self.at_once).min(MANY);
        } else if clicks < FEW {
            // Those that come after a pause may be other clicks.
            self.at_once = self.at_once.min(AT_FIRST);
        }
    }

    fn take(&mut self) -> Vec<Spooled> {
        let (mut clicks, mut bytes) = (0, 0);
        let mut taken = Vec::new();
        while clicks < self.at_once
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

    fn gauge(&self, metrics: &Metrics) {
        let used = (self.clicks as f64 / MOST as f64).max(self.bytes as f64 / MOST_BYTES as f64);
        metrics.spool(self.clicks, self.bytes, used);
    }

    fn answer(&mut self) {
        let recorded = self.recorded;
        let empty = self.clicks == 0 && self.batches.is_empty();
        for (_, done) in self.flushes.extract_if(.., |(last, _)| empty || *last <= recorded) {
            // The receiver may have been dropped.
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
                    // The number of clicks in the batch is unknown.
                    tracing::error!(%error, batch = batch.number, "set aside a damaged batch of clicks");
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
        let mut took = Duration::ZERO;
        match Batch::join(&readable).and_then(|joined| joined.without_first(skipped)) {
            Ok(joined) => match sink.record(&joined, Some(part), stopping).await {
                Some(recorded) => took = recorded,
                None => {
                    tracing::warn!(clicks = joined.len(), "clicks remain in the spool for the next process");
                    return;
                }
            },
            Err(error) => tracing::error!(%error, "lost batches of clicks"),
        }
        backlog.done(&batches, took, sink.store.customers_wait());
        sink.queue.recorded(batches.iter().map(|batch| &batch.taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn batches_are_taken_and_held_back_by_their_bytes() {
        let backlog = Backlog::new(Vec::new(), Metrics::new());
        const MOST_BATCHES: i64 = (MOST_BYTES / MANY_BYTES) as i64;
        for number in 1..=MOST_BATCHES {
            assert!(!backlog.lock().is_full(), "before batch {number}");
            backlog.push(number, 1, vec![0; MANY_BYTES], Taken::default());
        }
        assert!(backlog.lock().is_full());
        for number in 1..=MOST_BATCHES {
            let (taken, _) = backlog.next().await.unwrap();
            assert_eq!(taken.iter().map(|batch| batch.number).collect::<Vec<_>>(), [number]);
            backlog.done(&taken, Duration::ZERO, false);
            assert!(!backlog.lock().is_full(), "after batch {number}");
        }
    }

    #[test]
    fn fewer_clicks_are_recorded_at_once_after_some_took_long() {
        let mut waiting = Backlog::new(Vec::new(), Metrics::new()).waiting.into_inner().unwrap();
        let (long, short) = (LONG_FOR_OTHERS * 2, LONG_FOR_OTHERS / 4);
        //  clicks recorded, how long they took, clicks at once from then on
        let steps = [
            (AT_FIRST, short, 2 * AT_FIRST),
            (4 * AT_FIRST, short, 4 * AT_FIRST),
            (AT_FIRST, short, 4 * AT_FIRST),
            (MANY, LONG_FOR_OTHERS, 4 * AT_FIRST),
            (4 * AT_FIRST, long, 2 * AT_FIRST),
            (10, long, 5),
            (SMALL, short, 10),
            (SMALL, long, 10),
            // Even few clicks take long.
            (10, long, 20),
            (20, 4 * long, 10),
            // A few such transactions say how many may be recorded at once.
            (MANY, 100 * long, 1_927),
        ];
        for (clicks, took, at_once) in steps {
            waiting.adapt(clicks, took, LONG_FOR_OTHERS);
            assert_eq!(waiting.at_once, at_once, "after {clicks} clicks in {took:?}");
        }
        waiting.adapt(10, LONG / 2, LONG);
        assert_eq!(waiting.at_once, AT_FIRST, "nobody waits");
        for _ in 0..20 {
            waiting.adapt(MANY, short, LONG_FOR_OTHERS);
        }
        assert_eq!(waiting.at_once, MANY);
        waiting.adapt(FEW - 1, short, LONG_FOR_OTHERS);
        assert_eq!(waiting.at_once, AT_FIRST);
    }

    #[test]
    fn on_a_slow_disk_as_many_clicks_are_recorded_at_once_as_take_hardly_longer_than_few() {
        let mut waiting = Backlog::new(Vec::new(), Metrics::new()).waiting.into_inner().unwrap();
        //  how long a synchronous write takes, and a click takes a hundredth of that; clicks at once after a while
        let long = LONG_FOR_OTHERS;
        for (sync, expected) in [(4 * long, 64..=128), (long / 100, 8_192..=16_384), (8 * long, 64..=128)] {
            // Few come at first.
            waiting.adapt(1, sync, long);
            for _ in 0..1_000 {
                let clicks = waiting.at_once;
                waiting.adapt(clicks, sync + sync / 100 * u32::try_from(clicks).unwrap(), long);
            }
            assert!(expected.contains(&waiting.at_once), "{sync:?}: {} at once", waiting.at_once);
        }
    }
}
