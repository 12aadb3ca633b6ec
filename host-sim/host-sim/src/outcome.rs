//! What became of a request.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    shared::{logs::LogLine, record::Happened},
    state::stream::FilterState,
    trace::{
        arguments::readable,
        record::{TracedCallback, causes},
    },
    vm::error::VmError,
    wire::{
        headers::Headers,
        message::{ClusterCall, Request, Response},
    },
};

/// How a stream came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The upstream answered.
    Forwarded,
    /// The filter, or the host on its behalf, answered.
    LocalReply,
    /// The stream was cut: the client sees a broken connection, or a truncated answer.
    Reset,
    /// The filter holds the stream and nothing is left that would let it go on, or the client waits for the rest of an
    /// answer that is shorter than its `content-length`.
    Paused,
}

/// What became of a request. Clones share it.
///
/// `Debug` is a text of several lines, without times, so that it can be a snapshot: how the request ended, what client, upstream and
/// clusters were sent, what the filter logged, the trap with its backtrace if the filter trapped, and the [trace](Self::trace).
#[derive(Clone)]
pub struct Outcome(pub(crate) Arc<Told>);

/// What is known of a request that is over.
pub(crate) struct Told {
    pub(crate) end: End,
    pub(crate) response: Response,
    pub(crate) forwarded: Option<Request>,
    pub(crate) details: String,
    pub(crate) filter_state: FilterState,
    pub(crate) failure: Option<VmError>,
    pub(crate) happened: Happened,
}

impl Outcome {
    /// How it ended.
    pub fn end(&self) -> End {
        self.0.end
    }

    /// Whether the filter, or the host on its behalf, answered in the upstream's place.
    pub fn is_local_reply(&self) -> bool {
        self.end() == End::LocalReply
    }

    /// What the client sees. For a paused or reset stream, as much of it as was sent.
    pub fn response(&self) -> &Response {
        &self.0.response
    }

    /// The status that the client sees; 0 when it saw none.
    pub fn status(&self) -> u16 {
        self.response().status()
    }

    /// The first value of a response header, if it is UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response().header_str(name)
    }

    /// All response headers.
    pub fn headers(&self) -> &Headers {
        self.response().headers()
    }

    /// The response body.
    pub fn body(&self) -> &Bytes {
        self.response().body_bytes()
    }

    /// The response body as text; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body()).into_owned()
    }

    /// The request as the upstream received it, if it did.
    pub fn forwarded(&self) -> Option<&Request> {
        self.0.forwarded.as_ref()
    }

    /// What `%RESPONSE_CODE_DETAILS%` of an access log says: `via_upstream`, what the filter gave with its reply, …
    pub fn details(&self) -> &str {
        &self.0.details
    }

    /// What `%FILTER_STATE(name:PLAIN)%` of an access log says: the text that a filter has put into the stream under this name. Envoy
    /// adds `wasm.` to the names of properties that filters set.
    pub fn filter_state(&self, name: &str) -> Option<String> {
        let value = self.0.filter_state.get(name.as_bytes())?;
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    /// What filters and host have logged on the request's worker while it was in progress.
    pub fn log(&self) -> &[LogLine] {
        &self.0.happened.log
    }

    /// Why a VM of the request's worker has failed, in this request or before it.
    pub fn failure(&self) -> Option<&VmError> {
        self.0.failure.as_ref()
    }

    /// The calls to clusters that filters have made on the request's worker while it was in progress, in order. On a stream of gRPC,
    /// each message is one.
    pub fn callouts(&self) -> &[ClusterCall] {
        &self.0.happened.calls
    }

    /// The callbacks on the request's worker while it was in progress, with their host calls; none unless the host traces
    /// ([`Builder::trace`](crate::Builder::trace)).
    pub fn trace(&self) -> &[TracedCallback] {
        &self.0.happened.trace
    }
}

/// Writes lines of text, each with this indentation.
fn indented(f: &mut fmt::Formatter<'_>, indent: usize, lines: &str) -> fmt::Result {
    lines.lines().try_for_each(|line| write!(f, "\n{:indent$}{line}", ""))
}

/// Writes a message: its headers, the beginning of its body, its trailers.
fn message(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    headers: &Headers,
    body: &Bytes,
    trailers: Option<&Headers>,
) -> fmt::Result {
    write!(f, "\n  {title}:")?;
    for (name, value) in headers.iter() {
        indented(f, 4, &format!("{}: {}", readable(name), readable(value)))?;
    }
    if !body.is_empty() {
        indented(f, 4, &format!("body, {} bytes:", body.len()))?;
        indented(f, 6, &readable(body))?;
    }
    for (name, value) in trailers.into_iter().flat_map(Headers::iter) {
        indented(f, 4, &format!("trailer {}: {}", readable(name), readable(value)))?;
    }
    Ok(())
}

fn response(f: &mut fmt::Formatter<'_>, title: &str, response: &Response) -> fmt::Result {
    message(f, title, response.headers(), response.body_bytes(), response.trailers())
}

fn request(f: &mut fmt::Formatter<'_>, title: &str, request: &Request) -> fmt::Result {
    message(f, title, request.headers(), request.body_bytes(), request.trailers())
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, status {}", self.end(), self.status())?;
        if !self.details().is_empty() {
            write!(f, ", {}", self.details())?;
        }
        for cause in causes(self.trace()) {
            indented(f, 2, &format!("cause: {cause}"))?;
        }
        response(f, "the client received", self.response())?;
        if let Some(forwarded) = self.forwarded() {
            request(f, "the upstream received", forwarded)?;
        }
        for call in self.callouts() {
            request(f, &format!("cluster `{}` received", call.cluster), &call.request)?;
            match &call.answer {
                Some(answer) => response(f, &format!("cluster `{}` answered", call.cluster), answer)?,
                None => write!(f, "\n  cluster `{}` has not answered", call.cluster)?,
            }
        }
        if !self.log().is_empty() {
            f.write_str("\n  log:")?;
            self.log().iter().try_for_each(|line| indented(f, 4, &line.to_string()))?;
        }
        // Of a trap in this request, the log tells.
        let told = |failure: &&VmError| self.log().iter().any(|line| line.message == failure.explained());
        if let Some(failure) = self.failure().filter(|failure| !told(failure)) {
            f.write_str("\n  the VM has failed before:")?;
            indented(f, 4, &failure.explained())?;
        }
        if !self.trace().is_empty() {
            f.write_str("\n  trace:")?;
            self.trace().iter().try_for_each(|callback| indented(f, 4, &format!("{callback:#}")))?;
        }
        Ok(())
    }
}
