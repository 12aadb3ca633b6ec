//! A request's path in the normal form that classes and exemptions are matched against.

use std::borrow::Cow;

/// What is left of `path` below `prefix`, by whole segments and with its leading `/`; both in normal form.
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

/// The normal form of a request's `:path`: without query and fragment, `%XX` of unreserved characters (RFC 3986, section 2.3) decoded,
/// `;…` dropped from each segment, `//` merged, `.` and `..` resolved, no trailing `/`.
///
/// ```
/// use filter::request::path::normalize;
/// assert_eq!(&*normalize(b"/x/../%61nalytics/;a=b?c"), b"/analytics");
/// assert_eq!(&*normalize(b"/analytics%2F"), b"/analytics%2F");
/// ```
#[must_use]
pub fn normalize(path: &[u8]) -> Cow<'_, [u8]> {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let path = path.get(..end).unwrap_or(path);
    if is_normal(path) {
        return Cow::Borrowed(path);
    }
    let decoded = decode_unreserved(path);
    let mut normal = Vec::with_capacity(decoded.len() + 1);
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment.split(|byte| *byte == b';').next().unwrap_or_default() {
            b"" | b"." => {}
            b".." => {
                let parent = normal.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                normal.truncate(parent);
            }
            segment => {
                normal.push(b'/');
                normal.extend_from_slice(segment);
            }
        }
    }
    if normal.is_empty() {
        normal.push(b'/');
    }
    Cow::Owned(normal)
}

/// Whether a path is certainly in normal form already, as nearly all are.
fn is_normal(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        && !path.iter().any(|byte| matches!(byte, b'%' | b';'))
        && (path.len() == 1 || path.last() != Some(&b'/'))
        && !path.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

fn decode_unreserved(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match rest {
            [b'%', high, low, after @ ..] => decode_hex(*high, *low).map(|byte| (byte, after)),
            _ => None,
        };
        match escaped {
            Some((escaped, after)) if is_unreserved(escaped) => {
                decoded.push(escaped);
                rest = after;
            }
            _ => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    decoded
}

/// The byte that `%` and these two hexadecimal digits stand for.
pub(crate) fn decode_hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_spelling_of_a_path_has_one_normal_form() {
        let rows = [
            ("/analytics", "/analytics"),
            ("/analytics/", "/analytics"),
            ("//analytics", "/analytics"),
            ("/analytics//", "/analytics"),
            ("/%61nalytics", "/analytics"),
            ("/%61%6E%61lytics", "/analytics"),
            ("/x/../analytics", "/analytics"),
            ("/x/%2e%2E/analytics", "/analytics"),
            ("/./analytics/.", "/analytics"),
            ("/../../analytics", "/analytics"),
            ("/analytics;a=b", "/analytics"),
            ("/;a/analytics;b", "/analytics"),
            ("/x/..;/analytics", "/analytics"),
            ("/analytics?x=/y", "/analytics"),
            ("/analytics#x", "/analytics"),
            ("/analytics/?x", "/analytics"),
            ("analytics", "/analytics"),
            ("/Analytics", "/Analytics"),
            ("/analytics%2F", "/analytics%2F"),
            ("/analytics%2f", "/analytics%2f"),
            ("/analytics%3Ba", "/analytics%3Ba"),
            ("/analytics%", "/analytics%"),
            ("/analytics%6", "/analytics%6"),
            ("/%zz", "/%zz"),
            ("/%2561nalytics", "/%2561nalytics"),
            ("/analytics/x", "/analytics/x"),
            ("/.analytics", "/.analytics"),
            ("/...", "/..."),
            ("", "/"),
            ("?", "/"),
            ("*", "/*"),
            ("/", "/"),
            ("/..", "/"),
        ];
        for (path, normal) in rows {
            assert_eq!(normalize(path.as_bytes()).escape_ascii().to_string(), normal, "{path}");
        }
    }

    proptest! {
        #[test]
        fn normal_forms_are_fixed_points(path in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b';'), Just(b'%'), Just(b'?'), prop::num::u8::ANY, b'0'..=b'9'], 0..40)
        ) {
            let normal = normalize(&path).into_owned();
            prop_assert!(normal.starts_with(b"/"));
            prop_assert!(!normal.windows(2).any(|pair| pair == b"//"));
            prop_assert!(normal.len() == 1 || !normal.ends_with(b"/"));
            let segments: Vec<_> = normal.split(|byte| *byte == b'/').collect();
            prop_assert!(!segments.iter().any(|segment| matches!(*segment, b"." | b"..")));
        }
    }
}
