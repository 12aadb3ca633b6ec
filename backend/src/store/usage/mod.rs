//! The use of quotas: what gateways report, in sums by minute and by hour.

mod batches;
mod subscribers;
mod sums;

pub use subscribers::{SubscriberUsage, UsageOrder};
pub(crate) use subscribers::{ToldThreshold, UsageCaller};
pub(crate) use sums::{USAGE_GROUPS, USAGE_TOTAL};
