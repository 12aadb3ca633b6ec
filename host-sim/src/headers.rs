//! Header maps as Envoy keeps them: names in lower case, values as bytes, order kept.

use bytes::Bytes;

/// Headers of which Envoy keeps one entry: a repeated line is joined to it with a comma (a cookie with `"; "`).
///
/// These are Envoy's inline headers, its own and those that the filters of its standard build register
/// (`envoy/http/header_map.h`, `RegisterCustomInlineHeader`). All others keep an entry per line.
const JOINED: [&[u8]; 50] = [
    b":authority",
    b":method",
    b":path",
    b":protocol",
    b":scheme",
    b":status",
    b"accept",
    b"accept-encoding",
    b"access-control-allow-credentials",
    b"access-control-allow-headers",
    b"access-control-allow-methods",
    b"access-control-allow-origin",
    b"access-control-expose-headers",
    b"access-control-max-age",
    b"access-control-request-headers",
    b"access-control-request-method",
    b"age",
    b"authorization",
    b"cache-control",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"cookie",
    b"date",
    b"etag",
    b"expect",
    b"expires",
    b"grpc-accept-encoding",
    b"grpc-message",
    b"grpc-status",
    b"grpc-timeout",
    b"host",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-range",
    b"if-unmodified-since",
    b"keep-alive",
    b"last-modified",
    b"location",
    b"origin",
    b"pragma",
    b"referer",
    b"server",
    b"te",
    b"transfer-encoding",
    b"upgrade",
    b"user-agent",
    b"via",
];

/// The forwarding headers of the same kind.
const JOINED_FORWARDING: [&[u8]; 6] = [
    b"forwarded",
    b"x-forwarded-client-cert",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-request-id",
];

/// An ordered map of headers or trailers.
///
/// Names are compared without case and kept in lower case. Values are bytes: nothing here assumes UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers {
    entries: Vec<(Bytes, Bytes)>,
}

fn lower(name: impl Into<Bytes>) -> Bytes {
    let name = name.into();
    if name.iter().any(u8::is_ascii_uppercase) { name.to_ascii_lowercase().into() } else { name }
}

impl Headers {
    /// No headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first value of `name`.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Bytes> {
        self.get_all(name).next()
    }

    /// Every value of `name`, in order.
    pub fn get_all<'a>(&'a self, name: impl AsRef<[u8]>) -> impl Iterator<Item = &'a Bytes> + 'a {
        let name = lower(Bytes::copy_from_slice(name.as_ref()));
        self.entries.iter().filter(move |entry| entry.0 == name).map(|entry| &entry.1)
    }

    /// Every value of `name` as one, joined with commas: what `request.headers.<name>` holds.
    pub(crate) fn get_joined(&self, name: &[u8]) -> Option<Bytes> {
        let values: Vec<&[u8]> = self.get_all(name).map(AsRef::as_ref).collect();
        match values.as_slice() {
            [] => None,
            [one] => Some(Bytes::copy_from_slice(one)),
            several => Some(several.join(&b","[..]).into()),
        }
    }

    /// Adds a value. As Envoy does, a second value of a header that it keeps once (`authorization`, `cookie`,
    /// `content-type`, `x-forwarded-for` …) is joined to the first with a comma; others get an entry of their own.
    pub fn append(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        let (name, value) = (lower(name), value.into());
        let joined =
            JOINED.binary_search(&name.as_ref()).is_ok() || JOINED_FORWARDING.contains(&name.as_ref());
        if joined && let Some(entry) = self.entries.iter_mut().find(|entry| entry.0 == name) {
            let separator: &[u8] = if name.as_ref() == b"cookie" { b"; " } else { b"," };
            entry.1 = if entry.1.is_empty() {
                value
            } else if value.is_empty() {
                return;
            } else {
                [entry.1.as_ref(), separator, value.as_ref()].concat().into()
            };
            return;
        }
        self.entries.push((name, value));
    }

    /// Sets the only value of `name`, at the place of the first one if there was any.
    pub fn set(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        let name = lower(name);
        let Some(first) = self.entries.iter().position(|entry| entry.0 == name) else {
            self.entries.push((name, value.into()));
            return;
        };
        self.entries[first].1 = value.into();
        let mut index = 0;
        self.entries.retain(|entry| {
            index += 1;
            index - 1 <= first || entry.0 != name
        });
    }

    /// Removes every value of `name`.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) {
        let name = lower(Bytes::copy_from_slice(name.as_ref()));
        self.entries.retain(|entry| entry.0 != name);
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// How many entries there are, pseudo-headers among them.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all names and values.
    pub fn byte_size(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Every entry, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Bytes, &Bytes)> {
        self.entries.iter().map(|(name, value)| (name, value))
    }
}

impl<N: Into<Bytes>, V: Into<Bytes>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut headers = Self::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_lines_are_kept_as_envoy_keeps_them() {
        //  name             joined value, or one entry per line
        let rows: [(&str, &[&str]); 5] = [
            ("Authorization", &["a,b"]),
            ("cookie", &["a; b"]),
            ("x-forwarded-for", &["a,b"]),
            ("x-api-key", &["a", "b"]),
            ("set-cookie", &["a", "b"]),
        ];
        for (name, expected) in rows {
            let headers: Headers = [(name, "a"), (name, "b")].into_iter().collect();
            let values: Vec<&[u8]> = headers.get_all(name).map(AsRef::as_ref).collect();
            assert_eq!(values, expected.iter().map(|value| value.as_bytes()).collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn set_keeps_the_place_of_the_first_value_and_drops_the_others() {
        let mut headers: Headers = [("x", "1"), ("y", "2"), ("X", "3")].into_iter().collect();
        headers.set("X", "4");
        let entries: Vec<_> = headers.iter().map(|(n, v)| (n.as_ref(), v.as_ref())).collect();
        assert_eq!(entries, [(&b"x"[..], &b"4"[..]), (b"y", b"2")]);
    }

    #[test]
    fn the_table_of_joined_headers_is_sorted_so_that_it_can_be_searched() {
        assert!(JOINED.is_sorted());
    }
}
