//! The queue of clicks, which the writer takes many at once.
//!
//! With a spool there is one lane for all clicks. Without, each workspace has one, so that clicks that take long to record keep only
//! those of the same workspace waiting.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::shares::{Shares, Taken};
use crate::store::{ClickBuffer, ClickRef};

/// Maximum delay before a click is spooled.
const SPOOL_DELAY: Duration = Duration::from_millis(40);
/// Maximum delay before a click is stored where workspaces have separate lanes. Recording takes longer than spooling, and redirects
/// would wait if both together exceeded [`HELD`].
const RECORD_DELAY: Duration = Duration::from_millis(20);
/// Maximum age of the oldest unstored click of a lane. Beyond it, the lane takes no more. Together with the time of a response,
/// it stays below the promised 100 ms.
const HELD: Duration = Duration::from_millis(80);
/// From this number of clicks on, they are stored without delay.
const BATCH: usize = 4_096;
/// From this size on, in bytes, clicks are stored without delay.
const BATCH_BYTES: usize = 1024 * 1024;
/// Maximum number of queued clicks.
const QUEUE: usize = 4 * BATCH;
/// Maximum size of the queued clicks, in bytes, without the last click. A batch is then far below the maximum size of a
/// value in both databases.
const QUEUE_BYTES: usize = 16 * BATCH_BYTES;

/// Maximum number of empty buffers that are kept.
const SPARE: usize = 4;
/// The lane of all clicks, while workspaces have none of their own. No workspace has this number.
const SHARED: i64 = 0;

/// The queue of clicks. It is a list under a lock instead of a channel, so that the writer takes all clicks at once.
#[derive(Debug, Default)]
pub(super) struct Queue {
    held: Mutex<Held>,
    /// Notifies the writer of a first click, a full batch, a flush or the shutdown, and of a lane that may be taken again.
    changed: Notify,
    /// Notifies waiting redirects that there may be room.
    pub(super) room: Notify,
}

#[derive(Debug, Default)]
struct Held {
    lanes: FxHashMap<i64, Lane>,
    /// Each workspace has a separate lane.
    separate: bool,
    /// Number and size of the clicks in all lanes.
    clicks: usize,
    bytes: usize,
    /// The workspaces of the clicks, and of those that were taken and are not recorded.
    shares: Shares,
    /// Empty buffers, whose memory is used again.
    spare: Vec<ClickBuffer>,
    /// Flushes, answered when all earlier clicks are stored.
    flushes: Vec<oneshot::Sender<()>>,
    /// The queue takes no more clicks.
    closed: bool,
    /// The writer has ended.
    ended: bool,
}

/// Clicks that are stored together, in their order.
#[derive(Debug, Default)]
struct Lane {
    clicks: ClickBuffer,
    /// Arrival of the oldest click in `clicks`.
    since: Option<Instant>,
    /// Arrival of the oldest click that is being stored. Meanwhile the lane is not taken again.
    storing_since: Option<Instant>,
}

/// The clicks of a lane, which the writer has taken.
#[derive(Debug)]
pub(super) struct TakenLane {
    pub(super) lane: i64,
    pub(super) clicks: ClickBuffer,
}

/// What the writer takes at once.
pub(super) struct TakenLanes {
    pub(super) lanes: Vec<TakenLane>,
    pub(super) shares: Taken,
    pub(super) flushes: Vec<oneshot::Sender<()>>,
}

impl Lane {
    /// Whether the clicks are stored without delay.
    fn is_batch(&self) -> bool {
        self.clicks.len() >= BATCH || self.clicks.bytes() >= BATCH_BYTES
    }

