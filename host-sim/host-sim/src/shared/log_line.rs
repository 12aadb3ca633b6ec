//! A line of the log.

use std::fmt;

use serde::Serialize;

use crate::{abi::LogLevel, trace::record::shown, vm_name::VmName};

/// One line that a guest, or the host about a guest, wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// How serious it is.
    #[serde(serialize_with = "shown")]
    pub level: LogLevel,
    /// The VM that wrote it.
    #[serde(serialize_with = "shown")]
    pub vm: VmName,
    /// Whether the host wrote it, about the guest.
    #[serde(skip)]
    pub by_host: bool,
    /// The text; bytes that are no UTF-8 are replaced.
    pub message: String,
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}][{}] {}", self.level, self.vm, self.message)
    }
}
