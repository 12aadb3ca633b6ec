//! How many requests of one workspace are worked on at once, so that a customer with many large ones leaves connections to
//! the database, and processors, to the others. Bulk calls have a place apart from requests that read. Other requests that
//! write need none: they are short, and waiting for each other they would fall behind those of a workspace with bulk calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::Extensions;
use axum::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::links::bulk;
use crate::store::Workspace;

/// The places of each workspace that has a request.
#[derive(Debug)]
pub(crate) struct Places {
    reads: usize,
    of_workspace: Mutex<HashMap<(i64, Kind), Arc<Semaphore>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Reads,
    Bulk,
}

/// Bulk calls of a workspace that are worked on at once.
const BULK: usize = 1;

/// Where the place of a request is kept until its answer is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

/// The places among which a request has to get one before it is worked on.
#[derive(Clone, Debug)]
struct Queue(Arc<Semaphore>);

impl Places {
    /// Places for so many requests of each workspace that read, at least one.
    pub(crate) fn new(reads: usize) -> Self {
        Self { reads: reads.max(1), of_workspace: Mutex::default() }
    }

    /// Makes [`take`] wait for a place of the workspace, if the request has to have one.
    pub(crate) fn assign(&self, workspace: &Workspace, request: &mut Parts) {
        let (kind, places) = match &request.method {
            method if method.is_safe() => (Kind::Reads, self.reads),
            _ if request.uri.path() == bulk::PATH => (Kind::Bulk, BULK),
            _ => return,
        };
        let mut all = self.of_workspace.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has a place, or waits for one, holds another handle.
        all.retain(|_, places| Arc::strong_count(places) > 1);
        let places = all.entry((workspace.seq, kind)).or_insert_with(|| Arc::new(Semaphore::new(places)));
        request.extensions.insert(Queue(Arc::clone(places)));
    }
}

/// Waits for a place, if the request has to have one, and keeps it until the answer is made.
pub(crate) async fn take(request: &Extensions) {
    let (Some(Queue(places)), Some(Place(place))) = (request.get::<Queue>(), request.get::<Place>()) else {
        return;
    };
    // Nobody closes them.
    let taken = Arc::clone(places).acquire_owned().await.ok();
    *place.lock().unwrap_or_else(PoisonError::into_inner) = taken;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::Request;
    use jiff::Timestamp;

    use super::*;

    /// A request that has a place, or none in time.
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
    async fn each_workspace_has_its_places_for_reads_and_for_bulk_calls() {
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
