//! Counting requests in the gateway's shared data.

mod cas_predictor;
pub mod consume;
pub mod counters;
pub mod entry;
pub mod fingerprint;
mod reset;
pub mod settle;
pub mod shared_data;
pub mod table;
