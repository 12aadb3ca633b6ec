//! Requests that wait for the ledger, and the places that they take.

use std::collections::HashMap;
use std::rc::Rc;

use super::client::Call;
use crate::count::fingerprint::Fingerprint;
use crate::count::levels::Asked;
use crate::time::Timestamp;

/// Requests of a worker that wait at most.
pub(super) const PLACES: usize = 1_024;
/// Of one counter, so that no customer takes all places.
pub(super) const PLACES_OF_A_COUNTER: usize = PLACES / 4;

/// A request that waits. Boxed, because what becomes of a request is handed on, and nearly none waits.
pub type Waiting = Box<WaitingRequest>;

/// A request that waits for the answer to what it has asked.
#[derive(Debug)]
pub struct WaitingRequest {
    /// When it asked first, by the gateway's clock.
    pub(super) since: Timestamp,
    pub(super) asked: Vec<Asked>,
    /// How many calls of it have failed.
    pub(super) failed: u32,
    /// When its last call was made, and how many milliseconds that may take.
    pub(super) called: (Timestamp, u32),
    /// The call to be made.
    pub(super) call: Option<Call>,
    pub(super) _place: Place,
}

impl WaitingRequest {
    /// Takes the call that is to be made for it now.
    pub fn take_call(&mut self) -> Option<Call> {
        self.call.take()
    }

    /// What it has stated.
    #[must_use]
    pub fn asked(&self) -> &[Asked] {
        &self.asked
    }
}

/// A place among those that wait. It is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _of_all: Rc<()>,
    _of_counter: Rc<()>,
}

/// The places of a worker: one for each owner of these values but this one.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: Rc<()>,
    of_counters: HashMap<Fingerprint, Rc<()>>,
}

impl Places {
    /// Whether there is a place for a request of this counter.
    pub(super) fn has_one(&self, counter: Fingerprint) -> bool {
        // While few wait, which is nearly always, no counter has to be looked up.
        let all = taken(&self.all);
        let of_counter = || self.of_counters.get(&counter).map_or(0, taken);
        all < PLACES_OF_A_COUNTER || all < PLACES && of_counter() < PLACES_OF_A_COUNTER
    }

    /// Takes a place for a request of this counter.
    pub(super) fn take(&mut self, counter: Fingerprint) -> Place {
        if self.of_counters.len() > PLACES {
            self.of_counters.retain(|_, place| taken(place) > 0);
        }
        let of_counter = self.of_counters.entry(counter).or_default();
        Place { _of_all: Rc::clone(&self.all), _of_counter: Rc::clone(of_counter) }
    }
}

fn taken(places: &Rc<()>) -> usize {
    Rc::strong_count(places) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_counter_has_a_quarter_of_the_places() {
        let mut places = Places::default();
        let mut take = |counter| -> Vec<_> {
            let counter = Fingerprint::from_number(counter);
            (0..2 * PLACES).map_while(|_| places.has_one(counter).then(|| places.take(counter))).collect()
        };
        let mut taken = [1, 2, 3, 4, 5].map(&mut take);
        assert_eq!(taken.each_ref().map(Vec::len), [256, 256, 256, 256, 0]);
        taken[1].pop();
        assert_eq!([1, 5].map(|counter| take(counter).len()), [0, 1]);
    }
}
