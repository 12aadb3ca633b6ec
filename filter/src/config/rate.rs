//! How a quota is written: `60/minute`, `90s`.

use core::num::NonZeroU32;
use core::str::FromStr;

use crate::quota::Mode;
use crate::window::{DAY, HOUR, MINUTE, Window};

/// A quota's limit and window, as `60/minute` writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Units in a window.
    pub limit: NonZeroU32,
    /// The window.
    pub window: Window,
}

/// A quota as it is written, before the class that it is for gives it a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuotaTerms {
    /// Limit and window.
    pub rate: Rate,
    /// The name, if it has one of its own.
    pub name: Option<String>,
    /// Whether it refuses.
    pub mode: Mode,
}

/// What is granted in a class, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// Everything.
    Unlimited,
    /// These quotas.
    Quotas(Vec<QuotaTerms>),
}

/// Why a text is no rate or no window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// No `/` between limit and unit.
    #[error("{0:?}: expected <limit>/<unit>, for example 60/minute")]
    Form(String),
    /// The limit is no whole number in range.
    #[error("{0:?}: the limit must be a whole number from 1 to 4294967295")]
    Limit(String),
    /// No such unit.
    #[error("{0:?}: unknown unit, expected second, minute, hour, day or month")]
    Unit(String),
    /// No such window.
    #[error(
        "{0:?}: unknown window, expected second, minute, hour, day, month or whole seconds, minutes, hours or days such as 90s, 5m, 2h, 7d"
    )]
    Window(String),
    /// Longer than 2³²−1 seconds, or zero.
    #[error("{0:?}: a window is 1 to 4294967295 seconds long")]
    WindowRange(String),
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (limit, unit) = text.split_once('/').ok_or_else(|| RateError::Form(text.to_owned()))?;
        if limit.is_empty() || !limit.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RateError::Limit(text.to_owned()));
        }
        let limit = limit.parse().map_err(|_| RateError::Limit(text.to_owned()))?;
        let window = unit_window(unit).ok_or_else(|| RateError::Unit(text.to_owned()))?;
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
            None => Err(RateError::Window(text.to_owned())),
            Some(seconds) => seconds
                .and_then(NonZeroU32::new)
                .map(Self::Seconds)
                .ok_or_else(|| RateError::WindowRange(text.to_owned())),
        }
    }
}

/// Reads whole seconds, minutes, hours or days such as `90s`, `5m`, `2h`, `7d`. `None` if it is nothing of the kind, `Some(None)` if it
/// is more seconds than a `u32` holds.
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

/// Reads whole milliseconds or seconds such as `250ms`, `1s`, as milliseconds; otherwise as [`duration`].
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
    fn rates_say_what_is_wrong_with_them() {
        let rows = [
            (
                "600/fortnight",
                r#""600/fortnight": unknown unit, expected second, minute, hour, day or month"#,
            ),
            ("600", r#""600": expected <limit>/<unit>, for example 60/minute"#),
            ("/minute", r#""/minute": the limit must be a whole number from 1 to 4294967295"#),
            ("0/minute", r#""0/minute": the limit must be a whole number from 1 to 4294967295"#),
            ("+6/minute", r#""+6/minute": the limit must be a whole number from 1 to 4294967295"#),
            ("4294967296/day", r#""4294967296/day": the limit must be a whole number from 1 to 4294967295"#),
            ("6/Minute", r#""6/Minute": unknown unit, expected second, minute, hour, day or month"#),
        ];
        for (text, message) in rows {
            assert_eq!(text.parse::<Rate>().unwrap_err().to_string(), message);
        }
        assert_eq!(
            "4294967295/month".parse::<Rate>(),
            Ok(Rate { limit: NonZeroU32::MAX, window: Window::CalendarMonth })
        );
    }

    #[test]
    fn windows_say_what_is_wrong_with_them() {
        for text in ["", "s", "fortnight", "9", "1.5h", "-1s", "90 s", "é"] {
            assert_eq!(text.parse::<Window>(), Err(RateError::Window(text.to_owned())));
        }
        for text in ["0s", "4294967296s", "99999999999999999999s", "50000d"] {
            assert_eq!(text.parse::<Window>(), Err(RateError::WindowRange(text.to_owned())));
        }
    }
}
