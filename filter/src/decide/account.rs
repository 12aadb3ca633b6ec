//! The accounts of callers: what needs not be found out twice about a caller's requests of one class.

use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::config::Entitlement;
use crate::count::fingerprint::CallerHash;
use crate::count::levels::Levels;
use crate::directory::SeenRow;
use crate::usage::meter::Meter;

/// Callers of one generation: what a table of 65,536 slots holds.
const GENERATION: usize = 65_536 / 8 * 7;

/// The account of a caller in one class.
#[derive(Clone, Debug)]
pub(super) struct Account {
    /// The plan, as an index into [`crate::config::Catalog::plans`].
    pub(super) plan: usize,
    /// The subscriber's id; `None` for a key whose plan comes from metadata.
    pub(super) subscriber: Option<Arc<str>>,
    pub(super) entitlement: Entitlement,
    pub(super) levels: Levels,
    /// The row of the directory that it is from; `None` if it does not depend on the directory.
    pub(super) row: Option<Arc<SeenRow>>,
    /// What it has used, if that is reported.
    pub(super) meter: Option<Rc<Meter>>,
    /// The number of the view of the directory that it was found under. Under another, the row is read again.
    pub(super) under: u32,
}

/// Accounts that were used lately, so that their requests need neither SHA-256 nor the way to their plan and counter.
///
/// There are two generations. A caller that is not in the young one moves there from the old one; once the young one is full, it becomes the
/// old one. So the 57,344 callers that were used last are remembered, and at most twice as many, in at most [`MAX_BYTES`] bytes for each VM.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    young: HashTable<(CallerHash, Account)>,
    old: HashTable<(CallerHash, Account)>,
    /// The number of the view of the directory in force.
    under: u32,
}

/// Most bytes that the accounts of a VM take, without the ids of subscribers and organisations: two tables of 65,536 slots,
/// with one control byte for each slot.
pub const MAX_BYTES: usize = 2 * 65_536 * (size_of::<(CallerHash, Account)>() + 1);

impl Accounts {
    /// The number of the view of the directory in force. Accounts that were found under another are doubtful.
    pub(super) fn under(&self) -> u32 {
        self.under
    }

    /// Another view of the directory is in force.
    pub(super) fn doubt(&mut self) {
        self.under = self.under.wrapping_add(1);
    }

    pub(super) fn get(&mut self, caller: CallerHash) -> Option<&mut Account> {
        let is_caller = |(found, _): &(CallerHash, Account)| *found == caller;
        if let Some(place) = self.young.find_bucket_index(caller.spread(), is_caller) {
            return self.young.get_bucket_mut(place).map(|(_, account)| account);
        }
        let ((_, account), _) = self.old.find_entry(caller.spread(), is_caller).ok()?.remove();
        Some(self.insert(caller, account))
    }

    /// Forgets a caller that [`Accounts::get`] has just found.
    pub(super) fn remove(&mut self, caller: CallerHash) {
        if let Ok(found) = self.young.find_entry(caller.spread(), |(found, _)| *found == caller) {
            found.remove();
        }
    }

    /// Remembers an account.
    pub(super) fn insert(&mut self, caller: CallerHash, mut account: Account) -> &mut Account {
        account.under = self.under;
        if self.young.len() >= GENERATION {
            self.old = core::mem::take(&mut self.young);
        }
        let (spread, rehash) = (caller.spread(), |(caller, _): &(CallerHash, Account)| caller.spread());
        &mut self.young.insert_unique(spread, (caller, account), rehash).into_mut().1
    }

    pub(super) fn clear(&mut self) {
        *self = Self { under: self.under, ..Self::default() };
    }
}
