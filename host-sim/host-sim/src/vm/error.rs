//! Why a VM does not run a filter.

/// Why a VM does not run a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// It cannot be instantiated: an export has the wrong type, its memory is beyond the limit, its start trapped.
    #[error("the module does not start: {reason}")]
    Instantiate {
        /// What went wrong.
        reason: String,
    },
    /// `proxy_on_vm_start` answered false.
    #[error("the filter refused to start (proxy_on_vm_start answered false)")]
    StartRefused,
    /// `proxy_on_configure` answered false.
    #[error("the filter refused its configuration (proxy_on_configure answered false)")]
    ConfigureRefused,
    /// A callback trapped.
    #[error("{callback} trapped: {reason}")]
    Trapped {
        /// The callback.
        callback: &'static str,
        /// The trap.
        reason: String,
    },
}
