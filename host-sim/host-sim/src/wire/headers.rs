//! Header maps as Envoy keeps them: names in lower case, values as bytes, order kept. Beside that, the names as they were
//! written, for the hosts that hand them over like this.

use bytes::Bytes;

use crate::wire::inline_headers::AUTHORITY;
pub(crate) use crate::wire::inline_headers::Kind;

/// Entries that most messages have no more of.
const ENTRIES: usize = 16;

/// An ordered map of headers or trailers.
///
/// Names are compared without case and given in lower case, except by [`as_written`](Self::as_written). Values are bytes:
/// nothing here assumes UTF-8.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    kind: Kind,
    entries: Vec<Entry>,
}

/// A line of a map.
#[derive(Debug, Clone)]
struct Entry {
    /// In lower case.
    name: Bytes,
    /// The name as it was written, where that is not in lower case.
    written: Option<Bytes>,
    value: Bytes,
}

impl Entry {
    fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        let (name, value) = (name.into(), value.into());
        if name.iter().any(u8::is_ascii_uppercase) {
            Self { name: name.to_ascii_lowercase().into(), written: Some(name), value }
        } else {
            Self { name, written: None, value }
        }
    }

    /// Whether it has this name, in any case.
    fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    fn is_pseudo(&self) -> bool {
        self.name.starts_with(b":")
    }
}

impl PartialEq for Headers {
    /// Whether both have the same lines in the same order; the case of names is not compared.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Headers {}

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
        for entry in self.entries {
            headers.add(entry);
        }
        headers
    }

    /// The first value of `name`.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Bytes> {
        self.get_all(name).next()
    }

    /// Every value of `name`, in order.
    pub fn get_all(&self, name: impl AsRef<[u8]>) -> impl Iterator<Item = &Bytes> {
        let kind = self.kind;
        self.entries
            .iter()
            .filter(move |entry| entry.is(kind.own_name(name.as_ref())))
            .map(|entry| &entry.value)
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
    /// of their own. In a request's headers `host` is another name of `:authority`. Pseudo-headers come before all others.
    pub fn append(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.add(Entry::new(name, value));
    }

    fn add(&mut self, mut new: Entry) {
        if self.kind.own_name(&new.name) == AUTHORITY {
            (new.name, new.written) = (Bytes::from_static(AUTHORITY), None);
        }
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == new.name)
            && self.kind.joins(&new.name)
        {
            entry.value = if entry.value.is_empty() {
                new.value
            } else if new.value.is_empty() {
                return;
            } else {
                [entry.value.as_ref(), b",", new.value.as_ref()].concat().into()
            };
            return;
        }
        if new.is_pseudo() {
            let end = self.entries.iter().position(|entry| !entry.is_pseudo()).unwrap_or(self.entries.len());
            self.entries.insert(end, new);
        } else {
            self.entries.push(new);
        }
    }

    /// Sets the only value of `name`: every value that it had is removed, and the new one is added.
    pub fn set(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        let new = Entry::new(name, value);
        self.remove(&new.name);
        self.add(new);
    }

    /// Removes every value of `name`.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) {
        let name = self.kind.own_name(name.as_ref());
        self.entries.retain(|entry| !entry.is(name));
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
        self.entries.iter().map(|entry| entry.name.len() + entry.value.len()).sum()
    }

    /// Every entry, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Bytes, &Bytes)> {
        self.entries.iter().map(|entry| (&entry.name, &entry.value))
    }

    /// Every entry, in order, with its name in the case in which it was written.
    pub fn as_written(&self) -> impl ExactSizeIterator<Item = (&Bytes, &Bytes)> {
        self.entries.iter().map(|entry| (entry.written.as_ref().unwrap_or(&entry.name), &entry.value))
    }
}

impl IntoIterator for Headers {
    type Item = (Bytes, Bytes);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    /// Every entry, in order.
    fn into_iter(self) -> Self::IntoIter {
        let pairs: Vec<_> = self.entries.into_iter().map(|entry| (entry.name, entry.value)).collect();
        pairs.into_iter()
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
    fn set_removes_all_values_and_adds_one_after_the_others_or_after_the_pseudo_headers() {
        let mut headers: Headers =
            [(":a", "1"), ("x", "1"), (":b", "2"), ("y", "2"), ("X", "3")].into_iter().collect();
        headers.set("X", "4");
        headers.set(":a", "5");
        assert_eq!(headers, [(":b", "2"), (":a", "5"), ("y", "2"), ("x", "4")].into_iter().collect());
    }

    #[test]
    fn host_is_the_authority_of_a_request() {
        let mut headers: Headers = [(":path", "/"), ("Host", "a")].into_iter().collect();
        assert_eq!(headers.get(":authority"), None);
        headers = headers.into_kind(Kind::Request);
        assert_eq!((headers.get("HOST"), headers.get(":authority")), (Some(&"a".into()), Some(&"a".into())));
        headers.set("host", "b");
        assert_eq!(headers, [(":path", "/"), (":authority", "b")].into_iter().collect());
        headers.remove("host");
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn names_are_given_in_lower_case_and_kept_as_written() {
        let mut headers: Headers = [("X-A", "1"), ("x-b", "2")].into_iter().collect();
        headers.append("X-C", "3");
        headers.set("X-B", "4");
        let headers = headers.into_kind(Kind::Request);
        let names = |pairs: Vec<(&Bytes, &Bytes)>| {
            pairs.into_iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(headers.iter().collect()), ["x-a", "x-c", "x-b"]);
        assert_eq!(names(headers.as_written().collect()), ["X-A", "X-C", "X-B"]);
        assert_eq!(headers, [("x-a", "1"), ("x-c", "3"), ("x-b", "4")].into_iter().collect());
    }
}