    /// Whether there are clicks to take.
    fn is_ready(&self) -> bool {
        !self.clicks.is_empty() && self.storing_since.is_none()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives each workspace a separate lane from now on.
    pub(super) fn separate_workspaces(&self) {
        self.lock().separate = true;
    }

    /// Queues a click. False if the queue or the lane is full, the lane is late, or the workspace has its share of the backlog.
    pub(super) fn offer(&self, click: &ClickRef<'_>, workspace: i64) -> bool {
        let now = Instant::now();
        let mut held = self.lock();
        if held.closed {
            tracing::error!("lost a click that arrived after the shutdown of the recorder");
            return true;
        }
        if held.clicks >= QUEUE || held.bytes >= QUEUE_BYTES || held.shares.is_used_up(workspace) {
            return false;
        }
        let (number, most) = if held.separate { (workspace, QUEUE / 2) } else { (SHARED, QUEUE) };
        let most_bytes = QUEUE_BYTES / QUEUE * most;
        let lane = held.lanes.entry(number).or_default();
        let is_full = lane.clicks.len() >= most || lane.clicks.bytes() >= most_bytes;
        let oldest = lane.storing_since.or(lane.since);
        if is_full || oldest.is_some_and(|oldest| now.duration_since(oldest) >= HELD) {
            return false;
        }
        lane.since.get_or_insert(now);
        let (is_first, was_batch) = (lane.clicks.is_empty(), lane.is_batch());
        let bytes = lane.clicks.bytes();
        lane.clicks.push(click);
        let bytes = lane.clicks.bytes() - bytes;
        let is_batch = lane.is_batch();
        held.clicks += 1;
        held.bytes += bytes;
        if !held.separate {
            held.shares.add(workspace, bytes);
        }
        drop(held);
        if is_first || is_batch != was_batch {
            self.changed.notify_one();
        }
        true
    }

    /// Takes the clicks of all lanes that are not being stored, and the pending flushes.
    pub(super) fn take(&self) -> TakenLanes {
        let mut held = self.lock();
        let Held { lanes, spare, .. } = &mut *held;
        let mut taken = Vec::new();
        for (number, lane) in lanes.iter_mut().filter(|(_, lane)| lane.is_ready()) {
            let clicks = std::mem::replace(&mut lane.clicks, spare.pop().unwrap_or_default());
            lane.storing_since = lane.since.take();
            taken.push(TakenLane { lane: *number, clicks });
        }
        held.clicks -= taken.iter().map(|taken| taken.clicks.len()).sum::<usize>();
        held.bytes -= taken.iter().map(|taken| taken.clicks.bytes()).sum::<usize>();
        TakenLanes { lanes: taken, shares: held.shares.take(), flushes: std::mem::take(&mut held.flushes) }
    }

    /// Limits the webhook events of a workspace. See [`Shares::limit_events`].
    pub(super) fn limit_events(&self, workspace: i64, event_bytes: usize) {
        self.lock().shares.limit_events(workspace, event_bytes);
    }

    /// Marks taken clicks as recorded, which frees the shares of their workspaces.
    pub(super) fn recorded<'a>(&self, taken: impl IntoIterator<Item = &'a Taken>) {
        let mut held = self.lock();
        for taken in taken {
            held.shares.release(taken);
        }
        drop(held);
        self.room.notify_waiters();
    }

    /// Marks the taken clicks of lanes as stored.
    pub(super) fn stored(&self, taken: impl IntoIterator<Item = TakenLane>) {
        let mut held = self.lock();
        for TakenLane { lane: number, mut clicks } in taken {
            if let Some(lane) = held.lanes.get_mut(&number) {
                lane.storing_since = None;
                if lane.clicks.is_empty() {
                    held.lanes.remove(&number);
                }
            }
            if held.spare.len() < SPARE {
                clicks.clear();
                held.spare.push(clicks);
            }
        }
        drop(held);
        self.changed.notify_one();
        self.room.notify_waiters();
    }

    /// Whether all clicks are stored.
    pub(super) fn is_stored(&self) -> bool {
        self.lock().lanes.is_empty()
    }

