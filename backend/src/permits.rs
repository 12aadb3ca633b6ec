//! Limits the number of concurrent requests of a workspace, so that a customer with many requests leaves database
//! connections and processors to others.
//!
//! Reads, bulk calls and other writes have separate limits. SQLite has one writer, which serves transactions in the order
//! of their arrival. The limits of writes bound the number of transactions of one workspace that another one waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::Extensions;
use axum::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::gate::{Gate, Passed};
use crate::links::bulk;
use crate::store::Workspace;

/// The permits of each workspace with a request that runs or waits.
#[derive(Debug)]
pub(crate) struct Permits {
    reads: usize,
    of_workspace: Mutex<HashMap<(i64, Kind), Arc<Semaphore>>>,
    gate: Arc<Gate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Reads,
    Bulk,
    Writes,
}

/// Maximum number of concurrent bulk calls of a workspace: one is read or answered while another one writes.
const BULK: usize = 2;
/// Maximum number of other concurrent writes of a workspace. It is larger than that of bulk calls, which consist of several
/// transactions, so that other writes do not fall behind the bulk calls of another workspace.
const WRITES: usize = 4;

/// Holds what a request needs to run, until its response begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permit(Arc<Mutex<Option<Held>>>);

#[derive(Debug)]
struct Held {
    _permit: Option<OwnedSemaphorePermit>,
    _passed: Passed,
}

/// What a request needs to run.
#[derive(Clone, Debug)]
struct Needed {
    workspace: i64,
    /// It needs one of these.
    permits: Option<Arc<Semaphore>>,
    gate: Arc<Gate>,
}

impl Permits {
    /// Allows each workspace `reads` concurrent reads, and at least one.
    pub(crate) fn new(reads: usize, gate: Arc<Gate>) -> Self {
        Self { reads: reads.max(1), of_workspace: Mutex::default(), gate }
    }

    /// Makes [`acquire`] wait for a permit of the workspace and pass the gate.
    pub(crate) fn require(&self, workspace: &Workspace, request: &mut Parts) {
        let (kind, permits) = match &request.method {
            method if method.is_safe() => (Kind::Reads, self.reads),
            _ if request.uri.path() == bulk::PATH => (Kind::Bulk, BULK),
            _ => (Kind::Writes, WRITES),
        };
        let mut all = self.of_workspace.lock().unwrap_or_else(PoisonError::into_inner);
        // A permit and a waiting request each hold a clone of the semaphore.
        all.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        let semaphore = all.entry((workspace.seq, kind)).or_insert_with(|| Arc::new(Semaphore::new(permits)));
        let permits = Some(Arc::clone(semaphore));
        let gate = Arc::clone(&self.gate);
        request.extensions.insert(Needed { workspace: workspace.seq, permits, gate });
    }

    /// Makes [`acquire`] pass the gate. For an analytics query, which needs a permit of [`crate::admission`].
    pub(crate) fn require_to_pass(&self, workspace: &Workspace, request: &mut Parts) {
        let gate = Arc::clone(&self.gate);
        request.extensions.insert(Needed { workspace: workspace.seq, permits: None, gate });
    }
}

/// Waits until the request may run, and holds what it needs for that until its response begins.
pub(crate) async fn acquire(request: &Extensions) {
    let (Some(needed), Some(Permit(held))) = (request.get::<Needed>(), request.get::<Permit>()) else {
        return;
    };
    let permit = async {
        match &needed.permits {
            // The semaphore is never closed.
            Some(permits) => Arc::clone(permits).acquire_owned().await.ok(),
            None => None,
        }
    };
    let (passed, permit) = needed.gate.pass(needed.workspace, permit).await;
    *held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Held { _permit: permit, _passed: passed });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::Request;
    use jiff::Timestamp;

    use super::*;

    /// A request that did not have to wait for a permit.
    async fn request(permits: &Permits, workspace: i64, method: &str, path: &str) -> Option<Parts> {
        let created_at = Timestamp::UNIX_EPOCH;
        let workspace = Workspace { seq: workspace, id: String::new(), name: String::new(), created_at };
        let (mut request, ()) = Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
        request.extensions.insert(Permit::default());
        permits.require(&workspace, &mut request);
        let acquired = tokio::time::timeout(Duration::from_millis(20), acquire(&request.extensions)).await;
        acquired.is_ok().then_some(request)
    }

    #[tokio::test]
    async fn each_workspace_has_permits_for_reads_for_bulk_calls_and_for_other_writes() {
        let permits = Permits::new(2, Arc::new(Gate::new(2, 1)));
        let mut running = Vec::new();
        //  workspace, request, whether it runs
        for (workspace, method, path, expected) in [
            (1, "GET", "/links", true),
            (1, "GET", "/links/count", true),
            (1, "GET", "/links", false),
            (1, "POST", "/links/bulk", true),
            (1, "DELETE", "/links/bulk?linkIds=x", true),
            (1, "PATCH", "/links/bulk", false),
            (1, "PATCH", "/links/x", true),
            (1, "POST", "/links", true),
            (1, "DELETE", "/tags/x", true),
            (1, "PUT", "/links/upsert", true),
            (1, "POST", "/folders", false),
            (2, "GET", "/links", true),
            (2, "PATCH", "/links/bulk", true),
        ] {
            let request = request(&permits, workspace, method, path).await;
            assert_eq!(request.is_some(), expected, "{workspace} {method} {path}");
            running.extend(request);
        }
        drop(running.remove(0));
        assert!(request(&permits, 1, "GET", "/links").await.is_some());
        running.clear();
        running.extend(request(&permits, 3, "GET", "/links").await);
        assert_eq!(permits.of_workspace.lock().unwrap().len(), 1, "workspaces without requests are removed");
    }
}
