//! The names of all that the filter keeps in shared data: the entries of counters, in two tables of a fixed number of entries, one for known
//! keys and one for strangers, and the entries of the directory's list.
//!
//! Hosts cannot delete from shared data, so the set of names is fixed by the capacity and never grows with the clients.
//! The first VM of a `vm_id` writes the salt and the tables' sizes; every other VM follows it.

use core::fmt;

use siphasher::sip::SipHasher24;

use crate::count::fingerprint::{Fingerprint, Salt};
use crate::count::shared_data::{HostError, SharedData, Swap, compare_and_swap};
use crate::read::fields;

fields! {
    /// Capacity of the tables, in records.
    pub struct Capacity as "Capacity" derive(Clone, Copy, Debug, PartialEq, Eq) {
        /// Records of known keys. A key needs one for each class in which it has quotas. A configuration that needs more is refused.
        pub known: u32 where {"minimum": 1, "maximum": MAX_CAPACITY / 2} = 262144,
        /// Records of clients without a known key. Clients beyond the capacity share records, and so quotas.
        pub strangers: u32 where {"minimum": 1, "maximum": MAX_CAPACITY / 2} = 8192,
    }
}

/// Records for which a table has one entry.
pub const RECORDS_PER_ENTRY: u32 = 4;

/// The largest sum of both capacities: names have 24 bits for the entry's number, and the last numbers are the directory's.
pub const MAX_CAPACITY: u32 = RECORDS_PER_ENTRY * (FIRST_OF_DIRECTORY - 3);

/// Entries that hold the rows of the directory's list, whatever its length: 18 rows in each of a list of 300,000.
pub const LIST_ENTRIES: u16 = 1 << 14;

/// The number of the first entry of the directory.
const FIRST_OF_DIRECTORY: u32 = (1 << 24) - 2 * LIST_ENTRIES as u32;

/// The version of the form of all that the filter keeps in shared data. Every name contains it, so two versions of the module under one
/// `vm_id`, in an update, a roll-back or a drain, never read each other's bytes. A process never reads what another process wrote.
///
/// The feature `next_form` is for tests: the same filter with another form.
pub const FORM: u8 = if cfg!(feature = "next_form") { 8 } else { 7 };

/// Bytes in an entry's name.
pub const NAME_BYTES: usize = 11;

/// The name of an entry in shared data: `w`, a letter for [`FORM`], five for the namespace, four for the entry's number.
///
/// Eleven bytes stay inside Envoy's string objects. Only the last four differ between entries of a namespace: a CRC-32 tells all of
/// them apart, which is all that ngx_wasm_module looks at.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EntryName([u8; NAME_BYTES]);

impl EntryName {
    /// The bytes to pass to the host.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The letters that differ between the entries of a namespace.
    #[must_use]
    pub fn distinct(&self) -> u32 {
        let [.., a, b, c, d] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }
}

impl fmt::Debug for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.escape_ascii(), f)
    }
}

/// The entries of a namespace's directory. They differ from those of counters by the number alone, like these among each other.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryNames(Namespace);

impl DirectoryNames {
    /// Those of `namespace`.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        Self(Namespace::new(namespace))
    }

    /// The entry of rows with this number, below [`LIST_ENTRIES`].
    #[must_use]
    pub fn rows(&self, number: u16) -> EntryName {
        self.0.entry(FIRST_OF_DIRECTORY + u32::from(number))
    }

    /// What the list is as a whole, and who may write it.
    #[must_use]
    pub fn head(&self) -> EntryName {
        self.rows(LIST_ENTRIES)
    }

    /// Written to find out what kind of host this is.
    #[must_use]
    pub fn probe(&self) -> EntryName {
        self.rows(LIST_ENTRIES + 1)
    }
}

/// Which of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Counters of known keys and subscribers.
    Known,
    /// Counters of addresses. A full entry has one overflow record.
    Strangers,
}

/// A counter, by where its record is. It stays there as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter {
    pub(super) table: Table,
    pub(super) fingerprint: Fingerprint,
    pub(super) entry: EntryName,
    /// Whether the gateways of a fleet share it.
    pub(super) in_fleet: bool,
}

