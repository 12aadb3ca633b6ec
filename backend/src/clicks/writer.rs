//! The writer: appends accepted clicks to the log, and moves those of the log into the database.
//!
//! The order of the steps is: append to the log, commit to the database, remove from the log. A process may be killed between any two of
//! them, and the answer to the commit may be lost. The click is then moved again, and its id is already in the database.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Accepted;
use super::log::{DECIDED, Entries, Log};
use crate::domain::click::{ClickOutcome, ClickRef};
use crate::metrics::Metrics;
use crate::store::{Found, RECORDED_AT_ONCE, Store, StoreError};

/// Maximum delay before a click is appended to the log. Together with the write, it stays below the promised 100 ms.
const DELAY: Duration = Duration::from_millis(40);
/// Pause before a failed step is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of attempts during a shutdown.
const FINAL_ATTEMPTS: u32 = 10;
/// From this size of the moved clicks on, in bytes, they are removed from the log.
const REMOVED_FROM: i64 = 4 * 1024 * 1024;
/// Time after which moved clicks are removed from the log whatever their size. They would be counted again if the log were kept for longer
/// than the clicks in the database.
const REMOVED_AFTER: Duration = Duration::from_secs(10);

pub(super) struct Writer {
    pub(super) store: Store,
    pub(super) announced: Arc<Notify>,
    pub(super) metrics: Metrics,
    pub(super) accepted: Arc<Accepted>,
}

/// The log, which both tasks use.
type SharedLog = Arc<Mutex<Log>>;

/// Does something with the log on a thread that may block.
async fn blocking<T: Send + 'static>(
    log: &SharedLog,
    work: impl FnOnce(&mut Log) -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let log = Arc::clone(log);
    let work = move || work(&mut log.lock().unwrap_or_else(PoisonError::into_inner));
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}

impl Writer {
    /// Runs until no more clicks are accepted and all are in the database, or the database does not take them.
    pub(super) async fn run(self) {
        let Some(log) = self.open().await else { return };
        let (written, seen) = watch::channel(0);
        tokio::join!(self.append(&log, written), self.move_clicks(&log, seen));
    }

