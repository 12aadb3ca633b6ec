//! The values that fields hold. Each checks itself when it is deserialised.

use core::net::Ipv6Addr;
use core::num::NonZeroU32;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Error, SeqAccess};

use super::forms::{Forms, read_by_forms};
use crate::window::UNITS;

/// A schema of the objects that have a field with another value than null, which the filter takes for an absent field.
#[cfg(feature = "schema")]
pub(super) fn given(field: &str) -> serde_json::Value {
    serde_json::json!({"required": [field], "properties": {field: {"not": {"type": "null"}}}})
}

/// Defines texts: the pattern for the schema, the same as a function, and what a text is that does not fit.
macro_rules! texts {
    ($($(#[$doc:meta])+ $vis:vis $name:ident: $pattern:literal, $fits:expr, $problem:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        $vis struct $name(pub(super) String);

        impl Forms<'_> for $name {
            const EXPECTED: &'static str = "a string";

            fn text<E: Error>(text: &str) -> Result<Self, E> {
                let fits: fn(&str) -> bool = $fits;
                if fits(text) { Ok(Self(text.to_owned())) } else { Err(E::custom($problem)) }
            }
        }

        impl core::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        read_by_forms!($name, {"type": "string", "pattern": $pattern});
    )+};
}

const NO_SLASH: &str = "expected a path that starts with /";

texts! {
    /// The name of a class, a quota or an operator.
    pub Name: "^[a-z0-9_-]{1,32}$",
        |text| (1..=32).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-')),
        "a name is 1 to 32 of a-z, 0-9, _ and -";

    /// The name of a header.
    pub(super) HeaderName: "^[-!#$%&'*+.^_`|~0-9A-Za-z]+$", is_token, "expected the name of a header (RFC 9110, section 5.1)";

    /// The name of an authentication scheme.
    pub(super) Scheme: "^[-!#$%&'*+.^_`|~0-9A-Za-z]+$", is_token, "expected the name of a scheme (RFC 9110, section 11.1)";

    /// A method.
    pub(super) Method: "^[A-Z-]+$",
        |text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-'),
        "expected a method in upper case";

    /// A text that is not empty.
    pub Text: r"[\s\S]", |text| !text.is_empty(), "must not be empty";

    /// A path.
    pub Path: "^/", |text| text.starts_with('/'), NO_SLASH;

    /// A path, or nothing.
    pub BasePath: "^(/|$)", |text| text.is_empty() || text.starts_with('/'), NO_SLASH;

    /// The path above the operators' endpoints.
    pub OperatorsPath: "^(/[A-Za-z0-9_-]+)+$",
        |text| text.strip_prefix('/').is_some_and(|path| path.split('/').all(|segment| is_word(segment, b"_-"))),
        "expected a path of segments of A-Z, a-z, 0-9, _ and -, such as /weir";

    /// A host, with or without a port.
    pub(super) Authority: r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?$", is_authority,
        "expected a host with or without a port, such as directory.internal:8082";

    /// The name of an environment variable.
    pub(super) Variable: "^[A-Za-z_][A-Za-z0-9_]*$",
        |text| is_word(text, b"_") && !text.starts_with(|first: char| first.is_ascii_digit()),
        "expected the name of an environment variable: letters, digits and _";

    /// An origin, as browsers send it.
    pub Origin: r"^[a-z][a-z0-9+.-]*://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?$",
        is_origin,
        "expected an origin: a scheme and a host, with or without a port, such as https://app.example";
}

/// Whether a text is not empty and has letters, digits and the characters in `more`.
fn is_word(text: &str, more: &[u8]) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
}

fn is_token(text: &str) -> bool {
    is_word(text, b"!#$%&'*+-.^_`|~")
}

pub(super) fn is_authority(text: &str) -> bool {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (is_host, port) = match bracketed {
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), port),
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (is_word(host, b".-_"), port)
        }
    };
    // A port may not have a sign, which numbers may.
    let is_port = |port: &str| is_word(port, b"") && port.parse::<u16>().is_ok();
    is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

fn is_origin(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_lowercase())
            && scheme.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'.' | b'-'))
    };
    text.split_once("://").is_some_and(|(scheme, authority)| is_scheme(scheme) && is_authority(authority))
}

/// A whole number of at least 1: units of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Units(pub NonZeroU32);

impl Forms<'_> for Units {
    const EXPECTED: &'static str = "a whole number from 1 to 4294967295";

    fn number<E: Error>(number: Option<u32>) -> Result<Self, E> {
        Self::or_refused(number.and_then(NonZeroU32::new).map(Self))
    }
}

