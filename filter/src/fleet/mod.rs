//! What a VM needs to call the ledger of a fleet: messages and a breaker.

pub mod breaker;
pub mod messages;
