//! Data that the VMs of a process share: read with a compare-and-swap number, written with one, never deleted.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{abi::Status, lock::lock, rules::Flavour};

/// The shared data of one process, for every `vm_id`. Clones are the same data.
#[derive(Debug, Clone)]
pub struct SharedData {
    flavour: Flavour,
    cas: Arc<CasSource>,
    namespaces: Arc<Mutex<BTreeMap<String, Arc<Namespace>>>>,
}

/// What the VMs of one `vm_id` share.
#[derive(Debug)]
pub(crate) struct Namespace {
    flavour: Flavour,
    cas: Arc<CasSource>,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    map: HashMap<Box<[u8]>, Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    cas: u32,
}

/// One number per write, over all keys and `vm_id`s, never 0.
#[derive(Debug)]
struct CasSource(AtomicU32);

impl CasSource {
    fn next(&self) -> u32 {
        loop {
            let cas = self.0.fetch_add(1, Ordering::Relaxed);
            if cas != 0 {
                return cas;
            }
        }
    }
}

impl SharedData {
    /// Empty shared data that follows the rules of `flavour`.
    pub fn new(flavour: Flavour) -> Self {
        Self { flavour, cas: Arc::new(CasSource(AtomicU32::new(1))), namespaces: Arc::default() }
    }

    pub(crate) fn namespace(&self, vm_id: &str) -> Arc<Namespace> {
        let mut namespaces = lock(&self.namespaces);
        Arc::clone(namespaces.entry(vm_id.to_owned()).or_insert_with(|| {
            Arc::new(Namespace {
                flavour: self.flavour,
                cas: Arc::clone(&self.cas),
                entries: Mutex::default(),
            })
        }))
    }

    /// The value of `key` and its compare-and-swap number.
    pub fn get(&self, vm_id: &str, key: impl AsRef<[u8]>) -> Option<(Vec<u8>, u32)> {
        self.namespace(vm_id).get(key.as_ref()).ok()
    }

    /// Writes `value` as a guest would, and answers as the host would.
    pub fn set(&self, vm_id: &str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, cas: u32) -> Status {
        self.namespace(vm_id).set(key.as_ref(), value.as_ref(), cas).err().unwrap_or(Status::Ok)
    }

    /// How many keys there are, over all `vm_id`s.
    pub fn entries(&self) -> usize {
        lock(&self.namespaces).values().map(|namespace| lock(&namespace.entries).map.len()).sum()
    }

    /// Bytes of all keys and values, over all `vm_id`s. The host's own overhead per entry is not in it.
    pub fn bytes(&self) -> usize {
        lock(&self.namespaces).values().map(|namespace| lock(&namespace.entries).bytes).sum()
    }

    /// The keys of one `vm_id`, sorted.
    pub fn keys(&self, vm_id: &str) -> Vec<Vec<u8>> {
        let namespace = self.namespace(vm_id);
        let mut keys: Vec<_> = lock(&namespace.entries).map.keys().map(|key| key.to_vec()).collect();
        keys.sort_unstable();
        keys
    }
}

impl Namespace {
    fn available(&self) -> Result<(), Status> {
        if self.flavour.has_shared_data() { Ok(()) } else { Err(Status::Unimplemented) }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<(Vec<u8>, u32), Status> {
        self.available()?;
        let entries = lock(&self.entries);
        let entry = entries.map.get(key).ok_or(Status::NotFound)?;
        Ok((entry.value.clone(), entry.cas))
    }

    pub(crate) fn set(&self, key: &[u8], value: &[u8], cas: u32) -> Result<(), Status> {
        self.available()?;
        let mut entries = lock(&self.entries);
        let Entries { map, bytes } = &mut *entries;
        let stored = map.get_mut(key);
        if !self.flavour.may_write(stored.as_ref().map(|entry| entry.cas), cas) {
            return Err(Status::CasMismatch);
        }
        let cas = self.cas.next();
        if let Some(entry) = stored {
            *bytes = *bytes - entry.value.len() + value.len();
            entry.value.clear();
            entry.value.extend_from_slice(value);
            entry.cas = cas;
        } else {
            *bytes += key.len() + value.len();
            map.insert(key.into(), Entry { value: value.to_vec(), cas });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Flavour::{Ngx, NoSharedData};
    use Status::{CasMismatch, Ok, Unimplemented};

    #[test]
    fn a_write_is_judged_by_the_rules_of_the_flavour() {
        const NEVER_CURRENT: u32 = u32::MAX;
        // flavour,      absent: cas 0, other   present: cas 0, current, other
        let rows = [
            (Flavour::default(), [Ok, Ok], [Ok, Ok, CasMismatch]),
            (Ngx, [Ok, CasMismatch], [CasMismatch, Ok, CasMismatch]),
            (NoSharedData, [Unimplemented; 2], [Unimplemented; 3]),
        ];
        for (flavour, absent, present) in rows {
            let data = SharedData::new(flavour);
            assert_eq!(
                [data.set("", "a", "1", 0), data.set("", "b", "1", NEVER_CURRENT)],
                absent,
                "{flavour:?}"
            );

            let current = data.get("", "a").map_or(0, |(_, cas)| cas);
            let zero = data.set("", "a", "2", 0);
            let current = data.get("", "a").map_or(current, |(_, cas)| cas);
            assert_eq!(
                [zero, data.set("", "a", "3", current), data.set("", "a", "4", NEVER_CURRENT)],
                present,
                "{flavour:?}"
            );
        }
    }

    #[test]
    fn one_counter_numbers_the_writes_of_all_keys_and_vm_ids() {
        let data = SharedData::new(Flavour::default());
        data.set("a", "k", "", 0);
        data.set("b", "k", "", 0);
        data.set("a", "l", "", 0);
        let cas = |vm_id, key| data.get(vm_id, key).map(|(_, cas)| cas);
        assert_eq!([cas("a", "k"), cas("b", "k"), cas("a", "l")], [Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn entries_and_bytes_follow_every_write() {
        let data = SharedData::new(Flavour::default());
        data.set("", "key", "value", 0);
        assert_eq!((data.entries(), data.bytes()), (1, 8));
        data.set("", "key", "v", 0);
        assert_eq!((data.entries(), data.bytes()), (1, 4));
        data.set("vm", "key", "v", 0);
        assert_eq!((data.entries(), data.bytes()), (2, 8));
    }
}
