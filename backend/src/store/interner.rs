//! Repeated values stored once.

use std::borrow::Borrow;
use std::hash::Hash;

use foldhash::fast::RandomState;
use indexmap::IndexSet;

/// A set of values in the order of insertion. The slot of a value is its index in this order.
#[derive(Debug)]
pub(super) struct Interner<T> {
    values: IndexSet<T, RandomState>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: IndexSet::default() }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The slot of `value`, which is inserted if it is new.
    pub(super) fn slot(&mut self, value: T) -> usize {
        self.values.insert_full(value).0
    }

    /// The slot of `value`, or None if it is new.
    pub(super) fn find<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> Option<usize>
    where
        T: Borrow<Q>,
    {
        self.values.get_index_of(value)
    }

    /// The values in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter()
    }

    /// Removes all values and keeps the allocated memory.
    pub(super) fn clear(&mut self) {
        self.values.clear();
    }

    /// The values in the order of their slots.
    pub(super) fn into_values(self) -> Vec<T> {
        self.values.into_iter().collect()
    }
}
