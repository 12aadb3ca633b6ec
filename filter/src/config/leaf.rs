//! The values that fields hold. Each checks itself when it is read.

use core::net::Ipv6Addr;
use core::num::NonZeroU32;

#[cfg(feature = "schema")]
use serde_json::json;

use crate::read::error::ConfigError;
use crate::read::{Value, forms};
use crate::window::{Anchor, UNITS};

/// Defines texts: what the schema says beside the type, the same as a function, and what a text is that does not fit.
macro_rules! texts {
    ($($(#[doc = $doc:literal])+ $vis:vis $name:ident: $schema:tt, $fits:expr, $problem:expr;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        $vis struct $name(pub(super) String);

        forms! {
            $name: "a string", |_definitions| json!($schema);
            Value::Text(text) => {
                let fits: fn(&str) -> bool = $fits;
                if fits(&text) { Ok(Self(text)) } else { Err(ConfigError::new($problem)) }
            },
        }

        impl core::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }
    )+};
}

const NO_SLASH: &str = "expected a path that starts with /";

texts! {
    /// The name of a class, a quota or an operator.
    pub Name: {"type": "string", "pattern": "^[a-z0-9_-]{1,32}$"},
        |text| (1..=32).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-')),
        "a name is 1 to 32 of a-z, 0-9, _ and -";

    /// The name of a plan.
    pub(super) PlanName: {"pattern": "^[A-Za-z0-9_-]{1,64}$", "not": {"const": "none"}},
        |text| (1..=64).contains(&text.len()) && is_word(text, b"_-") && text != super::NO_PLAN,
        r#"a name is 1 to 64 of A-Z, a-z, 0-9, _ and -, and not "none", which is the plan of strangers"#;

    /// The name of a header.
    pub(super) HeaderName: {"type": "string", "pattern": "^[-!#$%&'*+.^_`|~0-9A-Za-z]+$"}, is_token,
        "expected the name of a header (RFC 9110, section 5.1)";

    /// The name of an authentication scheme.
    pub(super) Scheme: {"type": "string", "pattern": "^[-!#$%&'*+.^_`|~0-9A-Za-z]+$"}, is_token,
        "expected the name of a scheme (RFC 9110, section 11.1)";

    /// A method.
    pub(super) Method: {"type": "string", "pattern": "^[A-Z-]+$"},
        |text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-'),
        "expected a method in upper case";

    /// A text that is not empty.
    pub Text: {"type": "string", "pattern": r"[\s\S]"}, |text| !text.is_empty(), "must not be empty";

    /// A path.
    pub Path: {"type": "string", "pattern": "^/"}, |text| text.starts_with('/'), NO_SLASH;

    /// A path, or nothing.
    pub BasePath: {"type": "string", "pattern": "^(/|$)"}, |text| text.is_empty() || text.starts_with('/'), NO_SLASH;

    /// The path above the operators' endpoints.
    pub OperatorsPath: {"type": "string", "pattern": "^(/[A-Za-z0-9_-]+)+$"},
        |text| text.strip_prefix('/').is_some_and(|path| path.split('/').all(|segment| is_word(segment, b"_-"))),
        "expected a path of segments of A-Z, a-z, 0-9, _ and -, such as /weir";

    /// A host, with or without a port.
    pub(super) Authority: {"type": "string", "pattern": r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?$"}, is_authority,
        "expected a host with or without a port, such as directory.internal:8082 or, of IPv6 in brackets, [fd00::1]:8082";

    /// The name of an environment variable.
    pub(super) Variable: {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        |text| is_word(text, b"_") && !text.starts_with(|first: char| first.is_ascii_digit()),
        "expected the name of an environment variable: letters, digits and _";

    /// An origin, as browsers send it.
    pub Origin: {"type": "string", "pattern": r"^[a-z][a-z0-9+.-]*://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?$"},
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

forms! {
    Units: "a whole number from 1 to 4294967295", |_definitions| json!({"type": "integer", "minimum": 1, "maximum": u32::MAX});
    Value::Number(Some(units)) => {
        NonZeroU32::new(units).map(Self).ok_or_else(|| ConfigError::new("expected 1 or more"))
    },
}

/// Bits of an IPv6 address.
#[derive(Clone, Copy, Debug)]
pub struct PrefixBits(pub u8);

forms! {
    PrefixBits: "1 to 128 bits", |_definitions| json!({"type": "integer", "minimum": 1, "maximum": 128});
    Value::Number(Some(bits @ 1..=128)) => Ok(Self(bits as u8)),
}

/// The status of a refusal that a retry does not help.
#[derive(Clone, Copy, Debug)]
pub struct RefusalStatus(pub u16);

forms! {
    RefusalStatus: "a status from 400 to 499 except 429, after which clients would retry",
    |_definitions| json!({"type": "integer", "minimum": 400, "maximum": 499, "not": {"const": 429}});
    Value::Number(Some(status @ (400..=428 | 430..=499))) => Ok(Self(status as u16)),
}

/// A duration of `MIN` to `MAX` units of `UNIT` milliseconds, in these units. A unit is a second or a millisecond.
#[derive(Clone, Copy, Debug)]
pub struct Span<const UNIT: u32, const MIN: u32, const MAX: u32>(pub u32);

/// A duration of at least `MIN` seconds, such as `10s`.
pub(super) type Seconds<const MIN: u32> = Span<1_000, MIN, { u32::MAX }>;

/// A duration of `MIN` to `MAX` milliseconds, such as `250ms` or `1s`.
pub(super) type Millis<const MIN: u32, const MAX: u32> = Span<1, MIN, MAX>;

forms! {
    @[const UNIT: u32, const MIN: u32, const MAX: u32] Span<UNIT, MIN, MAX>: span(UNIT),
    |_definitions| {
        let (count, unit) = (if MIN > 0 { "0*[1-9][0-9]*" } else { "[0-9]+" }, if UNIT == 1 { "(ms|[smhd])" } else { "[smhd]" });
        json!({"type": "string", "pattern": format!("^{count}{unit}$")})
    };
    Value::Text(text) => {
        let whole = || match text.strip_suffix("ms") {
            Some(count) if UNIT == 1 && is_word(count, b"") => count.parse().ok(),
            _ => duration(&text).flatten()?.checked_mul(1_000 / UNIT),
        };
        let unit = if UNIT == 1 { "ms" } else { "s" };
        match whole() {
            Some(units) if (MIN..=MAX).contains(&units) => Ok(Self(units)),
            Some(_) if MAX == u32::MAX => Err(ConfigError::new(format!("expected at least {MIN} {unit}"))),
            Some(_) => Err(ConfigError::new(format!("expected {MIN} to {MAX} {unit}"))),
            None => Err(ConfigError::new(format!("expected {}", span(UNIT)))),
        }
    },
}

/// What a duration in units of this many milliseconds may be.
fn span(unit: u32) -> &'static str {
    match unit {
        1 => "whole milliseconds or seconds such as 250ms, 1s",
        _ => "whole seconds, minutes, hours or days such as 10s, 5m, 2h, 7d",
    }
}

/// Parses whole seconds, minutes, hours or days such as `90s`, `5m`, `2h`, `7d` into seconds. `None` if the text is not a duration,
/// `Some(None)` if it has more seconds than a `u32` holds.
pub(super) fn duration(text: &str) -> Option<Option<u32>> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at_checked(digits)?;
    let unit = UNITS.iter().find(|(_, letter, _)| !unit.is_empty() && *letter == unit)?.2;
    (!count.is_empty()).then(|| count.parse::<u32>().ok()?.checked_mul(unit))
}

const INSTANT: &str = "an instant in UTC, from 1970 on, such as 2026-01-31T09:30:00Z or 2026-01-31";

forms! {
    Anchor: INSTANT,
    |_definitions| json!({"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z)?$"});
    Value::Text(text) => instant(&text).ok_or_else(|| ConfigError::new(format!("expected {INSTANT}"))),
}

/// Reads an instant as RFC 3339 has it, in UTC. The hour of a date alone is 00:00. (A date library would make the module a quarter larger.)
pub(crate) fn instant(text: &str) -> Option<Anchor> {
    let numbers = |text: &str, separator: char, lengths: [usize; 3]| {
        let mut parts = text.split(separator);
        let numbers = lengths.map(|length| {
            let part = parts.next().filter(|part| part.len() == length && is_word(part, b""))?;
            part.parse::<u32>().ok()
        });
        let [Some(a), Some(b), Some(c)] = numbers else { return None };
        parts.next().is_none().then_some((a, b, c))
    };
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let (hour, minute, second) = numbers(whole, ':', [2; 3])?;
    let is_time = hour < 24 && minute < 60 && second < 60 && is_word(fraction, b"");
    let second = is_time.then_some((hour * 60 + minute) * 60 + second)?;
    numbers(date, '-', [4, 2, 2]).and_then(|date| Anchor::of(date, second))
}

/// The path of a value in the metadata of a request, as a property: its parts joined by NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPath(pub Vec<u8>);

const METADATA: &str = r#"the path of a value, for example ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]"#;

forms! {
    MetadataPath: METADATA,
    |_definitions| json!({"type": "array", "items": {"type": "string", "pattern": "^[^\\x00]+$"}, "minItems": 2});
    Value::List(parts) => {
        let parts = Vec::<String>::read(Value::List(parts))?;
        if parts.len() < 2 || parts.iter().any(|part| part.is_empty() || part.contains('\0')) {
            return Err(ConfigError::new(format!("expected {METADATA}")));
        }
        Ok(Self(format!("metadata\0{}", parts.join("\0")).into_bytes()))
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_read_as_a_date_library_reads_it() {
        let taken = [
            "2026-01-31T09:30:00Z",
            "2024-02-29T23:59:59.999999999Z",
            "1970-01-01T00:00:00.0Z",
            "9998-12-31T00:00:00Z",
        ];
        for text in taken {
            let datetime =
                text.parse::<jiff::Timestamp>().unwrap().to_zoned(jiff::tz::TimeZone::UTC).datetime();
            let date = (datetime.year(), datetime.month(), datetime.day());
            let date =
                (date.0.unsigned_abs().into(), date.1.unsigned_abs().into(), date.2.unsigned_abs().into());
            let seconds = datetime.time().duration_since(jiff::civil::Time::midnight()).as_secs();
            assert_eq!(instant(text), Anchor::of(date, u32::try_from(seconds).unwrap()), "{text}");
        }
        assert_eq!(instant("2026-01-31"), instant("2026-01-31T00:00:00Z"));
        let refused = [
            "",
            "2026",
            "2026-1-31",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "1969-12-31",
            "+026-01-31",
            "2026-01-31T",
            "2026-01-31T24:00:00Z",
            "2026-01-31T09:30Z",
            "2026-01-31T09:30:00",
            "2026-01-31T09:30:60Z",
            "2026-01-31T09:30:00+01:00",
            "2026-01-31T09:30:00.Z",
            "2026-01-31T09:30:00.1é",
            "2026-01-31-01",
        ];
        for text in refused {
            assert_eq!(instant(text), None, "{text}");
        }
    }
}
