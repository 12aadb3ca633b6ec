//! Why a VM does not run a filter.

use std::fmt;

use crate::trace::backtrace::GuestBacktrace;

/// Why a VM does not run a filter. `Debug` says what `Display` says, and under it the backtrace if there is one.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// It cannot be instantiated: an export has the wrong type, its memory is beyond the limit, its start trapped.
    #[error("the module does not start: {reason}{}", At(backtrace))]
    Instantiate {
        /// What went wrong.
        reason: String,
        /// Where in the guest; without frames where none of its code was running.
        backtrace: GuestBacktrace,
    },
    /// `proxy_on_vm_start` answered false.
    #[error("the filter refused to start (proxy_on_vm_start answered false)")]
    StartRefused,
    /// `proxy_on_configure` answered false.
    #[error("the filter refused its configuration (proxy_on_configure answered false)")]
    ConfigureRefused,
    /// A callback trapped.
    #[error("{callback} trapped: {reason}{}", At(backtrace))]
    Trapped {
        /// The callback.
        callback: &'static str,
        /// The trap, after what the guest said of its panic, if it said something.
        reason: String,
        /// Where in the guest.
        backtrace: GuestBacktrace,
    },
}

/// The place in the author's code, as the end of a sentence.
struct At<'a>(&'a GuestBacktrace);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.place() {
            Some(place) => write!(f, ", at {place}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for VmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explained())
    }
}

impl VmError {
    /// The functions of the guest that were running when it trapped.
    pub fn backtrace(&self) -> Option<&GuestBacktrace> {
        match self {
            Self::Trapped { backtrace, .. } | Self::Instantiate { backtrace, .. } => {
                Some(backtrace).filter(|backtrace| !backtrace.frames().is_empty())
            }
            Self::StartRefused | Self::ConfigureRefused => None,
        }
    }

    /// The error, and under it the backtrace if there is one.
    pub fn explained(&self) -> String {
        match self.backtrace() {
            Some(backtrace) => format!("{self}\n{backtrace}"),
            None => self.to_string(),
        }
    }
}
