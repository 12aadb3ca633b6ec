//! Which VM of a host is meant.

use std::fmt;

/// Which VM of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VmName {
    /// Loads the module and never runs a filter.
    Base,
    /// Runs a new configuration once, before any other VM, and is thrown away.
    Canary,
    /// Envoy's main thread: timers, no streams.
    Main,
    /// A worker, counted from 0.
    Worker(usize),
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::Canary => f.write_str("canary"),
            Self::Main => f.write_str("main"),
            Self::Worker(index) => write!(f, "worker {index}"),
        }
    }
}
