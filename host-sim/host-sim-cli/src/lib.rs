//! What the command `host-sim` is made of: filters on the host of the crate [`host_sim`], behind a socket and in scenarios.
//!
//! - [`gateway`]: a host's workers behind a socket, in front of an upstream.
#![cfg_attr(feature = "scenarios", doc = "- [`scenario`]: requests and what is expected of them, in a file.")]
#![cfg_attr(
    feature = "scenarios",
    doc = "- [`against`]: a scenario in a real Envoy, compared with host-sim."
)]
//! - [`failure`], [`setup`], [`stop`] and [`watch`]: what commands share that run a filter.
//!
//! # Features
//!
//! On unless turned off: `scenarios`, the command `run` and the modules `scenario` and `against`.
//! Without it there are the commands `serve`, `check` and `bench`.

#[cfg(feature = "scenarios")]
pub mod against;
pub mod failure;
pub mod gateway;
#[cfg(feature = "scenarios")]
pub mod scenario;
pub mod setup;
pub mod stop;
pub mod watch;
