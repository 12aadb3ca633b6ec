//! Limits the number of concurrent analytics queries and searches: in all, to the number of reader connections, and per
//! workspace, to half of it. Those of a busy workspace have the lowest priority.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument;

use crate::background::Priority;
use crate::error::{ApiError, Code};
use crate::gate::{Gate, Passed};
use crate::store::Workspace;

/// Maximum wait of an analytics query.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Waits up to [`MAX_WAIT`] until an analytics query may run.
pub(crate) async fn soon<T>(ready: impl Future<Output = T>) -> Result<T, ApiError> {
    let busy = "Too many concurrent analytics queries. Try again later.";
    let timeout = tokio::time::timeout(MAX_WAIT, ready);
    timeout.await.map_err(|_elapsed| ApiError::new(Code::ServiceUnavailable, busy))
}

/// The permits for analytics queries.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Arc<Semaphore>,
    share: usize,
    /// The permits of each workspace with a query that runs or waits.
    of_workspace: Mutex<HashMap<i64, Arc<Semaphore>>>,
    gate: Arc<Gate>,
}

/// A permit for one query. It is released when the query ends.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) priority: Priority,
    _passed: Option<Passed>,
    _global: OwnedSemaphorePermit,
    _of_workspace: OwnedSemaphorePermit,
}

impl Admission {
    pub(crate) fn new(permits: u32, gate: Arc<Gate>) -> Self {
        let permits = permits as usize;
        Self {
            all: Arc::new(Semaphore::new(permits)),
            share: permits.div_ceil(2),
            of_workspace: Mutex::default(),
            gate,
        }
    }

    /// Waits up to [`MAX_WAIT`] for a permit for a query of a request that has passed the gate.
    pub(crate) async fn admit(&self, workspace: &Workspace) -> Result<Admitted, ApiError> {
        soon(self.permit(workspace)).await?
    }

    /// Passes the gate and waits for a permit, without a time limit. For the chunks after the first of a response, because its
    /// status is sent already.
    pub(crate) async fn admit_chunk(&self, workspace: &Workspace) -> Result<Admitted, ApiError> {
        // In the order of other queries. In the other one, a chunk could wait for a query that waits for its permit.
        let (passed, ()) = self.gate.pass(workspace.seq, ready(())).await;
        Ok(Admitted { _passed: Some(passed), ..self.permit(workspace).await? })
    }

    async fn permit(&self, workspace: &Workspace) -> Result<Admitted, ApiError> {
        let closed = |_| ApiError::internal();
        // The permit of the workspace comes first, so that a query that waits for its own workspace holds no global
        // permit.
        let of_workspace = self.of_workspace(workspace.seq).acquire_owned().await.map_err(closed)?;
        let global = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        let priority = if self.gate.is_busy(workspace) { Priority::Lowest } else { Priority::Low };
        Ok(Admitted { priority, _passed: None, _global: global, _of_workspace: of_workspace })
    }

    fn of_workspace(&self, workspace: i64) -> Arc<Semaphore> {
        let mut all = self.of_workspace.lock().unwrap_or_else(PoisonError::into_inner);
        // A permit and a waiting query each hold a clone of the semaphore.
        all.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        Arc::clone(all.entry(workspace).or_insert_with(|| Arc::new(Semaphore::new(self.share))))
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
        let admission = Admission::new(4, Arc::new(Gate::new(2, 1)));
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
        let admission = Admission::new(1, Arc::new(Gate::new(2, 1)));
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
        let admission = Admission::new(2, Arc::new(Gate::new(2, 1)));
        for seq in 0..100 {
            admission.admit(&workspace(seq)).await.unwrap();
        }
        assert_eq!(admission.of_workspace.lock().unwrap().len(), 1);
    }
}
