//! Plan-aware API quotas as a proxy-wasm filter (ABI 0.2.1).
//!
//! A request's way is [`decide::limiter::Limiter::decide`]: read one line from the headers (method, path, key), route it (class, exempt,
//! usage), find the caller's account (plan, quotas, places of its counters; remembered), charge it in one compare-and-swap, decide. At the
//! response, the charge is settled and the headers say where the client stands. All of this is pure and runs natively; only the wasm32 build has
//! `host`, the host's calls, and `plugin`, which turns the SDK's callbacks into calls.
//!
//! # What is guaranteed
//!
//! 1. **Exact.** In one gateway process, with any number of workers, no quota is exceeded in any of its windows, and no request is
//!    refused while quota is left: all quotas of a caller are checked, then all are consumed, in one compare-and-swap. A request that
//!    could not be counted goes by `on_error`, and the metric outcome `error` counts it.
//!    An organisation's quotas are a second step: no quota is exceeded, but while a charge that the organisation did not admit is given back,
//!    another request of the same caller may be refused ([`count::levels`]).
//! 2. **Bounded.** Shared data holds at most one entry for every four records of [`count::table::Capacity`], each of at most
//!    [`count::entry::MAX_BYTES`] bytes, whatever clients send, and as much again for each other form ([`count::table::FORM`]) that was in use.
//!    The directory's list has at most `directory.capacity` rows, in [`count::table::LIST_ENTRIES`] entries.
//!    No live counter is evicted: a stranger who finds an entry full shares that entry's overflow record.
//! 3. **Steady.** A counter is identified by who, class and window length, so a new configuration keeps what was used. Every name in shared
//!    data contains the version of the form of what it names: between two versions of the module with other forms, any number of
//!    switches admits at most one more limit in all.
//! 4. **Monotone.** A clock that steps back by less than a window gives no quota back, also after it has caught up, and locks no client
//!    out for longer than two windows. Not covered: a clock that jumps ahead by more than a window and comes back loses what was used
//!    before the jump. "Exact" holds for a clock that never steps back.
//! 5. **Portable.** A counter is created exactly once whatever the host makes of an absent value ([`count::shared_data`]).
//! 6. **Bounded work.** [`count::swap::MAX_ATTEMPTS`] attempts, then `on_error`.
//! 7. **Settled once.** What a request was charged becomes what it cost, or is refunded, at most once and only in the counts that hold the
//!    charge ([`count::settle`]). If no request costs more than its reserve, no quota is exceeded.
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
pub mod window;

#[cfg(target_arch = "wasm32")]
#[expect(unsafe_code, reason = "the host's calls take raw pointers; each use says why it is sound")]
mod host;
#[cfg(target_arch = "wasm32")]
mod plugin;
