//! What the filter reads of a request's headers, in one pass over them.

use super::header_pairs::{HeaderPairs, Names};
use super::identity::KeySource;

/// The headers to look for, for the key sources of a configuration.
#[derive(Clone, Debug)]
pub struct LineReader {
    names: Names,
    /// For each name after [`FIXED`], the place of its source among the key sources.
    sources: Vec<usize>,
    /// Whether a request carries its key in headers alone.
    in_headers: bool,
}

/// The names that every request is read for; the places of [`METHOD`] and its neighbours.
const FIXED: [&str; 4] = [":method", ":path", "origin", "content-type"];
const METHOD: usize = 0;
const PATH: usize = 1;
const ORIGIN: usize = 2;
const CONTENT_TYPE: usize = 3;

/// What the filter reads of a request's headers.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'r> {
    /// All headers.
    pub headers: HeaderPairs<'r>,
    /// `:method`; empty if there is none.
    pub method: &'r [u8],
    /// `:path`, with its query.
    pub path: Option<&'r [u8]>,
    /// `origin`.
    pub origin: Option<&'r [u8]>,
    /// Whether this is a gRPC request: its client reads a reply's body as a message.
    pub is_grpc: bool,
    /// Where the request may carry its key.
    pub key: KeyLine<'r>,
}

/// The headers in which a request may carry its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLine<'r> {
    /// There is none, and no other place for a key.
    None,
    /// There is exactly one, and no other place for a key: what [`super::identity::credential`] finds depends on this line alone, so a caller
    /// may be remembered by it.
    One {
        /// The place of the line's source among the key sources.
        source: usize,
        /// The line's value.
        value: &'r [u8],
    },
    /// There are several, or keys may be elsewhere, too.
    Several,
}

impl LineReader {
    /// Reads requests for these key sources.
    #[must_use]
    pub fn new(key_sources: &[KeySource]) -> Self {
        let in_header = |(place, source): (usize, &KeySource)| match source {
            KeySource::Header { name, .. } => Some((name.clone(), place)),
            KeySource::Query { .. } | KeySource::Metadata { .. } => None,
        };
        let (names, sources): (Vec<_>, Vec<_>) = key_sources.iter().enumerate().filter_map(in_header).unzip();
        let in_headers = sources.len() == key_sources.len();
        Self { names: Names::new(FIXED.map(str::to_owned).into_iter().chain(names)), sources, in_headers }
    }

    /// Reads a header map as the host serializes it. `None` if it is cut short or empty: a request always has headers.
    #[must_use]
    pub fn read<'r>(&self, headers: &'r [u8]) -> Option<RequestLine<'r>> {
        let headers = HeaderPairs::parse(headers)?;
        let key = if self.in_headers { KeyLine::None } else { KeyLine::Several };
        let mut line = RequestLine { headers, method: b"", path: None, origin: None, is_grpc: false, key };
        for (place, value) in headers.each(&self.names) {
            match place {
                METHOD if line.method.is_empty() => line.method = value,
                PATH => line.path = line.path.or(Some(value)),
                ORIGIN => line.origin = line.origin.or(Some(value)),
                CONTENT_TYPE => line.is_grpc |= is_grpc(value),
                _ => {
                    let source = place.checked_sub(FIXED.len()).and_then(|place| self.sources.get(place));
                    if let Some(&source) = source {
                        line.key = match line.key {
                            KeyLine::None => KeyLine::One { source, value },
                            KeyLine::One { .. } | KeyLine::Several => KeyLine::Several,
                        };
                    }
                }
            }
        }
        Some(line)
    }
}

/// Whether a request whose headers are serialized here is gRPC.
#[must_use]
pub fn is_grpc_request(headers: &[u8]) -> bool {
    HeaderPairs::parse(headers).and_then(|headers| headers.get("content-type")).is_some_and(is_grpc)
}

/// Whether a `content-type` is that of a gRPC request.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::header_pairs::serialize;

    fn header(name: &str) -> KeySource {
        KeySource::Header { name: name.to_owned(), scheme: None }
    }

    #[test]
    fn a_request_is_read_in_one_pass_whatever_the_case_of_its_names() {
        let reader = LineReader::new(&[header("authorization"), header("x-api-key")]);
        let headers = serialize(&[
            (":method", b"GET"),
            (":path", b"/links?x"),
            ("Content-Type", b"application/grpc+proto"),
            ("Authorization", b"Bearer a"),
            ("ORIGIN", b"https://example.com"),
            ("accept", b"*/*"),
        ]);
        let line = reader.read(&headers).unwrap();
        assert_eq!((line.method, line.path), (&b"GET"[..], Some(&b"/links?x"[..])));
        assert_eq!((line.is_grpc, line.origin), (true, Some(&b"https://example.com"[..])));
        assert_eq!(line.key, KeyLine::One { source: 0, value: b"Bearer a" });
        assert!(reader.read(b"").is_none());
    }

    #[test]
    fn a_caller_can_be_remembered_by_one_line_alone() {
        let query = KeySource::Query { name: "key".to_owned() };
        let one = |source| KeyLine::One { source, value: b"k" };
        let rows = [
            (vec![header("a"), header("b")], vec![], KeyLine::None),
            (vec![header("a"), header("b")], vec!["b"], one(1)),
            (vec![header("a"), header("b")], vec!["a", "b"], KeyLine::Several),
            (vec![header("a"), header("b")], vec!["a", "a"], KeyLine::Several),
            (vec![header("a"), query], vec!["a"], KeyLine::Several),
            // The second source of a name adds nothing, so the line is still the only one.
            (vec![header("a"), header("a")], vec!["a"], one(0)),
        ];
        for (sources, names, expected) in rows {
            let headers: Vec<_> = [(":method", &b"GET"[..])]
                .into_iter()
                .chain(names.iter().map(|name| (*name, &b"k"[..])))
                .collect();
            let bytes = serialize(&headers);
            assert_eq!(
                LineReader::new(&sources).read(&bytes).unwrap().key,
                expected,
                "{sources:?} {names:?}"
            );
        }
    }

    #[test]
    fn only_grpc_is_grpc() {
        let rows = [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;x", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ];
        for (value, expected) in rows {
            assert_eq!(is_grpc(value.as_bytes()), expected, "{value}");
        }
    }
}
