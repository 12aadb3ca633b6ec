//! What is kept of a stream until its next callback.
//!
//! Most streams fetch what is kept of them. Those that end before, because a client went away, would have to be told by
//! `proxy_on_delete`; but a host enters the VM for that on each stream, which costs every request a quarter of what counting does. So
//! the ended ones are looked for instead, when twice as many are displaced as the last time: a fraction of a call for each stream.

use core::hash::BuildHasherDefault;
use std::collections::HashMap;

use nohash_hasher::NoHashHasher;

/// Places that streams have by their ids. A stream whose place is taken displaces whoever is there: so many are between request and
/// response only if upstreams are slow, or if clients have gone.
const PLACES: usize = 256;

/// As many displaced ones are kept before the first look.
const FEW: usize = 1024;

/// One value of each of some streams, by the host's context id.
#[derive(Debug)]
pub struct Kept<T> {
    /// By the last bits of the ids, which count up.
    places: Vec<Option<(u32, T)>>,
    /// Ids are as good as their hashes.
    displaced: HashMap<u32, T, BuildHasherDefault<NoHashHasher<u32>>>,
    sweep_at: usize,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        let places = core::iter::repeat_with(|| None).take(PLACES).collect();
        Self { places, displaced: HashMap::default(), sweep_at: FEW }
    }
}

impl<T> Kept<T> {
    /// Keeps `value` for `stream`, and drops what is kept of ended ones if it is time to. Then `lives` is called, and what it returns
    /// says whether a stream has not ended.
    pub fn keep<L: FnMut(u32) -> bool>(&mut self, stream: u32, value: T, lives: impl FnOnce() -> L) {
        let Some(place) = self.places.get_mut(place_of(stream)) else { return };
        let displaced = place.take();
        *place = Some((stream, value));
        if let Some((other, value)) = displaced {
            self.displace(other, value, lives);
        }
    }

    #[cold]
    fn displace<L: FnMut(u32) -> bool>(&mut self, stream: u32, value: T, lives: impl FnOnce() -> L) {
        if self.displaced.len() >= self.sweep_at {
            let mut lives = lives();
            self.displaced.retain(|stream, _| lives(*stream));
            self.sweep_at = FEW.max(2 * self.displaced.len());
        }
        self.displaced.insert(stream, value);
    }

    /// Takes what is kept of `stream`.
    pub fn take(&mut self, stream: u32) -> Option<T> {
        let place = self.places.get_mut(place_of(stream))?;
        match place.take_if(|(other, _)| *other == stream) {
            Some((_, value)) => Some(value),
            None => self.displaced.remove(&stream),
        }
    }
}

fn place_of(stream: u32) -> usize {
    usize::try_from(stream).unwrap_or(usize::MAX) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_taken_once() {
        let mut kept = Kept::default();
        kept.keep(7, "seven", || |_| true);
        assert_eq!([kept.take(7), kept.take(7), kept.take(8)], [Some("seven"), None, None]);
    }

    #[test]
    fn ended_streams_are_forgotten_and_live_ones_never() {
        let mut kept = Kept::default();
        let mut asked = 0;
        // Every thousandth stream waits for its response; the others have ended without one.
        let lives = |stream: u32| stream.is_multiple_of(1000);
        for stream in 1..=1_000_000 {
            kept.keep(stream, stream, || {
                |stream| {
                    asked += 1;
                    lives(stream)
                }
            });
            assert!(kept.displaced.len() <= 2 * FEW, "{stream}");
        }
        for stream in (1000..=1_000_000).step_by(1000) {
            assert_eq!(kept.take(stream), Some(stream));
        }
        assert!(asked <= 2_000_000, "{asked} questions");
    }

    #[test]
    fn any_number_of_live_streams_is_kept_with_few_questions() {
        let mut kept = Kept::default();
        let mut asked = 0;
        for stream in 0..1_000_000 {
            kept.keep(stream, (), || {
                |_| {
                    asked += 1;
                    true
                }
            });
        }
        for stream in 0..1_000_000 {
            assert_eq!(kept.take(stream), Some(()), "{stream}");
        }
        assert!(asked <= 2_000_000, "{asked} questions");
    }
}
