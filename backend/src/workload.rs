//! The recent workload of each workspace, and whether it is more than its share.
//!
//! The workload is the average number of requests that run or wait. A workspace is busy if that exceeds the number of processors
//! while others send requests too. [`crate::gate`] lets few requests of busy workspaces run at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time constant of the average.
const RECENT: Duration = Duration::from_secs(4);
/// Workspaces are active at the same time if two of them have sent requests within this time.
const ACTIVE: Duration = Duration::from_secs(1);
/// Averages below this are forgotten.
const IDLE: f64 = 0.001;

/// The workload of each workspace with recent requests.
#[derive(Debug)]
pub(crate) struct Workloads {
    /// A workspace with a larger workload is busy.
    share: f64,
    all: Mutex<HashMap<i64, Workload>>,
    /// The workspace of the last request.
    last: AtomicI64,
    /// The last time at which a request came from a different workspace than the one before, in milliseconds since `epoch`, plus 1.
    /// 0 if there was no such request.
    changed: AtomicU64,
    epoch: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Workload {
    running: u32,
    /// The exponentially weighted average of `running`.
    average: f64,
    at: Instant,
}

impl Workload {
    fn at(self, now: Instant) -> f64 {
        let weight = (-now.duration_since(self.at).div_duration_f64(RECENT)).exp();
        self.average * weight + f64::from(self.running) * (1.0 - weight)
    }
}

/// A request of a workspace that runs or waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    workloads: Arc<Workloads>,
    workspace: i64,
}

impl Workloads {
    pub(crate) fn new(processors: usize) -> Self {
        let share = u32::try_from(processors).unwrap_or(u32::MAX).max(1).into();
        let (all, last, changed) = (Mutex::default(), AtomicI64::new(0), AtomicU64::new(0));
        Self { share, all, last, changed, epoch: Instant::now() }
    }

    /// A request of the workspace begins.
    pub(crate) fn begin(self: &Arc<Self>, workspace: i64) -> Running {
        self.seen(workspace);
        self.add(workspace, 1, Instant::now());
        Running { workloads: Arc::clone(self), workspace }
    }

    /// Remembers that a workspace is active.
    pub(crate) fn seen(&self, workspace: i64) {
        self.seen_at(workspace, Instant::now);
    }

    /// Reads the clock only if the workspace is another one than before.
    fn seen_at(&self, workspace: i64, now: impl FnOnce() -> Instant) {
        if self.last.load(Ordering::Relaxed) != workspace && self.last.swap(workspace, Ordering::Relaxed) != 0
        {
            self.changed.store(self.milliseconds(now()) + 1, Ordering::Relaxed);
        }
    }

    /// Whether the workspace is busy.
    pub(crate) fn is_busy(&self, workspace: i64) -> bool {
        self.is_busy_at(workspace, Instant::now())
    }

    fn is_busy_at(&self, workspace: i64, now: Instant) -> bool {
        self.several_are_active_at(now)
            && self.lock().get(&workspace).is_some_and(|workload| workload.at(now) > self.share)
    }

    /// Whether several workspaces are active.
    pub(crate) fn several_are_active(&self) -> bool {
        self.several_are_active_at(Instant::now())
    }

    fn several_are_active_at(&self, now: Instant) -> bool {
        let changed = self.changed.load(Ordering::Relaxed);
        changed > 0 && (self.milliseconds(now) + 1).saturating_sub(changed) < ACTIVE.as_millis() as u64
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX - 1)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Workload>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, workspace: i64, requests: i32, now: Instant) {
        let mut all = self.lock();
        let before = all.len();
        let workload = all.entry(workspace).or_insert(Workload { running: 0, average: 0.0, at: now });
        let running = workload.running.saturating_add_signed(requests);
        *workload = Workload { running, average: workload.at(now), at: now };
        if all.len() > before {
            all.retain(|_, workload| workload.running > 0 || workload.at(now) >= IDLE);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.workloads.add(self.workspace, -1, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_with_more_requests_than_processors_is_busy_while_others_send_requests_too() {
        let workloads = Workloads::new(2);
        let mut now = Instant::now();
        //  requests at the same time, seconds, whether another workspace sends requests, whether the workspace is busy afterwards
        let steps = [
            (2, 20, true, false),
            (1, 20, true, false),
            (4, 1, true, false),
            (4, 4, true, true),
            (4, 2, false, false),
            (4, 1, true, true),
            (0, 1, true, true),
            (0, 4, true, false),
            (50, 1, true, true),
        ];
        for (running, seconds, others, expected) in steps {
            workloads.add(1, running, now);
            for _ in 0..2 * seconds {
                now += Duration::from_millis(500);
                if others {
                    workloads.seen_at(2, || now);
                }
                workloads.seen_at(1, || now);
            }
            let found = workloads.is_busy_at(1, now);
            assert_eq!(found, expected, "{running} for {seconds} s, beside others: {others}");
            assert!(!workloads.is_busy_at(2, now));
            workloads.add(1, -running, now);
        }
    }

    #[test]
    fn a_request_counts_until_it_is_dropped() {
        let workloads = Arc::new(Workloads::new(1));
        let running = |workloads: &Workloads| workloads.lock()[&1].running;
        let requests = [workloads.begin(1), workloads.begin(1)];
        assert_eq!(running(&workloads), 2);
        drop(requests);
        assert_eq!(running(&workloads), 0);
    }

    #[test]
    fn idle_workspaces_are_forgotten() {
        let (workloads, now) = (Workloads::new(1), Instant::now());
        for workspace in 1..=100 {
            workloads.add(workspace, 1, now);
            workloads.add(workspace, -1, now + RECENT);
        }
        workloads.add(101, 1, now + 20 * RECENT);
        assert_eq!(workloads.lock().len(), 1);
    }
}
