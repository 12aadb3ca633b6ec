//! What becomes of calls to the rate-limit service, as metrics count it.

use crate::decide::metric;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call was sent.
    Called,
    /// Units were granted.
    Granted,
    /// A limit was exceeded.
    OverLimit,
    /// A call failed.
    Failed,
    /// An answer was about another window.
    Dropped,
    /// The service has no limit for the descriptor.
    Unconfigured,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 6] =
        [Self::Called, Self::Granted, Self::OverLimit, Self::Failed, Self::Dropped, Self::Unconfigured];

    /// The name of the counter.
    #[must_use]
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Called => metric::FLEET_CALLS,
            Self::Granted => metric::FLEET_UNITS,
            Self::OverLimit => metric::FLEET_OVER_LIMIT,
            Self::Failed => metric::FLEET_FAILED,
            Self::Dropped => metric::FLEET_DROPPED,
            Self::Unconfigured => metric::FLEET_UNCONFIGURED,
        }
    }
}
