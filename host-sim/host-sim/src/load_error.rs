//! Why filters are not loaded.

use crate::{
    shared::logs::LogLine,
    vm::{VmError, VmName, module::ModuleError},
};

/// A configuration that is not taken.
#[derive(Debug, thiserror::Error)]
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
