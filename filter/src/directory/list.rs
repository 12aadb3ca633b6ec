//! The list in shared data: rows in a fixed table of entries, found by the first bits of a key's digest, and a head.
//!
//! A list is written row by row, each in one compare-and-swap of its entry. Hosts cannot delete, so an entry is written anew without the rows
//! that go. Nothing is padded, and an entry is searched from its start: it has 18 rows where the list has 300,000.

use super::head::Head;
use super::row::{Generation, Row, split_first};
use crate::count::fingerprint::KeyDigest;
use crate::count::shared_data::{HostError, SharedData};
use crate::count::swap::{CountError, Step, swap};
use crate::count::table::{DirectoryNames, EntryName, LIST_ENTRIES};

/// Why the list was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ListError {
    #[error(transparent)]
    Swap(#[from] CountError),
    /// A later leader has written.
    #[error("another VM leads")]
    Superseded,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Added,
    Changed,
    Removed,
    /// It said the same before.
    Same,
    /// It is new, and the list is full.
    Refused,
}

/// What an entry has after it was swept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swept {
    pub(super) kept: u32,
    pub(super) removed: u32,
}

/// The list, as one VM reaches it.
#[derive(Clone, Debug)]
pub(super) struct List {
    names: DirectoryNames,
    /// What is about to be stored.
    next: Vec<u8>,
}

/// The number of the entry that has a key's row.
fn entry_of([first, second, ..]: &KeyDigest) -> u16 {
    u16::from_be_bytes([*first, *second]) >> (u16::BITS - LIST_ENTRIES.ilog2())
}

/// An entry's epoch and rows. Other bytes hold no rows, and are written over.
fn read(entry: &[u8]) -> (u32, &[u8]) {
    entry.split_first_chunk().map_or((0, &[]), |(epoch, rows)| (u32::from_le_bytes(*epoch), rows))
}

/// The rows of an entry.
fn rows(mut rest: &[u8]) -> impl Iterator<Item = Row<'_>> {
    core::iter::from_fn(move || {
        let (row, more) = split_first(rest)?;
        rest = more;
        Some(row)
    })
}

/// A key's row among those of an entry, with the bytes before and after it; all bytes are before it if there is none.
fn around<'r>(entry: &'r [u8], digest: &KeyDigest) -> (&'r [u8], Option<Row<'r>>, &'r [u8]) {
    let mut rest = entry;
    while let Some((row, after)) = split_first(rest) {
        if row.digest == digest {
            let (before, _) = entry.split_at(entry.len() - rest.len());
            return (before, Some(row), after);
        }
        rest = after;
    }
    (entry, None, &[])
}

impl List {
    pub(super) fn new(namespace: &str) -> Self {
        Self { names: DirectoryNames::new(namespace), next: Vec::new() }
    }

