//! What `make demo` starts and plays with: the backend, gateways with the filter in front of it, and their ledger, as processes.
//!
//! A package of its own, so that a first run builds only what it runs; the suites in `tests` build on it. What goes wrong is
//! an error with its cause, and a started process shows its log when a test fails.

pub mod artifacts;
pub mod backend;
pub mod client;
pub mod clock;
pub mod envoy;
pub mod exchange;
pub mod ledger;
pub mod output;
pub mod policy;
pub mod process;
pub mod receiver;
pub mod served;
pub mod server;
