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

use super::Epoch;
use super::master::{Look, Master};
use super::settings::Settings;
use super::topology::Topology;

/// Time between two rounds while every master answers.
const ROUND: Duration = Duration::from_secs(1);
/// Time between two rounds while one does not, or has something new to say. Short, because customers wait for the store's return.
const SOON: Duration = Duration::from_millis(50);

/// What the latest round found.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) epoch: Epoch,
    pub(super) topology: Topology,
    /// By the index of the topology. A master that does not answer is absent.
    pub(super) masters: Vec<Option<Arc<Master>>>,
    pub(super) prefix: String,
    /// Asks for a round at once.
    pub(super) wake: Arc<Notify>,
}

impl View {
    /// A master, if it answers.
    pub(super) fn master(&self, index: usize) -> Option<&Master> {
        self.masters.get(index)?.as_deref().filter(|master| master.is_up())
    }

    pub(super) fn masters_up_and_away(&self) -> (usize, usize) {
        let up = (0..self.masters.len()).filter(|index| self.master(*index).is_some()).count();
        (up, self.masters.len() - up)
    }
}

/// The watch over the store.
#[derive(Debug)]
pub(crate) struct Watch {
    settings: Settings,
    /// Absent until every master has answered once, because the epoch is not known before.
    view: RwLock<Option<Arc<View>>>,
    wake: Arc<Notify>,
}

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

impl Watch {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, view: RwLock::default(), wake: Arc::default() }
    }

    /// The latest view, unless nothing in it answers.
    pub(super) fn view(&self) -> Option<Arc<View>> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        (view.masters_up_and_away().0 > 0).then_some(view)
    }

    /// Watches until it is dropped.
    pub(super) async fn run(&self) {
        let (mut servers, mut topology) = (Vec::new(), Topology::default());
        loop {
            let pause = if self.round(&mut servers, &mut topology).await { ROUND } else { SOON };
            tokio::time::sleep(SOON).await;
            let _woken = tokio::time::timeout(pause - SOON, self.wake.notified()).await;
        }
    }

    /// Looks at every master, and publishes what it found. Whether all of them answer.
    async fn round(&self, servers: &mut Vec<Server>, topology: &mut Topology) -> bool {
        let is_lost = servers.iter().all(|server| server.master.is_none());
        let seeds = self.settings.seeds.iter().filter(|_| is_lost);
        let mut addresses: Vec<&ConnectionAddr> = topology.masters.iter().collect();
        addresses.extend(seeds.filter(|seed| !topology.masters.contains(seed)));
        servers.retain(|server| addresses.contains(&&server.address));
        addresses.retain(|address| !servers.iter().any(|server| server.address == **address));
        servers.extend(addresses.into_iter().cloned().map(Server::new));
        let topologies = join_all(servers.iter_mut().map(|server| server.visit(&self.settings))).await;
        let newest = topologies.into_iter().flatten().max_by_key(|(change, _)| *change);
        if let Some((_, newest)) = newest.filter(|(_, newest)| newest != topology) {
            tracing::info!(masters = newest.masters.len(), "the masters of the store are others");
            *topology = newest;
        }
        let masters = topology.masters.iter();
        let masters = masters.map(|address| servers.iter().find(|server| server.address == *address));
        let Some(masters) = masters.collect::<Option<Vec<_>>>() else { return false };
        let are_all_up = !masters.is_empty() && masters.iter().all(|server| server.master.is_some());
        // A master that does not answer is who it was. What the view of before answers is of the epoch of before.
        let identities = masters.iter().map(|server| server.identity.as_deref());
        let Some(identities) = identities.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty()) else {
            return false;
        };
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        let epoch = epoch(identities, view.as_ref().map(|view| view.epoch));
        *view = Some(Arc::new(View {
            epoch,
            topology: topology.clone(),
            masters: masters.into_iter().map(|server| server.master.clone()).collect(),
            prefix: self.settings.prefix.clone(),
            wake: Arc::clone(&self.wake),
        }));
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
