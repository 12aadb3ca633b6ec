//! The API key that a request carries.
//!
//! The filter and the upstream must never disagree on who is calling. The filter therefore reads all sources. A request with different
//! keys, within or across sources, is [`Credential::Ambiguous`].

use core::fmt;
use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT;
use memchr::memchr;

use crate::request::header_pairs::{HeaderPairs, is_alike};
use crate::request::query;

/// A place where a request may carry its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A header. With a `scheme`, as `Authorization` has one, the key follows the scheme.
    Header {
        /// The header's name in lower case.
        name: String,
        /// The authentication scheme, compared without case. The key of `Basic` is the user name.
        scheme: Option<String>,
    },
    /// A parameter of the query.
    Query {
        /// The parameter's decoded name.
        name: String,
    },
    /// Metadata of an earlier filter, such as a verified token's subject.
    Metadata {
        /// The property's path, its parts joined by NUL.
        path: Vec<u8>,
    },
}

impl KeySource {
    /// The scheme that `www-authenticate` names for this source. `ApiKey` stands for a header or a parameter without a scheme.
    #[must_use]
    pub fn challenge(&self) -> Cow<'_, str> {
        match self {
            Self::Header { scheme: Some(scheme), .. } if is_basic(scheme) => r#"Basic realm="api""#.into(),
            Self::Header { scheme: Some(scheme), .. } => scheme.into(),
            Self::Metadata { .. } => "Bearer".into(),
            Self::Header { scheme: None, .. } | Self::Query { .. } => "ApiKey".into(),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header { name, .. } => write!(f, "header {name}"),
            Self::Query { name } => write!(f, "query {name}"),
            Self::Metadata { path } => {
                write!(f, "metadata {}", String::from_utf8_lossy(path).replace('\0', "."))
            }
        }
    }
}

/// The key that a request carries, as bytes. A key that is not valid UTF-8 is an unknown key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential<'r> {
    /// The request carries no key, or only credentials of another scheme.
    Missing,
    /// The request carries this key.
    Key(Cow<'r, [u8]>),
    /// The request carries different keys.
    Ambiguous,
    /// The metadata of this source is neither a text nor a whole number that a double holds exactly.
    Unreadable(&'r KeySource),
}

impl<'r> Credential<'r> {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Missing, credential) | (credential, Self::Missing) => credential,
            (Self::Key(one), Self::Key(other)) if one == other => Self::Key(one),
            _ => Self::Ambiguous,
        }
    }
}

/// The key of a request, from all `sources`. `path` has the query, and `property` is the host's `proxy_get_property`.
///
/// # Errors
/// The error of `property`.
pub fn credential<'r, E>(
    sources: &'r [KeySource],
    headers: HeaderPairs<'r>,
    path: Option<&'r [u8]>,
    mut property: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, E>,
) -> Result<Credential<'r>, E> {
    let mut of_source = |source: &'r KeySource| {
        Ok(match source {
            KeySource::Header { name, scheme } => in_headers(headers, name, scheme.as_deref()),
            KeySource::Query { name } => merge(in_query(path.unwrap_or_default(), name)),
            KeySource::Metadata { path } => match text_of_metadata(property(path)?.unwrap_or_default()) {
                Some(key) if key.is_empty() => Credential::Missing,
                Some(key) => Credential::Key(key.into()),
                None => Credential::Unreadable(source),
            },
        })
    };
    let Some((first, others)) = sources.split_first() else { return Ok(Credential::Missing) };
    let first = of_source(first)?;
    others.iter().try_fold(first, |found, source| Ok(found.and(of_source(source)?)))
}

/// A metadata value as text: valid UTF-8 without control characters. Hosts hand over a number as the eight bytes of a double, which becomes
/// decimal digits if it is whole and every number near it has a double of its own. `None` for other numbers, and for lists, objects and
/// booleans.
pub fn text_of_metadata(value: Vec<u8>) -> Option<Vec<u8>> {
    /// From 2^53 on, two numbers share a double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    // Nearly all values are plain.
    if value.iter().all(|byte| matches!(byte, b' '..=b'~'))
        || str::from_utf8(&value).is_ok_and(|text| !text.contains(char::is_control))
    {
        return Some(value);
    }
    let number = f64::from_le_bytes(*value.as_array::<8>()?);
    (number.fract() == 0.0 && number.abs() < EXACT).then(|| number.to_string().into_bytes())
}

