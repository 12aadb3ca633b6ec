//! Fairness: what one customer sends does not stop the requests of the others.
//!
//! A request with a key waits here once, in [`Fair::admit`]: for memory for its body, and then for a place among the requests of its workspace.
//! Workspaces get both in turn ([`Budget`]), and a request that waits for too long is answered 503. A request that has a place waits for
//! no memory, because others that have memory wait for places. It keeps its place until it ends or its time is over, also if its client
//! has gone. A client that disconnects could otherwise begin more statements than it has places. The databases end those that take too
//! long.

mod body;
mod budget;

use std::panic::resume_unwind;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use http_body_util::BodyExt;
use tokio::time::timeout;
use tracing::Instrument;

pub use self::body::MAX_BODY_BYTES;
pub(crate) use self::body::Received;
pub(crate) use self::budget::{Budget, Taken};
use crate::http::error::{ApiError, Code};

/// Number of requests that run at once, of all workspaces and of one. With PostgreSQL, each may have a connection to the database, and
/// some are left to redirects and to the background. Another customer's write waits for the transactions of at most that many requests of
/// one workspace, so that the hostile run depends on it.
const REQUESTS: (usize, usize) = (16, 8);
/// Memory for the bodies and the large answers of all workspaces and of one, in bytes. A workspace has memory for three of the largest
/// bodies.
const BYTES: (usize, usize) = (256 * 1024 * 1024, 3 * MAX_BODY_BYTES);
/// Maximum size of an answer that does not count, in bytes. One with a single link is smaller.
const SMALL: usize = 128 * 1024;

/// What the workspaces share.
#[derive(Debug)]
pub(crate) struct Fair {
    requests: Budget,
    queries: Budget,
    bytes: Budget,
    /// Time limit of a request.
    time_limit: Duration,
}

/// A place among the requests that run.
#[derive(Debug)]
pub(crate) struct Place {
    _taken: Taken,
    /// The memory for the body of the request.
    _memory: Option<Taken>,
}

impl Fair {
    /// Lets `queries` queries that may take long run at once. One workspace has at most half of them, but at least one.
    pub(crate) fn new(queries: usize, time_limit: Duration) -> Self {
        Self {
            requests: Budget::new(REQUESTS.0, REQUESTS.1),
            queries: Budget::new(queries, (queries / 2).max(1)),
            bytes: Budget::new(BYTES.0, BYTES.1),
            time_limit,
        }
    }

    /// Waits for a third of the time limit of a request.
    async fn in_time<T>(&self, taking: impl Future<Output = T>) -> Result<T, ApiError> {
        timeout(self.time_limit / 3, taking).await.map_err(|_elapsed| {
            let message = "Your workspace has too many requests at once. Try again later.";
            ApiError::new(Code::ServiceUnavailable, message)
        })
    }

    /// The time limit of a request.
    pub(crate) fn time_limit(&self) -> Duration {
        self.time_limit
    }

    /// Waits for memory for the body of a request, which is then read, and for a place.
    pub(crate) async fn admit(
        &self,
        workspace: i64,
        request: &mut Request,
        is_query: bool,
    ) -> Result<Place, ApiError> {
        let (places, memory) = if is_query {
            // For as long as clients of the workspace do not read its answers.
            drop(self.in_time(self.bytes.take(workspace, 1)).await?);
            (&self.queries, None)
        } else if request.method().is_safe() || request.method() == Method::DELETE {
            (&self.requests, None)
        } else {
            let (received, memory) = self.receive(workspace, request).await?;
            request.extensions_mut().insert(received);
            (&self.requests, Some(memory))
        };
        Ok(Place { _taken: self.in_time(places.take(workspace, 1)).await?, _memory: memory })
    }

    /// Waits for a place for a query, without a time limit. For the later parts of an answer, because its status is sent already.
    pub(crate) async fn place_of_part(&self, workspace: i64) -> Place {
        Place { _taken: self.queries.take(workspace, 1).await, _memory: None }
    }

    /// Counts the bytes of an answer until they are written to the client. Nothing waits for them, so that no request waits after it has
    /// changed something. While there are too many, further queries and bodies of the workspace wait.
    pub(crate) fn count(&self, workspace: i64, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Counted { _taken: self.bytes.add(workspace, bytes.len()), bytes })
    }

    /// Counts an answer that is not small.
    pub(crate) async fn count_large(&self, workspace: i64, response: Response) -> Result<Response, ApiError> {
        if response.body().size_hint().exact().is_none_or(|bytes| bytes <= SMALL as u64) {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.map_err(|error| {
            tracing::error!(%error, "an answer could not be read");
            ApiError::internal()
        })?;
        Ok(Response::from_parts(head, Body::from(self.count(workspace, bytes.to_bytes()))))
    }
}