/// Bits of an IPv6 address.
#[derive(Clone, Copy, Debug)]
pub struct PrefixBits(pub u8);

impl Forms<'_> for PrefixBits {
    const EXPECTED: &'static str = "1 to 128 bits";

    fn number<E: Error>(number: Option<u32>) -> Result<Self, E> {
        let bits = number.and_then(|number| u8::try_from(number).ok());
        Self::or_refused(bits.filter(|bits| (1..=128).contains(bits)).map(Self))
    }
}

/// The status of a refusal that a retry does not help.
#[derive(Clone, Copy, Debug)]
pub struct RefusalStatus(pub u16);

impl Forms<'_> for RefusalStatus {
    const EXPECTED: &'static str = "a status from 400 to 499 except 429, after which clients would retry";

    fn number<E: Error>(number: Option<u32>) -> Result<Self, E> {
        let status = number.and_then(|number| u16::try_from(number).ok());
        Self::or_refused(status.filter(|status| matches!(status, 400..=428 | 430..=499)).map(Self))
    }
}

/// A duration of at least `MIN` seconds, such as `10s`, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Span<const MIN: u32>(pub u32);

impl<const MIN: u32> Forms<'_> for Span<MIN> {
    const EXPECTED: &'static str = "whole seconds, minutes, hours or days such as 10s, 5m, 2h, 7d";

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        match duration(text).flatten() {
            Some(seconds) if seconds < MIN => Err(E::custom(format_args!("expected at least {MIN} s"))),
            seconds => Self::or_refused(seconds.map(Self)),
        }
    }
}

/// A duration such as `250ms` or `1s`, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Millis(pub(super) u32);

impl Forms<'_> for Millis {
    const EXPECTED: &'static str = "whole milliseconds or seconds such as 250ms, 1s";

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        let milliseconds = match text.strip_suffix("ms") {
            Some(count) if is_word(count, b"") => count.parse().ok(),
            _ => duration(text).flatten().and_then(|seconds| seconds.checked_mul(1_000)),
        };
        Self::or_refused(milliseconds.map(Self))
    }
}

/// Parses whole seconds, minutes, hours or days such as `90s`, `5m`, `2h`, `7d` into seconds. `None` if the text is not a duration,
/// `Some(None)` if it has more seconds than a `u32` holds.
pub(super) fn duration(text: &str) -> Option<Option<u32>> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at_checked(digits)?;
    let unit = UNITS.iter().find(|(_, letter, seconds)| *seconds > 0 && *letter == unit)?.2;
    (!count.is_empty()).then(|| count.parse::<u32>().ok()?.checked_mul(unit))
}

/// The path of a value in the metadata of a request, as a property: its parts joined by NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPath(pub Vec<u8>);

impl<'de> Forms<'de> for MetadataPath {
    const EXPECTED: &'static str = r#"the path of a value, for example ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]"#;

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut path = b"metadata".to_vec();
        let (mut parts, mut fits) = (0, true);
        while let Some(part) = list.next_element::<String>()? {
            fits &= !part.is_empty() && !part.contains('\0');
            path.push(0);
            path.extend(part.into_bytes());
            parts += 1;
        }
        Self::or_refused((fits && parts >= 2).then_some(Self(path)))
    }
}

/// A list with at least one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonEmpty<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Forms<'de> for NonEmpty<T> {
    const EXPECTED: &'static str = "a list";

    fn list<A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        let list = Vec::deserialize(SeqAccessDeserializer::new(list))?;
        if list.is_empty() { Err(A::Error::custom("must not be empty")) } else { Ok(Self(list)) }
    }
}

read_by_forms!(Units, {"type": "integer", "minimum": 1, "maximum": u32::MAX});
read_by_forms!(PrefixBits, {"type": "integer", "minimum": 1, "maximum": 128});
read_by_forms!(RefusalStatus, {"type": "integer", "minimum": 400, "maximum": 499, "not": {"const": 429}});
read_by_forms!(Span<0>, {"type": "string", "pattern": "^[0-9]+[smhd]$"});
read_by_forms!(Span<1>, {"type": "string", "pattern": "^0*[1-9][0-9]*[smhd]$"});
read_by_forms!(Millis, {"type": "string", "pattern": "^[0-9]+(ms|[smhd])$"});
read_by_forms!(MetadataPath, {"type": "array", "items": {"type": "string", "pattern": "^[^\\u0000]+$"}, "minItems": 2});
read_by_forms!(@T NonEmpty<T>, |generator| {"type": "array", "items": generator.subschema_for::<T>(), "minItems": 1});
