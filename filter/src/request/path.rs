//! The parts of a request's path that are the same for every upstream.

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
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    match path.strip_prefix(prefix.as_bytes())? {
        [] => Some(b"/"),
        rest @ [b'/', ..] => Some(rest),
        [..] => None,
    }
}

/// A request's `:path` without query and fragment.
pub(super) fn without_query(path: &[u8]) -> &[u8] {
    path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or(path)
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
        [b'%', high, low, rest @ ..] => Some((decode_hex(*high, *low)?, rest)),
        _ => None,
    }
}

/// The byte that `%` and these two hexadecimal digits stand for.
pub(crate) fn decode_hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
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