impl Counter {
    /// The counter's fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The one that strangers share for whom its entry has no place.
    #[must_use]
    pub fn overflow(self) -> Self {
        Self { fingerprint: Fingerprint::OVERFLOW, ..self }
    }
}

/// The tables of one namespace as all VMs of the process use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    namespace: Namespace,
    salt: Salt,
    capacity: Capacity,
}

/// Why the tables could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A host call failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Something else writes under our names.
    #[error("the header of the counters' tables in shared data is malformed")]
    Malformed,
}

impl Tables {
    /// Opens the tables of `namespace`. The first to open them lays them out for `wanted` and decides the salt; later ones follow, so
    /// [`Tables::capacity`] may differ from what is wanted.
    ///
    /// # Errors
    /// If a host call fails or the header is not ours.
    pub fn open(
        data: &mut impl SharedData,
        salt: [u8; 16],
        namespace: &str,
        wanted: Capacity,
    ) -> Result<Self, OpenError> {
        let namespace = Namespace::new(namespace);
        let name = namespace.entry(0);
        match data.get(name.as_bytes())? {
            Some((header, _)) => Self::laid_out(namespace, header.as_ref()),
            None => {
                let header = encode_header(Salt(salt), wanted);
                match compare_and_swap(data, name.as_bytes(), None, &header)? {
                    Swap::Stored => Self::laid_out(namespace, &header),
                    Swap::Conflict => {
                        let (header, _) = data.get(name.as_bytes())?.ok_or(OpenError::Malformed)?;
                        Self::laid_out(namespace, header.as_ref())
                    }
                }
            }
        }
    }

    fn laid_out(namespace: Namespace, header: &[u8]) -> Result<Self, OpenError> {
        let (salt, capacity) = decode_header(header).ok_or(OpenError::Malformed)?;
        Ok(Self { namespace, salt, capacity })
    }

    /// The capacity in force.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The process's salt.
    #[must_use]
    pub fn salt(&self) -> &Salt {
        &self.salt
    }

    /// The entry of known counters with this number, from 0; `None` after the last.
    #[must_use]
    pub fn known_entry(&self, number: u32) -> Option<EntryName> {
        (number < entries_for(self.capacity.known)).then(|| self.namespace.entry(1 + number))
    }

    /// The entry that holds a counter's record.
    #[must_use]
    pub fn entry(&self, table: Table, fingerprint: Fingerprint) -> EntryName {
        let (first, entries) = match table {
            Table::Known => (1, entries_for(self.capacity.known)),
            Table::Strangers => (1 + entries_for(self.capacity.known), entries_for(self.capacity.strangers)),
        };
        let offset = fingerprint.get() % u64::from(entries);
        self.namespace.entry(first + u32::try_from(offset).unwrap_or(0))
    }
}

/// Entries in a table laid out for this many records.
#[must_use]
pub const fn entries_for(records: u32) -> u32 {
    let entries = records.div_ceil(RECORDS_PER_ENTRY);
    if entries == 0 { 1 } else { entries }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Namespace([u8; NAME_BYTES]);

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.escape_ascii(), f)
    }
}

/// RFC 4648's base64url alphabet.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn letter(sextet: u64) -> u8 {
    LETTERS.get((sextet & 63) as usize).copied().unwrap_or(b'_')
}

impl Namespace {
    fn new(namespace: &str) -> Self {
        let hash = SipHasher24::new().hash(namespace.as_bytes());
        let mut name = *b"wfnnnnn0000";
        name[1] = letter(u64::from(FORM));
        for (place, byte) in name.iter_mut().skip(2).take(5).enumerate() {
            *byte = letter(hash >> (6 * place));
        }
        Self(name)
    }

    fn entry(&self, number: u32) -> EntryName {
        let mut name = self.0;
        for (place, byte) in name.iter_mut().skip(7).enumerate() {
            *byte = letter(u64::from(number) >> (6 * place));
        }
        EntryName(name)
    }
}

