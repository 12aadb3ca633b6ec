//! The instant a decision is taken at, as a value.

/// Nanoseconds since the Unix epoch, as the host reports them. The host's clock may step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

/// Nanoseconds in a second.
const NANOS: u64 = 1_000_000_000;

impl Timestamp {
    /// The instant `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `seconds` after the epoch; saturates in the year 2554.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(NANOS))
    }

    /// Whole seconds since the epoch, rounded down.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0 / NANOS
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
        later.saturating_mul(NANOS).saturating_sub(self.0).div_ceil(NANOS)
    }

    /// Whole seconds since `earlier`, rounded down; 0 if it is later.
    #[must_use]
    pub const fn seconds_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / NANOS
    }

    /// Whether the epoch second `instant` lies more than one second ahead.
    #[must_use]
    pub const fn is_over_a_second_before(self, instant: u64) -> bool {
        instant.saturating_mul(NANOS) > self.0.saturating_add(NANOS)
    }
}
