//! Between the messages of the HTTP library and the maps that filters see. A message that is not there for a map cannot be sent: the
//! filter made up a status, a method, a path or an authority that HTTP does not have.

use bytes::Bytes;
use host_sim::{
    Headers,
    edge::{self, Refusal},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header, request, response,
    uri::{Authority, Parts, PathAndQuery, Scheme},
};
use http_body::Body as _;

use super::body::{self, Body};

/// Headers that concern one connection only, not the message (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

fn bytes(value: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(value.as_ref())
}

/// The names that a `Connection` header declares to concern this connection only.
fn declared(headers: &HeaderMap) -> Vec<HeaderName> {
    let tokens = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    tokens.flat_map(|value| value.split(',')).filter_map(|token| token.trim().parse().ok()).collect()
}

fn end_to_end(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    let declared = declared(headers);
    headers.iter().filter(move |(name, value)| {
        let trailers = *name == header::TE && value.as_bytes().eq_ignore_ascii_case(b"trailers");
        !HOP_BY_HOP.contains(name)
            && (*name != header::TE || trailers)
            && (trailers || !declared.contains(name))
    })
}

/// Whether the client asks to go on in another protocol.
pub(super) fn is_upgrade(parts: &request::Parts) -> bool {
    let protocol = parts.headers.get(header::UPGRADE);
    // That to HTTP/2 is a hint, which is not followed.
    let is_other = protocol.is_some_and(|protocol| !protocol.as_bytes().eq_ignore_ascii_case(b"h2c"));
    is_other && declared(&parts.headers).contains(&header::UPGRADE)
}

/// Whether the body comes as it is, or in chunks alone.
pub(super) fn knows_coding(parts: &request::Parts) -> bool {
    let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let first = codings.next();
    first.is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked")) && codings.next().is_none()
}

/// The request as its client sent it, pseudo-headers first.
pub(super) fn sent_headers(parts: &request::Parts) -> Headers {
    let mut headers = Headers::request();
    let hosts: Vec<_> = parts.headers.get_all(header::HOST).into_iter().map(HeaderValue::as_bytes).collect();
    let host = (!hosts.is_empty()).then(|| hosts.join(&b','));
    let host = host.map(Bytes::from);
    let authority = parts.uri.authority().map(|authority| bytes(authority.as_str())).or(host);
    if let Some(authority) = authority {
        headers.append(":authority", authority);
    }
    let path = match parts.uri.path_and_query() {
        Some(path) => Some(bytes(path.as_str())),
        None if parts.method == Method::CONNECT => None,
        // What is neither a path nor a URL is taken for an authority by the HTTP library, and is no path.
        None if parts.uri.scheme().is_none() => Some(bytes(parts.uri.to_string())),
        None => Some(bytes("/")),
    };
    if let Some(path) = path {
        headers.append(":path", path);
    }
    headers.append(":method", bytes(parts.method.as_str()));
    headers.append(":scheme", "http");
    for (name, value) in end_to_end(&parts.headers).filter(|(name, _)| *name != header::HOST) {
        headers.append(bytes(name.as_str()), bytes(value.as_bytes()));
    }
    headers
}

/// The same as filters see it, with what the gateway adds.
pub(super) fn request_headers(mut sent: Headers, client: &str) -> Headers {
    edge::admit(&mut sent, client, fastrand::u128(..));
    sent
}

pub(super) fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}

/// A map as the HTTP library takes it. What it does not allow in a name or value is left out.
pub(super) fn header_map(headers: Headers) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(headers.len());
    let regular = headers.into_iter().filter(|(name, _)| !name.starts_with(b":"));
    let valid = regular.filter_map(|(name, value)| {
        Some((HeaderName::from_bytes(&name).ok()?, HeaderValue::from_maybe_shared(value).ok()?))
    });
    for (name, value) in valid.filter(|(name, _)| !HOP_BY_HOP.contains(name)) {
        map.append(name, value);
    }
    map
}

/// The map of a message that came from elsewhere.
pub(super) fn headers_of(map: &HeaderMap) -> Headers {
    end_to_end(map).map(|(name, value)| (bytes(name.as_str()), bytes(value.as_bytes()))).collect()
}

/// Methods of which a request without a body says nothing of its length.
const WITHOUT_BODY: [&str; 5] = ["GET", "HEAD", "DELETE", "TRACE", "CONNECT"];

/// The request as it goes to the server at `base` over HTTP/1, for the authority that it names itself.
pub(super) fn outbound(headers: Headers, base: &Uri, body: Body) -> Option<http::Request<Body>> {
    let is_empty = body.is_end_stream();
    let mut request = http::Request::new(body);
    *request.method_mut() = method(&headers)?;
    *request.uri_mut() = url(base.authority().cloned(), &headers)?;
    let authority = headers.get(":authority").cloned();
    *request.headers_mut() = header_map(headers);
    if is_empty && !WITHOUT_BODY.contains(&request.method().as_str()) {
        let length = request.headers_mut().entry(header::CONTENT_LENGTH);
        length.or_insert(HeaderValue::from_static("0"));
    }
    if let Some(authority) = authority {
        let host = HeaderValue::from_maybe_shared(authority).ok()?;
        request.headers_mut().insert(header::HOST, host);
    }
    Some(request)
}