/// Whether a header, or a parameter of the query, has the name of a source in a spelling that some upstreams take for it.
#[must_use]
pub fn is_respelled(sources: &[KeySource], headers: HeaderPairs<'_>, path: Option<&[u8]>) -> bool {
    let is_source = |found: &[u8]| {
        let mut names = sources.iter().filter_map(|source| match source {
            KeySource::Header { name, .. } => Some(name.as_bytes()),
            KeySource::Query { .. } | KeySource::Metadata { .. } => None,
        });
        names.any(|name| found.eq_ignore_ascii_case(name))
    };
    sources.iter().any(|source| match source {
        KeySource::Header { name, .. } => {
            headers.iter().any(|(found, _)| is_alike(found, name.as_bytes()) && !is_source(found))
        }
        KeySource::Query { name } => {
            let path = path.unwrap_or_default();
            let alike = query::names(path).filter(|found| is_alike(found, name.as_bytes())).count();
            alike > query::values(path, name).count()
        }
        KeySource::Metadata { .. } => false,
    })
}

fn merge<'r>(credentials: impl Iterator<Item = Credential<'r>>) -> Credential<'r> {
    credentials.reduce(Credential::and).unwrap_or(Credential::Missing)
}

/// The key in all headers of a name.
pub fn in_headers<'r>(headers: HeaderPairs<'r>, name: &str, scheme: Option<&str>) -> Credential<'r> {
    merge(headers.get_all(name).map(|value| in_header(scheme, value)))
}

/// The key in a header: all of it, or with a scheme what follows that: `Bearer <key>`. Gateways join repeated lines with a comma. If any of
/// those has a key, it is unclear which line the upstream reads.
fn in_header<'r>(scheme: Option<&str>, value: &'r [u8]) -> Credential<'r> {
    let key = |value: &'r [u8]| match scheme {
        Some(scheme) if is_basic(scheme) => after_scheme(scheme, value).map(user_name),
        Some(scheme) => after_scheme(scheme, value).map(Cow::Borrowed),
        None => Some(Cow::Borrowed(value.trim_ascii())),
    };
    if value.contains(&b',') {
        let is_any_a_key = value.split(|byte| *byte == b',').any(|part| key(part).is_some());
        return if is_any_a_key { Credential::Ambiguous } else { Credential::Missing };
    }
    key(value).filter(|key| !key.is_empty()).map_or(Credential::Missing, Credential::Key)
}

fn is_basic(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("Basic")
}

/// The user name of Basic credentials; what is not valid Base64 is an unknown key as it is.
fn user_name(credentials: &[u8]) -> Cow<'_, [u8]> {
    let Ok(mut decoded) = STANDARD_PAD_INDIFFERENT.decode(credentials) else { return credentials.into() };
    decoded.truncate(memchr(b':', &decoded).unwrap_or(decoded.len()));
    decoded.into()
}

fn in_query<'r>(path: &'r [u8], name: &str) -> impl Iterator<Item = Credential<'r>> {
    let values = query::values(path, name);
    values.map(|value| if value.is_empty() { Credential::Missing } else { Credential::Key(value) })
}

