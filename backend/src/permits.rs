//! Limits the number of concurrent requests of a workspace, so that a customer with many requests leaves database
//! connections and processors to others.
//!
//! Reads, bulk calls and other writes have separate limits. SQLite has one writer, which serves transactions in the order
//! of their arrival. The limits of writes bound the number of transactions of one workspace that another one waits for.

use std::sync::Arc;

use axum::http::Method;
use tokio::sync::OwnedSemaphorePermit;

use crate::gate::{Gate, Passed, Work};
use crate::semaphores::Semaphores;
use crate::store::Workspace;

/// The permits of each workspace with a request that runs or waits.
#[derive(Debug)]
pub(crate) struct Permits {
    reads: usize,
    of_workspace: Semaphores<(i64, Kind)>,
    gate: Arc<Gate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Reads,
    Bulk,
    Writes,
}

/// The path of bulk calls.
pub(crate) const BULK_PATH: &str = "/links/bulk";
/// Maximum number of concurrent bulk calls of a workspace: one is read or answered while another one writes.
const BULK: usize = 2;
/// Maximum number of other concurrent writes of a workspace. It is larger than that of bulk calls, which consist of several
/// transactions, so that other writes do not fall behind the bulk calls of another workspace.
const WRITES: usize = 4;

/// One of the concurrent requests of a workspace.
#[derive(Debug)]
pub(crate) struct Permit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Permits {
    /// Allows each workspace `reads` concurrent reads, and at least one.
    pub(crate) fn new(reads: usize, gate: Arc<Gate>) -> Self {
        Self { reads: reads.max(1), of_workspace: Semaphores::default(), gate }
    }

    /// Waits until a request may run. While it has its permit and waits for its turn, it prepares what else it needs.
    pub(crate) async fn acquire<T>(
        &self,
        workspace: &Workspace,
        method: &Method,
        path: &str,
        prepare: impl Future<Output = T>,
    ) -> (Permit, Passed, T) {
        let (kind, permits) = match method {
            method if method.is_safe() => (Kind::Reads, self.reads),
            _ if path == BULK_PATH => (Kind::Bulk, BULK),
            _ => (Kind::Writes, WRITES),
        };
        let permits = self.of_workspace.of((workspace.seq, kind), permits);
        // The semaphore is never closed.
        let permit = async { (permits.acquire_owned().await.ok(), prepare.await) };
        let (passed, (permit, prepared)) = self.gate.pass(workspace.seq, Work::Other, permit).await;
        (Permit { _permit: permit }, passed, prepared)
    }
}

#[cfg(test)]
impl Permits {
    /// Takes all permits of a workspace.
    pub(crate) fn take_all(&self, workspace: i64) -> Vec<OwnedSemaphorePermit> {
        let kinds = [(Kind::Reads, self.reads), (Kind::Bulk, BULK), (Kind::Writes, WRITES)];
        let take = |(kind, permits): (Kind, usize)| {
            let semaphore = self.of_workspace.of((workspace, kind), permits);
            semaphore.try_acquire_many_owned(u32::try_from(permits).unwrap()).unwrap()
        };
        kinds.into_iter().map(take).collect()
    }

    /// The number of requests of a workspace that have or await permits.
    pub(crate) fn uses(&self, workspace: i64) -> usize {
        [Kind::Reads, Kind::Bulk, Kind::Writes]
            .map(|kind| self.of_workspace.uses(&(workspace, kind)))
            .iter()
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::FutureExt;
    use jiff::Timestamp;

    use super::*;

    /// The permit of a request that does not have to wait for it.
    fn permit(permits: &Permits, workspace: i64, method: &Method, path: &str) -> Option<(Permit, Passed)> {
        let created_at = Timestamp::UNIX_EPOCH;
        let workspace = Workspace { seq: workspace, id: String::new(), name: String::new(), created_at };
        let permit = permits.acquire(&workspace, method, path, ready(())).now_or_never();
        permit.map(|(permit, passed, ())| (permit, passed))
    }

    #[tokio::test]
    async fn each_workspace_has_permits_for_reads_for_bulk_calls_and_for_other_writes() {
        let permits = Permits::new(2, Arc::new(Gate::new(2, 1)));
        let mut running = Vec::new();
        //  workspace, request, whether it runs
        for (workspace, method, path, expected) in [
            (1, Method::GET, "/links", true),
            (1, Method::HEAD, "/links/count", true),
            (1, Method::GET, "/links", false),
            (1, Method::HEAD, "/links", false),
            (1, Method::POST, "/links/bulk", true),
            (1, Method::DELETE, "/links/bulk", true),
            (1, Method::PATCH, "/links/bulk", false),
            (1, Method::PATCH, "/links/x", true),
            (1, Method::POST, "/links", true),
            (1, Method::DELETE, "/tags/x", true),
            (1, Method::PUT, "/links/upsert", true),
            (1, Method::POST, "/folders", false),
            (2, Method::GET, "/links", true),
            (2, Method::PATCH, "/links/bulk", true),
        ] {
            let permit = permit(&permits, workspace, &method, path);
            assert_eq!(permit.is_some(), expected, "{workspace} {method} {path}");
            running.extend(permit);
        }
        drop(running.remove(0));
        assert!(permit(&permits, 1, &Method::GET, "/links").is_some());
    }
}
