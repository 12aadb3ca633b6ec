//! The instant a decision is taken at, as a value.

use core::time::Duration;

/// An instant since the Unix epoch, as the host reports it. The host's clock may step back.
///
/// Decisions are about whole seconds, which a duration keeps apart: taking them out of nanoseconds again and again would be a division of
/// 64 bits each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(Duration);

impl Timestamp {
    /// The last instant that there is.
    pub const LAST: Self = Self(Duration::MAX);

    /// The instant `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// The instant `seconds` after the epoch.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Whole seconds since the epoch, rounded down.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0.as_secs()
    }

    /// Seconds until the epoch second `later`, rounded up; 0 if it has come.
    ///
    /// ```
    /// use filter::time::Timestamp;
    /// let now = Timestamp::from_nanos(59_000_000_001);
    /// assert_eq!(now.seconds_until(60), 1);
    /// assert_eq!(now.seconds_until(59), 0);
    /// ```
    #[must_use]
    pub const fn seconds_until(self, later: u64) -> u64 {
        // The part of a second that has gone is what rounding up gives back.
        later.saturating_sub(self.seconds())
    }

    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant so much later, or the last.
    #[must_use]
    pub const fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0.as_nanos() as u64
    }

    /// The low 32 bits of the nanoseconds since the epoch.
    #[must_use]
    pub const fn low_bits(self) -> u32 {
        self.0.as_nanos() as u32
    }

    /// Whole milliseconds since the epoch, rounded down.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.seconds() * 1_000 + self.0.subsec_millis() as u64
    }

    /// The low 32 bits of the milliseconds since the epoch.
    #[must_use]
    pub const fn low_millis(self) -> u32 {
        self.millis() as u32
    }
}
