//! Messages and values, and their bytes.

pub(crate) mod grpc;
pub(crate) mod headers;
pub(crate) mod inline_headers;
pub(crate) mod message;
pub(crate) mod pairs;
pub(crate) mod property;
