//! What is wrong with a text that is neither JSON nor YAML, as people make mistakes. Nothing of the text is quoted: it may hold secrets.

use crate::places::Place;

/// How UTF-16 and a byte order mark begin.
const MARKS: [(&[u8], &str); 3] = [
    (b"\xef\xbb\xbf", "a byte order mark, which gateways do not take: save the file as UTF-8 without one"),
    (b"\xff\xfe", "a text in UTF-16, which gateways do not take: save the file as UTF-8"),
    (b"\xfe\xff", "a text in UTF-16, which gateways do not take: save the file as UTF-8"),
];

/// Why a text cannot be read whatever it says: its encoding.
#[must_use]
pub fn encoding(text: &[u8]) -> Option<&'static str> {
    if let Some((_, problem)) = MARKS.iter().find(|(mark, _)| text.starts_with(mark)) {
        return Some(problem);
    }
    let is_wide = text.iter().take(4).any(|byte| *byte == 0);
    if is_wide {
        Some(MARKS[1].1)
    } else {
        str::from_utf8(text).is_err().then_some("a text that is not UTF-8")
    }
}

/// What people do wrong where a parser gave up.
#[must_use]
pub fn cause(text: &[u8], (line, column): Place) -> Option<&'static str> {
    let text = String::from_utf8_lossy(text);
    let is_json = text.trim_start().starts_with(['{', '[']);
    let index = usize::try_from(line.checked_sub(1)?).ok()?;
    let lines: Vec<&str> = text.lines().take(index + 1).collect();
    let (own, before) = lines.split_last().filter(|_| lines.len() == index + 1)?;
    let column = usize::try_from(column).ok()?.saturating_sub(1);
    // A parser stops at what it does not take, or behind it.
    let near: String = own.chars().skip(column.saturating_sub(1)).take(2).collect();
    if near.contains(['\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}']) {
        return Some("a typographic quotation mark, where \" belongs");
    }
    let rest: String = own.chars().skip(column.saturating_sub(1)).collect();
    let rest = rest.trim_start();
    if is_json && ["//", "/*", "#"].iter().any(|mark| rest.starts_with(mark) || near.ends_with(mark)) {
        return Some("a comment, which JSON does not have");
    }
    if is_json && near.contains('\'') {
        return Some("a single quotation mark, where \" belongs");
    }
    let upto: String = own.chars().take(column).collect();
    let last =
        before.iter().copied().chain([upto.as_str()]).rev().find_map(|line| line.trim_end().chars().last());
    if is_json && last == Some(',') && rest.trim_start_matches(',').trim_start().starts_with(['}', ']']) {
        return Some("a comma behind the last entry");
    }
    if is_json {
        return None;
    }
    let indented = |line: &&str| line.trim_start_matches([' ', '\t']).len() < line.len();
    if lines
        .iter()
        .any(|line| indented(line) && line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t'))
    {
        return Some("a tab, where YAML is indented by spaces");
    }
    let indent = |line: &str| line.chars().take_while(|character| *character == ' ').count();
    let mut open = vec![];
    for line in before.iter().filter(|line| !line.trim().is_empty()) {
        open.retain(|outer| *outer < indent(line));
        open.push(indent(line));
    }
    let is_astray = open.last().is_some_and(|last| indent(own) < *last) && !open.contains(&indent(own));
    let is_deeper = open.last().is_some_and(|last| indent(own) > *last);
    (is_astray || is_deeper).then_some("an indentation that fits no line before it")
}

/// Line and column of the innermost object or list of a JSON text that ends too early.
#[must_use]
pub fn unclosed(json: &[u8]) -> Option<Place> {
    let (mut open, mut line, mut column) = (Vec::new(), 1, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for &byte in json {
        // A character of several bytes is one column.
        column += u64::from(byte & 0xc0 != 0x80);
        match byte {
            b'\n' => (line, column) = (line + 1, 0),
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => open.push((line, column)),
            b'}' | b']' if !in_string => {
                open.pop();
            }
            _ => {}
        }
    }
    open.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_one_is_found_whatever_strings_hold() {
        let rows = [
            ("{\"a\": {\"b\": 1}", Some((1, 1))),
            ("{\n  \"a\": [1, 2\n", Some((2, 8))),
            ("{\"}\": \"\\\"]\"", Some((1, 1))),
            ("{\"é\": {", Some((1, 7))),
            ("{}", None),
            ("", None),
        ];
        for (json, expected) in rows {
            assert_eq!(unclosed(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn what_people_do_wrong_is_told_apart() {
        //  text, where serde_json or serde-saphyr gives up, a word of the cause
        let rows = [
            ("{\"a\": 1,}", (1, 9), Some("comma")),
            ("{\"a\": [1,\n]}", (2, 1), Some("comma")),
            ("{\"a\": 1, // b\n}", (1, 10), Some("comment")),
            ("{\n# b\n\"a\": 1}", (2, 1), Some("comment")),
            ("{\u{201c}a\u{201d}: 1}", (1, 2), Some("typographic")),
            ("{'a': 1}", (1, 2), Some("single")),
            ("{\"a\" 1}", (1, 6), None),
            ("a:\n\tb: 1\n", (2, 1), Some("tab")),
            ("a:\n    b: 1\n  c: 2\n", (3, 3), Some("indentation")),
            ("a:\n  b: [\n", (3, 1), None),
        ];
        for (text, place, expected) in rows {
            let found = cause(text.as_bytes(), place);
            assert_eq!(
                found.map(|cause| expected.is_some_and(|word| cause.contains(word))),
                expected.map(|_| true),
                "{text}: {found:?}"
            );
        }
        for (text, is_taken) in [
            (&b"{}"[..], true),
            (b"\xef\xbb\xbf{}", false),
            (b"\xff\xfe{\0}\0", false),
            (b"{\0}\0", false),
            (b"\xff", false),
        ] {
            assert_eq!(encoding(text).is_none(), is_taken, "{text:?}");
        }
    }
}
