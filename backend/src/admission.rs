//! Limits the number of concurrent analytics queries and searches: in all, to the number of reader connections, and per
//! workspace, to half of it. Those of a busy workspace have the lowest priority.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::Instrument;

use crate::background::Priority;
use crate::error::{ApiError, Code};
use crate::store::Workspace;
use crate::workload::Workloads;

/// Maximum wait for a permit.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The permits for analytics queries.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Arc<Semaphore>,
    share: usize,
    /// The permits of each workspace with a query that runs or waits.
    of_workspace: Mutex<HashMap<i64, Arc<Semaphore>>>,
    workloads: Arc<Workloads>,
}

/// A permit for one query. It is released when the query ends.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) priority: Priority,
    _workload: Running,
    _global: OwnedSemaphorePermit,
    _of_workspace: OwnedSemaphorePermit,
}

impl Admission {
    pub(crate) fn new(permits: u32) -> Self {
        let permits = permits as usize;
        Self {
            all: Arc::new(Semaphore::new(permits)),
            share: permits.div_ceil(2),
            of_workspace: Mutex::default(),
            workloads: Arc::default(),
        }
    }

    /// Whether queries of a workspace that need no permit otherwise need one, because it is busy.
    pub(crate) fn is_busy(&self, workspace: &Workspace) -> bool {
        self.workloads.is_busy(workspace.seq, Instant::now())
    }

    /// Adds a query to the workload of its workspace when it ends, which is when the result is dropped.
    pub(crate) fn running(&self, workspace: &Workspace) -> Running {
        let workloads = Arc::clone(&self.workloads);
        Running { workloads, workspace: workspace.seq, since: Instant::now() }
    }

    /// Waits up to [`MAX_WAIT`] for a permit.
    pub(crate) async fn admit(&self, workspace: &Workspace) -> Result<Admitted, ApiError> {
        tokio::time::timeout(MAX_WAIT, self.admit_chunk(workspace)).await.unwrap_or_else(|_elapsed| {
            Err(ApiError::new(
                Code::ServiceUnavailable,
                "Too many concurrent analytics queries. Try again later.",
            ))
        })
    }

    /// Waits for a permit without a time limit. For the chunks after the first of a response, because its status is sent
    /// already.
    pub(crate) async fn admit_chunk(&self, workspace: &Workspace) -> Result<Admitted, ApiError> {
        let closed = |_| ApiError::internal();
        // The permit of the workspace comes first, so that a query that waits for its own workspace holds no global
        // permit.
        let of_workspace = self.of_workspace(workspace.seq).acquire_owned().await.map_err(closed)?;
        let global = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        let priority = if self.is_busy(workspace) { Priority::Lowest } else { Priority::Low };
        let workload = self.running(workspace);
        Ok(Admitted { priority, _workload: workload, _global: global, _of_workspace: of_workspace })
    }

    fn of_workspace(&self, workspace: i64) -> Arc<Semaphore> {
        let mut all = self.of_workspace.lock().unwrap_or_else(PoisonError::into_inner);
        // A permit and a waiting query each hold a clone of the semaphore.
        all.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        Arc::clone(all.entry(workspace).or_insert_with(|| Arc::new(Semaphore::new(self.share))))
    }
}

/// A running query of a workspace.
#[derive(Debug)]
pub(crate) struct Running {
    workloads: Arc<Workloads>,
    workspace: i64,
    since: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = Instant::now();
        self.workloads.add(self.workspace, now.duration_since(self.since), now);
    }
}

impl Admitted {
    /// Runs the query. The permit stays taken until the query ends or is interrupted, even if the client has
    /// disconnected, because the database still works on it.
    pub(crate) async fn answer<T: Send + 'static>(
        self,
        answer: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let answering = async move {
            let answer = answer.await;
            drop(self);
            answer
        };
        tokio::spawn(answering.in_current_span()).await.unwrap_or_else(|error| {
            tracing::error!(%error, "an analytics query panicked");
            Err(ApiError::internal())
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn workspace(seq: i64) -> Workspace {
        Workspace { seq, id: format!("ws_{seq}"), name: String::new(), created_at: Timestamp::UNIX_EPOCH }
    }

    #[tokio::test]
    async fn a_workspace_gets_at_most_half_of_the_permits() {
        let admission = Admission::new(4);
        let mut admitted = Vec::new();
        //  workspace, admitted
        for (asking, expected) in [(1, true), (1, true), (1, false), (2, true), (2, true), (3, false)] {
            let permit = admission.admit(&workspace(asking)).await;
            assert_eq!(permit.is_ok(), expected, "{asking} after {}", admitted.len());
            if let Err(error) = &permit {
                assert_eq!(error.code, Code::ServiceUnavailable);
            }
            admitted.extend(permit);
        }
        drop(admitted.remove(0));
        assert!(admission.admit(&workspace(3)).await.is_ok());
    }

    #[tokio::test]
    async fn a_permit_is_held_until_the_query_ends_though_the_client_is_gone() {
        let admission = Admission::new(1);
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        let permit = admission.admit(&workspace(1)).await.unwrap();
        let answer = permit.answer(async move {
            finished.await.unwrap();
            Ok(())
        });
        assert!(tokio::time::timeout(Duration::from_millis(10), answer).await.is_err());
        assert!(admission.admit(&workspace(2)).await.is_err());
        finish.send(()).unwrap();
        assert!(admission.admit(&workspace(2)).await.is_ok());
    }

    #[tokio::test]
    async fn idle_workspaces_are_forgotten() {
        let admission = Admission::new(2);
        for seq in 0..100 {
            admission.admit(&workspace(seq)).await.unwrap();
        }
        assert_eq!(admission.of_workspace.lock().unwrap().len(), 1);
    }
}
