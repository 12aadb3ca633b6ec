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

use super::master::{Look, Marker, Master};
use super::masters::{Found, Masters};
use super::settings::Settings;
use super::topology::Topology;
use super::unusable::Unusable;
use super::{Epoch, Keeper, View};

/// Time between two rounds while every master answers.
const ROUND: Duration = Duration::from_secs(1);
/// Time between two rounds while one does not, or has something new to say. Short, because customers wait for the store's return.
const SOON: Duration = Duration::from_millis(50);

/// What is remembered of a server from round to round.
#[derive(Debug)]
struct Server {
    address: ConnectionAddr,
    /// The connection, while it is not broken.
    master: Option<Arc<Master>>,
    /// Who it was when it could be used last: the process, by its run id, and its marker, by which data are known.
    identity: Option<(String, Option<Marker>)>,
    /// Why it cannot be used.
    unusable: Option<Arc<Unusable>>,
}

impl Server {
    fn new(address: ConnectionAddr) -> Self {
        Self { address, master: None, identity: None, unusable: Some(Arc::new(Unusable::Silent)) }
    }

    /// Looks at the server over its connection, or over a new one.
    async fn visit(&mut self, settings: &Settings) -> Option<(u64, Topology)> {
        let looked = self.look(settings).await;
        let Look { marker, topology } = match looked {
            Ok(look) => look,
            Err(unusable) => {
                self.unusable = Some(Arc::new(unusable));
                return None;
            }
        };
        if self.unusable.take().is_some() {
            tracing::info!(store = %self.address, "the store answers");
        }
        let run_id = self.master.as_ref().map(|master| master.run_id.clone()).unwrap_or_default();
        // One that cannot be asked for is what it was.
        let before =
            self.identity.take().filter(|(before, _)| *before == run_id).and_then(|(_, marker)| marker);
        self.identity = Some((run_id, marker.or(before)));
        Some(topology)
    }

    async fn look(&mut self, settings: &Settings) -> Result<Look, Unusable> {
        let master = match self.master.take().filter(|master| master.is_up()) {
            Some(master) => master,
            None => Arc::new(Master::connect(&self.address, settings).await?),
        };
        let looked = master.look(settings).await;
        if !looked.as_ref().is_err_and(Unusable::is_away) {
            self.master = Some(master);
        }
        looked
    }

    fn found(&self) -> Result<Found, Arc<Unusable>> {
        let silent = || Arc::new(Unusable::Silent);
        let marker = self.identity.as_ref().and_then(|(_, marker)| marker.clone());
        match &self.unusable {
            Some(unusable) => Err(Arc::clone(unusable)),
            None => Ok(Found { master: self.master.clone().ok_or_else(silent)?, marker }),
        }
    }
}

/// What is remembered from round to round.
struct Watch<'a> {
    settings: &'a Arc<Settings>,
    servers: Vec<Server>,
    topology: Topology,
}

/// Watches the store and publishes its `view`, until this is dropped.
pub(super) async fn run(settings: &Arc<Settings>, view: &RwLock<Result<Arc<View>, Arc<Unusable>>>) {
    let mut watch = Watch { settings, servers: Vec::new(), topology: Topology::default() };
    loop {
        let are_all_up = watch.round().await;
        watch.publish(view);
        let pause = if are_all_up { ROUND } else { SOON };
        tokio::time::sleep(SOON).await;
        let _woken = tokio::time::timeout(pause - SOON, settings.wake.notified()).await;
    }
}

