//! The words of the proxy-wasm ABI: statuses, maps, buffers, streams, levels.
//!
//! Numbers are those of [ABI 0.2.1](https://github.com/proxy-wasm/spec/tree/main/abi-versions/v0.2.1).

use std::fmt;

/// Something that crosses the ABI as a number: its place among all of its kind.
pub(crate) trait Numbered: Copy + 'static {
    /// All of the kind, by number.
    fn all() -> &'static [Self];

    /// The one of this number.
    fn of(code: u32) -> Result<Self, Status> {
        usize::try_from(code).ok().and_then(|code| Self::all().get(code)).copied().ok_or(Status::BadArgument)
    }
}

/// Kinds of things by number, from 0 on, each thing with its name.
macro_rules! named {
    ($( $(#[$doc:meta])* $vis:vis enum $kind:ident { $( $(#[$of:meta])* $thing:ident = $name:literal, )* } )*) => {
        $(
            $(#[$doc])*
            $vis enum $kind { $( $(#[$of])* $thing, )* }

            impl $kind {
                /// All of them, by number.
                $vis const ALL: [Self; [$( $name ),*].len()] = [$( Self::$thing ),*];

                /// The name.
                $vis fn name(self) -> &'static str {
                    match self {
                        $( Self::$thing => $name, )*
                    }
                }
            }

            impl $crate::abi::Numbered for $kind {
                fn all() -> &'static [Self] {
                    &Self::ALL
                }
            }
        )*
    };
}
pub(crate) use named;

named! {
    /// The answer of a host call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Status {
        /// The call did what it says.
        Ok = "Ok",
        /// What was asked for does not exist.
        NotFound = "NotFound",
        /// An argument has no meaning here, or the map is not available in this phase.
        BadArgument = "BadArgument",
        /// A property's value has no encoding.
        SerializationFailure = "SerializationFailure",
        /// A gRPC service is neither a cluster's name nor a `GrpcService` message.
        ParseFailure = "ParseFailure",
        /// An expression does not evaluate.
        BadExpression = "BadExpression",
        /// A pointer and length lie outside the guest's memory, or its allocator gave none.
        InvalidMemoryAccess = "InvalidMemoryAccess",
        /// The queue holds nothing.
        Empty = "Empty",
        /// Shared data has changed since it was read.
        CasMismatch = "CasMismatch",
        /// A result is not what was promised.
        ResultMismatch = "ResultMismatch",
        /// The host failed.
        InternalFailure = "InternalFailure",
        /// The connection is gone.
        BrokenConnection = "BrokenConnection",
        /// The host does not have this.
        Unimplemented = "Unimplemented",
    }

    /// How serious a line of the log is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum LogLevel {
        /// Every step.
        Trace = "trace",
        /// For the one who looks for a fault.
        Debug = "debug",
        /// What is worth knowing.
        Info = "info",
        /// What may become a fault.
        Warn = "warn",
        /// What went wrong.
        Error = "error",
        /// What ends the VM.
        Critical = "critical",
    }

    /// What a filter measures.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum MetricKind {
        /// Only grows.
        Counter = "counter",
        /// Goes up and down.
        Gauge = "gauge",
        /// A distribution.
        Histogram = "histogram",
    }

    /// Which header map a call means.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum MapKind {
        RequestHeaders = "request headers",
        RequestTrailers = "request trailers",
        ResponseHeaders = "response headers",
        ResponseTrailers = "response trailers",
        GrpcInitialMetadata = "gRPC initial metadata",
        GrpcTrailingMetadata = "gRPC trailing metadata",
        CalloutHeaders = "callout headers",
        CalloutTrailers = "callout trailers",
    }

    /// Which buffer a call means.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum BufferKind {
        RequestBody = "request body",
        ResponseBody = "response body",
        DownstreamData = "downstream data",
        UpstreamData = "upstream data",
        CalloutBody = "callout body",
        GrpcMessage = "gRPC message",
        VmConfiguration = "VM configuration",
        PluginConfiguration = "plugin configuration",
        CallData = "call data",
    }

    /// Which side of a stream a call means.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum StreamKind {
        Request = "request",
        Response = "response",
        Downstream = "downstream",
        Upstream = "upstream",
    }
}

impl Status {
    /// The number that the guest sees.
    pub fn code(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
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

/// The bytes at `ptr`. Nothing at 0 is fine; anything outside the memory is not.
pub(crate) fn slice(memory: &[u8], ptr: u32, len: u32) -> Result<&[u8], Status> {
    let start = usize::try_from(ptr).map_err(|_| Status::InvalidMemoryAccess)?;
    let len = usize::try_from(len).map_err(|_| Status::InvalidMemoryAccess)?;
    start.checked_add(len).and_then(|end| memory.get(start..end)).ok_or(Status::InvalidMemoryAccess)
}

/// A count as the guest sees it. 32 bits are enough for all that its memory can hold.
pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
