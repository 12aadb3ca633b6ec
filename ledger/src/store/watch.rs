//! Watches the masters of the store: which they are, who they are and whether they answer.
//!
//! Requests use the [`View`] of the latest round. It has an epoch and the connections to the processes of which the epoch is a digest,
//! so that an answer never carries the epoch of other processes than those that gave it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use ledger_wire::Hex128;
use redis::ConnectionAddr;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::Epoch;
use super::master::{Look, Master, Unusable};
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

/// What is remembered from round to round.
#[derive(Debug, Default)]
struct Known {
    topology: Topology,
    masters: Vec<Arc<Master>>,
    /// Who each master was when it answered last.
    identities: HashMap<String, String>,
    /// What was last said about each address.
    complaints: HashMap<String, String>,
}

type Seen = Result<(Arc<Master>, Look), Unusable>;

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
        let mut known = Known::default();
        if let [server] = self.settings.seeds.as_slice()
            && !self.settings.is_cluster
        {
            known.topology = Topology::single(server.clone());
        }
        loop {
            let pause = if self.round(&mut known).await { ROUND } else { SOON };
            tokio::time::sleep(SOON).await;
            let _woken = tokio::time::timeout(pause - SOON, self.wake.notified()).await;
        }
    }

    /// Looks at every master, and publishes what it found. Whether all of them answer.
    async fn round(&self, known: &mut Known) -> bool {
        let mut seen = self.attend(&known.topology.masters, &known.masters).await;
        let mut asked = Vec::new();
        if self.settings.is_cluster && !seen.iter().any(Result::is_ok) {
            asked = self.attend(&self.settings.seeds, &known.masters).await;
            known.complain(&self.settings.seeds, &asked);
        }
        let looks = seen.iter().chain(&asked).flatten().filter_map(|(_, look)| look.topology.as_ref());
        let newest = looks.max_by_key(|(change, _)| *change).map(|(_, newest)| newest.clone());
        if let Some(newest) = newest.filter(|newest| *newest != known.topology || !asked.is_empty()) {
            tracing::info!(masters = newest.masters.len(), "the cluster has changed");
            let have: Vec<Arc<Master>> =
                seen.into_iter().chain(asked).flatten().map(|(master, _)| master).collect();
            seen = self.attend(&newest.masters, &have).await;
            known.topology = newest;
        }
        let usable = seen.into_iter().enumerate().map(|(index, seen)| self.usable(seen, index, known));
        let seen = join_all(usable).await;
        known.complain(&known.topology.masters.clone(), &seen);
        for (master, look) in seen.iter().flatten() {
            known.identities.insert(master.address.to_string(), look.identity.clone());
        }
        let masters: Vec<Option<Arc<Master>>> =
            seen.into_iter().map(|seen| seen.ok().map(|(master, _)| master)).collect();
        known.masters = masters.iter().flatten().cloned().collect();
        let are_all_up = !masters.is_empty() && masters.iter().all(Option::is_some);
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(epoch) = known.epoch(view.as_ref().map(|view| view.epoch)) {
            let (topology, prefix) = (known.topology.clone(), self.settings.prefix.clone());
            *view = Some(Arc::new(View { epoch, topology, masters, prefix, wake: Arc::clone(&self.wake) }));
        }
        are_all_up
    }

    /// Looks at each address over a connection of `have`, or over a new one.
    async fn attend(&self, addresses: &[ConnectionAddr], have: &[Arc<Master>]) -> Vec<Seen> {
        join_all(addresses.iter().map(|address| async {
            let master = have.iter().find(|master| master.address == *address && master.is_up());
            if let Some(master) = master {
                match master.look(&self.settings).await {
                    Ok(look) => return Ok((Arc::clone(master), look)),
                    Err(_) => master.fail(),
                }
            }
            let master = Master::connect(address, &self.settings).await?;
            let look = master.look(&self.settings).await?;
            Ok((Arc::new(master), look))
        }))
        .await
    }

    /// One that was seen, if it is a master that runs the scripts. With a new connection it shows this by a trial.
    async fn usable(&self, seen: Seen, index: usize, known: &Known) -> Seen {
        let (master, look) = seen?;
        if !look.is_master {
            return Err(Unusable::Replica);
        }
        let is_new = !known.masters.iter().any(|known| Arc::ptr_eq(known, &master));
        let prefix = &self.settings.prefix;
        // Of as many keys as there are masters, one belongs to this.
        let mut keys =
            (0..1_000 * known.topology.masters.len()).map(|number| format!("{prefix}trial:{number}"));
        let belongs = |key: &String| known.topology.master_of(key) == Some(index);
        let trial = if is_new { keys.find(belongs) } else { None };
        if let Err(error) = master.load(trial.as_deref()).await {
            master.fail();
            return Err(error);
        }
        Ok((master, look))
    }
}

impl Known {
    /// The epoch of the masters, which begins now unless it is that of `before`. A master that does not answer is who it was.
    fn epoch(&self, before: Option<Epoch>) -> Option<Epoch> {
        let masters = self.topology.masters.iter();
        let all = masters.map(|address| self.identities.get(&address.to_string()).map(String::as_str));
        let Some(mut all) = all.collect::<Option<Vec<&str>>>().filter(|all| !all.is_empty()) else {
            return before;
        };
        all.sort_unstable();
        let digest: [u8; 32] = Sha256::digest(all.join("\n")).into();
        let (id, _rest) = digest.split_first_chunk()?;
        let id = Hex128(u128::from_be_bytes(*id));
        if before.is_some_and(|before| before.id == id) {
            return before;
        }
        tracing::info!(epoch = %id, "an epoch begins");
        Some(Epoch::begin(id))
    }

    /// Logs what is wrong with each address, once, and once that it is right again.
    fn complain(&mut self, addresses: &[ConnectionAddr], seen: &[Seen]) {
        for (address, seen) in addresses.iter().map(ToString::to_string).zip(seen) {
            match seen {
                Ok(_)
                    if self.complaints.remove(&address).is_some()
                        || !self.identities.contains_key(&address) =>
                {
                    tracing::info!(store = %address, "the store answers");
                }
                Ok(_) => {}
                Err(error) => {
                    let complaint = error.to_string();
                    if self.complaints.get(&address) != Some(&complaint) {
                        tracing::warn!(store = %address, error = %complaint, "the store cannot be used");
                        self.complaints.insert(address, complaint);
                    }
                }
            }
        }
    }
}
