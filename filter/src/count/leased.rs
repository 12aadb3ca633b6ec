//! Counting where a fleet shares its quotas: the same round of reading, deciding and swapping, on leases.

use super::{CountError, CounterHost, Counters, MAX_ATTEMPTS, OnVm, Place};
use crate::count::cas_predictor::CasPredictor;
use crate::count::consume::{EntryError, Standings};
use crate::count::draw::{Answer, Ask, Draw, Drawn, settle};
use crate::count::shared_data::{Swap, compare_and_swap};
use crate::quota::Quota;
use crate::time::Timestamp;

impl Counters {
    /// Draws for a request. `standings` receives one for each quota.
    ///
    /// # Errors
    /// If nothing was decided. A malformed entry is emptied, so that the next request is counted again.
    pub fn draw(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        draw: &Draw<'_>,
        standings: &mut Standings,
    ) -> Result<(Drawn, Timestamp), CountError> {
        self.round(host, place, |entry, now, next| {
            let drawn = draw.from(entry, now, next, standings)?;
            Ok((drawn, drawn != Drawn::Refused { moved: false }))
        })
    }

    /// Brings the answer to `ask`, which was about `quota`, into the counter's record; `false` if its window has ended.
    ///
    /// # Errors
    /// As [`Counters::draw`].
    pub fn settle(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        quota: &Quota,
        ask: Ask,
        answer: Answer,
    ) -> Result<bool, CountError> {
        let (settled, _) = self.round(host, place, |entry, now, next| {
            let settled = settle(entry, place.fingerprint, quota, ask, answer, now, next)?;
            Ok((settled, settled))
        })?;
        Ok(settled)
    }

    /// Where a counter stands, without drawing.
    ///
    /// # Errors
    /// As [`Counters::draw`].
    pub fn leased_standing(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        draw: &Draw<'_>,
    ) -> Result<Standings, CountError> {
        let (standings, _) = self.round(host, place, |entry, now, _| Ok((draw.peek(entry, now)?, false)))?;
        Ok(standings)
    }

    fn round<T>(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        step: impl FnMut(&[u8], Timestamp, &mut Vec<u8>) -> Result<(T, bool), EntryError>,
    ) -> Result<(T, Timestamp), CountError> {
        let Self { local, next, cas_predictor, .. } = self;
        match local {
            Some(local) => round(&mut OnVm { local, host }, cas_predictor, next, place, step),
            None => round(host, cas_predictor, next, place, step),
        }
    }
}

/// Takes `step` on the entry, the time and a buffer until nobody else has stored meanwhile. `step` says whether the buffer is to be stored.
fn round<T>(
    host: &mut impl CounterHost,
    cas_predictor: &mut CasPredictor,
    next: &mut Vec<u8>,
    place: Place,
    mut step: impl FnMut(&[u8], Timestamp, &mut Vec<u8>) -> Result<(T, bool), EntryError>,
) -> Result<(T, Timestamp), CountError> {
    let name = place.name.as_bytes();
    for _ in 0..MAX_ATTEMPTS {
        let stored = host.get(name)?;
        let (entry, cas) =
            stored.as_ref().map_or((&[][..], None), |(entry, cas)| (entry.as_ref(), Some(*cas)));
        let now = host.now()?;
        let (outcome, stores) = match step(entry, now, next) {
            Err(EntryError::Malformed) => {
                compare_and_swap(host, name, cas, &[])?;
                return Err(EntryError::Malformed.into());
            }
            stepped => stepped?,
        };
        if stores {
            if compare_and_swap(host, name, cas, next)? == Swap::Conflict {
                continue;
            }
            cas_predictor.wrote(place.name, next, cas);
        }
        return Ok((outcome, now));
    }
    Err(CountError::Contended)
}
