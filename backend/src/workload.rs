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
    /// Adds a query that took this long.
    pub(crate) fn add(&self, workspace: i64, took: Duration) {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&workspace).map_or(0.0, |workload| workload.at(now));
        let average = before + took.div_duration_f64(RECENT);
        if all.insert(workspace, Workload { average, at: now }).is_none() {
            all.retain(|_, workload| workload.at(now) >= IDLE);
        }
    }

    /// Whether the workspace has kept the database busy.
    pub(crate) fn is_busy(&self, workspace: i64) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&workspace).is_some_and(|workload| workload.at(Instant::now()) > BUSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `running` queries of workspace 1 run at all times, each for half a second.
    async fn run(workloads: &Workloads, running: u32, time: Duration) {
        const QUERY: Duration = Duration::from_millis(500);
        for _ in 0..time.as_millis() / QUERY.as_millis() {
            tokio::time::advance(QUERY).await;
            (0..running).for_each(|_| workloads.add(1, QUERY));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_workspace_with_two_queries_at_all_times_is_busy_until_it_pauses() {
        let workloads = Workloads::default();
        //  queries at the same time, seconds, whether the workspace is busy afterwards
        for (running, seconds, expected) in [
            (1, 1, false),
            (2, 5, true),
            (0, 1, true),
            (0, 4, false),
            (1, 60, true),
            (0, 2, false),
            (4, 2, true),
        ] {
            run(&workloads, running, Duration::from_secs(seconds)).await;
            assert_eq!(workloads.is_busy(1), expected, "{running} for {seconds} s");
            assert!(!workloads.is_busy(2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_workspaces_are_forgotten() {
        let workloads = Workloads::default();
        (0..100).for_each(|workspace| workloads.add(workspace, Duration::from_secs(1)));
        tokio::time::advance(20 * RECENT).await;
        workloads.add(100, Duration::from_secs(1));
        assert_eq!(workloads.0.lock().unwrap().len(), 1);
    }
}