    /// Opens the log. None if that does not work before the shutdown.
    async fn open(&self) -> Option<SharedLog> {
        loop {
            let path = self.store.click_log().to_owned();
            match tokio::task::spawn_blocking(move || Log::open(&path)).await {
                Ok(Ok((log, clicks))) => {
                    self.accepted.in_log.store(clicks, Ordering::Relaxed);
                    self.accepted.moved.send_replace(log.start());
                    self.show();
                    return Some(Arc::new(Mutex::new(log)));
                }
                Ok(Err(error)) => tracing::error!(%error, "could not open the click log"),
                Err(error) => tracing::error!(%error, "the opening of the click log panicked"),
            }
            if self.accepted.is_closed() {
                self.lose(self.accepted.lock().clicks);
                return None;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Appends accepted clicks to the log until no more are accepted.
    async fn append(&self, log: &SharedLog, written: watch::Sender<i64>) {
        while let Some((entries, clicks)) = self.next().await {
            let entries = Arc::new(entries);
            let mut attempts = 0;
            loop {
                let appended = Arc::clone(&entries);
                match blocking(log, move |log| log.append(&appended)).await {
                    Ok(end) => {
                        self.accepted.in_log.fetch_add(clicks, Ordering::Relaxed);
                        written.send_replace(end);
                        self.show();
                        break;
                    }
                    Err(error) => {
                        attempts += 1;
                        tracing::error!(%error, attempts, clicks, "could not append clicks to the click log");
                        if self.accepted.is_closed() && attempts >= FINAL_ATTEMPTS {
                            return self.lose(clicks + self.accepted.lock().clicks);
                        }
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Waits for accepted clicks. None if there are none and no more are accepted.
    async fn next(&self) -> Option<(Vec<u8>, u64)> {
        let accepted = &self.accepted;
        let mut due = None;
        loop {
            {
                let mut waiting = accepted.lock();
                if waiting.entries.is_empty() {
                    if waiting.closed {
                        return None;
                    }
                    waiting.urgent = false;
                } else {
                    let due = *due.get_or_insert_with(|| Instant::now() + DELAY);
                    if waiting.closed || waiting.urgent || due <= Instant::now() {
                        waiting.urgent = false;
                        let clicks = std::mem::take(&mut waiting.clicks);
                        // Usually there are about as many the next time.
                        let next = Vec::with_capacity(waiting.entries.len());
                        return Some((std::mem::replace(&mut waiting.entries, next), clicks));
                    }
                }
            }
            match due {
                None => accepted.changed.notified().await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = accepted.changed.notified() => {}
                },
            }
        }
    }

    /// Moves clicks from the log into the database until no more are appended and all are moved.
    async fn move_clicks(&self, log: &SharedLog, mut written: watch::Receiver<i64>) {
        let mut moved = *self.accepted.moved.borrow();
        let (mut removed, mut removed_at) = (moved, Instant::now());
        loop {
            let end = *written.borrow_and_update();
            if moved < end {
                match self.move_some(log, moved).await {
                    Some(next) => moved = next,
                    None => return,
                }
                self.accepted.moved.send_replace(moved);
                self.show();
            }
            let due = removed_at + REMOVED_AFTER;
            let is_half = moved - removed >= end - moved;
            if moved > removed && is_half && (moved - removed >= REMOVED_FROM || due <= Instant::now()) {
                self.remove(log, moved).await;
                (removed, removed_at) = (moved, Instant::now());
            }
            if moved < end {
                continue;
            }
            tokio::select! {
                changed = written.changed() => if changed.is_err() && moved == *written.borrow() { break },
                () = tokio::time::sleep_until(due), if moved > removed => {}
            }
        }
        self.remove(log, moved).await;
    }

    /// If this fails, the clicks stay in the log, and later ones are removed together with them.
    async fn remove(&self, log: &SharedLog, before: i64) {
        if let Err(error) = blocking(log, move |log| log.remove_before(before)).await {
            tracing::error!(%error, "could not remove recorded clicks from the click log");
        }
    }

    /// Moves some clicks into the database, and returns the position after them. None if that fails during a shutdown.
    async fn move_some(&self, log: &SharedLog, from: i64) -> Option<i64> {
        let bytes = match blocking(log, move |log| log.read(from)).await {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::error!(%error, "could not read the click log");
                tokio::time::sleep(RETRY_PAUSE).await;
                return (!self.accepted.is_closed()).then_some(from);
            }
        };
        let (mut clicks, mut entries, mut size) = (Vec::new(), 0, 0);
        let mut found = Entries(&bytes).take(RECORDED_AT_ONCE).peekable();
        if found.peek().is_none() && bytes.len() > DECIDED {
            return Some(from + DECIDED as i64);
        }
        // What is left at the end is damaged.
        let left = found.peek().is_none().then_some((bytes.len(), None));
        for (entry_size, click) in found.chain(left) {
            entries += 1;
            size += entry_size;
            if let Some(Ok(click)) = click.map(postcard::from_bytes::<ClickRef<'_>>) {
                clicks.push(click);
            } else {
                // How many clicks a damaged part had is not known.
                tracing::error!(
                    bytes = entry_size,
                    "lost a click, because its entry in the click log is damaged"
                );
                self.metrics.clicks(ClickOutcome::Lost, 1);
            }
        }
        // Clicks of an earlier process may be in the database.
        let found = if from < 0 { Found::Again } else { Found::First };
        self.record(&clicks, found).await?;
        self.accepted.in_log.fetch_sub(entries, Ordering::Relaxed);
        Some(from + size as i64)
    }

    /// Records clicks. If the database refuses them, it records each alone, and loses those that are refused. None if that fails during a
    /// shutdown.
    async fn record(&self, clicks: &[ClickRef<'_>], found: Found) -> Option<()> {
        let Err(refusal) = self.insist(clicks, found).await? else { return Some(()) };
        if clicks.len() == 1 {
            self.lose_refused(clicks, &refusal);
            return Some(());
        }
        for click in clicks {
            let click = std::slice::from_ref(click);
            if let Err(refusal) = self.insist(click, found).await? {
                self.lose_refused(click, &refusal);
            }
        }
        Some(())
    }

    fn lose_refused(&self, click: &[ClickRef<'_>], refusal: &StoreError) {
        tracing::error!(error = %refusal, ?click, "lost a click that the database refused");
        self.metrics.clicks(ClickOutcome::Lost, click.len());
    }

    /// Tries until the database has recorded clicks or refuses them. None if it does neither during a shutdown.
    async fn insist(&self, clicks: &[ClickRef<'_>], found: Found) -> Option<Result<(), StoreError>> {
        let mut attempts = 0;
        loop {
            match self.store.record(clicks, found).await {
                Ok(recorded) => {
                    self.metrics.clicks(ClickOutcome::Recorded, recorded.inserted);
                    self.metrics.clicks(ClickOutcome::Orphaned, recorded.orphaned);
                    if recorded.inserted > 0 {
                        self.announced.notify_one();
                    }
                    return Some(Ok(()));
                }
                Err(refusal) if refusal.is_refusal() => return Some(Err(refusal)),
                Err(error) => {
                    attempts += 1;
                    tracing::error!(%error, attempts, clicks = clicks.len(), "could not record clicks");
                    if self.accepted.is_closed() && attempts >= FINAL_ATTEMPTS {
                        return None;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    fn lose(&self, clicks: u64) {
        if clicks > 0 {
            tracing::error!(clicks, "lost clicks, because they could not be appended to the click log");
            self.metrics.clicks(ClickOutcome::Lost, usize::try_from(clicks).unwrap_or(usize::MAX));
        }
    }

    /// Sets the gauges of the log.
    fn show(&self) {
        let accepted = &self.accepted;
        let bytes = accepted.lock().end.abs_diff(*accepted.moved.borrow());
        let used = bytes as f64 / accepted.most_bytes as f64;
        self.metrics.click_log(accepted.in_log.load(Ordering::Relaxed), bytes, used);
    }
}
