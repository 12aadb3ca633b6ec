//! A request's URI as nginx reads it: decoded and without dot segments for filters, as it was sent for upstreams.

use bytes::Bytes;

use crate::wire::property::Value;

/// A URI in nginx's parts (`ngx_http_parse_complex_uri`, with `merge_slashes`, which is on unless configured).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NginxUri {
    /// `$request_uri`: what the client sent, and `proxy_pass` without a path sends on.
    pub(crate) sent: Bytes,
    /// `$uri`.
    path: Bytes,
    /// `$args`, which do not exist where they are empty. They are not decoded.
    args: Option<Bytes>,
}

impl NginxUri {
    /// Nothing where nginx answers 400.
    pub(super) fn parse(sent: &Bytes) -> Option<Self> {
        let without_fragment = sent.split(|byte| *byte == b'#').next()?.len();
        let line = sent.slice(..without_fragment);
        let (path, args) = match line.iter().position(|byte| *byte == b'?') {
            Some(at) => (line.slice(..at), Some(line.slice(at + 1..)).filter(|args| !args.is_empty())),
            None => (line, None),
        };
        Some(Self { sent: sent.clone(), path: decoded(&path)?.into(), args })
    }

    /// `:path` as filters see it.
    pub(super) fn shown(&self) -> Bytes {
        match &self.args {
            Some(args) => [self.path.as_ref(), b"?", args].concat().into(),
            None => self.path.clone(),
        }
    }

    /// What was sent, as a property. The parts of its path are joined by zero bytes or dots.
    pub(crate) fn property(&self, path: &[u8]) -> Option<Value> {
        let is_sent =
            matches!(path, b"ngx\0request_uri" | b"ngx.request_uri" | b"request\0path" | b"request.path");
        is_sent.then(|| Value::Bytes(self.sent.clone()))
    }
}

/// A path without escapes, dot segments and repeated slashes. An escaped slash or dot counts as one.
fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.strip_prefix(b"/")?.iter().copied();
    decoded.push(b'/');
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' { hex(bytes.next()?)? << 4 | hex(bytes.next()?)? } else { byte };
        match byte {
            0 => return None,
            b'/' => {
                resolve_dots(&mut decoded)?;
                if decoded.last() != Some(&b'/') {
                    decoded.push(b'/');
                }
            }
            other => decoded.push(other),
        }
    }
    resolve_dots(&mut decoded)?;
    Some(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

/// Takes a last segment of dots away, with the one before where there are two. Nothing is above the root.
fn resolve_dots(path: &mut Vec<u8>) -> Option<()> {
    let last = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/');
    let slash = last(path)?;
    match &path[slash + 1..] {
        b"." => path.truncate(slash + 1),
        b".." => {
            let above = last(&path[..slash])?;
            path.truncate(above + 1);
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_read_as_nginx_reads_it() {
        //  what is sent, `:path` for filters
        let rows = [
            ("/", Some("/")),
            ("/links?a=%2F&b=/../x", Some("/links?a=%2F&b=/../x")),
            ("/links?", Some("/links")),
            ("/links#f", Some("/links")),
            ("/links?a#f", Some("/links?a")),
            ("/%6cinks", Some("/links")),
            ("//a///b", Some("/a/b")),
            ("/a/./b/.", Some("/a/b/")),
            ("/a/../b/..", Some("/")),
            ("/a/b/..?x", Some("/a/?x")),
            ("/links/ext_a%2f..%2f..%2fr%2fx", Some("/r/x")),
            ("/a/%2E%2e/b", Some("/b")),
            ("/a..b/.c/..d/...", Some("/a..b/.c/..d/...")),
            ("/a%3Fb%23c%25d", Some("/a?b#c%d")),
            ("/a%252e", Some("/a%2e")),
            ("/a;b=c/+%20", Some("/a;b=c/+ ")),
            ("/..", None),
            ("//..", None),
            ("/a/../../b", None),
            ("/a%00", None),
            ("/a%", None),
            ("/a%4", None),
            ("/a%4?x", None),
            ("/a%zz", None),
            ("*", None),
        ];
        for (sent, expected) in rows {
            let uri = NginxUri::parse(&Bytes::from(sent));
            let shown = uri.map(|uri| String::from_utf8_lossy(&uri.shown()).into_owned());
            assert_eq!(shown.as_deref(), expected, "{sent}");
        }
    }
}