/// Bytes that count.
struct Counted {
    bytes: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Place {
    /// Runs what has the place, to its end.
    pub(crate) async fn run<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> T {
        let running = async move {
            let done = work.await;
            drop(self);
            done
        };
        let done = tokio::spawn(running.in_current_span()).await;
        done.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }
}

#[cfg(test)]
impl Fair {
    /// Takes all places of a workspace.
    pub(crate) fn take_all(&self, workspace: i64) -> Vec<Place> {
        let places = [(&self.requests, REQUESTS.1), (&self.queries, self.queries.of_one())];
        places.map(|(budget, places)| Place { _taken: budget.add(workspace, places), _memory: None }).into()
    }

    /// The number of requests of a workspace that wait for a place.
    pub(crate) fn waiting(&self, workspace: i64) -> usize {
        self.requests.waiting(workspace) + self.queries.waiting(workspace)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::response::IntoResponse;
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    fn fair(queries: usize) -> Fair {
        Fair::new(queries, Duration::from_millis(30))
    }

    #[tokio::test]
    async fn a_workspace_has_half_of_the_queries_and_at_least_one() {
        //  queries, those of a workspace, those of two
        for (queries, of_one, of_two) in [(1, 1, 1), (2, 1, 2), (3, 1, 2), (4, 2, 4), (5, 2, 4), (8, 4, 8)] {
            let (fair, mut places) = (fair(queries), Vec::new());
            for (workspace, expected) in [(1, of_one), (2, of_two)] {
                while let Some(place) = fair.place_of_part(workspace).now_or_never() {
                    places.push(place);
                }
                assert_eq!(places.len(), expected, "{queries} queries, workspaces up to {workspace}");
            }
        }
    }

    #[test]
    fn all_workspaces_share_the_places_and_the_memory() {
        let fair = fair(4);
        //  what is shared, parts that are asked for, how many each of some workspaces gets
        for (budget, amount, expected) in
            [(&fair.requests, 1, vec![8, 8, 0]), (&fair.bytes, MAX_BODY_BYTES, vec![3, 3, 3, 3, 3, 1, 0])]
        {
            let mut taken = Vec::new();
            for (workspace, expected) in (1..).zip(expected) {
                let of_workspace = std::iter::from_fn(|| budget.take(workspace, amount).now_or_never());
                let of_workspace: Vec<Taken> = of_workspace.collect();
                assert_eq!(of_workspace.len(), expected, "workspace {workspace}, parts of {amount}");
                taken.push(of_workspace);
            }
        }
    }

    #[tokio::test]
    async fn a_request_is_refused_after_a_third_of_its_time_limit() {
        let fair = fair(4);
        let _places = fair.take_all(1);
        let refused = fair.in_time(fair.requests.take(1, 1)).await.unwrap_err();
        assert_eq!(refused.code, Code::ServiceUnavailable);
        assert_eq!(refused.into_response().headers()["retry-after"], "1");
        assert_eq!(fair.waiting(1), 0);
        assert!(fair.in_time(fair.requests.take(2, 1)).await.is_ok(), "another workspace");
    }

    #[tokio::test]
    async fn large_answers_count_until_their_bytes_are_dropped() {
        const MIB: usize = 1024 * 1024;
        //  size of an answer, bytes that count
        for (size, expected) in [(0, 0), (SMALL, 0), (SMALL + 1, SMALL + 1), (60 * MIB, 60 * MIB)] {
            let fair = fair(4);
            let answer = vec![b'x'; size].into_response();
            let answer = fair.count_large(1, answer).now_or_never().unwrap().unwrap();
            assert_eq!(fair.bytes.taken(), expected, "{size} bytes");
            let queries_wait = fair.bytes.take(1, 1).now_or_never().is_none();
            assert_eq!(queries_wait, size > BYTES.1, "{size} bytes");
            let bytes = answer.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
            assert!(bytes == vec![b'x'; size] && fair.bytes.taken() == expected);
            drop(bytes);
            assert_eq!(fair.bytes.taken(), 0, "{size} bytes");
        }
    }

    #[tokio::test]
    async fn a_request_keeps_its_place_to_its_end_though_its_client_is_gone() {
        let fair = fair(1);
        let (end, ended) = oneshot::channel::<()>();
        let (begin, begun) = oneshot::channel();
        let place = fair.place_of_part(1).await;
        let running = place.run(async move {
            begin.send(()).unwrap();
            ended.await
        });
        tokio::select! {
            _ = running => panic!("it does not end"),
            begun = begun => begun.unwrap(),
        }
        assert!(fair.place_of_part(2).now_or_never().is_none());
        end.send(()).unwrap();
        fair.place_of_part(2).await;
    }

    #[tokio::test]
    async fn a_place_is_free_after_a_panic_which_its_request_hears_of() {
        let fair = Arc::new(fair(1));
        let running = Arc::clone(&fair);
        let request = tokio::spawn(async move {
            let place = running.place_of_part(1).await;
            place.run(async { panic!("this request is broken") }).await
        });
        assert!(request.await.unwrap_err().is_panic());
        fair.place_of_part(2).await;
    }
}
