//! Places: what one customer sends does not stop the requests of the others.
//!
//! A request with a key has a place among the requests of its workspace, from before its body is read until its answer is written, and
//! one among the requests of all workspaces while the database works. What has the second waits for nothing but the database. Long
//! queries have their own places, as many as there are [`Reader`](crate::store::Reader)s.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

use super::caller::{Authenticated, Caller};
use super::state::Shared;
use crate::http::error::{ApiError, Code};

/// Number of requests that run at once, of all workspaces and of one. With PostgreSQL, each may have a connection to the database, and
/// some are left to redirects and to the background.
const REQUESTS: (usize, usize) = (16, 8);
/// Maximum size of a body, in bytes.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// Time limit for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Memory for bodies and large answers, in bytes.
const BYTES: usize = 256 * 1024 * 1024;
/// Maximum size of an answer that takes no memory from others, in bytes. One with a single link is smaller.
const SMALL: usize = 128 * 1024;

/// The GET requests that may take long. Each has a [`Reader`](crate::store::Reader).
pub(crate) const QUERIES: [&str; 8] = [
    "/analytics",
    "/events",
    "/usage",
    "/links",
    "/links/count",
    "/tags",
    "/folders",
    "/webhooks/{id}/deliveries",
];

/// The places of one workspace, or of all.
#[derive(Debug)]
struct Rooms {
    requests: Arc<Semaphore>,
    queries: Arc<Semaphore>,
}

impl Rooms {
    fn new(requests: usize, queries: usize) -> Self {
        Self { requests: Arc::new(Semaphore::new(requests)), queries: Arc::new(Semaphore::new(queries)) }
    }

    fn of(&self, is_query: bool) -> Arc<Semaphore> {
        Arc::clone(if is_query { &self.queries } else { &self.requests })
    }
}

/// What the workspaces share.
#[derive(Debug)]
pub(crate) struct Places {
    all: Rooms,
    /// The workspaces with requests.
    workspaces: Mutex<HashMap<i64, Weak<Rooms>>>,
    /// Number of queries of one workspace that run at once.
    queries: usize,
    bytes: Arc<Semaphore>,
    /// Time limit of a request.
    time_limit: Duration,
}

/// What a request holds until its answer is written.
#[derive(Debug)]
struct Held {
    _place: OwnedSemaphorePermit,
    /// Keeps the places of the workspace together.
    _rooms: Arc<Rooms>,
    memory: OwnedSemaphorePermit,
}

/// A body that was read.
#[derive(Clone, Debug)]
pub(crate) struct Received(pub(crate) Bytes);

impl Places {
    /// Lets `queries` queries that may take long run at once. One workspace has at most half of them, but at least one.
    pub(crate) fn new(queries: usize, time_limit: Duration) -> Self {
        Self {
            all: Rooms::new(REQUESTS.0, queries),
            workspaces: Mutex::default(),
            queries: (queries / 2).max(1),
            bytes: Arc::new(Semaphore::new(BYTES)),
            time_limit,
        }
    }

