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
#[derive(Clone, Debug)]
pub(crate) struct OutboxBacklog {
    /// The time of the oldest click that an enabled webhook has not heard of. It has no delivery.
    pub(crate) oldest_unattempted: Option<Timestamp>,
    /// Those that are due, those that are under way or to be tried later, and those to disabled webhooks.
    pub(crate) deliveries: [Waiting; 3],
}

/// Deliveries in one state.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) state: &'static str,
    pub(crate) count: i64,
    /// When the first of them fell, or falls, due.
    pub(crate) oldest: Option<Timestamp>,
}