fn encode_header(Salt(salt): Salt, capacity: Capacity) -> [u8; 25] {
    let mut header = [0; 25];
    let fields = [FORM]
        .into_iter()
        .chain(salt)
        .chain(capacity.known.to_le_bytes())
        .chain(capacity.strangers.to_le_bytes());
    for (byte, field) in header.iter_mut().zip(fields) {
        *byte = field;
    }
    header
}

fn decode_header(header: &[u8]) -> Option<(Salt, Capacity)> {
    let (&[FORM], header) = header.split_first_chunk()? else { return None };
    let (salt, header) = header.split_first_chunk()?;
    let (known, header) = header.split_first_chunk()?;
    let strangers = header.try_into().ok()?;
    let capacity = Capacity { known: u32::from_le_bytes(*known), strangers: u32::from_le_bytes(strangers) };
    (capacity.known.checked_add(capacity.strangers)? <= MAX_CAPACITY).then_some((Salt(*salt), capacity))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::count::shared_data::VmLocalData;

    const CAPACITY: Capacity = Capacity { known: 4096, strangers: 64 };

    fn open(data: &mut VmLocalData, salt: u8, namespace: &str, capacity: Capacity) -> Tables {
        Tables::open(data, [salt; 16], namespace, capacity).unwrap()
    }

    #[test]
    fn the_first_vm_decides_salt_and_capacity() {
        let mut data = VmLocalData::default();
        let first = open(&mut data, 1, "", CAPACITY);
        let second = open(&mut data, 2, "", Capacity { known: 8, strangers: 8 });
        assert_eq!(second, first);
        assert_eq!(second.capacity(), CAPACITY);
        assert_ne!(open(&mut data, 3, "other", CAPACITY).salt(), first.salt());
    }

    #[test]
    fn a_foreign_header_is_an_error() {
        let name = Namespace::new("").entry(0);
        let largest = encode_header(Salt([0; 16]), Capacity { known: u32::MAX, strangers: u32::MAX });
        for header in [&b""[..], b"1", b"{\"salt\":\"0123456789abcdef\"}", &largest] {
            let mut data = VmLocalData::default();
            compare_and_swap(&mut data, name.as_bytes(), None, header).unwrap();
            let opened = Tables::open(&mut data, [0; 16], "", CAPACITY);
            assert_eq!(opened, Err(OpenError::Malformed), "{header:?}");
        }
    }

    #[test]
    fn the_tables_and_the_header_never_share_an_entry() {
        let tables = open(&mut VmLocalData::default(), 1, "", CAPACITY);
        let names = |table| -> HashSet<EntryName> {
            (0..100_000).map(|number| tables.entry(table, Fingerprint::from_number(number))).collect()
        };
        let (known, strangers) = (names(Table::Known), names(Table::Strangers));
        assert_eq!(known.len(), 1024);
        assert_eq!(strangers.len(), 16);
        assert!(known.is_disjoint(&strangers));
        let header = Namespace::new("").entry(0);
        assert!(!known.contains(&header) && !strangers.contains(&header));
    }

    #[test]
    fn the_directory_has_entries_of_its_own_beside_the_largest_tables() {
        let largest = Capacity { known: MAX_CAPACITY - 8, strangers: 8 };
        let tables = open(&mut VmLocalData::default(), 1, "", largest);
        let last = tables.entry(Table::Strangers, Fingerprint::from_number(1));
        let names = DirectoryNames::new("");
        let directory: HashSet<_> =
            (0..LIST_ENTRIES).map(|number| names.rows(number)).chain([names.head()]).collect();
        assert_eq!(directory.len(), usize::from(LIST_ENTRIES) + 1);
        let lasts =
            (entries_for(largest.known) - 2..).map_while(|number| tables.known_entry(number)).chain([last]);
        assert!(lasts.inspect(|name| assert!(!directory.contains(name), "{name:?}")).count() > 2);
    }

    #[test]
    fn namespaces_do_not_meet() {
        assert_ne!(Namespace::new("").entry(7), Namespace::new("other").entry(7));
    }
}