/// What follows the scheme and its space, if `value` is of this scheme.
fn after_scheme<'r>(scheme: &str, value: &'r [u8]) -> Option<&'r [u8]> {
    let (found, key) = value.trim_ascii().split_at_checked(scheme.len())?;
    let separated = key.is_empty() || key.first().is_some_and(u8::is_ascii_whitespace);
    (separated && found.eq_ignore_ascii_case(scheme.as_bytes())).then(|| key.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::header_pairs::serialize;

    enum Expected {
        Missing,
        Key(&'static str),
        Ambiguous,
    }
    use Expected::{Ambiguous, Key, Missing};

    fn find<'r>(sources: &'r [KeySource], headers: &'r [u8]) -> Credential<'r> {
        let none = |_: &[u8]| Ok::<_, std::convert::Infallible>(None);
        let headers = HeaderPairs::parse(headers).unwrap();
        let Ok(found) = credential(sources, headers, headers.get(":path"), none);
        found
    }

    fn sources() -> Vec<KeySource> {
        vec![
            KeySource::Header { name: "authorization".into(), scheme: Some("Bearer".into()) },
            KeySource::Header { name: "x-api-key".into(), scheme: None },
            KeySource::Query { name: "api_key".into() },
        ]
    }

    #[test]
    fn a_key_is_read_from_wherever_it_is_and_never_guessed() {
        let rows: &[(&[(&str, &str)], Expected)] = &[
            (&[(":path", "/")], Missing),
            (&[("authorization", "Bearer abc")], Key("abc")),
            (&[("authorization", "bEARER abc")], Key("abc")),
            (&[("authorization", "  Bearer   abc  ")], Key("abc")),
            (&[("authorization", "Bearer a b")], Key("a b")),
            (&[("authorization", "Bearer")], Missing),
            (&[("authorization", "Bearer ")], Missing),
            (&[("authorization", "Bearerabc")], Missing),
            (&[("authorization", "Basic abc")], Missing),
            (&[("authorization", "")], Missing),
            (&[("authorization", "Digest a=b, c=d")], Missing),
            (&[("authorization", "Bearer abc,Bearer def")], Ambiguous),
            (&[("authorization", "Bearer abc, Basic def")], Ambiguous),
            (&[("authorization", "Basic abc,Bearer def")], Ambiguous),
            (&[("authorization", "Bearer abc,")], Ambiguous),
            (&[("authorization", "Bearer ,abc")], Ambiguous),
            (&[("authorization", "Bearer abc"), ("authorization", "Bearer abc")], Key("abc")),
            (&[("authorization", "Bearer abc"), ("authorization", "Bearer def")], Ambiguous),
            (&[("x-api-key", "abc")], Key("abc")),
            (&[("x-api-key", "abc,def")], Ambiguous),
            (&[("x-api-key", "abc"), ("x-api-key", "def")], Ambiguous),
            (&[("x-api-key", " ")], Missing),
            (&[(":path", "/x?api_key=abc")], Key("abc")),
            (&[(":path", "/x?a=b&api%5Fkey=%61bc#api_key=def")], Key("abc")),
            (&[(":path", "/x?api_key=a+b%")], Key("a b%")),
            (&[(":path", "/x?api_key=abc&api_key=def")], Ambiguous),
            (&[(":path", "/x?api_key=")], Missing),
            (&[(":path", "/x?api_key")], Missing),
            (&[(":path", "/api_key=abc")], Missing),
            (&[("authorization", "Bearer abc"), ("x-api-key", "abc")], Key("abc")),
            (&[("authorization", "Bearer abc"), (":path", "/?api_key=def")], Ambiguous),
            (&[("authorization", "Basic xyz"), ("x-api-key", "abc")], Key("abc")),
        ];
        for (headers, expected) in rows {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            let bytes = serialize(&headers);
            let expected = match expected {
                Missing => Credential::Missing,
                Key(key) => Credential::Key(key.as_bytes().into()),
                Ambiguous => Credential::Ambiguous,
            };
            let sources = sources();
            assert_eq!(find(&sources, &bytes), expected, "{headers:?}");
        }
    }

    #[test]
    fn the_key_of_basic_credentials_is_the_user_name() {
        let rows = [
            ("Basic YWxpY2U6c2VjcmV0", Key("alice")),
            ("basic YWxpY2U6b3RoZXI=", Key("alice")),
            ("Basic YWxpY2U", Key("alice")),
            ("Basic YWxpY2U6YTpi", Key("alice")),
            // No user name, and no Base64.
            ("Basic OnNlY3JldA==", Missing),
            ("Basic alice:secret", Key("alice:secret")),
            ("Basic", Missing),
            ("Bearer YWxpY2U6c2VjcmV0", Missing),
            ("Basic YWxpY2U6c2VjcmV0,Basic Ym9iOmI=", Ambiguous),
        ];
        for (value, expected) in rows {
            let expected = match expected {
                Missing => Credential::Missing,
                Key(key) => Credential::Key(key.as_bytes().into()),
                Ambiguous => Credential::Ambiguous,
            };
            assert_eq!(in_header(Some("Basic"), value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn a_key_of_any_bytes_is_a_key() {
        let bytes = serialize(&[("authorization", b"Bearer \xff\x80\x00")]);
        let sources = sources();
        let found = find(&sources, &bytes);
        assert_eq!(found, Credential::Key(b"\xff\x80\x00".as_slice().into()));
    }

    #[test]
    fn a_claim_is_a_key_whether_it_is_text_or_a_number() {
        let rows: [(&[u8], Option<&str>); 9] = [
            (b"acme", Some("acme")),
            (b"acme-inc", Some("acme-inc")),
            ("jöséab".as_bytes(), Some("jöséab")),
            ("東京ab".as_bytes(), Some("東京ab")),
            (&42.0_f64.to_le_bytes(), Some("42")),
            (&9_007_199_254_740_991.0_f64.to_le_bytes(), Some("9007199254740991")),
            (&0.0_f64.to_le_bytes(), Some("0")),
            (&(-7.0_f64).to_le_bytes(), Some("-7")),
            (b"", None),
        ];
        // 2^53, a fraction, infinity, a list, a boolean, an empty list, and what is not UTF-8.
        let unreadable: [&[u8]; 7] = [
            &9_007_199_254_740_992.0_f64.to_le_bytes(),
            &1.5_f64.to_le_bytes(),
            &f64::INFINITY.to_le_bytes(),
            b"\x01\0\0\0\x04\0\0\0\0\0\0\0acme\0\0",
            b"\x01",
            b"\0\0\0\0",
            b"acm\xe9",
        ];
        let headers = serialize(&[(":path", b"/")]);
        let sources = [KeySource::Metadata { path: b"metadata\0x".to_vec() }];
        for (value, expected) in rows {
            let property = |_: &[u8]| Ok::<_, std::convert::Infallible>(Some(value.to_vec()));
            let Ok(found) = credential(&sources, HeaderPairs::parse(&headers).unwrap(), None, property);
            let expected = expected.map_or(Credential::Missing, |key| Credential::Key(key.as_bytes().into()));
            assert_eq!(found, expected, "{value:?}");
        }
        for value in unreadable {
            let property = |_: &[u8]| Ok::<_, std::convert::Infallible>(Some(value.to_vec()));
            let Ok(found) = credential(&sources, HeaderPairs::parse(&headers).unwrap(), None, property);
            assert_eq!(found, Credential::Unreadable(&sources[0]), "{value:?}");
        }
    }

    #[test]
    fn a_name_that_an_upstream_may_take_for_a_source_is_found_in_every_spelling() {
        let rows: &[(&[(&str, &str)], bool)] = &[
            (&[("x-api-key", "k")], false),
            (&[("X-Api-Key", "k")], false),
            (&[("x_api_key", "k")], true),
            (&[("X-Api_Key", "k"), ("x-api-key", "k")], true),
            (&[("x.api.key", "")], true),
            (&[("x-api-keys", "k"), ("xapikey", "k")], false),
            (&[(":path", "/?api_key=k")], false),
            (&[(":path", "/?api%5Fkey=k;v=1")], false),
            (&[(":path", "/?x=1;api_key=k")], true),
            (&[(":path", "/?api_key=k;api_key=l")], true),
            (&[(":path", "/?api_key=k&Api_Key=l")], true),
            (&[(":path", "/?api-key=l")], true),
            (&[(":path", "/?api.key")], true),
            (&[(":path", "/;api-key=l?x#?api-key=l")], false),
        ];
        for (headers, expected) in rows {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            let bytes = serialize(&headers);
            let pairs = HeaderPairs::parse(&bytes).unwrap();
            assert_eq!(is_respelled(&sources(), pairs, pairs.get(":path")), *expected, "{headers:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_value_or_path_is_too_odd(
            authorization in prop::collection::vec(prop_oneof![Just(b','), Just(b' '), prop::num::u8::ANY], 0..30),
            path in prop::collection::vec(prop_oneof![Just(b'&'), Just(b'='), Just(b'?'), Just(b'%'), prop::num::u8::ANY], 0..30),
        ) {
            let bytes = serialize(&[("authorization", &authorization), (":path", &path)]);
            let sources = sources();
            let found = find(&sources, &bytes);
            if let (Credential::Key(key), Some(bearer)) = (&found, after_scheme("Bearer", &authorization)) {
                prop_assert!(bearer.is_empty() || *bearer == **key);
                prop_assert!(!bearer.contains(&b','));
            }
        }
    }
}
