//! The plot of a replay: requests over time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::summary::Outcomes;

/// Buckets of time beyond this many are joined in pairs.
const MAX_BUCKETS: usize = 240;

/// The narrowest bucket, in seconds.
const NARROWEST: i64 = 60;

/// Requests over time, in buckets of the same width.
#[derive(Debug)]
pub(super) struct Plot {
    /// In seconds.
    width: i64,
    /// By their start, counted in widths since 1970. Those without requests are left out.
    buckets: BTreeMap<i64, Outcomes>,
}

/// The requests of a bucket, in a picture in which a bucket is 1 wide and a request 1 high, counted from the top.
pub(super) struct Bar {
    pub(super) title: String,
    pub(super) x: i64,
    /// Where refused requests begin, and below them the others.
    pub(super) refused: (u64, u64),
    pub(super) forwarded: (u64, u64),
}

impl Default for Plot {
    fn default() -> Self {
        Self { width: NARROWEST, buckets: BTreeMap::new() }
    }
}

impl Plot {
    pub(super) fn count(&mut self, time: Timestamp, refused: bool) {
        self.buckets.entry(time.as_second().div_euclid(self.width)).or_default().add(refused);
        while self.buckets.len() > MAX_BUCKETS {
            self.width *= 2;
            for (index, outcomes) in std::mem::take(&mut self.buckets) {
                let wide = self.buckets.entry(index.div_euclid(2)).or_default();
                wide.requests += outcomes.requests;
                wide.refused += outcomes.refused;
            }
        }
    }

    /// How wide a bucket is, in words.
    pub(super) fn bucket(&self) -> String {
        format!("{:#}", SignedDuration::from_secs(self.width))
    }

    /// The most requests of a bucket.
    pub(super) fn most(&self) -> u64 {
        self.buckets.values().map(|outcomes| outcomes.requests).max().unwrap_or(0)
    }

    fn first(&self) -> i64 {
        self.buckets.keys().next().copied().unwrap_or(0)
    }

    /// How many buckets there are from the first to the last.
    pub(super) fn count_of_buckets(&self) -> i64 {
        self.buckets.keys().next_back().map_or(0, |last| last - self.first() + 1)
    }

    pub(super) fn bars(&self) -> Vec<Bar> {
        let most = self.most();
        let bar = |(index, Outcomes { refused, requests }): (&i64, &Outcomes)| {
            let forwarded = requests - refused;
            Bar {
                title: format!("{}: {forwarded} went on, {refused} refused", self.start(*index)),
                x: index - self.first(),
                refused: (most - requests, *refused),
                forwarded: (most - forwarded, forwarded),
            }
        };
        self.buckets.iter().map(bar).collect()
    }

    /// When a bucket starts, as text.
    fn start(&self, index: i64) -> String {
        let start = Timestamp::from_second(index.saturating_mul(self.width));
        start.map_or_else(|_| String::new(), |start| start.strftime("%F %H:%M").to_string())
    }

    /// The times below the plot, at its quarters.
    pub(super) fn times(&self) -> [String; 5] {
        [0, 1, 2, 3, 4].map(|quarter| self.start(self.first() + self.count_of_buckets() * quarter / 4))
    }
}
