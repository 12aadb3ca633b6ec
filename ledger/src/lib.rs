//! The ledger: the service through which several gateways share quotas.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::unreachable
    )
)]

mod clock;
mod error;
mod gateways;
mod http;
mod items;
mod lines;
mod metrics;
mod options;
mod serve;
pub mod share;
mod store;
mod tokens;

pub use error::ServeError;
pub use options::Options;
pub use serve::serve;
