//! Header maps as Envoy keeps them: names in lower case, values as bytes, order kept.

use bytes::Bytes;

pub(crate) use crate::wire::inline_headers::Kind;

/// Entries that most messages have no more of.
const ENTRIES: usize = 16;

/// An ordered map of headers or trailers.
///
/// Names are compared without case and kept in lower case. Values are bytes: nothing here assumes UTF-8.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    kind: Kind,
    entries: Vec<(Bytes, Bytes)>,
}

impl PartialEq for Headers {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for Headers {}

fn lower(name: impl Into<Bytes>) -> Bytes {
    let name = name.into();
    if name.iter().any(u8::is_ascii_uppercase) { name.to_ascii_lowercase().into() } else { name }
}

/// Whether an entry has this name, in any case.
fn is(entry: &(Bytes, Bytes), name: &[u8]) -> bool {
    entry.0.eq_ignore_ascii_case(name)
}

impl Headers {
    /// No headers. Every line that is added is kept, until the map becomes a request's or a response's.
    pub fn new() -> Self {
        Self::default()
    }

    /// No headers yet, of a request: as in Envoy, those that it keeps once are joined when they repeat.
    pub fn request() -> Self {
        Self::of(Kind::Request)
    }

    /// No headers yet, of a response, as [`request`](Self::request).
    pub fn response() -> Self {
        Self::of(Kind::Response)
    }

    /// No headers yet, of a message of this kind.
    pub(crate) fn of(kind: Kind) -> Self {
        Self { kind, entries: Vec::with_capacity(ENTRIES) }
    }

    /// The same lines in a map of this kind, which may join some.
    pub(crate) fn into_kind(self, kind: Kind) -> Self {
        if self.kind == kind {
            return self;
        }
        let mut headers = Self::of(kind);
        for (name, value) in self.entries {
            headers.append(name, value);
        }
        headers
    }

    /// The first value of `name`.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Bytes> {
        self.get_all(name).next()
    }

    /// Every value of `name`, in order.
    pub fn get_all(&self, name: impl AsRef<[u8]>) -> impl Iterator<Item = &Bytes> {
        self.entries.iter().filter(move |entry| is(entry, name.as_ref())).map(|entry| &entry.1)
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

    /// The status code of a response; 0 when `:status` is missing or no number.
    pub fn status(&self) -> u16 {
        self.get(":status").and_then(|status| std::str::from_utf8(status).ok()?.parse().ok()).unwrap_or(0)
    }

    /// Adds a value. As in Envoy, in a request's or a response's headers a second value of a header that is kept once
    /// (`authorization`, `content-type`, `x-forwarded-for` …) is joined to the first with a comma; others get an entry
    /// of their own.
    pub fn append(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        let (name, value) = (lower(name), value.into());
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.0 == name)
            && self.kind.joins(&name)
        {
            entry.1 = if entry.1.is_empty() {
                value
            } else if value.is_empty() {
                return;
            } else {
                [entry.1.as_ref(), b",", value.as_ref()].concat().into()
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
        self.entries.retain(|entry| !is(entry, name.as_ref()));
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

impl IntoIterator for Headers {
    type Item = (Bytes, Bytes);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    /// Every entry, in order.
    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
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
        use Kind::{Any, Request, Response, ResponseTrailers};
        //  map, name, joined value or one entry per line
        let rows: [(Kind, &str, &[&str]); 8] = [
            (Request, "Authorization", &["a,b"]),
            (Response, "Authorization", &["a", "b"]),
            (Any, "Authorization", &["a", "b"]),
            (Request, "x-forwarded-for", &["a,b"]),
            (Request, "x-api-key", &["a", "b"]),
            (Response, "set-cookie", &["a", "b"]),
            (Response, "vary", &["a,b"]),
            (ResponseTrailers, "grpc-message", &["a,b"]),
        ];
        for (kind, name, expected) in rows {
            let headers: Headers = [(name, "a"), (name, "b")].into_iter().collect();
            let headers = headers.into_kind(kind);
            let values: Vec<&[u8]> = headers.get_all(name).map(AsRef::as_ref).collect();
            let expected: Vec<_> = expected.iter().map(|value| value.as_bytes()).collect();
            assert_eq!(values, expected, "{name} in {kind:?}");
        }
    }

    #[test]
    fn set_keeps_the_place_of_the_first_value_and_drops_the_others() {
        let mut headers: Headers = [("x", "1"), ("y", "2"), ("X", "3")].into_iter().collect();
        headers.set("X", "4");
        let entries: Vec<_> = headers.iter().map(|(n, v)| (n.as_ref(), v.as_ref())).collect();
        assert_eq!(entries, [(&b"x"[..], &b"4"[..]), (b"y", b"2")]);
    }
}
