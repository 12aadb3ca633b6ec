//! What a gateway shows of its requests: the access log, and the recent ones on a page, with their traces, to be saved as
//! scenarios.

mod access_log;
mod page;
mod recent;
mod record;
mod scenario;

pub use self::{access_log::AccessLog, recent::Recent};
pub(super) use self::{
    recent::{RequestId, Setup, Shown},
    record::{End, Message, Record, Upstream},
};
