//! The service as gateways and operators see it, in front of real stores.

mod away;
mod cluster;
#[cfg(target_os = "linux")]
mod cost;
mod file;
mod login;
mod operation;
mod permissions;
#[cfg(target_os = "linux")]
#[path = "../../../backend/tests/suite/preload.rs"]
mod preload;
mod process;
mod requests;
mod shares;
mod slow;
#[path = "../../../tests/src/soak.rs"]
#[expect(unreachable_pub, reason = "shared with a library")]
mod soak;
mod statement;
mod store;
mod tokens;