    /// The places of a workspace.
    fn of(&self, workspace: i64) -> Arc<Rooms> {
        let mut workspaces = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rooms) = workspaces.get(&workspace).and_then(Weak::upgrade) {
            return rooms;
        }
        if workspaces.len() == workspaces.capacity() {
            workspaces.retain(|_, rooms| rooms.strong_count() > 0);
        }
        let rooms = Arc::new(Rooms::new(REQUESTS.1, self.queries));
        workspaces.insert(workspace, Arc::downgrade(&rooms));
        rooms
    }

    /// Waits for a third of the time limit of a request.
    async fn take(&self, semaphore: Arc<Semaphore>, number: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        match timeout(self.time_limit / 3, semaphore.acquire_many_owned(permits(number))).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                let message = "Your workspace has too many requests at once. Try again later.";
                Err(ApiError::new(Code::ServiceUnavailable, message))
            }
        }
    }

    /// Waits for memory for the body of a request, and reads the body. One whose length is not declared has the memory of the largest
    /// until it is read.
    async fn receive(&self, request: &mut Request) -> Result<OwnedSemaphorePermit, ApiError> {
        refuse_encoded(request.headers())?;
        let body = std::mem::take(request.body_mut());
        let declared = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if declared.is_some_and(|length| length > MAX_BODY_BYTES) {
            return Err(too_large());
        }
        let mut memory = self.take(Arc::clone(&self.bytes), declared.unwrap_or(MAX_BODY_BYTES)).await?;
        let body = timeout(BODY_TIMEOUT.min(self.time_limit), Limited::new(body, MAX_BODY_BYTES).collect());
        let body = match body.await.map_err(|_elapsed| ApiError::timed_out())? {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Err(too_large()),
            Err(error) => {
                return Err(ApiError::bad_request(format!("The request body could not be read: {error}.")));
            }
        };
        drop(memory.split(memory.num_permits().saturating_sub(body.len())));
        request.extensions_mut().insert(Received(body));
        Ok(memory)
    }

    /// The answer with what its request holds until it is written. A large one also takes what memory there is: nothing waits after it
    /// has changed something, and while memory is short, further bodies and queries wait.
    async fn hold(&self, response: Response, mut held: Held) -> Result<Response, ApiError> {
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.map_err(|error| {
            tracing::error!(%error, "an answer could not be read");
            ApiError::internal()
        })?;
        let bytes = bytes.to_bytes();
        let needed = if bytes.len() > SMALL { bytes.len() } else { 0 };
        drop(held.memory.split(held.memory.num_permits().saturating_sub(needed)));
        let more = (needed - held.memory.num_permits()).min(self.bytes.available_permits());
        if let Ok(more) = Arc::clone(&self.bytes).try_acquire_many_owned(permits(more)) {
            held.memory.merge(more);
        }
        let body = if bytes.is_empty() {
            Body::empty()
        } else {
            Body::from(Bytes::from_owner(Unwritten { bytes, _held: held }))
        };
        Ok(Response::from_parts(head, body))
    }
}

