//! Sharing quotas among the gateways of a fleet through a rate-limit service: its protocol, how much to ask it for, and when to leave it
//! alone.

pub mod breaker;
pub mod lease_size;
mod protobuf;
pub mod protocol;
