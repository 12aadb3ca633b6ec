//! What the filter reads of a request's headers, in one pass over them.

use super::header_pairs::HeaderPairs;
use super::identity::KeySource;

/// Reads the headers that matter to a configuration.
#[derive(Clone, Debug)]
pub struct LineReader {
    /// The names of headers that may carry a key, in lower case, each with the place of its source among the key sources.
    key_names: Vec<(Vec<u8>, usize)>,
    /// Whether a request carries its key in headers alone.
    in_headers: bool,
    /// The lengths of these names, as bits.
    key_lengths: u32,
}

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

/// The bit of a name's length. Lengths that differ by a multiple of 32 share one.
const fn bit(length: usize) -> u32 {
    1_u32.wrapping_shl((length % 32) as u32)
}

impl LineReader {
    /// Reads requests for these key sources.
    #[must_use]
    pub fn new(key_sources: &[KeySource]) -> Self {
        let in_header = |(place, source): (usize, &KeySource)| match source {
            KeySource::Header { name, .. } => Some((name.clone().into_bytes(), place)),
            KeySource::Query { .. } | KeySource::Metadata { .. } => None,
        };
        let mut key_names: Vec<_> = key_sources.iter().enumerate().filter_map(in_header).collect();
        let in_headers = key_names.len() == key_sources.len();
        // Several sources may read one header, with other schemes.
        key_names.sort();
        key_names.dedup_by(|(name, _), (before, _)| name == before);
        let key_lengths = key_names.iter().fold(0, |lengths, (name, _)| lengths | bit(name.len()));
        Self { key_names, in_headers, key_lengths }
    }

    /// With `strict`, no request is known by one line alone: others may have another spelling of a key's name.
    #[must_use]
    pub fn strict(self, strict: bool) -> Self {
        Self { in_headers: self.in_headers && !strict, ..self }
    }

    /// Reads a header map as the host serializes it. `None` if it is cut short or empty: a request always has headers.
    #[must_use]
    pub fn read<'r>(&self, headers: &'r [u8]) -> Option<RequestLine<'r>> {
        let headers = HeaderPairs::parse(headers)?;
        let (mut method, mut path, mut origin, mut is_grpc) = (None, None, None, false);
        let mut key = if self.in_headers { KeyLine::None } else { KeyLine::Several };
        headers.for_each(|length, field| {
            match length {
                5 if path.is_none() => path = field.named(b":path"),
                6 if origin.is_none() => origin = field.named(b"origin"),
                7 if method.is_none() => method = field.named(b":method"),
                12 => is_grpc |= field.named(b"content-type").is_some_and(is_grpc_type),
                _ => {}
            }
            if self.key_lengths & bit(length) == 0 {
                return;
            }
            for (name, source) in &self.key_names {
                if name.len() == length
                    && let Some(value) = field.named(name)
                {
                    key = match key {
                        KeyLine::None => KeyLine::One { source: *source, value },
                        KeyLine::One { .. } | KeyLine::Several => KeyLine::Several,
                    };
                }
            }
        });
        Some(RequestLine { headers, method: method.unwrap_or_default(), path, origin, is_grpc, key })
    }
}

/// Whether a `content-type` is that of a gRPC request.
fn is_grpc_type(content_type: &[u8]) -> bool {
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
            assert_eq!(is_grpc_type(value.as_bytes()), expected, "{value}");
        }
    }
}
