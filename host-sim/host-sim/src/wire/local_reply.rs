//! Replies in the upstream's place: the filter's own, and the host's when a VM has failed.

use bytes::Bytes;

use crate::wire::{
    frame::Direction,
    grpc::{UNAVAILABLE, grpc_status_of},
    headers::{self, Headers},
};

/// `%RESPONSE_CODE_DETAILS%` of a stream that a filter closed.
pub(crate) const CLOSE_DETAILS: &str = "wasm_close_stream";

/// `%RESPONSE_CODE_DETAILS%` of streams whose VM has failed.
const FAILURE_DETAILS: &str = "wasm_fail_stream";

/// A response that the filter, or the host, makes up.
#[derive(Debug)]
pub(crate) struct LocalReply {
    pub(crate) status: u32,
    pub(crate) headers: Vec<(Bytes, Bytes)>,
    pub(crate) body: Bytes,
    pub(crate) grpc_status: Option<u32>,
    pub(crate) details: String,
}

/// What a request was when it came, which is what its reply goes by.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kind {
    pub(crate) is_grpc: bool,
    pub(crate) is_head: bool,
}

impl Kind {
    pub(crate) fn of_request(headers: &Headers) -> Self {
        let is_grpc = headers
            .get("content-type")
            .and_then(|value| value.strip_prefix(b"application/grpc"))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+"));
        let is_head = headers.get(":method").is_some_and(|method| method.as_ref() == b"HEAD");
        Self { is_grpc, is_head }
    }
}

impl LocalReply {
    /// A reply of the gateway's own.
    pub(crate) fn of_the_gateway(status: u32, body: &'static str, details: &str) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Bytes::from_static(body.as_bytes()),
            grpc_status: None,
            details: details.to_owned(),
        }
    }

    /// What is answered for a filter whose VM has failed.
    pub(crate) fn of_failed_vm() -> Self {
        Self { grpc_status: Some(UNAVAILABLE), ..Self::of_the_gateway(503, "", FAILURE_DETAILS) }
    }

    /// What is answered when a filter wants more of a message at once than the gateway holds.
    pub(crate) fn too_large(direction: Direction) -> Self {
        match direction {
            Direction::Request => Self::of_the_gateway(413, "Payload Too Large", "request_payload_too_large"),
            Direction::Response => {
                Self::of_the_gateway(500, "Internal Server Error", "response_payload_too_large")
            }
        }
    }

    /// The reply as it goes through the filters: its headers and body.
    ///
    /// A gRPC request gets headers alone, status 200 and the status in `grpc-status`; a HEAD request no body.
    pub(crate) fn render(self, request: Kind) -> (Headers, Bytes) {
        let Kind { is_grpc, is_head } = request;
        let Self { status, headers: extra, body, grpc_status, .. } = self;
        let mut headers = Headers::of(headers::Kind::Response);
        for (name, value) in extra {
            headers.append(name, value);
        }
        headers.set(":status", status.to_string());
        if is_grpc {
            headers.set(":status", "200");
            headers.set("content-type", "application/grpc");
            if headers.get("grpc-status").is_none() {
                headers.set("grpc-status", grpc_status.unwrap_or_else(|| grpc_status_of(status)).to_string());
            }
            if !body.is_empty() && !is_head {
                headers.set("grpc-message", percent_encode(&body));
            }
            headers.remove("content-length");
            return (headers, Bytes::new());
        }
        if body.is_empty() {
            headers.remove("content-length");
            headers.remove("content-type");
        } else {
            headers.set("content-length", body.len().to_string());
            if headers.get("content-type").is_none() {
                headers.set("content-type", "text/plain");
            }
        }
        (headers, if is_head { Bytes::new() } else { body })
    }
}

/// gRPC's encoding of a status message: printable ASCII but `%` stays as it is.
fn percent_encode(message: &[u8]) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message {
        if (b' '..=b'~').contains(byte) && *byte != b'%' {
            encoded.push(char::from(*byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(
        status: u32,
        headers: &[(&'static str, &'static str)],
        body: &'static str,
        grpc: Option<u32>,
    ) -> LocalReply {
        LocalReply {
            status,
            headers: headers.iter().map(|(n, v)| (Bytes::from(*n), Bytes::from(*v))).collect(),
            body: body.into(),
            grpc_status: grpc,
            details: String::new(),
        }
    }

    fn text(headers: &Headers) -> String {
        let line = |(name, value): (&Bytes, &Bytes)| {
            format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        headers.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_reply_is_rendered_as_envoy_renders_it() {
        let json: &[(&str, &str)] = &[("Content-Type", "application/json")];
        let odd: &[(&str, &str)] = &[("content-length", "9"), ("x", "1"), ("x", "2")];
        //  what              reply                              gRPC   HEAD   headers, body
        let rows = [
            (
                "plain",
                reply(429, &[], "no", None),
                false,
                false,
                ":status=429 content-length=2 content-type=text/plain",
                "no",
            ),
            (
                "own type",
                reply(429, json, "{}", None),
                false,
                false,
                ":status=429 content-type=application/json content-length=2",
                "{}",
            ),
            ("own status", reply(401, &[(":status", "500")], "", None), false, false, ":status=401", ""),
            ("empty", reply(401, odd, "", None), false, false, ":status=401 x=1 x=2", ""),
            ("empty with type", reply(401, json, "", None), false, false, ":status=401", ""),
            (
                "head",
                reply(403, &[], "no", None),
                false,
                true,
                ":status=403 content-length=2 content-type=text/plain",
                "",
            ),
            (
                "grpc, mapped",
                reply(429, json, "too many %", None),
                true,
                false,
                ":status=200 content-type=application/grpc grpc-status=14 grpc-message=too many %25",
                "",
            ),
            (
                "grpc, given",
                reply(429, &[], "", Some(8)),
                true,
                false,
                ":status=200 content-type=application/grpc grpc-status=8",
                "",
            ),
            (
                "grpc, own header",
                reply(429, &[("grpc-status", "7")], "", Some(8)),
                true,
                false,
                ":status=200 grpc-status=7 content-type=application/grpc",
                "",
            ),
        ];
        for (what, reply, is_grpc, is_head, headers, body) in rows {
            let (rendered, content) = reply.render(Kind { is_grpc, is_head });
            assert_eq!((text(&rendered).as_str(), content.as_ref()), (headers, body.as_bytes()), "{what}");
        }
    }
}
