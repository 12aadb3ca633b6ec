//! How much waits, and what the database does: what metrics show of both.

use jiff::Timestamp;

/// The connections of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolState {
    pub(crate) pool: &'static str,
    pub(crate) max: u32,
    pub(crate) idle: usize,
    pub(crate) used: usize,
}

/// The pending deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutboxBacklog {
    /// The time of the oldest click that an enabled webhook has not heard of. It has no delivery.
    pub(crate) oldest_unattempted: Option<Timestamp>,
    pub(crate) due: Waiting,
    pub(crate) later: Waiting,
    pub(crate) disabled: Waiting,
}

/// Deliveries in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) count: i64,
    /// When the first of them fell, or falls, due.
    pub(crate) oldest: Option<Timestamp>,
}

impl OutboxBacklog {
    /// The deliveries by state: those that are due, those that are under way or to be tried later, and those to disabled
    /// webhooks.
    pub(crate) fn by_state(&self) -> [(&'static str, &Waiting); 3] {
        [("due", &self.due), ("later", &self.later), ("disabled", &self.disabled)]
    }
}