impl Watch<'_> {
    fn server(&self, address: &ConnectionAddr) -> Option<&Server> {
        self.servers.iter().find(|server| server.address == *address)
    }

    /// The masters that the latest topology names.
    fn masters(&self) -> impl Iterator<Item = Option<&Server>> {
        self.topology.masters.iter().map(|address| self.server(address))
    }

    /// Looks at every master, and, while none can be used, at the addresses of the options. Whether all of them can be used.
    async fn round(&mut self) -> bool {
        let settings = self.settings;
        let is_lost = self.masters().flatten().all(|server| server.unusable.is_some());
        let mut addresses = self.topology.masters.clone();
        let others = if is_lost { settings.seeds.clone() } else { Vec::new() };
        for address in others.into_iter().chain(settings.importing()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        self.servers.retain(|server| addresses.contains(&server.address));
        addresses.retain(|address| self.server(address).is_none());
        self.servers.extend(addresses.into_iter().map(Server::new));
        let found = join_all(self.servers.iter_mut().map(|server| server.visit(settings))).await;
        let newest = found.into_iter().flatten().max_by_key(|(change, _)| *change);
        if let Some((_, newest)) = newest.filter(|(_, newest)| *newest != self.topology) {
            tracing::info!(masters = newest.masters.len(), "the masters of the store have changed");
            settings.forget_importing();
            self.topology = newest;
            return false;
        }
        match self.announces() {
            Some((seed, unusable)) => settings.complain(seed, &unusable),
            None => {
                for server in &self.servers {
                    if let Some(unusable) = &server.unusable {
                        settings.complain(&server.address, unusable);
                    }
                }
            }
        }
        let is_up = |server: Option<&Server>| server.is_some_and(|server| server.unusable.is_none());
        !self.topology.masters.is_empty() && self.masters().all(is_up)
    }

    /// A node that answers, while no master does by the address that the cluster announces.
    fn announces(&self) -> Option<(&ConnectionAddr, Unusable)> {
        let is_away = |server: Option<&Server>| {
            server.and_then(|server| server.unusable.as_ref()).is_some_and(|unusable| unusable.is_away())
        };
        let seed = self.servers.iter().find(|server| server.unusable.is_none())?;
        let masters: Vec<String> = self.topology.masters.iter().map(ToString::to_string).collect();
        let are_away = !masters.is_empty() && self.masters().all(is_away);
        let announces = Unusable::Announces { seed: seed.address.to_string(), masters: masters.join(", ") };
        are_away.then_some((&seed.address, announces))
    }

    /// Publishes what the latest round has found.
    fn publish(&self, view: &RwLock<Result<Arc<View>, Arc<Unusable>>>) {
        let mut view = view.write().unwrap_or_else(PoisonError::into_inner);
        // A master that does not answer is who it was. Until each has answered once, requests use the view of before, and so its epoch.
        let identities = self.masters().map(|server| server?.identity.as_ref());
        let Some(identities) = identities.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty()) else {
            if view.is_err() {
                let announces = self.announces().map(|(_, unusable)| Arc::new(unusable));
                let all = self.servers.iter().filter_map(|server| server.unusable.clone());
                let unusable = announces.or_else(|| all.min_by_key(|unusable| unusable.is_away()));
                *view = Err(unusable.unwrap_or_else(|| Arc::new(Unusable::Silent)));
            }
            return;
        };
        let found =
            |server: Option<&Server>| server.map_or_else(|| Err(Arc::new(Unusable::Silent)), Server::found);
        let importing = self.servers.iter().filter(|server| !self.topology.masters.contains(&server.address));
        let masters = Masters {
            topology: self.topology.clone(),
            masters: self.masters().map(found).collect(),
            importing: importing.filter_map(|server| server.found().ok()).collect(),
            settings: Arc::clone(self.settings),
        };
        let epoch = epoch(&identities, view.as_ref().ok().map(|view| view.epoch));
        *view = Ok(Arc::new(View { epoch, keeper: Keeper::Masters(masters) }));
    }
}

/// The epoch of masters with these identities, which begins now unless it is that of `before`.
fn epoch(identities: &[&(String, Option<Marker>)], before: Option<Epoch>) -> Epoch {
    let value =
        |marker: &Option<Marker>| marker.as_ref().map_or_else(String::new, |marker| marker.value.clone());
    let identity = |(run_id, marker): &&(String, Option<Marker>)| format!("{run_id} {}", value(marker));
    let mut identities: Vec<String> = identities.iter().map(identity).collect();
    identities.sort_unstable();
    let digest = Sha256::digest(identities.join("\n"));
    let id = Hex128(digest.iter().take(16).fold(0, |id, byte| id << 8 | u128::from(*byte)));
    before.filter(|before| before.id == id).unwrap_or_else(|| {
        tracing::info!(epoch = %id, "an epoch begins");
        Epoch::begin(id)
    })
}
