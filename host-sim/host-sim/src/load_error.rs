//! Why filters are not loaded.

use std::fmt;

use crate::{module_error::ModuleError, shared::logs::LogLine, vm::error::VmError, vm_name::VmName};

/// A configuration that is not taken. `Debug` says what `Display` says, with sources and backtraces.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The module does not fit the host.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The filter does not run, or does not take its configuration.
    #[error("{}{vm} VM: {reason}{}", of(plugin), lines_of(log))]
    Refused {
        /// The filter's name, where several are loaded.
        plugin: Option<String>,
        /// The VM that tried it: the base or the canary.
        vm: VmName,
        /// What happened there.
        reason: VmError,
        /// What the filter logged meanwhile.
        log: Vec<LogLine>,
    },
    /// There is nothing to update.
    #[error("no filter is loaded yet")]
    NothingLoaded,
    /// There is no such filter to update.
    #[error("filter {filter} of {filters}: filters are counted from 0")]
    NoSuchFilter {
        /// The filter asked for.
        filter: usize,
        /// How many there are.
        filters: usize,
    },
}

impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(error) => write!(f, "{error:?}"),
            // Of a trap in a callback, the log has the backtrace.
            Self::Refused { reason: reason @ VmError::Instantiate { .. }, log, plugin, vm } => {
                write!(f, "{}{vm} VM: {reason:?}{}", of(plugin), lines_of(log))
            }
            Self::Refused { .. } | Self::NothingLoaded | Self::NoSuchFilter { .. } => write!(f, "{self}"),
        }
    }
}

impl LoadError {
    /// What the filter logged while it was tried.
    pub fn log(&self) -> &[LogLine] {
        match self {
            Self::Refused { log, .. } => log,
            Self::Module(_) | Self::NothingLoaded | Self::NoSuchFilter { .. } => &[],
        }
    }
}

fn of(plugin: &Option<String>) -> String {
    plugin.as_ref().map(|name| format!("{name:?}, ")).unwrap_or_default()
}

fn lines_of(log: &[LogLine]) -> String {
    log.iter().map(|line| format!("\n  {line}")).collect()
}
