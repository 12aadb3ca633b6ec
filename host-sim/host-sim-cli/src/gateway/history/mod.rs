//! What a gateway records of its requests: the access log, and the page of recent requests, which has their traces and saves
//! them as scenarios.

mod access_log;
mod page;
mod recent;
mod record;
mod scenario;

pub use self::{
    access_log::AccessLog,
    recent::{Ended, Recent},
};
pub(super) use self::{
    page::{Shown, shown},
    recent::{RequestId, Setup},
    record::{End, Message, Record, Upstream},
};
