//! What gateways and the ledger say to each other: the bodies of `POST /v1/shares`.
//!
//! A gateway never says "add 20". It states what it has used of a counter in a window, and what it needs or keeps, under a number that
//! only grows ([`Statement`]). The ledger answers with the gateway's share ([`Answer`]). A statement may therefore be lost, repeated or
//! overtaken.
//!
//! Units, numbers of statements, generations and indices of windows are `u32`. Times and reset numbers are below [`EXACT`], because the
//! stores' scripts count in doubles.

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

mod answer;
mod hex128;
mod statement;

pub use answer::{Answer, ItemError, Share};
pub use hex128::Hex128;
pub use statement::{Says, Statement};

use serde::{Deserialize, Serialize};

/// Times and reset numbers are below this: 2⁵³.
pub const EXACT: u64 = 1 << 53;

/// The body of a request. A service that answers a malformed item in its place takes another type of items.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Request<I = Statement> {
    /// The process that states this; with a statement's generation it identifies a holder.
    pub gateway: Hex128,
    /// The gateway's clock, in milliseconds since 1970.
    pub now: u64,
    /// The statements. None only asks for the epoch.
    pub items: Vec<I>,
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Response<I = Answer> {
    /// Changes when the store may have lost something. A gateway that sees another one states all its counts again.
    pub epoch: Hex128,
    /// The ledger's clock, in milliseconds since 1970.
    pub now: u64,
    /// The answers, in the order of the statements.
    pub items: Vec<I>,
}
