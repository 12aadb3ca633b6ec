//! Lets few requests of busy workspaces run at a time, so that processors and database connections are free for others.
//!
//! After each, there is a pause in proportion to the time that the request took, and of at most one second. Analytics queries,
//! which may take long, have separate turns, so that the other requests of a busy workspace do not wait for those of another.
//!
//! It takes a moment until a workspace counts as busy. The requests that it can begin in that moment are bounded too, because others
//! would wait until the last of them ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::semaphores::Semaphores;
use crate::store::Workspace;
use crate::workload::{Running, Workloads};

/// Maximum pause after a request of a busy workspace.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The gate that all requests with a key pass.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) workloads: Arc<Workloads>,
    /// For all busy workspaces together.
    queries: Arc<Semaphore>,
    others: Arc<Semaphore>,
    /// The pause after a request, in multiples of the time that it took.
    pause: u32,
    /// For each busy workspace with a request that runs or waits.
    of_workspace: Semaphores<i64>,
    /// Number of processors.
    processors: usize,
    /// For each workspace and kind of its requests, while others send requests too.
    at_once: Semaphores<(i64, Work)>,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// Analytics and events, and the chunks of a response after the first.
    Query,
    /// Links and all else, with the parsing of bodies.
    Other,
}

impl Work {
    /// Maximum number of such requests of a workspace at once, while others send requests too.
    fn at_once(self, processors: usize) -> usize {
        match self {
            Self::Query => (processors / 2).max(1),
            Self::Other => processors.max(2),
        }
    }
}

/// A request that runs.
#[derive(Debug)]
pub(crate) struct Passed {
    _running: Running,
    _one_at_once: Option<OwnedSemaphorePermit>,
    _turn: Option<Turn>,
}

/// The turn of a request of a busy workspace.
#[derive(Debug)]
struct Turn {
    since: Instant,
    pause: u32,
    /// The last owner of a turn may be a thread in the background.
    runtime: Handle,
    permits: Option<[OwnedSemaphorePermit; 2]>,
}

impl Gate {
    /// Lets analytics queries of busy workspaces use half of the processors, and their other requests the other half. After each
    /// request there is a pause that is `pause` times as long.
    pub(crate) fn new(processors: usize, pause: u32) -> Self {
        let [queries, others] = [(); 2].map(|()| Arc::new(Semaphore::new((processors / 2).max(1))));
        let workloads = Arc::new(Workloads::new(processors));
        let (of_workspace, at_once) = (Semaphores::default(), Semaphores::default());
        Self { workloads, queries, others, pause, of_workspace, processors, at_once }
    }

    /// Whether the workspace is busy.
    pub(crate) fn is_busy(&self, workspace: &Workspace) -> bool {
        self.workloads.is_busy(workspace.seq)
    }

    /// Waits until a request may run. `ready` ends when it could run if its workspace was not busy.
    pub(crate) async fn pass<T>(
        &self,
        workspace: i64,
        work: Work,
        ready: impl Future<Output = T>,
    ) -> (Passed, T) {
        let running = self.workloads.begin(workspace);
        let ready = ready.await;
        let one_at_once = if self.workloads.several_are_active() {
            // The semaphore is never closed.
            self.at_once.of((workspace, work), work.at_once(self.processors)).acquire_owned().await.ok()
        } else {
            None
        };
        let turn = if self.workloads.is_busy(workspace) { self.turn(workspace, work).await } else { None };
        (Passed { _running: running, _one_at_once: one_at_once, _turn: turn }, ready)
    }

