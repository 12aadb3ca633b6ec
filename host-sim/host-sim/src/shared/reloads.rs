//! What became of VMs that failed.

use std::{collections::BTreeMap, sync::Mutex};

/// Counters of `wasm.<plugin>.vm_reload_*`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReloadStats {
    /// Streams that met a failed VM before its backoff was over.
    pub backoff: u64,
    /// New VMs that run.
    pub success: u64,
    /// New VMs that do not.
    pub failure: u64,
}

/// The same over all workers of a host, by the plugin's name.
pub(crate) type ReloadTotals = Mutex<BTreeMap<String, ReloadStats>>;
