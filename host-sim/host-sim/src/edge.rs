//! What Envoy's connection manager makes of a request before any filter sees it: what it adds, and what it refuses.
//!
//! The gateway stands at the edge (`use_remote_address: true`, `xff_num_trusted_hops: 0`): whoever connects is the client.

use bytes::Bytes;

use crate::{
    outcome::{End, Outcome, Told},
    shared::record::Happened,
    state::stream::FilterState,
    wire::{
        headers::Headers,
        local_reply::{Kind, LocalReply},
        message::Response,
    },
};

/// The methods that Envoy's parser of HTTP/1 knows.
const METHODS: &str = "ACL BIND CHECKOUT CONNECT COPY DELETE GET HEAD LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MOVE \
     MSEARCH NOTIFY OPTIONS PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH SOURCE \
     SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE";

/// Headers that only the gateway itself, or one within, may say.
const OF_THE_GATEWAY: [&str; 20] = [
    "x-envoy-decorator-operation",
    "x-envoy-downstream-service-cluster",
    "x-envoy-downstream-service-node",
    "x-envoy-expected-rq-timeout-ms",
    "x-envoy-force-trace",
    "x-envoy-hedge-on-per-try-timeout",
    "x-envoy-internal",
    "x-envoy-ip-tags",
    "x-envoy-max-retries",
    "x-envoy-original-host",
    "x-envoy-original-path",
    "x-envoy-retriable-header-names",
    "x-envoy-retriable-status-codes",
    "x-envoy-retry-grpc-on",
    "x-envoy-retry-on",
    "x-envoy-upstream-alt-stat-name",
    "x-envoy-upstream-rq-per-try-timeout-ms",
    "x-envoy-upstream-rq-timeout-alt-response",
    "x-envoy-upstream-rq-timeout-ms",
    "x-forwarded-client-cert",
];

/// A request that the gateway answers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// The body, which may be empty.
    pub body: &'static str,
    /// `%RESPONSE_CODE_DETAILS%`.
    pub details: &'static str,
}

impl Refusal {
    /// Of a request to the server itself.
    pub const STAR: Self = Self { status: 404, body: "", details: "absolute_path_rejected" };

    /// Of a request whose headers are too many or too large.
    pub const TOO_LARGE: Self =
        Self { status: 431, body: "Request Header Fields Too Large", details: "request_headers_too_large" };

    /// Of a body in a coding that is not known.
    pub const CODING: Self =
        Self { status: 501, body: "Not Implemented", details: "http1.invalid_transfer_encoding" };

    /// Of a URL of HTTPS on a connection without TLS.
    pub const SCHEME: Self = Self { status: 403, body: "Forbidden", details: "http1.invalid_scheme" };

    /// What the parser says of what is no HTTP.
    pub const NO_HTTP: Self = Self { status: 400, body: "Bad Request", details: "http1.codec_error" };

    /// Of a request to go on in another protocol.
    pub const UPGRADE: Self = Self { status: 403, body: "", details: "upgrade_failed" };

    /// The request's outcome, which no filter has seen.
    pub(crate) fn outcome(self) -> Outcome {
        let Self { status, body, details } = self;
        let reply = LocalReply::of_the_gateway(status.into(), body, details);
        let (headers, body) = reply.render(Kind::default());
        let response = Response::from_headers(headers).body(body);
        let (end, details) = (End::LocalReply, details.to_owned());
        let (filter_state, happened) = (FilterState::default(), Happened::default());
        let told = Told { end, response, forwarded: None, details, filter_state, failure: None, happened };
        Outcome(told.into())
    }
}

/// Whether a byte may stand in a token, as a header's name is one (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// Whether a byte may stand in an authority (RFC 3986, 3.2).
fn is_of_authority(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]@".contains(&byte)
}

/// Whether the names and values of all headers are such as HTTP has.
fn are_valid(headers: &Headers) -> bool {
    headers.iter().all(|(name, value)| {
        let name = name.strip_prefix(b":").unwrap_or(name);
        let is_control = |byte: &u8| *byte == 0x7f || (*byte < 0x20 && *byte != b'\t');
        !name.is_empty() && name.iter().all(|byte| is_token(*byte)) && !value.iter().any(is_control)
    })
}

/// Why the gateway answers a request over HTTP/1 itself, if it does; `protocol` is as `request.protocol` names it.
/// Streams of HTTP/2 are refused by their connection, which a test has none of.
pub fn refusal(headers: &Headers, protocol: &str) -> Option<Refusal> {
    if !protocol.starts_with("HTTP/1") {
        return None;
    }
    let quiet = |status, details| Some(Refusal { status, body: "", details });
    let method = headers.get(":method").map_or(&b""[..], AsRef::as_ref);
    if !METHODS.split(' ').any(|known| known.as_bytes() == method) || !are_valid(headers) {
        return Some(Refusal::NO_HTTP);
    }
    let path = headers.get(":path");
    match path.map(AsRef::as_ref) {
        Some(b"*") if method == b"OPTIONS" => {}
        Some(_) if method == b"CONNECT" => return Some(Refusal::NO_HTTP),
        Some(path) if !path.starts_with(b"/") || !path.iter().all(u8::is_ascii_graphic) => {
            return Some(Refusal::NO_HTTP);
        }
        _ => {}
    }
    if protocol == "HTTP/1.0" {
        return Some(Refusal { status: 426, body: "Upgrade Required", details: "low_version" });
    }
    match headers.get(":authority") {
        None => return quiet(400, "missing_host_header"),
        Some(authority) if !authority.iter().all(|byte| is_of_authority(*byte)) => {
            return Some(Refusal { details: "http.invalid_authority", ..Refusal::NO_HTTP });
        }
        Some(_) => {}
    }
    match path.map(AsRef::as_ref) {
        Some(b"*") => Some(Refusal::STAR),
        Some(path) if path.contains(&b'#') => quiet(400, "path_normalization_failed"),
        // There is no route to another server.
        None if method == b"CONNECT" => quiet(404, "route_not_found"),
        _ if method == b"QUERY" && headers.get("content-type").is_none() => {
            quiet(400, "query_missing_content_type")
        }
        _ => None,
    }
}

