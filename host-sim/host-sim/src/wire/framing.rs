//! How a body comes to the filters: in which pieces, and what its end comes with.

use std::{fmt, num::NonZeroUsize, str::FromStr};

use bytes::Bytes;

/// In which pieces the body of a message comes to the filters.
///
/// Envoy's own is the protocol's: over HTTP/1 the end of a body comes by itself, after the last piece, whether the body
/// was sent with its length or in chunks; over HTTP/2 it comes with the last piece. Filters must not depend on either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// As Envoy does for the protocol of the message.
    #[default]
    AsEnvoy,
    /// As over HTTP/1, whatever the protocol: `(5, false)`, then `(0, true)`.
    Http1,
    /// As over HTTP/2, whatever the protocol: `(5, true)`.
    Http2,
    /// In pieces of this number of bytes, the last of which may be smaller; the end comes by itself.
    Pieces(NonZeroUsize),
}

/// What is no framing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no framing is named {0:?}: there are envoy, http1, http2 and a number of bytes from 1 on")]
pub struct UnknownFraming(String);

impl FromStr for Framing {
    type Err = UnknownFraming;

    fn from_str(text: &str) -> Result<Self, UnknownFraming> {
        match text {
            "envoy" => Ok(Self::AsEnvoy),
            "http1" => Ok(Self::Http1),
            "http2" => Ok(Self::Http2),
            bytes => bytes.parse().map(Self::Pieces).map_err(|_| UnknownFraming(text.to_owned())),
        }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsEnvoy => f.write_str("envoy"),
            Self::Http1 => f.write_str("http1"),
            Self::Http2 => f.write_str("http2"),
            Self::Pieces(bytes) => bytes.fmt(f),
        }
    }
}

impl Framing {
    /// The pieces of data that has come, each with whether the body ends with it. `http2` is whether the message came
    /// over HTTP/2, and `end` whether nothing of the body follows the data.
    pub fn pieces(self, mut data: Bytes, end: bool, http2: bool) -> Vec<(Bytes, bool)> {
        let joined = match self {
            Self::AsEnvoy => http2,
            Self::Http2 => true,
            Self::Http1 | Self::Pieces(_) => false,
        };
        if joined {
            return vec![(data, end)];
        }
        let most = match self {
            Self::Pieces(bytes) => bytes.get(),
            Self::AsEnvoy | Self::Http1 | Self::Http2 => usize::MAX,
        };
        let mut pieces = Vec::new();
        while !data.is_empty() {
            pieces.push((data.split_to(most.min(data.len())), false));
        }
        if end {
            pieces.push((Bytes::new(), true));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Framing, whether the message's protocol is HTTP/2, data, pieces.
    type Row<'a> = (&'a str, bool, &'a str, &'a [(&'a str, bool)]);

    #[test]
    fn a_body_comes_in_the_pieces_of_its_framing() {
        let rows: [Row<'_>; 8] = [
            ("envoy", false, "hello", &[("hello", false), ("", true)]),
            ("envoy", true, "hello", &[("hello", true)]),
            ("envoy", true, "", &[("", true)]),
            ("http1", true, "hello", &[("hello", false), ("", true)]),
            ("http1", true, "", &[("", true)]),
            ("http2", false, "hello", &[("hello", true)]),
            ("1", true, "abc", &[("a", false), ("b", false), ("c", false), ("", true)]),
            ("2", false, "abc", &[("ab", false), ("c", false), ("", true)]),
        ];
        for (framing, http2, data, expected) in rows {
            let named: Framing = framing.parse().unwrap();
            assert_eq!(named.to_string(), framing);
            let expected: Vec<_> = expected.iter().map(|(data, end)| (Bytes::from(*data), *end)).collect();
            assert_eq!(named.pieces(data.into(), true, http2), expected, "{framing} of {data:?}");
        }
        assert_eq!(Framing::AsEnvoy.pieces("ab".into(), false, false), [(Bytes::from("ab"), false)]);
    }

    #[test]
    fn what_is_no_framing_is_told() {
        for text in ["0", "-1", "chunks", ""] {
            let error = text.parse::<Framing>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("http1"), "{error}");
        }
    }
}
