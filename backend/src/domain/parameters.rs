//! Query parameters of a URL, changed as bytes. All other bytes of the URL stay, because a receiver may have signed them.

use std::borrow::Cow;
use std::collections::HashSet;

use percent_encoding::percent_decode;

/// Splits a URL before its query, and after it. The query includes its question mark.
fn split(url: &str) -> (&str, &str, &str) {
    let (rest, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
    let (before, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    (before, query, fragment)
}

/// The parameters of a query as they are written, without empty ones.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|pair| !pair.is_empty())
}

/// The decoded name of a parameter. Two parameters have the same name if these bytes are the same.
pub(crate) fn name_of(pair: &str) -> Cow<'_, [u8]> {
    let name = pair.split('=').next().unwrap_or_default();
    if !name.contains(['+', '%']) {
        return Cow::Borrowed(name.as_bytes());
    }
    let spaced: Vec<u8> = name.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// `url` without the parameters named in `removed`, and with the encoded parameters `added` at the end of its query.
pub(crate) fn changed(url: &str, removed: &HashSet<Cow<'_, [u8]>>, added: &[&str]) -> String {
    let (before, query, fragment) = split(url);
    let query = query.strip_prefix('?').unwrap_or_default();
    let parts = || query.split('&');
    let is_kept = |part: &&str| part.is_empty() || !removed.contains(&name_of(part));
    let mut kept = parts().filter(is_kept).collect::<Vec<_>>().join("&");
    for pair in added {
        if !(kept.is_empty() || kept.ends_with('&')) {
            kept.push('&');
        }
        kept.push_str(pair);
    }
    let mark = if kept.is_empty() { "" } else { "?" };
    [before, mark, &kept, fragment].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_parameters_of_a_url_change() {
        //  URL, parameters that replace those of the same name, and the URL with them
        let table: [(&str, &[&str], &str); 14] = [
            ("https://example.com", &["a=1"], "https://example.com?a=1"),
            ("https://example.com/x#top", &["a=1", "b"], "https://example.com/x?a=1&b#top"),
            ("https://example.com/x?", &["a=1"], "https://example.com/x?a=1"),
            ("https://example.com/x?q=%F3", &["a=1"], "https://example.com/x?q=%F3&a=1"),
            ("https://example.com/x?a", &["b=%2b"], "https://example.com/x?a&b=%2b"),
            (
                "https://example.com/x?sig=%2b%2B+%20/:@~",
                &["a=1"],
                "https://example.com/x?sig=%2b%2B+%20/:@~&a=1",
            ),
            ("https://example.com/x?a=1&b=2", &["a=3"], "https://example.com/x?b=2&a=3"),
            ("https://example.com/x?a=1&a=2&b", &["a=3", "a=4"], "https://example.com/x?b&a=3&a=4"),
            ("https://example.com/x?%61=1&b", &["a=3"], "https://example.com/x?b&a=3"),
            ("https://example.com/x?a+b=1", &["a%20b=3"], "https://example.com/x?a%20b=3"),
            // Bytes that are no letters are not alike.
            ("https://example.com/x?%F3=1", &["%F4=3"], "https://example.com/x?%F3=1&%F4=3"),
            ("https://example.com/x?a=1&", &["b=2"], "https://example.com/x?a=1&b=2"),
            ("https://example.com/x?a=b?c=d", &["c=1"], "https://example.com/x?a=b?c=d&c=1"),
            ("https://example.com/x#f?a=1", &["a=2"], "https://example.com/x?a=2#f?a=1"),
        ];
        for (url, added, expected) in table {
            let names = added.iter().map(|pair| name_of(pair)).collect();
            assert_eq!(changed(url, &names, added), expected, "{url} {added:?}");
        }
        let removed = HashSet::from([name_of("a")]);
        for (url, expected) in [
            ("https://example.com/x?a=1#f", "https://example.com/x#f"),
            ("https://example.com/x?a=1&b#f", "https://example.com/x?b#f"),
        ] {
            assert_eq!(changed(url, &removed, &[]), expected, "{url}");
        }
    }
}
