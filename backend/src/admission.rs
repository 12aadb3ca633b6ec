//! Limits the number of concurrent analytics queries and searches: in all, to the number of reader connections, and per
//! workspace, to half of it, rounded down but at least one. Those of a busy workspace have the lowest priority.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument;

use crate::background::Priority;
use crate::error::{ApiError, Code};
use crate::gate::{Gate, Passed, Work};
use crate::held::hold;
use crate::semaphores::Semaphores;
use crate::store::Workspace;

/// Maximum wait of an analytics query or a search.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of waiting queries of a workspace.
const MAX_WAITING: usize = 64;

/// Waits up to [`MAX_WAIT`] until an analytics query or a search may run.
pub(crate) async fn within_max_wait<T>(ready: impl Future<Output = T>) -> Result<T, ApiError> {
    tokio::time::timeout(MAX_WAIT, ready).await.map_err(|_elapsed| too_many())
}

fn too_many() -> ApiError {
    let message = "Too many concurrent analytics queries and searches. Try again later.";
    ApiError::new(Code::ServiceUnavailable, message)
}

/// The permits for analytics queries.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Arc<Semaphore>,
    share: usize,
    /// For the requests of a workspace, until their responses begin.
    of_workspace: Semaphores<i64>,
    /// For the queries of a workspace, until they end. A later part of an answer needs none of the other.
    running: Semaphores<i64>,
    gate: Arc<Gate>,
}

/// The place of a query among those of its workspace that run or wait.
#[derive(Debug)]
pub(crate) struct Place(Arc<Semaphore>);

/// A permit for one query. It is released when the query ends. The permit of its request is then held by the request.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) priority: Priority,
    _passed: Option<Passed>,
    _global: OwnedSemaphorePermit,
    _running: OwnedSemaphorePermit,
    of_request: Option<OwnedSemaphorePermit>,
}

impl Admission {
    pub(crate) fn new(permits: u32, gate: Arc<Gate>) -> Self {
        let permits = permits as usize;
        let share = (permits / 2).max(1);
        let (of_workspace, running) = (Semaphores::default(), Semaphores::default());
        Self { all: Arc::new(Semaphore::new(permits)), share, of_workspace, running, gate }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// 503 if too many queries of the workspace wait.
    pub(crate) fn place(&self, workspace: &Workspace) -> Result<Place, ApiError> {
        let place = Place(self.of_workspace.of(workspace.seq, self.share));
        // Each query has one, this one included, and the list of semaphores too.
        let queries = Arc::strong_count(&place.0) - 1;
        if queries > self.share + MAX_WAITING { Err(too_many()) } else { Ok(place) }
    }

    /// The number of queries of a workspace that run or wait.
    #[cfg(test)]
    pub(crate) fn uses(&self, workspace: i64) -> usize {
        self.of_workspace.uses(&workspace)
    }

    /// Waits up to [`MAX_WAIT`] for a permit for a query of a request that has passed the gate.
    pub(crate) async fn admit(&self, workspace: &Workspace, place: Place) -> Result<Admitted, ApiError> {
        let permit = async {
            let of_request = place.0.acquire_owned().await.map_err(|_closed| ApiError::internal())?;
            Ok(Admitted { of_request: Some(of_request), ..self.permit(workspace).await? })
        };
        within_max_wait(permit).await?
    }

    /// Passes the gate and waits for a permit, without a time limit. For the chunks after the first of a response, because its
    /// status is sent already.
    pub(crate) async fn admit_chunk(&self, workspace: &Workspace) -> Result<Admitted, ApiError> {
        // In the order of other queries. In the other one, a chunk could wait for a query that waits for its permit.
        let (passed, ()) = self.gate.pass(workspace.seq, Work::Query, ready(())).await;
        Ok(Admitted { _passed: Some(passed), ..self.permit(workspace).await? })
    }

    async fn permit(&self, workspace: &Workspace) -> Result<Admitted, ApiError> {
        let closed = |_| ApiError::internal();
        // The permit of the workspace comes first, so that a query that waits for its own workspace holds no global
        // permit.
        let running = self.running.of(workspace.seq, self.share).acquire_owned().await.map_err(closed)?;
        let global = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        let priority = if self.gate.is_busy(workspace) { Priority::Lowest } else { Priority::Low };
        Ok(Admitted { priority, _passed: None, _global: global, _running: running, of_request: None })
    }
}

impl Admitted {
    /// Runs the query. The permit stays taken until the query ends or is interrupted, even if the client has
    /// disconnected, because the database still works on it. The permit of the request stays taken until the response begins, so that
    /// few answers of a workspace wait for room.
    pub(crate) async fn answer<T: Send + 'static>(
        self,
        answer: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let answering = async move {
            let admitted = self;
            let answer = answer.await;
            (answer, admitted.of_request)
        };
        let (answer, of_request) = tokio::spawn(answering.in_current_span()).await.map_err(|error| {
            tracing::error!(%error, "an analytics query panicked");
            ApiError::internal()
        })?;
        hold(of_request);
        answer
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use jiff::Timestamp;

