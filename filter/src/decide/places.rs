//! How many requests of a worker wait for the ledger.

use core::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::count::fingerprint::Fingerprint;

/// Requests of a worker that wait at most.
pub(super) const PLACES: usize = 1_024;
/// Of one counter, so that no customer takes all places.
pub(super) const PLACES_OF_A_COUNTER: usize = PLACES / 4;

/// The requests of a worker that wait, by counter.
#[derive(Debug, Default)]
pub(super) struct WaitingPlaces(Rc<RefCell<HashMap<Fingerprint, usize>>>);

/// A place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct WaitingPlace {
    counter: Fingerprint,
    of: Rc<RefCell<HashMap<Fingerprint, usize>>>,
}

impl WaitingPlaces {
    /// Takes a place for a request of this counter; `None` if there is none.
    #[must_use]
    pub(super) fn take(&self, counter: Fingerprint) -> Option<WaitingPlace> {
        let mut waiting = self.0.borrow_mut();
        let (all, of_counter) =
            (waiting.values().sum::<usize>(), waiting.get(&counter).copied().unwrap_or(0));
        if all >= PLACES || of_counter >= PLACES_OF_A_COUNTER {
            return None;
        }
        waiting.insert(counter, of_counter + 1);
        Some(WaitingPlace { counter, of: Rc::clone(&self.0) })
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut waiting = self.of.borrow_mut();
        if let Some(of_counter) = waiting.get_mut(&self.counter) {
            *of_counter -= 1;
            if *of_counter == 0 {
                waiting.remove(&self.counter);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_counter_has_a_quarter_of_the_places() {
        let places = WaitingPlaces::default();
        let take = |counter| -> Vec<_> {
            (0..2 * PLACES).map_while(|_| places.take(Fingerprint::from_number(counter))).collect()
        };
        let mut taken = [1, 2, 3, 4, 5].map(take);
        assert_eq!(taken.each_ref().map(Vec::len), [256, 256, 256, 256, 0]);
        taken[1].pop();
        assert_eq!([1, 5].map(|counter| take(counter).len()), [0, 1]);
    }
}
