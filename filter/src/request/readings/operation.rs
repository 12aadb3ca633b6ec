//! What upstreams do to paths, one operation at a time.

use crate::request::path::{decode, escape};

/// What an upstream may do to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Decodes `%2F` and `%5C`.
    EncodedSlashes,
    /// Decodes all other escapes. Occurs once in [`ORDER`](super::ORDER): a path is decoded once.
    OtherEscapes,
    /// Reads `\` as `/`.
    Backslashes,
    /// Drops `;…` from each segment.
    MatrixParameters,
    /// Merges `//`.
    Slashes,
    /// Removes dot segments, also those with matrix parameters, as Envoy 1.40 does: `..;a` is `..`, and `b;a` stays.
    DotSegmentsWithParameters,
    /// Removes dot segments (RFC 3986, section 5.2.4).
    DotSegments,
}

impl Operation {
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }

    pub(super) fn apply(self, path: &[u8]) -> Vec<u8> {
        match self {
            Self::EncodedSlashes => decode(path, |_, byte| is_slash(byte)),
            Self::OtherEscapes => decode(path, |_, byte| !is_slash(byte)),
            Self::Backslashes => path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect(),
            Self::MatrixParameters => {
                let mut in_parameters = false;
                filtered(path, |byte| {
                    in_parameters = byte == b';' || (in_parameters && byte != b'/');
                    !in_parameters
                })
            }
            Self::Slashes => {
                let mut before = 0;
                filtered(path, |byte| {
                    let is_repeated = (before, byte) == (b'/', b'/');
                    before = byte;
                    !is_repeated
                })
            }
            Self::DotSegmentsWithParameters => without_dot_segments(path, |segment| {
                segment.split(|byte| *byte == b';').next().unwrap_or(segment)
            }),
            Self::DotSegments => without_dot_segments(path, |segment| segment),
        }
    }
}

/// The operations that change a path, as bits.
pub(super) fn operations_that_change(path: &[u8]) -> u8 {
    let mut found = 0;
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        match (byte, after) {
            (b'%', _) => {
                found |= match escape(rest) {
                    Some((byte, _)) if is_slash(byte) => Operation::EncodedSlashes.bit(),
                    Some(_) => Operation::OtherEscapes.bit(),
                    None => 0,
                }
            }
            (b'\\', _) => found |= Operation::Backslashes.bit(),
            (b';', _) => found |= Operation::MatrixParameters.bit(),
            (b'/', [b'/', ..]) => found |= Operation::Slashes.bit(),
            (b'/', [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..]) => {
                found |= Operation::DotSegments.bit() | Operation::DotSegmentsWithParameters.bit();
            }
            (b'/', [b'.', b';', ..] | [b'.', b'.', b';', ..]) => {
                found |= Operation::DotSegmentsWithParameters.bit();
            }
            (_, _) => {}
        }
        rest = after;
    }
    found
}

/// Removes the segments that are `.` and `..` by name (RFC 3986, section 5.2.4). `..` also removes an empty segment.
fn without_dot_segments(path: &[u8], name: fn(&[u8]) -> &[u8]) -> Vec<u8> {
    let mut left: Vec<u8> = Vec::with_capacity(path.len());
    for segment in path.split(|byte| *byte == b'/').skip(1) {
        match name(segment) {
            b"." => {}
            b".." => left.truncate(left.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
            _ => {
                left.push(b'/');
                left.extend_from_slice(segment);
            }
        }
    }
    if left.is_empty() {
        left.push(b'/');
    }
    left
}

/// The bytes of a path that are to be kept.
fn filtered(path: &[u8], mut keeps: impl FnMut(u8) -> bool) -> Vec<u8> {
    let mut kept = path.to_vec();
    kept.retain(|byte| keeps(*byte));
    kept
}

fn is_slash(byte: u8) -> bool {
    matches!(byte, b'/' | b'\\')
}
