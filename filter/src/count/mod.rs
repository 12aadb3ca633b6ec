//! Counting requests in the gateway's shared data.

mod cas_predictor;
pub mod charge;
pub mod counters;
pub mod entry;
pub mod fingerprint;
pub mod holding;
pub mod in_flight;
pub mod levels;
mod pace;
pub(crate) mod rate;
pub mod settle;
pub mod shared_data;
pub mod swap;
pub mod table;
