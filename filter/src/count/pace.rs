//! Times within a record, and how fast a count is used.

use crate::time::Timestamp;

/// An instant of a record: the low 32 bits of the milliseconds since the epoch. They come round after 49 days, when the windows of what
/// they time have long ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Millis(pub u32);

impl Millis {
    /// Milliseconds from this instant to `now`. If the clock has stepped back behind the instant, that is as good as for ever, so that nothing
    /// waits for a time that has been.
    #[must_use]
    pub fn until(self, now: Timestamp) -> u32 {
        Self::from(now).0.wrapping_sub(self.0)
    }
}

impl From<Timestamp> for Millis {
    fn from(now: Timestamp) -> Self {
        Self(now.low_millis())
    }
}

/// Milliseconds over which a rate is taken. It outlasts the pauses in random traffic, so that after one of them as much is held again.
const MEMORY: u32 = 4_000;
/// Units a second below which nothing is held in advance: a call for each such request costs less than what is held and given back.
const SLOW: u32 = 1;

/// Units used a second, in thousandths, after `cost` more units are used `elapsed` milliseconds after the last ones. What was used fades within
/// four seconds.
pub(super) fn rate(rate: u32, elapsed: u32, cost: u32) -> u32 {
    let faded = u64::from(rate) * u64::from(MEMORY.saturating_sub(elapsed));
    let rate = (faded + u64::from(cost) * 1_000_000) / u64::from(MEMORY);
    u32::try_from(rate).unwrap_or(u32::MAX)
}

/// Units that are used in `ahead` milliseconds at `rate`; none if that is slow.
pub(super) fn used_in(rate: u32, ahead: u32) -> u32 {
    match rate < SLOW * 1_000 {
        true => 0,
        false => u32::try_from(u64::from(rate) * u64::from(ahead) / 1_000_000).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_has_not_come_is_as_good_as_for_ever_ago() {
        let now = Timestamp::from_seconds(1_764_081_180);
        let later = Timestamp::from_seconds(1_764_081_181);
        assert_eq!(Millis::from(now).until(later), 1_000);
        assert_eq!(Millis::from(later).until(now), u32::MAX - 999);
    }

    #[test]
    fn a_rate_follows_even_use_and_bursts_and_fades_within_four_seconds() {
        // Units at once, milliseconds between, and the rate that comes of it, in thousandths.
        let rows =
            [(1, 200, 5_000), (1, 500, 2_000), (1, 1_000, 1_000), (5, 500, 10_000), (40, 4_000, 10_000)];
        for (units, between, expected) in rows {
            let mut found = 0;
            for _ in 0..200 {
                for unit in 0..units {
                    found = rate(found, if unit == 0 { between } else { 0 }, 1);
                }
            }
            assert!(found.abs_diff(expected) <= expected / 100, "{units} each {between} ms: {found}");
        }
        assert_eq!(used_in(999, 10_000), 0);
        assert_eq!(used_in(1_000, 10_000), 10);
        assert_eq!(used_in(u32::MAX, u32::MAX), u32::MAX);
        assert_eq!(rate(u32::MAX, 0, u32::MAX), u32::MAX);
    }
}
