//! The use of quotas: what gateways report, in sums by minute and by hour.

mod batches;
mod subscribers;
mod sums;

pub(crate) use subscribers::{ReachedThreshold, UsageCaller};
pub use subscribers::{SubscriberUsage, UsageOrder};
pub(crate) use sums::UsageGroup;
