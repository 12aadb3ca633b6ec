//! Limits the number of concurrent requests of a workspace. A customer with many requests thereby leaves database connections
//! and processors to others.
//!
//! Requests that read, bulk calls and other writes have separate limits. SQLite has one writer, which serves transactions in the
//! order of their arrival: the limits of writes are how many transactions of one workspace those of another wait for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::Extensions;
use axum::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::links::bulk;
use crate::store::Workspace;

/// The places of each workspace that has a request. A request occupies one place.
#[derive(Debug)]
pub(crate) struct Places {
    reads: usize,
    of_workspace: Mutex<HashMap<(i64, Kind), Arc<Semaphore>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Reads,
    Bulk,
    Writes,
}

/// Maximum number of concurrent bulk calls of a workspace.
const BULK: usize = 1;
/// Maximum number of other concurrent writes of a workspace. More than of bulk calls, so that they do not fall behind the bulk
/// calls of another workspace, which consist of several transactions.
const WRITES: usize = 4;

/// Holds the place of a request until its response is complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

/// The places of which a request must occupy one before it runs.
#[derive(Clone, Debug)]
struct Queue(Arc<Semaphore>);

impl Places {
    /// Allows each workspace `reads` concurrent requests that read, and at least one.
    pub(crate) fn new(reads: usize) -> Self {
        Self { reads: reads.max(1), of_workspace: Mutex::default() }
    }

    /// Makes [`take`] wait for a place of the workspace.
    pub(crate) fn assign(&self, workspace: &Workspace, request: &mut Parts) {
        let (kind, places) = match &request.method {
            method if method.is_safe() => (Kind::Reads, self.reads),
            _ if request.uri.path() == bulk::PATH => (Kind::Bulk, BULK),
            _ => (Kind::Writes, WRITES),
        };
        let mut all = self.of_workspace.lock().unwrap_or_else(PoisonError::into_inner);
        // A request that occupies a place, or waits for one, holds a clone of the semaphore.
        all.retain(|_, places| Arc::strong_count(places) > 1);
        let places = all.entry((workspace.seq, kind)).or_insert_with(|| Arc::new(Semaphore::new(places)));
        request.extensions.insert(Queue(Arc::clone(places)));
    }
}

/// Waits for a place if the request needs one, and holds it until the response is complete.
pub(crate) async fn take(request: &Extensions) {
    let (Some(Queue(places)), Some(Place(place))) = (request.get::<Queue>(), request.get::<Place>()) else {
        return;
    };
    // The semaphore is never closed.
    let taken = Arc::clone(places).acquire_owned().await.ok();
    *place.lock().unwrap_or_else(PoisonError::into_inner) = taken;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::Request;
    use jiff::Timestamp;

    use super::*;

    /// A request that has got its place, or None if it had to wait.
    async fn request(places: &Places, workspace: i64, method: &str, path: &str) -> Option<Parts> {
        let created_at = Timestamp::UNIX_EPOCH;
        let workspace = Workspace { seq: workspace, id: String::new(), name: String::new(), created_at };
        let (mut request, ()) = Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
        request.extensions.insert(Place::default());
        places.assign(&workspace, &mut request);
        let taken = tokio::time::timeout(Duration::from_millis(20), take(&request.extensions)).await;
        taken.is_ok().then_some(request)
    }

    #[tokio::test]
    async fn each_workspace_has_its_places_for_reads_for_bulk_calls_and_for_other_writes() {
        let places = Places::new(2);
        let mut under_way = Vec::new();
        //  workspace, request, whether it is worked on
        for (workspace, method, path, expected) in [
            (1, "GET", "/links", true),
            (1, "GET", "/links/count", true),
            (1, "GET", "/links", false),
            (1, "POST", "/links/bulk", true),
            (1, "DELETE", "/links/bulk?linkIds=x", false),
            (1, "PATCH", "/links/x", true),
            (1, "POST", "/links", true),
            (1, "DELETE", "/tags/x", true),
            (1, "PUT", "/links/upsert", true),
            (1, "POST", "/folders", false),
            (2, "GET", "/links", true),
            (2, "PATCH", "/links/bulk", true),
        ] {
            let request = request(&places, workspace, method, path).await;
            assert_eq!(request.is_some(), expected, "{workspace} {method} {path}");
            under_way.extend(request);
        }
        drop(under_way.remove(0));
        assert!(request(&places, 1, "GET", "/links").await.is_some());
        under_way.clear();
        under_way.extend(request(&places, 3, "GET", "/links").await);
        assert_eq!(places.of_workspace.lock().unwrap().len(), 1, "those without requests are forgotten");
    }
}
