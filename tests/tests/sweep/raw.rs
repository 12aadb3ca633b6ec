//! Requests as bytes on a socket: the simulator answers them, and hands them on, as Envoy does.
//!
//! What differs is a table of host-sim's documentation, `support.md`: each row has to be found, and nothing else may be.

use std::fmt::Write as _;

use tests::raw::{Row, seen};

/// Requests on one connection each; a `$` is a header that tells them apart.
#[rustfmt::skip]
const ROWS: &[(&str, &[&[u8]])] = &[
    ("a plain request", &[b"GET / HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("two requests at once", &[b"GET /1 HTTP/1.1\r\nhost: a\r\n$\r\nGET /2 HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("lines that end in LF alone", &[b"GET / HTTP/1.1\nhost: a\n$\n"]),
    ("an empty line before the request", &[b"\r\nGET / HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a folded header", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x: a\r\n b\r\n\r\n"]),
    ("a length and chunks", &[b"POST / HTTP/1.1\r\nhost: a\r\n$content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"]),
    ("the same length twice", &[b"POST / HTTP/1.1\r\nhost: a\r\n$content-length: 2\r\ncontent-length: 2\r\n\r\nab"]),
    ("two lengths", &[b"POST / HTTP/1.1\r\nhost: a\r\n$content-length: 2\r\ncontent-length: 3\r\n\r\nab"]),
    ("a list of lengths", &[b"POST / HTTP/1.1\r\nhost: a\r\n$content-length: 2, 2\r\n\r\nab"]),
    ("a length that is no number", &[b"POST / HTTP/1.1\r\nhost: a\r\n$content-length: x\r\n\r\n"]),
    ("a length with a sign", &[b"POST / HTTP/1.1\r\nhost: a\r\n$content-length: +2\r\n\r\nab"]),
    ("an absolute path", &[b"GET http://b/x?y HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("an absolute URL without a path", &[b"GET http://b HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("an absolute URL of another scheme", &[b"GET https://b/x HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a body that waits for 100", &[b"POST / HTTP/1.1\r\nhost: a\r\n$expect: 100-continue\r\ncontent-length: 2\r\n\r\n", b"ab"]),
    ("another expectation", &[b"GET / HTTP/1.1\r\nhost: a\r\n$expect: 200-ok\r\n\r\n"]),
    ("trailers", &[b"POST / HTTP/1.1\r\nhost: a\r\n$transfer-encoding: chunked\r\ntrailer: x\r\n\r\n2\r\nab\r\n0\r\nx: 1\r\n\r\n"]),
    ("HTTP/1.0", &[b"GET / HTTP/1.0\r\nhost: a\r\n$\r\n"]),
    ("HTTP/1.0 that is kept open", &[b"GET / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n$\r\n"]),
    ("HEAD", &[b"HEAD / HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("HEAD with a body", &[b"HEAD / HTTP/1.1\r\nhost: a\r\n$content-length: 2\r\n\r\nab"]),
    ("GET with a body", &[b"GET / HTTP/1.1\r\nhost: a\r\n$content-length: 2\r\n\r\nab"]),
    ("CONNECT", &[b"CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n$\r\n"]),
    ("CONNECT to a path", &[b"CONNECT /a HTTP/1.1\r\nhost: a:80\r\n$\r\n"]),
    ("an upgrade to WebSocket", &[b"GET / HTTP/1.1\r\nhost: a\r\n$connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n"]),
    ("an upgrade to h2c", &[b"GET / HTTP/1.1\r\nhost: a\r\n$connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n"]),
    ("an upgrade that the connection does not name", &[b"GET / HTTP/1.1\r\nhost: a\r\n$upgrade: websocket\r\n\r\n"]),
    ("an upgrade to anything", &[b"GET / HTTP/1.1\r\nhost: a\r\n$connection: upgrade\r\nupgrade: foo\r\n\r\n"]),
    ("no host", &[b"GET / HTTP/1.1\r\n$\r\n"]),
    ("an empty host", &[b"GET / HTTP/1.1\r\nhost: \r\n$\r\n"]),
    ("the same host twice", &[b"GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n$\r\n"]),
    ("two hosts", &[b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n$\r\n"]),
    ("a host with a port", &[b"GET / HTTP/1.1\r\nhost: a:80\r\n$\r\n"]),
    ("a host with a user", &[b"GET / HTTP/1.1\r\nhost: u@a\r\n$\r\n"]),
    ("an address of IPv6", &[b"GET / HTTP/1.1\r\nhost: [::1]:80\r\n$\r\n"]),
    ("a path in the host", &[b"GET / HTTP/1.1\r\nhost: a/b\r\n$\r\n"]),
    ("a space in the host", &[b"GET / HTTP/1.1\r\nhost: a b\r\n$\r\n"]),
    ("a list of hosts", &[b"GET / HTTP/1.1\r\nhost: a,b\r\n$\r\n"]),
    ("a host in capitals", &[b"GET / HTTP/1.1\r\nhost: A.Example\r\n$\r\n"]),
    ("a transfer coding that nobody knows", &[b"POST / HTTP/1.1\r\nhost: a\r\n$transfer-encoding: foo\r\n\r\nab"]),
    ("gzip and chunks", &[b"POST / HTTP/1.1\r\nhost: a\r\n$transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"]),
    ("chunks twice", &[b"POST / HTTP/1.1\r\nhost: a\r\n$transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n"]),
    ("a chunk without a size", &[b"POST / HTTP/1.1\r\nhost: a\r\n$transfer-encoding: chunked\r\n\r\nx\r\n"]),
    ("a chunk with an extension", &[b"POST / HTTP/1.1\r\nhost: a\r\n$transfer-encoding: chunked\r\n\r\n2;a=b\r\nab\r\n0\r\n\r\n"]),
    ("a method in lower case", &[b"get / HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a method that nobody knows", &[b"FOO / HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("TRACE", &[b"TRACE / HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a path that is no ASCII", &[b"GET /caf\xc3\xa9 HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a quote in the path", &[b"GET /a\"b HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("an angle bracket in the path", &[b"GET /a<b HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a fragment", &[b"GET /a#f HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a path without a slash", &[b"GET a HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("two slashes", &[b"GET //a/../b HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a star", &[b"OPTIONS * HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a star of GET", &[b"GET * HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("two spaces before the path", &[b"GET  / HTTP/1.1\r\nhost: a\r\n$\r\n"]),
    ("a space in a header's name", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x y: a\r\n\r\n"]),
    ("a space before the colon", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x : a\r\n\r\n"]),
    ("a header without a name", &[b"GET / HTTP/1.1\r\nhost: a\r\n$: a\r\n\r\n"]),
    ("a line without a colon", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x\r\n\r\n"]),
    ("a zero byte in a value", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x: a\0b\r\n\r\n"]),
    ("an underscore in a header's name", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x_y: a\r\n\r\n"]),
    ("a header without a value", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x:\r\n\r\n"]),
    ("spaces around a value", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x: \ta b\t \r\n\r\n"]),
    ("headers that only Envoy says", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x-envoy-internal: true\r\nx-envoy-original-path: /p\r\nx-envoy-max-retries: 3\r\nx-envoy-upstream-rq-timeout-ms: 1000\r\nx-envoy-decorator-operation: op\r\nx-envoy-external-address: 198.51.100.1\r\nx-envoy-retry-on: 5xx\r\nx-envoy-retriable-status-codes: 500\r\nx-envoy-upstream-rq-per-try-timeout-ms: 500\r\nx-envoy-upstream-rq-timeout-alt-response: 1\r\nx-envoy-upstream-alt-stat-name: s\r\nx-envoy-expected-rq-timeout-ms: 1000\r\nx-envoy-retry-grpc-on: cancelled\r\nx-envoy-retriable-header-names: x\r\nx-envoy-ip-tags: t\r\nx-envoy-force-trace: true\r\nx-envoy-hedge-on-per-try-timeout: true\r\nx-envoy-original-host: h\r\nx-envoy-attempt-count: 4\r\nx-envoy-downstream-service-cluster: c\r\nx-envoy-downstream-service-node: n\r\nx-envoy-peer-metadata: m\r\nx-envoy-is-timeout-retry: true\r\nx-envoy-upstream-service-time: 5\r\nx-envoy-original-dst-host: 127.0.0.1:1\r\nx-envoy-overloaded: true\r\n\r\n"]),
    ("headers that a proxy in front says", &[b"GET / HTTP/1.1\r\nhost: a\r\n$x-forwarded-for: 198.51.100.1\r\nx-forwarded-proto: https\r\nx-forwarded-host: h\r\nx-forwarded-port: 1\r\nx-forwarded-client-cert: By=me\r\nx-request-id: mine\r\nforwarded: for=198.51.100.1\r\nvia: 1.1 p\r\nx-b3-traceid: 1\r\ntraceparent: 00-1-2-01\r\nx-client-trace-id: t\r\n\r\n"]),
    ("a connection that is to close", &[b"GET / HTTP/1.1\r\nhost: a\r\n$connection: close\r\n\r\n"]),
    ("a header of the connection", &[b"GET / HTTP/1.1\r\nhost: a\r\n$connection: keep-alive, X-Hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nproxy-connection: keep-alive\r\n\r\n"]),
    ("a connection that names a header of the message", &[b"GET / HTTP/1.1\r\nhost: a\r\n$connection: x-keep, cookie\r\ncookie: a=b\r\n\r\n"]),
    ("trailers that the client takes", &[b"GET / HTTP/1.1\r\nhost: a\r\n$te: trailers\r\nconnection: te\r\n\r\n"]),
    ("another coding that the client takes", &[b"GET / HTTP/1.1\r\nhost: a\r\n$te: gzip\r\n\r\n"]),
    ("no HTTP", &[b"hello\r\n\r\n"]),
    ("another version", &[b"GET / HTTP/1.2\r\nhost: a\r\n$\r\n"]),
    ("a version in lower case", &[b"GET / http/1.1\r\nhost: a\r\n$\r\n"]),
    ("HTTP/0.9", &[b"GET /\r\n\r\n"]),
];

/// Requests that are too long to be written down.
fn long() -> Vec<Row> {
    let get =
        |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\nhost: a\r\n${headers}\r\n").into_bytes();
    let padded = |lines: usize, bytes: usize| -> String {
        (0..lines).map(|line| format!("x-{line}: {}\r\n", "p".repeat(bytes))).collect()
    };
    let rows = [
        ("50 KiB of headers", get("/", &padded(50, 1024))),
        ("100 KiB of headers", get("/", &padded(50, 2048))),
        ("a hundred headers", get("/", &padded(98, 1))),
        ("a hundred and one headers", get("/", &padded(99, 1))),
        ("a path of 70 KiB", get(&format!("/{}", "p".repeat(70 << 10)), "")),
    ];
    rows.map(|(name, bytes)| (name, vec![bytes])).into()
}

/// The rows of the documentation: a name, a line that is of one alone, and whose it is.
fn documented() -> Vec<[&'static str; 3]> {
    const SUPPORT: &str = include_str!("../../../host-sim/host-sim/src/support.md");
    let (_, section) = SUPPORT.split_once("# Requests as bytes").expect("the section");
    let section = section.split("\n# ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| request "));
    rows.flat_map(|row| {
        let cells: Vec<_> = row.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect();
        let [name, here, there, why] = cells[..] else { panic!("not a row: {row}") };
        assert!(!why.is_empty(), "a row without a reason: {row}");
        name.split(", ").map(move |name| [name, here, there])
    })
    .collect()
}

/// The statuses of the answers, or what each of two saw and the other did not, in one line.
fn apart([here, there]: &[Vec<String>; 2]) -> Option<[String; 2]> {
    let only = |of: &[String], other: &[String]| {
        let mut other = other.to_vec();
        let mut only = of.to_vec();
        only.retain(|line| match other.iter().position(|known| known == line) {
            Some(index) => {
                other.remove(index);
                false
            }
            None => true,
        });
        if only.is_empty() { "–".to_owned() } else { only.join("; ") }
    };
    let statuses = |of: &[String]| -> String {
        let statuses: Vec<_> = of.iter().filter_map(|line| line.strip_prefix("status ")).collect();
        if statuses.is_empty() { "–".to_owned() } else { statuses.join(", ") }
    };
    let of_each = [statuses(here), statuses(there)];
    let differ = of_each[0] != of_each[1];
    (here != there).then(|| if differ { of_each } else { [only(here, there), only(there, here)] })
}

#[test]
fn a_request_is_read_from_a_socket_as_envoy_reads_it() {
    let short =
        ROWS.iter().map(|(name, pieces)| (*name, pieces.iter().map(|piece| piece.to_vec()).collect()));
    let rows: Vec<Row> = short.chain(long()).collect();
    let known = documented();
    let mut wrong = String::new();
    for ((name, _), seen) in rows.iter().zip(seen(&rows).expect("both gateways")) {
        let known = known.iter().find(|[of, ..]| of == name);
        let found = apart(&seen);
        let agrees = match (&found, known) {
            (None, None) => true,
            (Some([here, there]), Some([_, known_here, known_there])) => {
                here == known_here && there == known_there
            }
            _ => false,
        };
        if !agrees {
            let [here, there] = found.unwrap_or_default();
            let _ = writeln!(wrong, "| {name} | `{here}` | `{there}` |");
        }
    }
    for [name, ..] in known.iter().filter(|[of, ..]| !rows.iter().any(|(name, _)| name == of)) {
        let _ = writeln!(wrong, "no such request: {name}");
    }
    assert_eq!(wrong, "");
}