    async fn turn(&self, workspace: i64, work: Work) -> Option<Turn> {
        // The semaphores are never closed. That of the workspace comes first, so that many requests of one workspace take turns with
        // those of another.
        let of_workspace = self.of_workspace.of(workspace, 1).acquire_owned().await.ok()?;
        let of_all = match work {
            Work::Query => Arc::clone(&self.queries),
            Work::Other => Arc::clone(&self.others),
        };
        let of_all = of_all.acquire_owned().await.ok()?;
        let (runtime, permits) = (Handle::try_current().ok()?, Some([of_workspace, of_all]));
        Some(Turn { since: Instant::now(), pause: self.pause, runtime, permits })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let permits = self.permits.take();
        let pause = (self.pause * self.since.elapsed()).min(LONGEST_PAUSE);
        self.runtime.spawn(async move {
            tokio::time::sleep(pause).await;
            drop(permits);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::task::JoinSet;
    use tokio::time::{sleep, timeout};

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    /// A gate of two processors, and requests that make the first two workspaces busy.
    fn busy_gate() -> (Arc<Gate>, Vec<Running>) {
        let gate = Arc::new(Gate::new(2, 3));
        let requests = (0..2_000).map(|number| gate.workloads.begin(1 + number % 2)).collect();
        (gate, requests)
    }

    #[tokio::test]
    async fn requests_of_busy_workspaces_run_one_at_a_time_and_few_of_others_at_once() {
        let (gate, _requests) = busy_gate();
        // The average rises.
        sleep(Duration::from_millis(50)).await;
        let mut passed = Vec::new();
        //  workspace, what it sends, whether it runs
        for (workspace, work, expected) in [
            (1, Work::Query, true),
            (1, Work::Query, false),
            (1, Work::Other, false),
            (2, Work::Query, false),
            (2, Work::Other, true),
            (3, Work::Query, true),
            (3, Work::Query, false),
            (3, Work::Other, true),
            (3, Work::Other, true),
            (3, Work::Other, false),
            (4, Work::Other, true),
        ] {
            let passes = timeout(SOON, gate.pass(workspace, work, ready(()))).await;
            assert_eq!(passes.is_ok(), expected, "{work:?} of {workspace} after {}", passed.len());
            passed.extend(passes);
        }
        drop(passed);
        let next = timeout(Duration::from_secs(5), gate.pass(2, Work::Other, ready(()))).await;
        assert!(next.is_ok(), "after a pause");
    }

    #[tokio::test]
    async fn a_workspace_runs_any_number_of_requests_at_once_while_it_is_alone() {
        let gate = Arc::new(Gate::new(2, 3));
        let mut passed = Vec::new();
        for work in [Work::Query, Work::Other].repeat(10) {
            let passes = timeout(SOON, gate.pass(1, work, ready(()))).await;
            passed.push(passes.unwrap_or_else(|_| panic!("{work:?} waits")));
        }
    }

    #[tokio::test]
    async fn a_busy_workspace_waits_for_one_turn_of_another_however_many_wait_there() {
        let (gate, _requests) = busy_gate();
        sleep(Duration::from_millis(50)).await;
        let (running, ()) = gate.pass(1, Work::Other, ready(())).await;
        let of_first = JoinSet::from_iter((0..50).map(|_| {
            let gate = Arc::clone(&gate);
            async move { (1, gate.pass(1, Work::Other, ready(())).await) }
        }));
        let mut turns = of_first;
        while gate.at_once.uses(&(1, Work::Other)) < 51 {
            tokio::task::yield_now().await;
        }
        let second = Arc::clone(&gate);
        turns.spawn(async move { (2, second.pass(2, Work::Other, ready(())).await) });
        while gate.of_workspace.uses(&2) < 1 {
            tokio::task::yield_now().await;
        }
        drop(running);
        let mut order = Vec::new();
        while !order.contains(&2) {
            let (workspace, _passed) = turns.join_next().await.unwrap().unwrap();
            order.push(workspace);
        }
        assert_eq!(order, [2]);
    }

    #[tokio::test]
    async fn after_a_request_of_a_busy_workspace_there_is_a_pause_in_proportion() {
        let (gate, _requests) = busy_gate();
        sleep(Duration::from_millis(50)).await;
        let (passed, ()) = gate.pass(1, Work::Other, ready(())).await;
        sleep(3 * SOON).await;
        drop(passed);
        assert!(timeout(8 * SOON, gate.pass(1, Work::Other, ready(()))).await.is_err());
        assert!(timeout(Duration::from_secs(5), gate.pass(1, Work::Other, ready(()))).await.is_ok());
    }

    #[tokio::test]
    async fn a_request_that_no_longer_waits_leaves_nothing_behind() {
        let (gate, requests) = busy_gate();
        sleep(Duration::from_millis(50)).await;
        let (first, ()) = gate.pass(1, Work::Other, ready(())).await;
        assert!(timeout(SOON, gate.pass(1, Work::Other, ready(()))).await.is_err());
        drop((first, requests));
        sleep(20 * SOON).await;
        assert_eq!(gate.others.available_permits(), 1);
        assert_eq!(gate.of_workspace.uses(&1), 0);
    }
}
