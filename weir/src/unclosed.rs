//! Where a JSON text that ends too early has begun what it does not end.

/// Line and column, from 1, of the innermost object or list that is not closed.
pub(crate) fn unclosed(json: &[u8]) -> Option<(usize, usize)> {
    let (mut open, mut line, mut column) = (Vec::new(), 1, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for &byte in json {
        // A character of several bytes is one column.
        column += usize::from(byte & 0xc0 != 0x80);
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
}
