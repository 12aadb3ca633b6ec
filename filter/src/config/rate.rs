//! The grammar of quotas and durations: `60/minute`, `90s`.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::quota::Mode;
use crate::window::{DAY, HOUR, MINUTE, Window};

/// Limit and window of a quota in the form `60/minute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Units in a window.
    pub limit: NonZeroU32,
    /// The window.
    pub window: Window,
}

/// A quota of the configuration. JSON: `"60/minute"`, or an object with these fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Quota", transform = super::schema::or_rate)
)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct QuotaTerms {
    /// Units in a window. It is at least the cost of the class.
    pub limit: NonZeroU32,
    /// `second`, `minute`, `hour`, `day` (UTC), `month` (UTC calendar), or a duration such as `90s`, `5m`, `2h` or `7d`.
    #[serde(deserialize_with = "from_text")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub window: Window,
    /// Name of the quota in the IETF headers: 1 to 32 of `a-z`, `0-9`, `_` and `-`. The default is the name of the class, followed by
    /// the window if the class has several quotas.
    pub name: Option<String>,
    /// Whether the quota refuses requests.
    #[serde(default)]
    pub mode: Mode,
    /// Whether the quota gets back what a request was charged whose response is refunded. `false` protects the upstream from clients that
    /// retry what fails.
    #[serde(default = "default_refundable")]
    pub refundable: bool,
}

const fn default_refundable() -> bool {
    true
}

/// The quotas of a class. JSON: a list of quotas, or `"unlimited"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// No quota limits the class.
    Unlimited,
    /// All of these quotas limit the class.
    Quotas(Vec<QuotaTerms>),
}

/// Why a text is not a rate or not a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// There is no `/` between limit and unit.
    #[error("expected <limit>/<unit>, for example 60/minute")]
    Form,
    /// The limit is not a whole number in range.
    #[error("the limit must be a whole number from 1 to 4294967295")]
    Limit,
    /// The unit is unknown.
    #[error("unknown unit, expected second, minute, hour, day or month")]
    Unit,
    /// The window is neither a unit nor a duration.
    #[error(
        "unknown window, expected second, minute, hour, day, month or whole seconds, minutes, hours or days such as 90s, 5m, 2h, 7d"
    )]
    Window,
    /// The window is zero or longer than 2³²−1 seconds.
    #[error("a window is 1 to 4294967295 seconds long")]
    WindowRange,
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (limit, unit) = text.split_once('/').ok_or(RateError::Form)?;
        if limit.is_empty() || !limit.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RateError::Limit);
        }
        let limit = limit.parse().map_err(|_| RateError::Limit)?;
        let window = unit_window(unit).ok_or(RateError::Unit)?;
        Ok(Self { limit, window })
    }
}

impl FromStr for Window {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        if let Some(window) = unit_window(text) {
            return Ok(window);
        }
        match duration(text) {
            None => Err(RateError::Window),
            Some(seconds) => {
                seconds.and_then(NonZeroU32::new).map(Self::Seconds).ok_or(RateError::WindowRange)
            }
        }
    }
}

fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Window, D::Error> {
    struct WindowVisitor;

    impl Visitor<'_> for WindowVisitor {
        type Value = Window;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(r#"a window such as "minute" or "90s""#)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Window, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(WindowVisitor)
}

impl<'de> Deserialize<'de> for QuotaTerms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuotaVisitor;

        impl<'de> Visitor<'de> for QuotaVisitor {
            type Value = QuotaTerms;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a quota such as "60/minute" or {"limit": 60, "window": "90s"}"#)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<QuotaTerms, E> {
                let Rate { limit, window } = text.parse().map_err(E::custom)?;
                Ok(QuotaTerms { limit, window, name: None, mode: Mode::Enforced, refundable: true })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<QuotaTerms, A::Error> {
                // The derived function for the object form, which `remote` keeps apart from the trait's.
                QuotaTerms::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(QuotaVisitor)
    }
}

impl<'de> Deserialize<'de> for Grant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GrantVisitor;

        impl<'de> Visitor<'de> for GrantVisitor {
            type Value = Grant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a list of quotas such as ["60/minute"], or "unlimited""#)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Grant, E> {
                match text {
                    "unlimited" => Ok(Grant::Unlimited),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Grant, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Grant::Quotas)
            }
        }

        deserializer.deserialize_any(GrantVisitor)
    }
}

/// Parses whole seconds, minutes, hours or days such as `90s`, `5m`, `2h`, `7d` into seconds. `None` if the text is not a duration,
/// `Some(None)` if it has more seconds than a `u32` holds.
#[must_use]
pub fn duration(text: &str) -> Option<Option<u32>> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at_checked(digits)?;
    let unit = match unit {
        "s" => 1,
        "m" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        _ => return None,
    };
    (!count.is_empty()).then(|| count.parse::<u32>().ok()?.checked_mul(unit))
}

/// Parses whole milliseconds or seconds such as `250ms`, `1s` into milliseconds. `None` and `Some(None)` as in [`duration`].
#[must_use]
pub fn milliseconds(text: &str) -> Option<Option<u32>> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at_checked(digits)?;
    let unit = match unit {
        "ms" => 1,
        "s" => 1000,
        _ => return None,
    };
    (!count.is_empty()).then(|| count.parse::<u32>().ok()?.checked_mul(unit))
}

fn unit_window(unit: &str) -> Option<Window> {
    Some(match unit {
        "second" => Window::SECOND,
        "minute" => Window::MINUTE,
        "hour" => Window::HOUR,
        "day" => Window::DAY,
        "month" => Window::CalendarMonth,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_refused_with_its_mistake() {
        let rows = [
            ("600/fortnight", RateError::Unit),
            ("600", RateError::Form),
            ("/minute", RateError::Limit),
            ("0/minute", RateError::Limit),
            ("+6/minute", RateError::Limit),
            ("4294967296/day", RateError::Limit),
            ("6/Minute", RateError::Unit),
        ];
        for (text, error) in rows {
            assert_eq!(text.parse::<Rate>(), Err(error), "{text}");
        }
        assert_eq!(
            "4294967295/month".parse(),
            Ok(Rate { limit: NonZeroU32::MAX, window: Window::CalendarMonth })
        );
    }

    #[test]
    fn a_window_is_refused_with_its_mistake() {
        for text in ["", "s", "fortnight", "9", "1.5h", "-1s", "90 s", "é"] {
            assert_eq!(text.parse::<Window>(), Err(RateError::Window), "{text}");
        }
        for text in ["0s", "4294967296s", "99999999999999999999s", "50000d"] {
            assert_eq!(text.parse::<Window>(), Err(RateError::WindowRange), "{text}");
        }
    }
}
