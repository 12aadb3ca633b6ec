//! End-to-end suites and the demo: the built filter in front of the real backend, in the simulator and in a real Envoy.
//!
//! A suite describes a case once, as requests to a [`gateway::Gateway`], and runs it on both gateways, so that a
//! difference between the simulator and Envoy is a failing test. What goes wrong in the harness itself is an error with
//! its cause, and a started process shows its log when a test fails.

pub mod artifacts;
pub mod backend;
pub mod client;
pub mod clock;
pub mod differential;
pub mod envoy;
pub mod exchange;
pub mod flood;
pub mod gateway;
pub mod key_list;
pub mod policy;
pub mod process;
pub mod receiver;
pub mod served;
pub mod server;
pub mod soak;
pub mod stage;
