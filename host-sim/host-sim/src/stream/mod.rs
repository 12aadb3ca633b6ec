//! A stream on its way through the filters of a worker.

pub(crate) mod by_hand;
pub(crate) mod close;
pub(crate) mod content_length;
pub(crate) mod exchange;
pub(crate) mod filter;
pub(crate) mod filter_state;
pub(crate) mod frame;
pub(crate) mod framing;
pub(crate) mod half;
pub(crate) mod local_reply;
pub(crate) mod manager;
pub(crate) mod upstream;