    /// Marks the end of the writer.
    pub(super) fn end(&self) {
        let mut held = self.lock();
        held.ended = true;
        // Dropping the senders wakes the flushes that were added since the last batch.
        held.flushes.clear();
    }

    /// Waits until a batch is to be stored. The result is true during a shutdown, and None after the last batch.
    pub(super) async fn wait_for_batch(&self) -> Option<bool> {
        loop {
            let due = {
                let held = self.lock();
                let ready = || held.lanes.values().filter(|lane| lane.is_ready());
                if held.closed && held.lanes.values().all(|lane| lane.clicks.is_empty()) {
                    return (!held.flushes.is_empty()).then_some(true);
                }
                if held.closed && ready().next().is_some() {
                    return Some(true);
                }
                if ready().any(Lane::is_batch) || !held.flushes.is_empty() {
                    return Some(held.closed);
                }
                let delay = if held.separate { RECORD_DELAY } else { SPOOL_DELAY };
                ready().filter_map(|lane| lane.since).min().map(|since| since + delay)
            };
            match due {
                None => self.changed.notified().await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => return Some(false),
                    () = self.changed.notified() => {}
                },
            }
        }
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
        self.room.notify_waiters();
    }

    /// Answers once all clicks queued before are stored. None if the writer has ended, after it stored everything.
    pub(super) fn flush(&self) -> Option<oneshot::Receiver<()>> {
        let (done, stored) = oneshot::channel();
        {
            let mut held = self.lock();
            if held.ended {
                return None;
            }
            held.flushes.push(done);
        }
        self.changed.notify_one();
        Some(stored)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::store::Click;

    /// Offers a click with texts of about this size.
    fn offer(queue: &Queue, bytes: usize, workspace: i64) -> bool {
        let mut click = Click::new("link_1", Timestamp::UNIX_EPOCH);
        click.details.url = format!("{}{}", click.id, "x".repeat(bytes)).into();
        queue.offer(&(&click).into(), workspace)
    }

    #[test]
    fn long_clicks_fill_the_queue_by_their_bytes() {
        let queue = Queue::default();
        for taken in 0..=16 {
            assert_eq!(offer(&queue, BATCH_BYTES, 1), taken < 16, "after {taken} clicks");
            let mut held = queue.lock();
            let lane = held.lanes.get_mut(&SHARED).unwrap();
            assert!(lane.is_batch());
            // The test must not depend on time.
            lane.since = None;
        }
    }

    #[test]
    fn a_workspace_whose_clicks_take_long_keeps_no_other_one_waiting() {
        let queue = Queue::default();
        queue.separate_workspaces();
        assert!(offer(&queue, 1, 1) && offer(&queue, 1, 2));
        let TakenLanes { mut lanes, .. } = queue.take();
        lanes.sort_by_key(|taken| taken.lane);
        let [slow, quick] = <[TakenLane; 2]>::try_from(lanes).unwrap();
        queue.stored([quick]);
        let is_late = Instant::now().checked_sub(HELD);
        queue.lock().lanes.get_mut(&1).unwrap().storing_since = is_late;
        assert!(!offer(&queue, 1, 1) && offer(&queue, 1, 2));
        let taken = queue.take().lanes;
        assert_eq!(taken.iter().map(|taken| taken.lane).collect::<Vec<_>>(), [2]);
        queue.stored(taken);
        queue.stored([slow]);
        assert!(offer(&queue, 1, 1));
    }

    #[test]
    fn a_workspace_with_a_lane_of_its_own_has_half_of_the_queue() {
        let queue = Queue::default();
        queue.separate_workspaces();
        for taken in 0..=8 {
            assert_eq!(offer(&queue, BATCH_BYTES, 1), taken < 8, "after {taken} clicks");
            queue.lock().lanes.values_mut().for_each(|lane| lane.since = None);
        }
        assert!(offer(&queue, BATCH_BYTES, 2));
    }
}
