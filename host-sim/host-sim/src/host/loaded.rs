//! The filters that a host has loaded, and the workers that run them.

use std::sync::Arc;

use envoy_config::Plugin;

use crate::{driver::Driver, vm::error::VmError, worker::filter::Filter};

/// The filters of a host, and the workers that run them.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) chain: Chain,
    pub(super) driver: Driver,
}

/// Filters that the canary has taken, in their order.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) filters: Vec<Filter>,
    pub(super) verdicts: Vec<Verdict>,
    /// How many VMs were numbered so far.
    pub(super) vms: usize,
}

/// What the canary has made of a plugin, which it runs once; Envoy keeps that as long as the base VM (`wasm.cc`).
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) vm: usize,
    pub(super) plugin: Arc<Plugin>,
    pub(super) refusal: Option<VmError>,
}