fn permits(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// An answer that is not written yet.
struct Unwritten {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Middleware that runs a request when there are places for it. It then runs to its end or until its time is over, also if its client has
/// gone. A client that disconnects could otherwise begin more statements than it has places.
pub(crate) async fn in_place(
    State(app): State<Shared>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let places = &app.places;
    let deadline = Instant::now() + places.time_limit;
    let Authenticated(workspace) = request.extensions_mut().remove().ok_or_else(ApiError::internal)?;
    let is_query = is_query(&request);
    let rooms = places.of(workspace.seq);
    let place = places.take(rooms.of(is_query), 1).await?;
    let memory = if is_query {
        // For as long as slow clients have large answers.
        places.take(Arc::clone(&places.bytes), SMALL).await?
    } else if request.method().is_safe() || request.method() == Method::DELETE {
        places.take(Arc::clone(&places.bytes), 0).await?
    } else {
        places.receive(&mut request).await?
    };
    let held = Held { _place: place, _rooms: rooms, memory };
    let at_database = places.take(places.all.of(is_query), 1).await?;
    request.extensions_mut().insert(Caller { workspace });
    let answering = async move {
        let answer = timeout_at(deadline, next.run(request)).await;
        drop(at_database);
        app.places.hold(answer.map_err(|_elapsed| ApiError::timed_out())?, held).await
    };
    let answer = tokio::spawn(answering.in_current_span()).await;
    answer.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

/// Whether a request may take long.
fn is_query(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>();
    request.method().is_safe() && route.is_some_and(|route| QUERIES.contains(&route.as_str()))
}

/// Refuses a body with a content coding, such as gzip. It would not be read as JSON.
fn refuse_encoded(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    if codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let message = "Content-Encoding is not supported: send the body as plain JSON.";
    Err(ApiError::new(Code::UnsupportedMediaType, message))
}

fn too_large() -> ApiError {
    let message = format!("The request body is larger than {MAX_BODY_BYTES} bytes.");
    ApiError::new(Code::PayloadTooLarge, message)
}

#[cfg(test)]
mod tests {
    use std::io;

    use axum::response::IntoResponse;
    use futures_util::stream::{self, pending};

    use super::*;

    impl Places {
        /// Takes all places of a workspace.
        pub(crate) fn take_all(&self, workspace: i64) -> Box<dyn std::any::Any> {
            let rooms = self.of(workspace);
            let all = |semaphore: Arc<Semaphore>| {
                let number = permits(semaphore.available_permits());
                semaphore.try_acquire_many_owned(number).unwrap()
            };
            Box::new((all(rooms.of(false)), all(rooms.of(true)), rooms))
        }
    }

    const MIB: usize = 1024 * 1024;

    fn places(queries: usize) -> Places {
        Places::new(queries, Duration::from_millis(30))
    }

    #[tokio::test]
    async fn a_workspace_has_a_part_of_the_places() {
        //  queries, those of a workspace
        for (queries, of_one) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (8, 4)] {
            let places = places(queries);
            let rooms = places.of(1);
            let free = |rooms: &Rooms| [false, true].map(|is_query| rooms.of(is_query).available_permits());
            assert_eq!((free(&rooms), free(&places.all)), ([8, of_one], [16, queries]), "{queries}");
            let _all = places.take(rooms.of(true), of_one).await.unwrap();
            let refused = places.take(places.of(1).of(true), 1).await.unwrap_err();
            assert_eq!(refused.code, Code::ServiceUnavailable);
            assert_eq!(refused.into_response().headers()["retry-after"], "1");
            assert!(places.take(places.of(2).of(true), 1).await.is_ok(), "another workspace");
        }
    }

    #[test]
    fn workspaces_without_requests_are_forgotten() {
        let places = places(4);
        let kept = places.of(0);
        for workspace in 1..10_000 {
            places.of(workspace);
        }
        assert!(Arc::ptr_eq(&kept, &places.of(0)));
        assert!(places.workspaces.lock().unwrap().len() < 100);
    }

    #[tokio::test]
    async fn a_body_has_the_memory_that_it_needs() {
        let chunked = |bytes| Body::from_stream(stream::iter([Ok::<_, io::Error>(vec![b' '; bytes])]));
        //  a body, and its memory in bytes, or the status of the refusal
        for (body, expected) in [
            (Body::empty(), Ok(0)),
            (Body::from("x"), Ok(1)),
            (Body::from(vec![b' '; MAX_BODY_BYTES]), Ok(MAX_BODY_BYTES)),
            (Body::from(vec![b' '; MAX_BODY_BYTES + 1]), Err(413)),
            (chunked(5 * MIB), Ok(5 * MIB)),
            (chunked(9 * MIB), Err(413)),
            (Body::from_stream(pending::<io::Result<Bytes>>()), Err(408)),
        ] {
            let places = places(4);
            let received = places.receive(&mut Request::new(body)).await;
            let taken = BYTES - places.bytes.available_permits();
            match (&received, expected) {
                (Ok(_), Ok(bytes)) => assert_eq!(taken, bytes),
                (Err(error), Err(status)) => assert_eq!((error.code.status().as_u16(), taken), (status, 0)),
                (found, _) => panic!("{found:?}"),
            }
        }
    }

    #[tokio::test]
    async fn an_answer_holds_its_place_and_its_memory_until_it_is_dropped() {
        //  size of an answer, bytes that it holds
        for (size, expected) in
            [(0, 0), (SMALL, 0), (SMALL + 1, SMALL + 1), (60 * MIB, 60 * MIB), (300 * MIB, BYTES)]
        {
            let places = places(4);
            let rooms = places.of(1);
            let place = places.take(rooms.of(true), 1).await.unwrap();
            let memory = places.take(Arc::clone(&places.bytes), SMALL).await.unwrap();
            let held = Held { _place: place, _rooms: Arc::clone(&rooms), memory };
            let answer = places.hold(vec![b'x'; size].into_response(), held).await.unwrap();
            let taken = || (2 - rooms.of(true).available_permits(), BYTES - places.bytes.available_permits());
            assert_eq!(taken(), (usize::from(size > 0), expected), "{size} bytes");
            let bytes = answer.into_body().collect().await.unwrap().to_bytes();
            assert!(bytes == vec![b'x'; size]);
            assert_eq!(taken().1, expected, "{size} bytes");
            drop(bytes);
            assert_eq!(taken(), (0, 0), "{size} bytes");
        }
    }
}
