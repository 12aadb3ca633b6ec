//! The recent workload of each workspace. Queries of a workspace that has kept the database busy run at the lowest priority, so
//! that those of others do not wait for them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time constant of the average.
const RECENT: Duration = Duration::from_secs(4);
/// A workspace is busy if more than this number of its queries have run at the same time, on average.
const BUSY: f64 = 1.0;
/// Averages below this are forgotten.
const IDLE: f64 = 0.001;

/// The workload of each workspace with recent queries.
#[derive(Debug, Default)]
pub(crate) struct Workloads(Mutex<HashMap<i64, Workload>>);

#[derive(Clone, Copy, Debug)]
struct Workload {
    /// The exponentially weighted average of the number of running queries.
    average: f64,
    at: Instant,
}

impl Workload {
    fn at(self, now: Instant) -> f64 {
        self.average * (-now.duration_since(self.at).div_duration_f64(RECENT)).exp()
    }
}

impl Workloads {
    /// Adds a query that took this long and has ended now.
    pub(crate) fn add(&self, workspace: i64, took: Duration, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&workspace).map_or(0.0, |workload| workload.at(now));
        let average = before + took.div_duration_f64(RECENT);
        if all.insert(workspace, Workload { average, at: now }).is_none() {
            all.retain(|_, workload| workload.at(now) >= IDLE);
        }
    }

    /// Whether the workspace has kept the database busy.
    pub(crate) fn is_busy(&self, workspace: i64, now: Instant) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&workspace).is_some_and(|workload| workload.at(now) > BUSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_with_two_queries_at_all_times_is_busy_until_it_pauses() {
        const QUERY: Duration = Duration::from_millis(500);
        let workloads = Workloads::default();
        let mut now = Instant::now();
        //  queries at the same time, seconds, whether the workspace is busy afterwards
        let steps = [
            (1, 1, false),
            (2, 5, true),
            (0, 1, true),
            (0, 4, false),
            (1, 3, false),
            (4, 2, true),
            (0, 6, false),
        ];
        for (running, seconds, expected) in steps {
            for _ in 0..2 * seconds {
                now += QUERY;
                (0..running).for_each(|_| workloads.add(1, QUERY, now));
            }
            assert_eq!(workloads.is_busy(1, now), expected, "{running} for {seconds} s");
            assert!(!workloads.is_busy(2, now));
        }
    }

    #[test]
    fn idle_workspaces_are_forgotten() {
        let (workloads, now) = (Workloads::default(), Instant::now());
        (0..100).for_each(|workspace| workloads.add(workspace, Duration::from_secs(1), now));
        workloads.add(100, Duration::from_secs(1), now + 20 * RECENT);
        assert_eq!(workloads.0.lock().unwrap().len(), 1);
    }
}
