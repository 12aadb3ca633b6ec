//! What is kept of a stream until its next callback.
//!
//! Most streams fetch what is kept of them. Those that end before, because a client went away, would have to be told by
//! `proxy_on_delete`; but a host enters the VM for that on each stream, which costs every request a quarter of what counting does. So
//! the ended ones are looked for instead, when twice as many are kept as the last time: a fraction of a call for each stream.

use core::hash::BuildHasherDefault;
use std::collections::HashMap;

use nohash_hasher::NoHashHasher;

/// As many as are kept before the first look.
const FEW: usize = 1024;

/// One value of each of some streams, by the host's context id.
#[derive(Debug)]
pub struct Kept<T> {
    /// Ids count up, so they are as good as their hashes.
    values: HashMap<u32, T, BuildHasherDefault<NoHashHasher<u32>>>,
    sweep_at: usize,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { values: HashMap::default(), sweep_at: FEW }
    }
}

impl<T> Kept<T> {
    /// Keeps `value` for `stream`, and before that drops what is kept of ended ones if it is time to. `lives` says whether a stream
    /// has not ended.
    pub fn keep(&mut self, stream: u32, value: T, mut lives: impl FnMut(u32) -> bool) {
        if self.values.len() >= self.sweep_at {
            self.values.retain(|stream, _| lives(*stream));
            self.sweep_at = FEW.max(2 * self.values.len());
        }
        self.values.insert(stream, value);
    }

    /// Takes what is kept of `stream`.
    pub fn take(&mut self, stream: u32) -> Option<T> {
        self.values.remove(&stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_taken_once() {
        let mut kept = Kept::default();
        kept.keep(7, "seven", |_| true);
        assert_eq!([kept.take(7), kept.take(7), kept.take(8)], [Some("seven"), None, None]);
    }

    #[test]
    fn ended_streams_are_forgotten_and_live_ones_never() {
        let mut kept = Kept::default();
        let mut asked = 0;
        // Every thousandth stream waits for its response; the others have ended without one.
        let lives = |stream: u32| stream.is_multiple_of(1000);
        for stream in 1..=1_000_000 {
            kept.keep(stream, stream, |stream| {
                asked += 1;
                lives(stream)
            });
            assert!(kept.values.len() <= 2 * FEW, "{stream}");
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
            kept.keep(stream, (), |_| {
                asked += 1;
                true
            });
        }
        assert_eq!(kept.values.len(), 1_000_000);
        assert!(asked <= 2_000_000, "{asked} questions");
    }
}
