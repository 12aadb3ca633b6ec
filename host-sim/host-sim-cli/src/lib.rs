//! What the command `host-sim` is made of: filters on the host of the crate [`host_sim`], behind a socket, in scenarios and under
//! access logs.
//!
//! - [`gateway`]: a host's workers behind a socket, in front of an upstream.
#![cfg_attr(feature = "scenarios", doc = "- [`scenario`]: requests and what is expected of them, in a file.")]
#![cfg_attr(
    feature = "scenarios",
    doc = "- [`against`]: a scenario in a real Envoy, compared with host-sim."
)]
#![cfg_attr(feature = "replay", doc = "- [`replay`]: an access log, sent through a filter.")]
//! - [`watch`]: files whose changes are waited for.
//!
//! # Features
//!
//! All are on unless turned off. `scenarios`: the command `run` and the modules `scenario` and `against`. `replay`: the commands `replay` and
//! `explain` and the module `replay`. `profiles`: `bench --profile`. `expressions` and `signatures`: as in [`host_sim`]. Without any there are
//! the commands `serve`, `check` and `bench`.

#[cfg(feature = "scenarios")]
pub mod against;
pub mod gateway;
mod html;
#[cfg(feature = "replay")]
pub mod replay;
#[cfg(feature = "scenarios")]
pub mod scenario;
pub mod watch;
