//! Who may ask about clicks at the same time: as many as there are readers, of one workspace half as many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument;

use crate::error::{ApiError, Code};
use crate::store::Workspace;

/// How long a question waits for others to be answered.
const PATIENCE: Duration = Duration::from_secs(1);

/// The places there are.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Arc<Semaphore>,
    share: usize,
    /// The places of each workspace that has asked something lately.
    of_workspace: Mutex<HashMap<i64, Arc<Semaphore>>>,
}

/// A place, until the question is answered.
#[derive(Debug)]
pub(crate) struct Admitted {
    _of_all: OwnedSemaphorePermit,
    _of_workspace: OwnedSemaphorePermit,
}

impl Admission {
    pub(crate) fn new(places: u32) -> Self {
        let places = places as usize;
        Self {
            all: Arc::new(Semaphore::new(places)),
            share: places.div_ceil(2),
            of_workspace: Mutex::default(),
        }
    }

    /// Waits a moment for a place.
    pub(crate) async fn admit(&self, workspace: &Workspace) -> Result<Admitted, ApiError> {
        tokio::time::timeout(PATIENCE, self.admit_in_turn(workspace)).await.unwrap_or_else(|_elapsed| {
            Err(ApiError::new(
                Code::ServiceUnavailable,
                "Too many questions about clicks at once. Try again later.",
            ))
        })
    }

    /// Waits for a place, however long that takes: for a question that is answered in part.
    pub(crate) async fn admit_in_turn(&self, workspace: &Workspace) -> Result<Admitted, ApiError> {
        let closed = |_| ApiError::new(Code::InternalServerError, "An internal server error occurred.");
        // A workspace waits for its own questions first, so that few of them wait for those of others.
        let of_workspace = self.of_workspace(workspace.seq).acquire_owned().await.map_err(closed)?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        Ok(Admitted { _of_all: of_all, _of_workspace: of_workspace })
    }

    fn of_workspace(&self, workspace: i64) -> Arc<Semaphore> {
        let mut all = self.of_workspace.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has a place, or waits for one, holds another handle.
        all.retain(|_, places| Arc::strong_count(places) > 1);
        Arc::clone(all.entry(workspace).or_insert_with(|| Arc::new(Semaphore::new(self.share))))
    }
}

impl Admitted {
    /// Answers the question. The place is taken until that is done, or was interrupted, even if nobody waits for the answer
    /// any more: the database is at it all the same.
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
            tracing::error!(%error, "a question ended abnormally");
            Err(ApiError::new(Code::InternalServerError, "An internal server error occurred."))
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
    async fn a_workspace_has_at_most_half_of_the_places() {
        let admission = Admission::new(4);
        let mut admitted = Vec::new();
        //  workspace that asks, whether it is admitted
        for (asking, expected) in [(1, true), (1, true), (1, false), (2, true), (2, true), (3, false)] {
            let place = admission.admit(&workspace(asking)).await;
            assert_eq!(place.is_ok(), expected, "{asking} after {}", admitted.len());
            if let Err(error) = &place {
                assert_eq!(error.code, Code::ServiceUnavailable);
            }
            admitted.extend(place);
        }
        drop(admitted.remove(0));
        assert!(admission.admit(&workspace(3)).await.is_ok());
    }

    #[tokio::test]
    async fn a_place_is_taken_until_the_answer_is_there_though_nobody_waits_for_it() {
        let admission = Admission::new(1);
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        let place = admission.admit(&workspace(1)).await.unwrap();
        let answer = place.answer(async move {
            finished.await.unwrap();
            Ok(())
        });
        assert!(tokio::time::timeout(Duration::from_millis(10), answer).await.is_err());
        assert!(admission.admit(&workspace(2)).await.is_err());
        finish.send(()).unwrap();
        assert!(admission.admit(&workspace(2)).await.is_ok());
    }

    #[tokio::test]
    async fn workspaces_that_ask_nothing_are_forgotten() {
        let admission = Admission::new(2);
        for seq in 0..100 {
            admission.admit(&workspace(seq)).await.unwrap();
        }
        assert_eq!(admission.of_workspace.lock().unwrap().len(), 1);
    }
}
