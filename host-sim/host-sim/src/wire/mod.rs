//! Messages and values, and their bytes.

pub(crate) mod callout;
pub(crate) mod content_length;
pub(crate) mod frame;
pub(crate) mod framing;
pub(crate) mod grpc;
pub(crate) mod headers;
pub(crate) mod inline_headers;
pub(crate) mod local_reply;
pub(crate) mod message;
pub(crate) mod pairs;
pub(crate) mod property;
