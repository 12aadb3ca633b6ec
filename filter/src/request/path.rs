//! The parts of a request's path that are the same for every upstream, and the path of a request that the filter itself answers.

use std::borrow::Cow;

use hex::FromHex;
use memchr::{memchr, memchr2};

/// What is left of `path` below `prefix`, by whole segments and with its leading `/`.
///
/// ```
/// use filter::request::path::below;
/// assert_eq!(below("/v1", b"/v1/links"), Some(&b"/links"[..]));
/// assert_eq!(below("/v1", b"/v1"), Some(&b"/"[..]));
/// assert_eq!(below("/v1", b"/v10/links"), None);
/// ```
#[must_use]
pub fn below<'p>(prefix: &str, path: &'p [u8]) -> Option<&'p [u8]> {
    if prefix.is_empty() && path.first() == Some(&b'/') {
        return Some(path);
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let (start, rest) = path.split_at_checked(prefix.len())?;
    let rest = match rest {
        [] => b"/",
        [b'/', ..] => rest,
        [..] => return None,
    };
    (start == prefix.as_bytes()).then_some(rest)
}

/// A request's `:path` without query and fragment.
pub(super) fn without_query(path: &[u8]) -> &[u8] {
    let end = memchr2(b'?', b'#', path).unwrap_or(path.len());
    path.get(..end).unwrap_or(path)
}

/// A path without the slashes at its end; `/` if nothing else is left.
pub(super) fn without_trailing_slashes(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte != b'/') {
        Some(last) => path.get(..=last).unwrap_or(path),
        None => b"/",
    }
}

/// The byte of the escape `%XX` at the start of `path`, and the rest of the path.
pub(super) fn escape(path: &[u8]) -> Option<(u8, &[u8])> {
    match path {
        [b'%', high, low, rest @ ..] => {
            let [byte] = FromHex::from_hex([*high, *low]).ok()?;
            Some((byte, rest))
        }
        _ => None,
    }
}

/// The segments of a request's `:path`, each percent-decoded once. Trailing slashes do not matter.
///
/// The filter itself answers such a request, so the path has no other reading.
///
/// ```
/// use filter::request::path::segments;
/// assert!(segments(b"/weir/a%2Fb%20c/?x=/y").eq([&b"weir"[..], b"a/b c"]));
/// assert_eq!(segments(b"/").count(), 0);
/// ```
pub fn segments(path: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let path = without_trailing_slashes(without_query(path));
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let segments = path.split(|byte| *byte == b'/').filter(|_| !path.is_empty());
    segments.map(|segment| percent_decoded(segment, b'+'))
}

/// A text whose escapes `%XX` are decoded, and in which `+` stands for `plus`. An invalid escape stands for itself.
pub(super) fn percent_decoded(text: &[u8], plus: u8) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let text: Vec<_> = text.iter().map(|byte| if *byte == b'+' { plus } else { *byte }).collect();
    Cow::Owned(decode(&text, |_, _| true))
}

/// Decodes, in one pass, the escapes of bytes that are `wanted` after what has been decoded before them.
pub(super) fn decode(path: &[u8], wanted: impl Fn(&[u8], u8) -> bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len() + 1);
    let mut rest = path;
    while let Some(start) = memchr(b'%', rest) {
        let (plain, from) = rest.split_at(start);
        decoded.extend_from_slice(plain);
        rest = match escape(from) {
            Some((byte, after)) if wanted(&decoded, byte) => {
                decoded.push(byte);
                after
            }
            Some((_, after)) => {
                decoded.extend(from.iter().take(3));
                after
            }
            None => {
                decoded.push(b'%');
                from.get(1..).unwrap_or_default()
            }
        };
    }
    decoded.extend_from_slice(rest);
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_fragments_and_trailing_slashes_are_not_part_of_the_path() {
        let rows = [
            ("/analytics", "/analytics"),
            ("/analytics?x=/y", "/analytics"),
            ("/analytics#x", "/analytics"),
            ("/analytics///?x", "/analytics"),
            ("//analytics", "//analytics"),
            ("///", "/"),
            ("?", "/"),
            ("", "/"),
        ];
        for (path, expected) in rows {
            let found = without_trailing_slashes(without_query(path.as_bytes()));
            assert_eq!(found.escape_ascii().to_string(), expected, "{path}");
        }
    }
}
