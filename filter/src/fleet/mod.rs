//! Sharing quotas among the gateways of a fleet through a rate-limit service.

pub mod protocol;
