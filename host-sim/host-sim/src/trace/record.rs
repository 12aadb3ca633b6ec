//! What a trace holds.

use std::{fmt::Display, time::Duration};

use serde::{Serialize, Serializer};

use crate::{
    abi::Status,
    trace::{
        arguments::{Argument, members},
        backtrace::GuestFrame,
    },
    vm_name::VmName,
};

pub(crate) fn shown<S: Serializer>(what: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(what)
}

fn perhaps_shown<S: Serializer>(what: &Option<impl Display>, serializer: S) -> Result<S::Ok, S::Error> {
    what.as_ref().map(ToString::to_string).serialize(serializer)
}

fn micros<S: Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
}

/// A callback that has returned or trapped, with the host calls of the guest in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TracedCallback {
    /// The VM.
    #[serde(serialize_with = "shown")]
    pub vm: VmName,
    /// The callback's name, `start` for what a module runs before any callback.
    pub callback: &'static str,
    /// How many actions that a guest asked for, such as a local reply, this callback is the consequence of, each of the
    /// one before.
    pub depth: u32,
    /// What the guest was given.
    #[serde(serialize_with = "members")]
    pub arguments: Vec<Argument>,
    /// What the guest answered, where the callback has an answer.
    pub returned: Option<String>,
    /// Why the guest trapped, with the place, if it did.
    pub trapped: Option<String>,
    /// How long it ran.
    #[serde(rename = "microseconds", serialize_with = "micros")]
    pub took: Duration,
    /// Bytes by which the guest's memory has grown.
    pub memory_growth: u64,
    /// Bytes that the host has asked the guest's allocator for.
    pub host_memory: u64,
    /// Instructions of the guest, where its module was compiled to count them.
    pub instructions: Option<u64>,
    /// The host calls, in order.
    pub calls: Vec<TracedCall>,
}

/// A host call of a guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TracedCall {
    /// Its name.
    pub call: &'static str,
    /// What the guest gave.
    #[serde(serialize_with = "members")]
    pub arguments: Vec<Argument>,
    /// What the host answered.
    #[serde(serialize_with = "shown")]
    pub answer: CallAnswer,
    /// What the host wrote to the guest's memory.
    #[serde(serialize_with = "members")]
    pub results: Vec<Argument>,
    /// Which of the answer's causes it was, for any but Ok, and for an Ok that gives less than it seems to.
    pub why: Option<String>,
    /// Where the guest made a call that an author has to look at.
    #[serde(serialize_with = "perhaps_shown")]
    pub at: Option<GuestFrame>,
    /// How long it ran.
    #[serde(rename = "microseconds", serialize_with = "micros")]
    pub took: Duration,
    /// Bytes by which the guest's memory has grown.
    pub memory_growth: u64,
    /// Calls of the guest's allocator, which the host has called for memory.
    pub calls: Vec<Self>,
}

/// What a host call answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAnswer {
    /// A call of module `env`.
    Status(Status),
    /// A call of WASI: an error number, 0 for none.
    Errno(u32),
    /// The guest trapped in it.
    Trapped,
}

/// What a failure most likely comes from: where filters trapped and the last call before it, and where none did, the
/// [suspect](TracedCallback::suspect) of each callback.
pub fn causes(trace: &[TracedCallback]) -> Vec<String> {
    let mut causes = Vec::new();
    for callback in trace {
        causes.extend(callback.trapped.clone());
        let suspect = callback.suspect().filter(|_| callback.trapped.is_some());
        causes.extend(suspect.map(|call| format!("the last call before it: {call}")));
    }
    if causes.is_empty() {
        let suspects = trace.iter().filter_map(|callback| Some((callback.callback, callback.suspect()?)));
        for cause in suspects.map(|(callback, call)| format!("in {callback}: {call}")) {
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
    }
    causes
}

impl TracedCallback {
    /// How many host calls the guest has made.
    pub fn host_calls(&self) -> u64 {
        fn count(calls: &[TracedCall]) -> u64 {
            calls.iter().map(|call| 1 + count(&call.calls)).sum()
        }
        count(&self.calls)
    }

    /// The host call that a failure most likely comes from. Where the guest trapped, it is the last one before the trap,
    /// if that was refused or gave nothing; else the first one that an author has to look at.
    pub fn suspect(&self) -> Option<&TracedCall> {
        // The last words of a guest are calls too.
        let mut calls = self.calls.iter().filter(|call| !matches!(call.call, "proxy_log" | "fd_write"));
        if self.trapped.is_some() {
            calls.next_back().filter(|call| call.why.is_some())
        } else {
            calls.find(|call| call.at.is_some())
        }
    }
}
