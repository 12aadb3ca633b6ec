//! Where guests are while they run, seen from time to time.

use std::time::Duration;

use crate::{trace::backtrace::GuestBacktrace, vm_name::VmName};

/// How often an engine looks whether a guest has run for too long.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Where a guest was at one moment while it ran.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The VM.
    pub vm: VmName,
    /// When, on the host's monotonic clock.
    pub at: Duration,
    /// The functions that were running, the innermost first.
    pub backtrace: GuestBacktrace,
}

impl Sample {
    /// How often a guest that runs is looked at.
    pub const INTERVAL: Duration = TICK;
}

/// A listener to the samples of all VMs.
pub(crate) struct SampleSink(pub(crate) Box<dyn Fn(Sample) + Send + Sync>);

impl std::fmt::Debug for SampleSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SampleSink")
    }
}