    /// Reads an entry.
    fn get<D: SharedData, T>(
        &self,
        host: &mut D,
        name: EntryName,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, HostError> {
        Ok(host.get(name.as_bytes())?.map(|(entry, _)| read(entry.as_ref())))
    }

    /// Takes a step on an entry, which writes what is to be stored into its second argument.
    fn swap<D: SharedData, T>(
        &mut self,
        host: &mut D,
        name: EntryName,
        mut step: impl FnMut(&[u8], &mut Vec<u8>) -> Result<Step<T>, ListError>,
    ) -> Result<T, ListError> {
        swap(host, name.as_bytes(), &mut self.next, |_, stored, next| {
            step(stored.map_or(&[], |(entry, _)| entry), next)
        })
    }

    /// The head; `None` if there is none.
    pub(super) fn head<D: SharedData>(&self, host: &mut D) -> Result<Option<Head>, HostError> {
        Ok(self.get(host, self.names.head(), Head::decode)?.flatten())
    }

    /// What `read_row` makes of a key's row.
    pub(super) fn find<D: SharedData, T>(
        &self,
        host: &mut D,
        digest: &KeyDigest,
        read_row: impl FnOnce(Row<'_>) -> T,
    ) -> Result<Option<T>, HostError> {
        let found = self.get(host, self.names.rows(entry_of(digest)), |entry| {
            around(read(entry).1, digest).1.map(read_row)
        });
        Ok(found?.flatten())
    }

    /// Shows each row of an entry to `see`.
    pub(super) fn each<D: SharedData>(
        &self,
        host: &mut D,
        number: u16,
        see: impl FnMut(Row<'_>),
    ) -> Result<(), HostError> {
        self.get(host, self.names.rows(number), |entry| rows(read(entry).1).for_each(see)).map(|_| ())
    }

    /// Takes a step on the head: it returns a result, and the head that is to be stored, if one is.
    pub(super) fn change_head<D: SharedData, T>(
        &mut self,
        host: &mut D,
        mut step: impl FnMut(Option<Head>) -> Result<(T, Option<Head>), ListError>,
    ) -> Result<T, ListError> {
        self.swap(host, self.names.head(), |entry, next| {
            let (result, head) = step(Head::decode(entry))?;
            Ok(match head {
                None => Step::Keep(result),
                Some(head) => {
                    head.encode(next);
                    Step::Store(result)
                }
            })
        })
    }

    /// Stores the head of a leader. That of a later leader stays.
    pub(super) fn write_head<D: SharedData>(&mut self, host: &mut D, head: &Head) -> Result<(), ListError> {
        self.change_head(host, |stored| match stored {
            Some(stored) if stored.lease.epoch > head.lease.epoch => Err(ListError::Superseded),
            Some(_) | None => Ok(((), Some(head.clone()))),
        })
    }

    /// Takes a step on an entry of rows, as the leader of an epoch. The step writes all rows that the entry has afterwards. Returns what the
    /// step did.
    fn write<D: SharedData, T>(
        &mut self,
        host: &mut D,
        (number, epoch): (u16, u32),
        mut step: impl FnMut(&[u8], &mut Vec<u8>) -> Step<T>,
    ) -> Result<T, ListError> {
        self.swap(host, self.names.rows(number), |entry, next| {
            let (of_entry, rows) = read(entry);
            if of_entry > epoch {
                return Err(ListError::Superseded);
            }
            next.clear();
            next.extend(epoch.to_le_bytes());
            Ok(step(rows, next))
        })
    }

    /// Stores a row, or removes its key's. `has_place`: whether the list may grow. An entry is written even if there was no row to
    /// remove, so that no earlier leader can bring the row back.
    pub(super) fn store<D: SharedData>(
        &mut self,
        host: &mut D,
        epoch: u32,
        row: Row<'_>,
        has_place: bool,
    ) -> Result<Stored, ListError> {
        self.write(host, (entry_of(row.digest), epoch), |found, next| {
            let (before, other, after) = around(found, row.digest);
            let stored = match other {
                Some(_) if row.removes() => Stored::Removed,
                None if row.removes() => Stored::Same,
                Some(other) if other.content == row.content => Stored::Same,
                Some(_) => Stored::Changed,
                None if has_place => Stored::Added,
                None => return Step::Keep(Stored::Refused),
            };
            if !row.removes() {
                // First, because other bytes than rows may follow the rows.
                row.push(next);
            }
            next.extend(before);
            next.extend(after);
            Step::Store(stored)
        })
    }

    /// Keeps the rows of one generation in an entry, or none. For the same reason, each entry is written.
    pub(super) fn sweep<D: SharedData>(
        &mut self,
        host: &mut D,
        place: (u16, u32),
        keep: Option<Generation>,
    ) -> Result<Swept, ListError> {
        self.write(host, place, |found, next| {
            let mut swept = Swept::default();
            for row in rows(found) {
                match keep == Some(row.generation) {
                    true => {
                        swept.kept += 1;
                        row.push(next);
                    }
                    false => swept.removed += 1,
                }
            }
            Step::Store(swept)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::leader::Lease;
    use super::super::row::content;
    use super::*;
    use crate::count::shared_data::{Cas, VmLocalData};

    fn of_plan(plan: &str) -> Vec<u8> {
        content([plan, "s", "", "", ""]).unwrap()
    }

    /// What another leader does with a table. Whether it could.
    type Successor = fn(&mut Table) -> bool;

    struct Table {
        host: VmLocalData,
        list: List,
    }

    impl Table {
        fn new() -> Self {
            Self { host: VmLocalData::default(), list: List::new("") }
        }

        fn store(
            &mut self,
            epoch: u32,
            byte: u8,
            plan: &str,
            generation: Generation,
        ) -> Result<Stored, ListError> {
            let row = Row { digest: &[byte; 32], generation, content: &of_plan(plan) };
            self.list.store(&mut self.host, epoch, row, true)
        }

        fn remove(&mut self, epoch: u32, byte: u8) -> Result<Stored, ListError> {
            let row = Row { digest: &[byte; 32], generation: 1, content: &[] };
            self.list.store(&mut self.host, epoch, row, true)
        }

        fn plan(&mut self, byte: u8) -> Option<String> {
            self.list.find(&mut self.host, &[byte; 32], |row| row.read().unwrap().1.plan).unwrap()
        }
    }

    #[test]
    fn a_row_is_found_changed_and_removed_and_its_neighbours_stay() {
        let mut table = Table::new();
        // The digests share an entry.
        let digests = [1_u8, 2, 3].map(|last| {
            let mut digest = [7; 32];
            digest[31] = last;
            digest
        });
        for (digest, plan) in digests.iter().zip(["a", "b", "c"]) {
            let row = Row { digest, generation: 1, content: &of_plan(plan) };
            for expected in [Stored::Added, Stored::Same] {
                assert_eq!(table.list.store(&mut table.host, 1, row, true), Ok(expected));
            }
            assert_eq!(table.list.store(&mut table.host, 1, row, false), Ok(Stored::Same));
        }
        let plans = |table: &mut Table| {
            digests.each_ref().map(|digest| {
                table.list.find(&mut table.host, digest, |row| row.read().unwrap().1.plan).unwrap()
            })
        };
        assert_eq!(plans(&mut table), ["a", "b", "c"].map(|plan| Some(plan.to_owned())));
        let row = Row { digest: &digests[0], generation: 2, content: &of_plan("d") };
        assert_eq!(table.list.store(&mut table.host, 1, row, true), Ok(Stored::Changed));
        let removal = Row { digest: &digests[1], generation: 2, content: &[] };
        for expected in [Stored::Removed, Stored::Same] {
            assert_eq!(table.list.store(&mut table.host, 1, removal, false), Ok(expected));
        }
        assert_eq!(plans(&mut table), [Some("d".to_owned()), None, Some("c".to_owned())]);
        let swept = table.list.sweep(&mut table.host, (entry_of(&digests[0]), 1), Some(2));
        assert_eq!(swept, Ok(Swept { kept: 1, removed: 1 }));
        assert_eq!(plans(&mut table), [Some("d".to_owned()), None, None]);
    }

    #[test]
    fn a_row_without_a_place_is_refused() {
        let mut table = Table::new();
        let row = Row { digest: &[1; 32], generation: 1, content: &of_plan("pro") };
        assert_eq!(table.list.store(&mut table.host, 1, row, false), Ok(Stored::Refused));
        assert_eq!(table.plan(1), None);
    }

    /// A leader that was held up writes an older answer. Whatever its successor has done with the entry, the answer does not come back.
    #[test]
    fn a_late_write_of_an_earlier_leader_changes_nothing() {
        let removes = |table: &mut Table| table.remove(2, 1).is_ok();
        let sweeps =
            |table: &mut Table| table.list.sweep(&mut table.host, (entry_of(&[1; 32]), 2), Some(9)).is_ok();
        let successors: [(&str, Successor, Option<&str>); 4] = [
            ("stores", |table| table.store(2, 1, "new", 1).is_ok(), Some("new")),
            ("removes", removes, None),
            ("removes what is not there", removes, None),
            ("sweeps", sweeps, None),
        ];
        for (what, succeeds, expected) in successors {
            let mut table = Table::new();
            if what != "removes what is not there" {
                table.store(1, 1, "old", 1).unwrap();
            }
            assert!(succeeds(&mut table), "{what}");
            assert_eq!(table.store(1, 1, "late", 1), Err(ListError::Superseded), "{what}");
            assert_eq!(table.remove(1, 1), Err(ListError::Superseded), "{what}");
            assert_eq!(table.plan(1).as_deref(), expected, "{what}");
        }
        let mut table = Table::new();
        let head = |epoch| Head { lease: Lease { epoch, ..Lease::default() }, ..Head::default() };
        assert_eq!(table.list.write_head(&mut table.host, &head(2)), Ok(()));
        assert_eq!(table.list.write_head(&mut table.host, &head(1)), Err(ListError::Superseded));
        assert_eq!(table.list.head(&mut table.host).unwrap().unwrap().lease.epoch, 2);
    }

    #[test]
    fn an_entry_that_is_malformed_holds_no_rows_and_is_written_over() {
        for odd in [&b""[..], b"xx", b"\0\0\0\0\xff\xff", b"\0\0\0\0\x02\0ab"] {
            let mut table = Table::new();
            let name = table.list.names.rows(entry_of(&[1; 32]));
            table.host.set(name.as_bytes(), odd, Cas(0)).unwrap();
            assert_eq!(table.plan(1), None);
            assert_eq!(table.store(1, 1, "pro", 1), Ok(Stored::Added), "{odd:?}");
            assert_eq!(table.plan(1).as_deref(), Some("pro"), "{odd:?}");
        }
    }

    #[test]
    fn digests_are_spread_over_all_entries() {
        let entries: std::collections::HashSet<_> = (0..=u16::MAX)
            .map(|first| {
                let mut digest = [0; 32];
                digest[..2].copy_from_slice(&first.to_be_bytes());
                entry_of(&digest)
            })
            .collect();
        assert_eq!(entries.len(), usize::from(LIST_ENTRIES));
        assert!(entries.iter().all(|entry| *entry < LIST_ENTRIES));
    }
}