/// Adds what the gateway adds to a request of the client at this address, which is without its port, and takes away what
/// only a proxy in front may say.
pub fn admit(headers: &mut Headers, client: &str, random: u128) {
    let client = Bytes::copy_from_slice(client.as_bytes());
    headers.append("x-forwarded-for", client.clone());
    headers.set("x-forwarded-proto", "http");
    headers.set("x-envoy-external-address", client);
    OF_THE_GATEWAY.iter().for_each(|name| headers.remove(name));
    headers.set("x-request-id", request_id(random));
    let expects = headers.get("expect").is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
    if expects {
        // The gateway has told the client to go on.
        headers.remove("expect");
    }
}

/// A UUID (version 4).
fn request_id(random: u128) -> Bytes {
    let (version, variant) = (0x4000_u128 << 64, 0x8000_u128 << 48);
    let id = random & !(0xf000_u128 << 64) & !(0xc000_u128 << 48) | version | variant;
    let part = |shift: u32, digits: u32| id >> shift & ((1 << (digits * 4)) - 1);
    let (high, low) = (part(96, 8), part(0, 12));
    format!("{high:08x}-{:04x}-{:04x}-{:04x}-{low:012x}", part(80, 4), part(64, 4), part(48, 4)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::Request;

    #[test]
    fn a_request_is_refused_as_envoy_refuses_it() {
        let get = |path: &'static str| Request::get(path);
        //  request, protocol, status and details
        let rows = [
            (get("/"), "HTTP/1.1", None),
            (get("/a<>\"^`{|}\\%zz?b=c"), "HTTP/1.1", None),
            (get("/"), "HTTP/1.0", Some((426, "low_version"))),
            (get("/").without(":authority"), "HTTP/1.1", Some((400, "missing_host_header"))),
            (get("/").authority("a b"), "HTTP/1.1", Some((400, "http.invalid_authority"))),
            (get("/café"), "HTTP/1.1", Some((400, "http1.codec_error"))),
            (get("/a b"), "HTTP/1.1", Some((400, "http1.codec_error"))),
            (get("a"), "HTTP/1.1", Some((400, "http1.codec_error"))),
            (get("*"), "HTTP/1.1", Some((400, "http1.codec_error"))),
            (get("/a#f"), "HTTP/1.1", Some((400, "path_normalization_failed"))),
            (Request::new("OPTIONS", "*"), "HTTP/1.1", Some((404, "absolute_path_rejected"))),
            (Request::new("get", "/"), "HTTP/1.1", Some((400, "http1.codec_error"))),
            (Request::new("G T", "/"), "HTTP/1.1", Some((400, "http1.codec_error"))),
            (Request::new("QUERY", "/"), "HTTP/1.1", Some((400, "query_missing_content_type"))),
            (Request::new("CONNECT", "/").without(":path"), "HTTP/1.1", Some((404, "route_not_found"))),
            (Request::new("CONNECT", "/"), "HTTP/1.1", Some((400, "http1.codec_error"))),
            (get("/").header("x y", "1"), "HTTP/1.1", Some((400, "http1.codec_error"))),
            (get("/").header("x", "a\u{1}"), "HTTP/1.1", Some((400, "http1.codec_error"))),
            (get("/").header("x", &b"\xff\t"[..]), "HTTP/1.1", None),
            (get("/café"), "HTTP/2", None),
        ];
        for (request, protocol, expected) in rows {
            let found = refusal(request.headers(), protocol).map(|refusal| (refusal.status, refusal.details));
            assert_eq!(found, expected, "{request:?} over {protocol}");
        }
    }

    #[test]
    fn an_admitted_request_says_who_asks_and_has_an_id() {
        let mut headers = Request::get("/")
            .header("x-forwarded-for", "198.51.100.1")
            .header("x-forwarded-proto", "https")
            .header("x-forwarded-client-cert", "By=me")
            .header("x-envoy-internal", "true")
            .header("expect", "100-Continue")
            .headers()
            .clone();
        admit(&mut headers, "203.0.113.9", 0);
        let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
        let rows = [
            ("x-forwarded-for", Some("198.51.100.1,203.0.113.9")),
            ("x-envoy-external-address", Some("203.0.113.9")),
            ("x-forwarded-proto", Some("http")),
            ("x-forwarded-client-cert", None),
            ("x-envoy-internal", None),
            ("expect", None),
            ("x-request-id", Some("00000000-0000-4000-8000-000000000000")),
        ];
        for (name, expected) in rows {
            assert_eq!(text(name).as_deref(), expected, "{name}");
        }
    }
}
