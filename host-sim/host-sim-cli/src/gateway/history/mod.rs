//! What a gateway records of its requests: the access log, and the page of recent requests with their traces.

mod access_log;
mod page;
mod recent;
mod record;

pub use self::{
    access_log::AccessLog,
    recent::{Ended, Recent},
};
pub(super) use self::{
    recent::RequestId,
    record::{End, Message, Record, Upstream},
};
