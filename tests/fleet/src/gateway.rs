//! The gateways: processes with a clock, shared data and workers, each of which serves by one configuration, or for a while by two.

use std::sync::Arc;

use arrayvec::ArrayVec;
use filter::count::charge::SharedName;
use filter::count::counters::Counters;
use filter::count::entry::Count;
use filter::count::fingerprint::Who;
use filter::count::holding::Sharing;
use filter::count::levels::{Demand, Levels, Others};
use filter::count::table::{Capacity, Counter};
use filter::fleet::client::Client;
use filter::fleet::messages;
use filter::quota::QuotaSet;
use filter::time::Timestamp;
use ledger_wire::Hex128;

use crate::shared::{Host, Memory};
use crate::world::{QUOTAS, RECORDS, Subject, Time, World};

/// The clock at the beginning, in microseconds: away from every edge of a long window.
pub(crate) const START: Time = 1_000_500_000_000;
/// A few entries, so that a walk through the table is short and records meet in an entry.
const CAPACITY: Capacity = Capacity { known: 8, strangers: 8 };
const CLASS: &str = "class";

/// A configuration at a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) gateway: usize,
    pub(crate) worker: usize,
    /// The number of the configuration, which no other has in a world.
    pub(crate) version: u32,
}

/// What a worker has of a configuration.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) number: u32,
    pub(crate) client: Client,
    pub(crate) counters: Counters,
    /// Streams that have not ended.
    pub(crate) streams: u32,
    /// If another configuration follows: until when new requests may come here, and until when the host keeps it at least.
    pub(crate) drains: Option<(Time, Time)>,
}

#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) stuck_until: Time,
    /// When it made its last call, or began.
    pub(crate) called_at: Time,
    /// The newest is the last.
    pub(crate) versions: Vec<Version>,
}

/// A gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    id: u32,
    /// How far its clock is from the true one, in microseconds.
    pub(crate) clock: i64,
    /// When its clock stepped last.
    pub(crate) stepped_at: Time,
    /// Its name among the gateways of the fleet.
    pub(crate) name: Hex128,
    memory: Memory,
    pub(crate) limits: ArrayVec<u32, QUOTAS>,
    quotas: Arc<QuotaSet>,
    pub(crate) sharing: Sharing,
    pub(crate) workers: Vec<Worker>,
    /// When each record was last touched by a request or an operator.
    pub(crate) touched: [Time; RECORDS],
}

/// The true clock, in microseconds.
pub(crate) fn true_micros(now: Time, jumped: Time) -> Time {
    START + jumped + now
}

/// Who is counted by a record.
fn who(callers: usize, record: usize, digest: &mut [u8; 32]) -> Who<'_> {
    digest[0] = record as u8;
    if record < callers { Who::Key(digest) } else { Who::Organisation("organisation") }
}

/// The name of a record in the fleet.
pub(crate) fn name(callers: usize, record: usize) -> SharedName {
    SharedName::new("", who(callers, record, &mut [0; 32]), CLASS)
}

impl Gateway {
    /// A process that begins, as the `id`th of the world.
    pub(crate) fn new(id: u32, world: &World) -> Self {
        let limits: ArrayVec<_, _> = world.quotas.iter().map(|(_, limit)| *limit).collect();
        Self {
            id,
            clock: 0,
            stepped_at: 0,
            name: Hex128(0),
            memory: Memory::default(),
            quotas: Arc::new(world.quota_set(&limits)),
            limits,
            sharing: world.sharing(),
            workers: (0..world.workers).map(|_| Worker::default()).collect(),
            touched: [0; RECORDS],
        }
    }

    /// The process dies, and comes back as another, with the same clock and configuration.
    pub(crate) fn restart(&mut self, id: u32) {
        (self.id, self.memory) = (id, Memory::default());
    }

    /// A limit changes.
    pub(crate) fn change_limit(&mut self, world: &World, place: usize, limit: u32) {
        self.limits[place] = limit;
        self.quotas = Arc::new(world.quota_set(&self.limits));
    }

    /// The gateway's clock when the true one shows `micros`.
    pub(crate) fn clock_at(&self, micros: Time) -> Timestamp {
        Timestamp::from_nanos(micros.saturating_add_signed(self.clock) * 1_000)
    }

    fn open(&mut self, now: Timestamp, sharing: &Sharing) -> Counters {
        let mut salt = [0; 16];
        salt[..4].copy_from_slice(&self.id.to_le_bytes());
        let opened = Counters::open(&mut Host { memory: &mut self.memory, now }, salt, "", CAPACITY);
        opened.expect("the tables can be opened").in_fleet(!sharing.in_shadow)
    }

    /// A worker takes up the gateway's configuration under this number. `drains` is for those that it follows.
    pub(crate) fn configure(&mut self, worker: usize, number: u32, drains: (Time, Time), now: Timestamp) {
        let mut versions = std::mem::take(&mut self.workers[worker].versions);
        for old in &mut versions {
            old.client.retire();
            old.counters = self.open(now, &{ *old.client.sharing() });
            old.drains.get_or_insert(drains);
        }
        let sharing = self.sharing;
        let (client, counters) = (Client::new(sharing), self.open(now, &sharing));
        self.name = messages::gateway(counters.salt());
        versions.push(Version { number, client, counters, streams: 0, drains: None });
        self.workers[worker].versions = versions;
    }

    /// A configuration at a worker, unless it is gone, and what the worker works with.
    pub(crate) fn version(
        &mut self,
        (worker, version): (usize, u32),
        now: Timestamp,
    ) -> Option<(&mut Version, Host<'_>)> {
        let versions = &mut self.workers[worker].versions;
        let version = versions.iter_mut().find(|other| other.number == version)?;
        Some((version, Host { memory: &mut self.memory, now }))
    }

    /// What a request of a caller needs, by this configuration.
    pub(crate) fn demand(&self, world: &World, version: &Version, caller: usize, cost: u32) -> Demand {
        let counter = |record| counter(world.callers, &version.counters, record);
        let (own, has_organisation) = (counter(caller), world.own < world.quotas.len());
        let organisation = has_organisation.then(|| counter(world.callers));
        let names = (!version.client.sharing().in_shadow)
            .then(|| [caller, world.callers].map(|record| name(world.callers, record)));
        let levels = Levels { own, others: Some(Arc::new(Others { organisation, names })) };
        Demand { quotas: Arc::clone(&self.quotas), levels, cost }
    }

    /// The count of a subject, as it is stored.
    pub(crate) fn count(&self, callers: usize, subject: &Subject) -> Option<Count> {
        let counters = &self.workers.iter().find_map(|worker| worker.versions.last())?.counters;
        self.memory.count(counter(callers, counters, subject.record).fingerprint(), subject.window)
    }

    pub(crate) fn quotas(&self) -> Arc<QuotaSet> {
        Arc::clone(&self.quotas)
    }

    pub(crate) fn evict(&mut self, place: usize) {
        self.memory.evict(place);
    }
}

/// The counter of a record.
pub(crate) fn counter(callers: usize, counters: &Counters, record: usize) -> Counter {
    counters.counter(who(callers, record, &mut [0; 32]), CLASS)
}
