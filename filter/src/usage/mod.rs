//! Usage: what callers have used is added up in this VM and reported to a service, in batches.
//!
//! A caller's account has a [`meter::Meter`], to which a request pays an addition once its charge is final. The [`report::Reporter`] lists the
//! meters that have something to report; so nothing is lost with an account, which another caller may replace at any time. When the interval
//! ends, it empties them into [`batch::Batch`]es. One is under way at a time, and is sent again unchanged until the service has taken it.
//!
//! Every admitted unit is in at most one event, because a meter is emptied into one event alone. What no service has taken is lost when the VM ends.

pub mod batch;
pub mod meter;
pub mod report;
mod rfc3339;
pub mod threshold;