    use super::*;

    fn workspace(seq: i64) -> Workspace {
        Workspace { seq, id: format!("ws_{seq}"), name: String::new(), created_at: Timestamp::UNIX_EPOCH }
    }

    fn admission(permits: u32) -> Admission {
        Admission::new(permits, Arc::new(Gate::new(2, 1)))
    }

    async fn admit(admission: &Admission, of: i64) -> Result<Admitted, ApiError> {
        let workspace = workspace(of);
        admission.admit(&workspace, admission.place(&workspace)?).await
    }

    #[tokio::test]
    async fn a_workspace_gets_at_most_half_of_the_permits_and_at_least_one() {
        //  permits, those of a workspace, those of two
        for (permits, of_one, of_two) in
            [(1, 1, 1), (2, 1, 2), (3, 1, 2), (4, 2, 4), (5, 2, 4), (7, 3, 6), (8, 4, 8)]
        {
            let (admission, mut admitted) = (admission(permits), Vec::new());
            for (of, expected) in [(1, of_one), (2, of_two)] {
                while let Some(permit) = admit(&admission, of).now_or_never() {
                    admitted.push(permit.unwrap());
                }
                assert_eq!(admitted.len(), expected, "{permits} permits, workspaces up to {of}");
            }
        }
    }

    #[tokio::test]
    async fn a_query_without_a_permit_is_refused_after_a_while_and_at_once_if_many_wait() {
        let admission = admission(4);
        let running = [admit(&admission, 1).await.unwrap(), admit(&admission, 1).await.unwrap()];
        let refused = admit(&admission, 1).await.unwrap_err();
        assert_eq!(refused.code, Code::ServiceUnavailable);

        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| Box::pin(admit(&admission, 1))).collect();
        for query in &mut waiting {
            assert!(futures_util::poll!(query).is_pending());
        }
        let refused = admit(&admission, 1).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.code, Code::ServiceUnavailable);
        assert!(admit(&admission, 2).now_or_never().unwrap().is_ok(), "another workspace");
        drop(waiting);
        assert!(admit(&admission, 1).now_or_never().is_none(), "it may wait again");
        drop(running);
        assert!(admit(&admission, 1).now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_permit_is_held_until_the_query_ends_though_the_client_is_gone() {
        let admission = admission(1);
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        let permit = admit(&admission, 1).await.unwrap();
        let answer = permit.answer(async move {
            finished.await.unwrap();
            Ok(())
        });
        assert!(tokio::time::timeout(Duration::from_millis(10), answer).await.is_err());
        assert!(admit(&admission, 2).await.is_err());
        finish.send(()).unwrap();
        assert!(admit(&admission, 2).await.is_ok());
    }
}
