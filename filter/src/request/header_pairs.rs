//! A request's headers as `proxy_get_header_map_pairs` hands them over: bytes, read in place.
//!
//! `u32 n`, `n × (u32 name length, u32 value length)`, then `n × (name, 0, value, 0)`; all little-endian (ABI 0.2.1).

use core::ops::Range;

/// The headers of a request, `:method` and `:path` among them. Names are compared without regard to case.
#[derive(Clone, Copy, Debug)]
pub struct HeaderPairs<'b> {
    sizes: &'b [[u8; 8]],
    strings: &'b [u8],
}

impl<'b> HeaderPairs<'b> {
    /// Reads the head of a serialized header map. `None` if it is cut short, or empty: a request always has headers.
    #[must_use]
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let (sizes, strings) = rest.split_at_checked(count.checked_mul(8)?)?;
        let (sizes, _) = sizes.as_chunks();
        (count > 0).then_some(Self { sizes, strings })
    }

    /// The pairs in the host's order. Ends early where the strings are cut short.
    pub fn iter(self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> {
        self.spans()
            .map_while(move |span| Some((self.strings.get(span.name())?, self.strings.get(span.value())?)))
    }

    /// Where the strings of each pair are; each is followed by a NUL.
    fn spans(self) -> Spans<'b> {
        Spans { sizes: self.sizes.iter(), start: 0 }
    }

    /// Hands `take` each pair, as long as its strings are there. `take` gets the length of a name before the name itself, because it
    /// distinguishes nearly all names.
    pub(super) fn for_each(self, mut take: impl FnMut(usize, Field<'b>)) {
        for span in self.spans() {
            take(span.name, Field { strings: self.strings, span });
        }
    }

    /// The first value of `name`, which is in lower case.
    #[must_use]
    pub fn get(self, name: &str) -> Option<&'b [u8]> {
        self.get_all(name).next()
    }

    /// All values of `name`, which is in lower case.
    pub fn get_all(self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        let mut spans = self.spans();
        core::iter::from_fn(move || {
            loop {
                let span = spans.next()?;
                // The length alone excludes nearly all other names.
                if span.name == name.len() && is(self.strings.get(span.name())?, name.as_bytes()) {
                    return self.strings.get(span.value());
                }
            }
        })
    }
}

/// A pair that has not been looked at yet.
#[derive(Clone, Copy)]
pub(super) struct Field<'b> {
    strings: &'b [u8],
    span: Span,
}

impl<'b> Field<'b> {
    /// The value, if the name is `name`, which is in lower case and as long.
    #[inline]
    pub(super) fn named(self, name: &[u8]) -> Option<&'b [u8]> {
        let found = self.strings.get(self.span.name())?;
        if is(found, name) { self.strings.get(self.span.value()) } else { None }
    }
}

struct Spans<'b> {
    sizes: core::slice::Iter<'b, [u8; 8]>,
    start: usize,
}

impl Iterator for Spans<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let [n0, n1, n2, n3, v0, v1, v2, v3] = *self.sizes.next()?;
        let [name, value] = [[n0, n1, n2, n3], [v0, v1, v2, v3]]
            .map(|size| usize::try_from(u32::from_le_bytes(size)).unwrap_or(usize::MAX));
        let span = Span { start: self.start, name, value };
        // Sizes that are not true may lead anywhere; whether a string is there is looked at when it is taken.
        self.start = self.start.wrapping_add(name).wrapping_add(value).wrapping_add(2);
        Some(span)
    }
}

/// Whether a header's name is `name`, which is in lower case. Some hosts hand names over as the client wrote them.
fn is(found: &[u8], name: &[u8]) -> bool {
    // Nearly all other names of this length end with another letter. This bit tells upper from lower case.
    let end_alike = found.last().map(|letter| letter | 0x20) == name.last().map(|letter| letter | 0x20);
    end_alike && (is_same(found, name) || found.eq_ignore_ascii_case(name))
}

/// Whether an upstream that tells neither letters by their case nor `-`, `_`, `.` and spaces from one another takes `found` for `name`.
pub(super) fn is_alike(found: &[u8], name: &[u8]) -> bool {
    let fold = |byte: &u8| if b"-. ".contains(byte) { b'_' } else { byte.to_ascii_lowercase() };
    found.iter().map(fold).eq(name.iter().map(fold))
}

/// Whether two names of the same length are equal. Compared in whole words, for `memcmp` is a loop over bytes in a module.
fn is_same(found: &[u8], name: &[u8]) -> bool {
    let (words, expected_words) = (found.as_chunks::<8>().0, name.as_chunks::<8>().0);
    words.iter().zip(expected_words).all(|(word, expected)| word == expected)
        && match name.len() {
            // The last word may overlap the one before.
            8.. => found.last_chunk::<8>() == name.last_chunk(),
            4.. => {
                found.first_chunk::<4>() == name.first_chunk() && found.last_chunk::<4>() == name.last_chunk()
            }
            _ => found.iter().eq(name),
        }
}

/// The strings of a pair: where the name starts among all strings, and how long name and value are.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    name: usize,
    value: usize,
}

impl Span {
    fn name(self) -> Range<usize> {
        self.start..self.start.wrapping_add(self.name)
    }

    fn value(self) -> Range<usize> {
        let start = self.name().end.wrapping_add(1);
        start..start.wrapping_add(self.value)
    }
}

/// A header map in the ABI's form, as [`HeaderPairs::parse`] reads it and `proxy_send_local_response` takes it.
#[must_use]
pub fn serialize(headers: &[(&str, &[u8])]) -> Vec<u8> {
    // No string in a VM is longer than this number can say.
    let length = |string: &[u8]| u64::from(string.len() as u32);
    let mut bytes = Vec::with_capacity(256);
    bytes.extend((headers.len() as u32).to_le_bytes());
    for (name, value) in headers {
        // Both sizes at once.
        bytes.extend((length(name.as_bytes()) | length(value) << 32).to_le_bytes());
    }
    for (name, value) in headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value);
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_serialized_is_read_back(
            headers in prop::collection::vec(("[a-z:-]{0,9}", prop::collection::vec(prop::num::u8::ANY, 0..9)), 1..9)
        ) {
            let expected: Vec<(&str, &[u8])> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
            let bytes = serialize(&expected);
            let read: Vec<_> = HeaderPairs::parse(&bytes).unwrap().iter().collect();
            let expected: Vec<_> = expected.iter().map(|(name, value)| (name.as_bytes(), *value)).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn odd_bytes_are_read_to_their_end_and_no_further(bytes in prop::collection::vec(prop::num::u8::ANY, 0..99)) {
            if let Some(pairs) = HeaderPairs::parse(&bytes) {
                prop_assert!(pairs.iter().count() <= bytes.len() / 8);
            }
        }
    }

    #[test]
    fn names_are_compared_without_regard_to_case() {
        let bytes =
            serialize(&[("Authorization", b"a"), ("X-COST", b"b"), ("x-costs", b"c"), ("x-co5t", b"d")]);
        let headers = HeaderPairs::parse(&bytes).unwrap();
        assert_eq!(headers.get("authorization"), Some(&b"a"[..]));
        assert_eq!(headers.get_all("x-cost").collect::<Vec<_>>(), [b"b"]);
    }

    #[test]
    fn a_request_without_headers_is_not_read() {
        assert!(HeaderPairs::parse(b"").is_none());
        assert!(HeaderPairs::parse(&serialize(&[])).is_none());
    }
}
