//! End-to-end suites: the built filter in front of the real backend, in the simulator and in a real Envoy.
//!
//! A suite describes a case once, as requests to a [`gateway::Gateway`], and runs it on both gateways, so that a
//! difference between the simulator and Envoy is a failing test. What goes wrong in the harness itself is an error with
//! its cause, and a started process shows its log when a test fails.

pub use demo::{client, clock, envoy, exchange, ledger, policy, process, receiver, served, server};

pub mod artifacts;
pub mod backend;
pub mod bench;
pub mod chart;
pub mod collector;
pub mod compose;
pub mod differential;
pub mod flood;
pub mod gateway;
pub mod grpc;
pub mod key_list;
pub mod mesh;
pub mod operators;
pub mod page;
pub mod plain;
pub mod ratelimit;
pub mod raw;
pub mod soak;
pub mod stage;
pub mod sweep;
pub mod way;
