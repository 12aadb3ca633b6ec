//! Plan-aware API quotas as a proxy-wasm filter (ABI 0.2.1).
//!
//! A request's way is [`decide::limiter::Limiter::decide`]: read one line from the headers (method, path, key), route it (class, exempt,
//! usage), find the caller's account (plan, quotas, places of its counters; remembered), charge it in one compare-and-swap, decide. At the
//! response, the charge is settled and the headers say where the client stands. All of this is pure and runs natively; only the wasm32 build has
//! `host`, the host's calls, and `plugin`, which turns the SDK's callbacks into calls.
//!
//! # What is guaranteed
//!
//! `docs/src/guarantees.md` has the promises. In the code:
//!
//! - **Exact**: all quotas of a caller are checked and then consumed in one compare-and-swap ([`count::swap`]), after at most
//!   [`count::swap::MAX_ATTEMPTS`] of which `on_error` decides. An organisation's quotas are a second step ([`count::levels`]).
//! - **Bounded**: one entry for every four records of [`count::table::Capacity`], each of at most [`count::entry::MAX_BYTES`] bytes, and
//!   [`count::table::LIST_ENTRIES`] for the directory's list.
//! - **Steady**: a counter is identified by who, class and window length. Names contain the version of the form ([`count::table::FORM`]).
//! - **Portable**: a counter is created exactly once whatever the host makes of an absent value ([`count::shared_data`]).
//! - **Settled once**: what a request was charged is settled at most once, in the counts that hold the charge ([`count::settle`]).
//!
//! # Folders
//!
//! Dependencies point one way: `plugin` → {`decide`, `host`}, `decide` → {`request`, `directory`, `fleet`}, `directory` and `fleet` → {`event`,
//! `count`}, `directory` and `event` → `config`, `config` → {`request`, `count`}, these and `quota` → `read`. `time`, `window`, `grpc`, `rules` and
//! `log_limiter` depend on none of these.

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

pub mod config;
pub mod count;
pub mod decide;
pub mod directory;
pub mod event;
pub mod fleet;
pub mod grpc;
pub mod log_limiter;
pub mod quota;
mod read;
pub mod request;
pub mod rules;
pub mod time;
pub mod usage;
pub mod window;

#[cfg(target_arch = "wasm32")]
#[expect(unsafe_code, reason = "the host's calls take raw pointers; each use says why it is sound")]
mod host;
#[cfg(target_arch = "wasm32")]
mod plugin;
