//! Plan-aware API quotas as a proxy-wasm filter (ABI 0.2.1).
//!
//! A request is identified by its API key, classed by its method and path, counted in the host's shared data against every quota that
//! its plan has for the class, and then passed on or answered 429. [`limiter`] is that way; the rest are its steps. All of it is pure
//! and runs natively; only the wasm32 build has `host`, the host's calls, and `plugin`, which turns callbacks into calls.
//!
//! # What is guaranteed
//!
//! 1. **Exact.** In one gateway process, with any number of workers, no quota is exceeded in any of its windows, and nothing is refused
//!    while quota is left: all quotas of a request are checked, then all are consumed, in one compare-and-swap. A request that
//!    could not be counted goes by `on_error` and shows in the metric `error`.
//! 2. **Bounded.** Shared data holds at most one entry for every four records of [`table::Capacity`], each of at most
//!    [`entry::MAX_BYTES`] bytes, whatever clients send. No live counter is evicted: a stranger who finds an entry full shares that
//!    entry's overflow record.
//! 3. **Steady.** A counter is identified by who, class and window length, so a new configuration keeps what was used.
//! 4. **Monotone.** A clock that steps back gives no quota back, and locks nobody out for longer than a window and a second.
//! 5. **Portable.** A counter is created exactly once whatever the host makes of an absent value ([`shared_data`]).
//! 6. **Bounded work.** [`counters::MAX_ATTEMPTS`] attempts, then `on_error`.
//!
//! Where a [`fleet`] shares its quotas, the first holds over all gateways for as long as the rate-limit service answers; less may be admitted,
//! by what gateways have leased and nobody asks them for. An entry then has at most [`record::MAX_LEASED_BYTES`] bytes.

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

pub mod arena;
pub mod config;
pub mod count;
pub mod decide;
pub mod directory;
pub mod fleet;
pub mod quota;
pub mod request;
pub mod streams;
pub mod time;
pub mod window;

#[cfg(target_arch = "wasm32")]
#[expect(unsafe_code, reason = "the host's calls take raw pointers; each use says why it is sound")]
mod host;
#[cfg(target_arch = "wasm32")]
mod plugin;
