//! Watches the masters of the store: which they are, who they are and whether they answer.
//!
//! Requests use the [`View`] of the latest round. It has an epoch and the connections to the processes of which the epoch is a digest,
//! so that an answer never carries the epoch of other processes than those that gave it.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use ledger_wire::Hex128;
use redis::ConnectionAddr;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::master::{Look, Master};
use super::masters::Masters;
use super::settings::Settings;
use super::topology::Topology;
use super::{Epoch, Keeper, View};

/// Time between two rounds while every master answers.
const ROUND: Duration = Duration::from_secs(1);
/// Time between two rounds while one does not, or has something new to say. Short, because customers wait for the store's return.
const SOON: Duration = Duration::from_millis(50);

/// What is remembered of a server from round to round.
#[derive(Debug)]
struct Server {
    address: ConnectionAddr,
    /// The connection, if it answered in the latest round.
    master: Option<Arc<Master>>,
    /// Who it was when it answered last.
    identity: Option<String>,
    /// What the log said about it last, if it cannot be used.
    complaint: Option<String>,
}

impl Server {
    fn new(address: ConnectionAddr) -> Self {
        Self { address, master: None, identity: None, complaint: None }
    }

    /// Looks at the server over its connection, or over a new one. The log says once what is wrong with it, and once that it is
    /// right again.
    async fn visit(&mut self, settings: &Settings) -> Option<(u64, Topology)> {
        let seen = match self.master.take().filter(|master| master.is_up()) {
            Some(master) => master.look(settings).await.map(|look| (master, look)),
            None => {
                let connected = Master::connect(&self.address, settings).await;
                connected.map(|(master, look)| (Arc::new(master), look))
            }
        };
        match seen {
            Ok((master, Look { identity, topology })) => {
                if self.complaint.take().is_some() || self.identity.is_none() {
                    tracing::info!(store = %self.address, "the store answers");
                }
                (self.master, self.identity) = (Some(master), Some(identity));
                Some(topology)
            }
            Err(error) => {
                let complaint = Some(error.to_string());
                if self.complaint != complaint {
                    tracing::warn!(store = %self.address, %error, "the store cannot be used");
                    self.complaint = complaint;
                }
                None
            }
        }
    }
}

/// What is remembered from round to round.
struct Watch<'a> {
    settings: &'a Settings,
    servers: Vec<Server>,
    topology: Topology,
    wake: Arc<Notify>,
}

/// Watches the store and publishes its `view`, until this is dropped.
pub(super) async fn run(settings: &Settings, view: &RwLock<Option<Arc<View>>>) {
    let (servers, topology, wake) = (Vec::new(), Topology::default(), Arc::default());
    let mut watch = Watch { settings, servers, topology, wake };
    loop {
        let pause = if watch.round(view).await { ROUND } else { SOON };
        tokio::time::sleep(SOON).await;
        let _woken = tokio::time::timeout(pause - SOON, watch.wake.notified()).await;
    }
}

impl Watch<'_> {
    /// Looks at every master, and publishes what it found. Whether all of them answer.
    async fn round(&mut self, view: &RwLock<Option<Arc<View>>>) -> bool {
        let Self { settings, servers, topology, wake } = self;
        let is_lost = servers.iter().all(|server| server.master.is_none());
        let mut addresses: Vec<&ConnectionAddr> = topology.masters.iter().collect();
        addresses.extend(settings.seeds.iter().filter(|seed| is_lost && !topology.masters.contains(seed)));
        servers.retain(|server| addresses.contains(&&server.address));
        addresses.retain(|address| !servers.iter().any(|server| server.address == **address));
        servers.extend(addresses.into_iter().cloned().map(Server::new));
        let found = join_all(servers.iter_mut().map(|server| server.visit(settings))).await;
        let newest = found.into_iter().flatten().max_by_key(|(change, _)| *change);
        if let Some((_, newest)) = newest.filter(|(_, newest)| newest != topology) {
            tracing::info!(masters = newest.masters.len(), "the masters of the store have changed");
            *topology = newest;
        }
        let server_of = |address: &ConnectionAddr| servers.iter().find(|server| server.address == *address);
        // A master that does not answer is who it was. Until each has answered once, requests use the view of before, and so its epoch.
        let identities = topology.masters.iter().map(|address| server_of(address)?.identity.as_deref());
        let Some(identities) = identities.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty()) else {
            return false;
        };
        let masters: Vec<_> =
            topology.masters.iter().map(|address| server_of(address)?.master.clone()).collect();
        let are_all_up = masters.iter().all(Option::is_some);
        let (topology, prefix, wake) = (topology.clone(), settings.prefix.clone(), Arc::clone(wake));
        let keeper = Keeper::Masters(Masters { topology, masters, prefix, wake });
        let mut view = view.write().unwrap_or_else(PoisonError::into_inner);
        let epoch = epoch(identities, view.as_ref().map(|view| view.epoch));
        *view = Some(Arc::new(View { epoch, keeper }));
        are_all_up
    }
}

/// The epoch of masters with these identities, which begins now unless it is that of `before`.
fn epoch(mut identities: Vec<&str>, before: Option<Epoch>) -> Epoch {
    identities.sort_unstable();
    let digest = Sha256::digest(identities.join("\n"));
    let id = Hex128(digest.iter().take(16).fold(0, |id, byte| id << 8 | u128::from(*byte)));
    before.filter(|before| before.id == id).unwrap_or_else(|| {
        tracing::info!(epoch = %id, "an epoch begins");
        Epoch::begin(id)
    })
}