/// The URL of a request to a server.
fn url(server: Option<Authority>, headers: &Headers) -> Option<Uri> {
    let path = headers.get(":path").cloned().unwrap_or(Bytes::from_static(b"/"));
    let mut parts = Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = server;
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(path).ok()?);
    Uri::from_parts(parts).ok()
}

fn method(headers: &Headers) -> Option<Method> {
    headers.get(":method").map_or(Some(Method::GET), |method| Method::from_bytes(method).ok())
}

/// The request as it goes over HTTP/2, for the authority that it names itself.
pub(super) fn outbound_http2(headers: Headers, body: Body) -> Option<http::Request<Body>> {
    let authority = headers.get(":authority")?;
    let authority = Authority::from_maybe_shared(authority.clone()).ok()?;
    let mut request = http::Request::new(body);
    *request.uri_mut() = url(Some(authority), &headers)?;
    *request.version_mut() = Version::HTTP_2;
    *request.method_mut() = method(&headers)?;
    *request.headers_mut() = header_map(headers);
    Some(request)
}

/// The answer to a request that no filter sees.
pub(super) fn refused(refusal: Refusal) -> Option<http::Response<Body>> {
    let mut response = http::Response::new(body::whole(Bytes::from_static(refusal.body.as_bytes())));
    *response.status_mut() = http::StatusCode::from_u16(refusal.status).ok()?;
    let headers = response.headers_mut();
    if refusal != Refusal::STAR {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if !refusal.body.is_empty() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    }
    Some(response)
}

/// The upstream's response as the filter sees it. As in Envoy it still has what concerns the connection, which goes no
/// further than here.
pub(super) fn response_headers(parts: &response::Parts) -> Headers {
    let mut headers = Headers::response();
    headers.append(":status", bytes(parts.status.as_str()));
    for (name, value) in &parts.headers {
        headers.append(bytes(name.as_str()), bytes(value.as_bytes()));
    }
    headers
}

/// The response as it goes to the client.
pub(super) fn inbound(headers: Headers, body: Body) -> Option<http::Response<Body>> {
    let mut response = http::Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(headers.status()).ok()?;
    *response.headers_mut() = header_map(headers);
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_loses_what_concerns_its_connection_and_gains_its_peer() {
        let request = http::Request::builder()
            .uri("/a?b")
            .header("host", "example.com")
            .header("connection", "close, X-Hop")
            .header("x-hop", "1")
            .header("te", "trailers")
            .header("upgrade", "websocket")
            .header("x-forwarded-for", "198.51.100.1")
            .header("x-forwarded-proto", "https")
            .header("x", HeaderValue::from_bytes(&[0xff]).unwrap())
            .body(())
            .unwrap();
        let sent = sent_headers(&request.into_parts().0);
        let headers = request_headers(sent, "203.0.113.9");
        let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
        let rows = [
            (":authority", Some("example.com")),
            (":path", Some("/a?b")),
            (":method", Some("GET")),
            (":scheme", Some("http")),
            // Another name of the authority.
            ("host", Some("example.com")),
            ("connection", None),
            ("x-hop", None),
            ("upgrade", None),
            ("te", Some("trailers")),
            ("x-forwarded-for", Some("198.51.100.1,203.0.113.9")),
            ("x-envoy-external-address", Some("203.0.113.9")),
            ("x-forwarded-proto", Some("http")),
            ("x", Some("\u{fffd}")),
        ];
        for (name, expected) in rows {
            assert_eq!(text(name).as_deref(), expected, "{name}");
        }
        let id = text("x-request-id").unwrap();
        assert!(id.len() == 36 && id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
    }

    #[test]
    fn a_request_goes_on_under_its_own_authority() {
        let base: Uri = "http://127.0.0.1:1".parse().unwrap();
        let request = |method: &'static str| -> Headers {
            [(":method", method), (":path", "/s/m"), (":authority", "service")].into_iter().collect()
        };
        let empty = || body::whole(Bytes::new());
        let sent = outbound_http2(request("POST"), empty()).unwrap();
        assert_eq!((sent.uri().to_string().as_str(), sent.headers().len()), ("http://service/s/m", 0));
        for (method, length) in [("POST", Some("0")), ("PUT", Some("0")), ("GET", None), ("DELETE", None)] {
            let sent = outbound(request(method), &base, empty()).unwrap();
            let text = |name| sent.headers().get(name).map(|value| value.to_str().unwrap());
            assert_eq!((text("host"), text("content-length")), (Some("service"), length), "{method}");
        }
    }

    #[test]
    fn what_http_does_not_have_is_not_sent() {
        let base: Uri = "http://127.0.0.1:1".parse().unwrap();
        let send = |name: &'static str, value: &'static str| {
            let mut headers: Headers = [(":method", "GET"), (":path", "/")].into_iter().collect();
            headers.set(name, value);
            outbound(headers, &base, body::whole(Bytes::new())).map(|request| request.uri().to_string())
        };
        assert_eq!(send("x", "y"), Some("http://127.0.0.1:1/".to_owned()));
        assert_eq!(send(":path", "a b"), None);
        assert_eq!(send(":method", "G T"), None);
        let headers: Headers = [(":status", "1000")].into_iter().collect();
        assert!(inbound(headers, body::whole(Bytes::new())).is_none());
    }
}
