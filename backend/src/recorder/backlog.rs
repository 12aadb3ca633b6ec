//! Clicks that are spooled and not recorded yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::Queue;
use super::shares::Taken;
use super::writer::Sink;
use crate::store::Batch;

/// The longest that spooled clicks wait for others to be recorded with: recording many takes less for each.
const INTERVAL: Duration = Duration::from_secs(1);
/// As few clicks do not wait for others.
const FEW: usize = 128;
/// As many clicks are recorded at once at most, or a few more.
const MANY: usize = 32_768;
/// As many clicks are recorded at once at first. How long that takes shows how many may be next.
const AT_FIRST: usize = 2 * FEW;
/// How long recording clicks may take before fewer of them are recorded at once: SQLite has one writer, and all others wait
/// for it. A click takes a hundred times as long as another if its link is large and webhooks hear of it.
const LONG: Duration = Duration::from_millis(100);
/// Batches of as many bytes do not wait for others, and about as many are recorded at once at most: far fewer than the
/// largest value that a database takes.
const MANY_BYTES: usize = 32 * 1024 * 1024;
/// Clicks in the backlog, beyond which no more are spooled. They take about 50 bytes each.
pub(super) const MOST: usize = 8 * MANY;
/// Bytes in the backlog, beyond which no more are spooled.
pub(super) const MOST_BYTES: usize = 4 * MANY_BYTES;

/// Batches that are spooled and not recorded.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: Mutex<Waiting>,
    /// Tells whoever records of a batch, a flush or the end.
    changed: Notify,
    /// Tells whoever spools that something was recorded.
    room: Notify,
}

#[derive(Debug)]
struct Waiting {
    batches: VecDeque<Spooled>,
    clicks: usize,
    bytes: usize,
    /// As many clicks do not wait for others, and about as many are recorded at once.
    at_once: usize,
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
    /// Whose clicks they are; empty for those that another process has left.
    taken: Taken,
}

impl Backlog {
    /// A backlog that begins with what another process has left.
    pub(super) fn new(left: Vec<(i64, Vec<u8>)>) -> Self {
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
            since: (!batches.is_empty()).then(Instant::now),
            last: batches.back().map_or(0, |batch| batch.number),
            recorded: 0,
            flushes: Vec::new(),
            closed: false,
            batches,
        };
        Self { waiting: Mutex::new(waiting), changed: Notify::new(), room: Notify::new() }
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

    pub(super) fn push(&self, number: i64, clicks: usize, bytes: Vec<u8>, taken: Taken) {
        let mut waiting = self.lock();
        waiting.clicks += clicks;
        waiting.bytes += bytes.len();
        waiting.batches.push_back(Spooled { number, clicks, bytes, taken });
        waiting.last = number;
        waiting.since.get_or_insert_with(Instant::now);
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
    fn done(&self, batches: &[Spooled], took: Duration) {
        let clicks = batches.iter().map(|batch| batch.clicks).sum::<usize>();
        let mut waiting = self.lock();
        waiting.adapt(clicks, took);
        waiting.clicks -= clicks;
        waiting.bytes -= batches.iter().map(|batch| batch.bytes.len()).sum::<usize>();
        waiting.recorded = batches.last().map_or(waiting.recorded, |batch| batch.number);
        waiting.since = (!waiting.batches.is_empty()).then(Instant::now);
        waiting.answer();
        drop(waiting);
        self.room.notify_one();
    }
}

impl Waiting {
    /// Decides how many clicks are recorded at once from now on.
    fn adapt(&mut self, clicks: usize, took: Duration) {
        if took > LONG {
            self.at_once = (clicks / 2).max(1);
        } else if clicks >= self.at_once && took < LONG / 2 {
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

    fn answer(&mut self) {
        let recorded = self.recorded;
        let empty = self.clicks == 0 && self.batches.is_empty();
        for (_, done) in self.flushes.extract_if(.., |(last, _)| empty || *last <= recorded) {
            // Whoever asked may have gone.
            let _gone = done.send(());
        }
    }
}

/// Records the backlog until it is closed and empty.
pub(super) async fn record(backlog: Arc<Backlog>, sink: Sink, queue: Arc<Queue>) {
    while let Some((batches, stopping)) = backlog.next().await {
        let readable: Vec<Batch<'_>> = batches
            .iter()
            .filter_map(|batch| match Batch::decode(&batch.bytes) {
                Ok(batch) => Some(batch),
                Err(error) => {
                    // How many clicks it had cannot be told.
                    tracing::error!(%error, batch = batch.number, "a batch is damaged and set aside");
                    sink.damaged_batch();
                    None
                }
            })
            .collect();
        let last = batches.last().map(|batch| batch.number);
        let mut took = Duration::ZERO;
        match Batch::join(&readable) {
            Ok(joined) => match sink.record(&joined, last, stopping).await {
                Some(recorded) => took = recorded,
                None => {
                    tracing::warn!(clicks = joined.len(), "clicks are left to the next process");
                    return;
                }
            },
            Err(error) => tracing::error!(%error, "batches are lost"),
        }
        backlog.done(&batches, took);
        queue.recorded(batches.iter().map(|batch| &batch.taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn batches_are_taken_and_held_back_by_their_bytes() {
        let backlog = Backlog::new(Vec::new());
        for number in 1..=4 {
            assert!(!backlog.lock().is_full(), "before batch {number}");
            backlog.push(number, 1, vec![0; MANY_BYTES], Taken::default());
        }
        assert!(backlog.lock().is_full());
        for number in 1..=4 {
            let (taken, _) = backlog.next().await.unwrap();
            assert_eq!(taken.iter().map(|batch| batch.number).collect::<Vec<_>>(), [number]);
            backlog.done(&taken, Duration::ZERO);
            assert!(!backlog.lock().is_full(), "after batch {number}");
        }
    }

    #[test]
    fn fewer_clicks_are_recorded_at_once_after_some_took_long() {
        let mut waiting = Backlog::new(Vec::new()).waiting.into_inner().unwrap();
        let (long, short) = (LONG * 2, LONG / 4);
        //  clicks recorded, how long they took, clicks at once from then on
        let steps = [
            (AT_FIRST, short, 2 * AT_FIRST),
            (4 * AT_FIRST, short, 4 * AT_FIRST),
            (AT_FIRST, short, 4 * AT_FIRST),
            (MANY, LONG, 4 * AT_FIRST),
            (4 * AT_FIRST, long, 2 * AT_FIRST),
            (10, long, 5),
            (1, long, 1),
            (1, short, 2),
            (3, short, 4),
            (AT_FIRST, LONG, 4),
        ];
        for (clicks, took, at_once) in steps {
            waiting.adapt(clicks, took);
            assert_eq!(waiting.at_once, at_once, "after {clicks} clicks in {took:?}");
        }
        for _ in 0..20 {
            waiting.adapt(MANY, short);
        }
        assert_eq!(waiting.at_once, MANY);
        waiting.adapt(FEW - 1, short);
        assert_eq!(waiting.at_once, AT_FIRST);
    }
}
