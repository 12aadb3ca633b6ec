//! Many requests over many connections at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use crate::client::Connection;
use crate::exchange::{Request, get};

/// Sends a key's requests for `/links` over 32 connections and meanwhile updates the gateway again and again, twice at least: `update` gets the
/// number of the update, from 1. Returns the answers by status, and the number of updates.
///
/// # Errors
/// As [`send`].
///
/// # Panics
/// When the sender does.
pub fn under_updates(
    gateway: SocketAddr,
    key: &'static str,
    requests: usize,
    mut update: impl FnMut(u32),
) -> anyhow::Result<(BTreeMap<u16, usize>, u32)> {
    let done = AtomicBool::new(false);
    let (counts, updates) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let counts = send(gateway, 32, (0..requests).map(|_| ((), get("/links").key(key))));
            done.store(true, Ordering::SeqCst);
            counts
        });
        let mut updates = 0;
        while !done.load(Ordering::SeqCst) || updates < 2 {
            updates += 1;
            update(updates);
        }
        (flood.join().expect("the sender"), updates)
    });
    Ok((counts?.into_iter().map(|((_, status), count)| (status, count)).collect(), updates))
}

/// Sends all requests over `connections` connections, each taking the next request as soon as it has its answer, and
/// counts the answers by tag and status. A request is made when its turn comes, so a million of them take no memory.
///
/// # Errors
/// When any request stays without an answer.
pub fn send<T>(
    server: SocketAddr,
    connections: usize,
    requests: impl IntoIterator<Item = (T, Request), IntoIter: Send + 'static>,
) -> anyhow::Result<BTreeMap<(T, u16), usize>>
where
    T: Ord + Copy + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let queue = Arc::new(Mutex::new(requests.into_iter()));
    runtime.block_on(async {
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let queue = Arc::clone(&queue);
            senders.spawn(async move {
                let mut connection = Connection::to(server);
                let mut counts = BTreeMap::new();
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((tag, request)) = next else { return anyhow::Ok(counts) };
                    let status = connection.send(&request).await?.status();
                    *counts.entry((tag, status)).or_insert(0) += 1;
                }
            });
        }
        let mut all = BTreeMap::new();
        while let Some(counts) = senders.join_next().await {
            for (outcome, count) in counts.context("a sender panicked")?? {
                *all.entry(outcome).or_insert(0) += count;
            }
        }
        Ok(all)
    })
}
