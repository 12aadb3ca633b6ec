//! The endpoints, and what they share.

pub(crate) mod known_domains;
pub(crate) mod repeat;
