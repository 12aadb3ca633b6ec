//! The words of the proxy-wasm ABI: statuses, maps, buffers, streams, levels.
//!
//! Numbers are those of [ABI 0.2.1](https://github.com/proxy-wasm/spec/tree/main/abi-versions/v0.2.1).

use std::fmt;

/// The answer of a host call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[non_exhaustive]
pub enum Status {
    /// The call did what it says.
    Ok = 0,
    /// What was asked for does not exist.
    NotFound = 1,
    /// An argument has no meaning here, or the map is not available in this phase.
    BadArgument = 2,
    /// A property's value has no encoding.
    SerializationFailure = 3,
    /// A gRPC service is neither a cluster's name nor a `GrpcService` message.
    ParseFailure = 4,
    /// An expression does not evaluate.
    BadExpression = 5,
    /// A pointer and length lie outside the guest's memory, or its allocator gave none.
    InvalidMemoryAccess = 6,
    /// The queue holds nothing.
    Empty = 7,
    /// Shared data has changed since it was read.
    CasMismatch = 8,
    /// A result is not what was promised.
    ResultMismatch = 9,
    /// The host failed.
    InternalFailure = 10,
    /// The connection is gone.
    BrokenConnection = 11,
    /// The host does not have this.
    Unimplemented = 12,
}

impl Status {
    /// All statuses, by number.
    pub const ALL: [Self; 13] = [
        Self::Ok,
        Self::NotFound,
        Self::BadArgument,
        Self::SerializationFailure,
        Self::ParseFailure,
        Self::BadExpression,
        Self::InvalidMemoryAccess,
        Self::Empty,
        Self::CasMismatch,
        Self::ResultMismatch,
        Self::InternalFailure,
        Self::BrokenConnection,
        Self::Unimplemented,
    ];

    /// The number that the guest sees.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The name as the ABI writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "Ok",
            Self::NotFound => "NotFound",
            Self::BadArgument => "BadArgument",
            Self::SerializationFailure => "SerializationFailure",
            Self::ParseFailure => "ParseFailure",
            Self::BadExpression => "BadExpression",
            Self::InvalidMemoryAccess => "InvalidMemoryAccess",
            Self::Empty => "Empty",
            Self::CasMismatch => "CasMismatch",
            Self::ResultMismatch => "ResultMismatch",
            Self::InternalFailure => "InternalFailure",
            Self::BrokenConnection => "BrokenConnection",
            Self::Unimplemented => "Unimplemented",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}

/// How serious a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum LogLevel {
    /// Every step.
    Trace = 0,
    /// For the one who looks for a fault.
    Debug = 1,
    /// What is worth knowing.
    Info = 2,
    /// What may become a fault.
    Warn = 3,
    /// What went wrong.
    Error = 4,
    /// What ends the VM.
    Critical = 5,
}

impl LogLevel {
    /// The level of this number; the ABI knows 0 to 5.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Critical]
            .get(usize::try_from(code).ok()?)
            .copied()
    }

    /// The level's name, lower-case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Kinds of things by their numbers.
macro_rules! kinds {
    ($( $(#[$doc:meta])* $kind:ident { $($name:ident),* } )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub(crate) enum $kind { $($name),* }

            impl $kind {
                pub(crate) fn from_code(code: u32) -> Result<Self, Status> {
                    usize::try_from(code).ok().and_then(|code| [$(Self::$name),*].get(code).copied()).ok_or(Status::BadArgument)
                }
            }
        )*
    };
}

kinds! {
    /// Which header map a call means.
    MapKind {
        RequestHeaders, RequestTrailers, ResponseHeaders, ResponseTrailers, GrpcInitialMetadata, GrpcTrailingMetadata,
        CalloutHeaders, CalloutTrailers
    }
    /// Which buffer a call means.
    BufferKind {
        RequestBody, ResponseBody, DownstreamData, UpstreamData, CalloutBody, GrpcMessage, VmConfiguration,
        PluginConfiguration, CallData
    }
    /// Which side of a stream a call means.
    StreamKind { Request, Response, Downstream, Upstream }
}

/// What a headers callback told the host to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadersAction {
    Continue,
    /// Headers wait; body callbacks still run.
    StopIteration,
    /// Headers wait and no callback of this direction runs until the filter continues it. What comes meanwhile waits, and the sender is
    /// told to stop where it is too much.
    StopAll,
    /// The same, but what comes meanwhile is refused where it is too much.
    StopAllAndBuffer,
}

impl HeadersAction {
    /// As `convertVmCallResultToFilterHeadersStatus` of proxy-wasm-cpp-host and Envoy's own mapping after it:
    /// 2 (continue and end stream) is Continue in Envoy, and what is out of range stops everything.
    pub(crate) fn from_code(code: u32, allow_stop_iteration: bool) -> Self {
        match code {
            0 | 2 => Self::Continue,
            1 if allow_stop_iteration => Self::StopIteration,
            3 => Self::StopAllAndBuffer,
            _ => Self::StopAll,
        }
    }
}

/// What a body callback told the host to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataAction {
    Continue,
    /// Keep what came; the next callback sees all of it.
    StopAndBuffer,
    /// Keep what came; the next callback sees only what is new.
    StopAndWatermark,
    /// The filter has taken what came.
    StopNoBuffer,
}

impl DataAction {
    pub(crate) fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Continue,
            1 => Self::StopAndBuffer,
            2 => Self::StopAndWatermark,
            _ => Self::StopNoBuffer,
        }
    }
}

/// What a filter measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

impl MetricKind {
    pub(crate) fn from_code(code: u32) -> Result<Self, Status> {
        match code {
            0 => Ok(Self::Counter),
            1 => Ok(Self::Gauge),
            2 => Ok(Self::Histogram),
            _ => Err(Status::BadArgument),
        }
    }
}

/// The bytes at `ptr`. Nothing at 0 is fine; anything outside the memory is not.
pub(crate) fn slice(memory: &[u8], ptr: u32, len: u32) -> Result<&[u8], Status> {
    let start = usize::try_from(ptr).map_err(|_| Status::InvalidMemoryAccess)?;
    let len = usize::try_from(len).map_err(|_| Status::InvalidMemoryAccess)?;
    start.checked_add(len).and_then(|end| memory.get(start..end)).ok_or(Status::InvalidMemoryAccess)
}
