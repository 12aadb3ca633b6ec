//! A worker's side of a fleet: when it calls the ledger, what it states, and what becomes of the requests that wait. It knows counters, and
//! neither requests nor the host's callbacks: it is told what happens, and says what is to be sent.

pub mod breaker;
pub mod client;
pub mod messages;
mod unsettled;
mod waiting;

pub use waiting::{Waiting, WaitingRequest};
