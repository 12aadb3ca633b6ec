//! Quotas and their windows: what may be used, and when a window starts and ends.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use std::borrow::Cow;

use jiff::civil::Date;
use jiff::tz::Offset;

use crate::time::Timestamp;

/// Seconds in a minute, an hour and a day.
const MINUTE: u32 = 60;
const HOUR: u32 = 60 * MINUTE;
const DAY: u32 = 24 * HOUR;

/// The length of a quota's window; the draft's `w`.
///
/// Windows of a fixed length are aligned to the Unix epoch, so a day is a UTC day, and a month is the UTC calendar's: all
/// workers and gateways agree on where a window starts without talking to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Window {
    /// The UTC calendar month.
    CalendarMonth,
    /// This many seconds.
    Seconds(NonZeroU32),
}

/// One window in time: `[start, end)` in seconds since the epoch, and its place in the sequence of such windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// How many windows of this length ended between the epoch and this one's start.
    pub index: u32,
    /// First second, inclusive.
    pub start: u64,
    /// The second at which the next window starts.
    pub end: u64,
}

impl Window {
    /// One second.
    pub const SECOND: Self = Self::Seconds(NonZeroU32::MIN);
    /// One minute.
    pub const MINUTE: Self = Self::whole(MINUTE);
    /// One hour.
    pub const HOUR: Self = Self::whole(HOUR);
    /// One UTC day.
    pub const DAY: Self = Self::whole(DAY);

    const fn whole(seconds: u32) -> Self {
        match NonZeroU32::new(seconds) {
            Some(seconds) => Self::Seconds(seconds),
            None => Self::CalendarMonth,
        }
    }

    /// The window in which `now` falls.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Period {
        let now = now.seconds();
        match self {
            Self::Seconds(length) => {
                self.period(u32::try_from(now / u64::from(length.get())).unwrap_or(u32::MAX))
            }
            Self::CalendarMonth => {
                let date = i64::try_from(now)
                    .ok()
                    .and_then(|now| jiff::Timestamp::from_second(now).ok())
                    .map_or(Date::MAX, |now| Offset::UTC.to_datetime(now).date());
                let months = (i32::from(date.year()) - 1970) * 12 + i32::from(date.month()) - 1;
                self.period(u32::try_from(months).unwrap_or(0))
            }
        }
    }

    /// The window with this index.
    #[must_use]
    pub fn period(self, index: u32) -> Period {
        match self {
            Self::Seconds(length) => {
                let length = u64::from(length.get());
                let start = u64::from(index) * length;
                Period { index, start, end: start + length }
            }
            Self::CalendarMonth => {
                Period { index, start: month_start(index), end: month_start(index.saturating_add(1)) }
            }
        }
    }

    /// The `u32` that stands for this window in a counter's record: its seconds, 0 for a month.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::CalendarMonth => 0,
            Self::Seconds(length) => length.get(),
        }
    }

    /// The window that [`Window::code`] stands for.
    #[must_use]
    pub const fn from_code(code: u32) -> Self {
        Self::whole(code)
    }

    /// How a quota of this window ends the sentence "60 requests per …", and the end of a derived quota name.
    #[must_use]
    pub fn short_name(self) -> WindowName {
        WindowName(self)
    }
}

/// The first second of the month `index` months after January 1970; saturates at the end of the year 9999.
fn month_start(index: u32) -> u64 {
    let year = i16::try_from(1970 + index / 12).unwrap_or(i16::MAX);
    let month = i8::try_from(index % 12 + 1).unwrap_or(1);
    Date::new(year, month, 1)
        .and_then(|date| Offset::UTC.to_timestamp(date.to_datetime(jiff::civil::Time::midnight())))
        .map_or(u64::MAX, |start| u64::try_from(start.as_second()).unwrap_or(0))
}

/// `minute`, `month`, `90s`.
#[derive(Clone, Copy, Debug)]
pub struct WindowName(Window);

impl fmt::Display for WindowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Window::SECOND => f.write_str("second"),
            Window::MINUTE => f.write_str("minute"),
            Window::HOUR => f.write_str("hour"),
            Window::DAY => f.write_str("day"),
            Window::CalendarMonth => f.write_str("month"),
            Window::Seconds(length) => write!(f, "{length}s"),
        }
    }
}

/// Whether a quota that is used up refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It refuses.
    #[default]
    Enforced,
    /// It counts and reports in metrics, and never refuses.
    Shadow,
}

/// At most `limit` units in each `window`; the draft's `q` and `w`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The policy's name in `RateLimit-Policy`, `RateLimit` and `violated-policies`.
    pub name: String,
    /// Units in a window. A request uses the cost of its class.
    pub limit: NonZeroU32,
    /// The window.
    pub window: Window,
    /// Whether it refuses.
    pub mode: Mode,
}

impl Quota {
    /// What the quota allows in an hour: `limit` × 3600 / window, rounded down; of an hour and longer windows the limit itself.
    ///
    /// This is how the contract's two statements on `X-RateLimit-Limit` (a count per hour, of limits per minute) are both kept.
    #[must_use]
    pub fn per_hour(&self) -> u64 {
        let limit = u64::from(self.limit.get());
        match self.window {
            Window::Seconds(length) if length.get() < HOUR => {
                limit * u64::from(HOUR) / u64::from(length.get())
            }
            Window::Seconds(_) | Window::CalendarMonth => limit,
        }
    }
}

/// The quotas of a class, all of which apply, and what is announced of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSet {
    quotas: Vec<Quota>,
    /// `RateLimit-Policy`, unless it changes with the month.
    policy: Option<String>,
}

impl QuotaSet {
    /// The quotas of a class; at most [`crate::entry::MAX_QUOTAS`] of them are looked at.
    #[must_use]
    pub fn new(quotas: Vec<Quota>) -> Self {
        let calendar = quotas.iter().any(|quota| quota.window == Window::CalendarMonth);
        let policy = (!calendar).then(|| crate::headers::policy(&quotas, Timestamp::from_seconds(0)));
        Self { quotas, policy }
    }

    /// The quotas.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The value of `RateLimit-Policy` at `now`.
    #[must_use]
    pub fn policy(&self, now: Timestamp) -> Cow<'_, str> {
        match &self.policy {
            Some(policy) => Cow::Borrowed(policy),
            None => Cow::Owned(crate::headers::policy(&self.quotas, now)),
        }
    }
}

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

    fn at(instant: &str) -> Timestamp {
        let instant: jiff::Timestamp = instant.parse().unwrap();
        Timestamp::from_seconds(instant.as_second().unsigned_abs())
    }

    #[test]
    fn windows_are_aligned_to_the_epoch_and_months_to_the_utc_calendar() {
        let rows = [
            ("second", "2026-02-28T23:59:59Z", "2026-02-28T23:59:59Z", "2026-03-01T00:00:00Z"),
            ("minute", "2026-02-28T23:59:59Z", "2026-02-28T23:59:00Z", "2026-03-01T00:00:00Z"),
            ("90s", "1970-01-01T00:01:31Z", "1970-01-01T00:01:30Z", "1970-01-01T00:03:00Z"),
            ("hour", "2026-02-28T23:59:59Z", "2026-02-28T23:00:00Z", "2026-03-01T00:00:00Z"),
            ("day", "2026-02-28T23:59:59Z", "2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"),
            ("month", "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"),
            ("month", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            ("month", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ];
        for (window, now, start, end) in rows {
            let period = window.parse::<Window>().unwrap().at(at(now));
            assert_eq!(
                (period.start, period.end),
                (at(start).seconds(), at(end).seconds()),
                "{window} at {now}"
            );
        }
    }

    #[test]
    fn a_window_survives_its_code_and_a_period_its_index() {
        for window in
            [Window::SECOND, Window::MINUTE, Window::DAY, Window::CalendarMonth, "90s".parse().unwrap()]
        {
            let period = window.at(at("2026-11-21T02:03:04Z"));
            assert_eq!(Window::from_code(window.code()), window);
            assert_eq!(window.period(period.index), period);
        }
    }

    #[test]
    fn the_ends_of_time_are_windows_too() {
        for window in [Window::SECOND, Window::CalendarMonth] {
            for nanos in [0, u64::MAX] {
                let period = window.at(Timestamp::from_nanos(nanos));
                assert!(period.start < period.end, "{window:?} at {nanos}: {period:?}");
            }
            assert!(window.period(u32::MAX).start <= window.period(u32::MAX).end);
        }
    }

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

    #[test]
    fn the_hourly_figure_is_what_the_window_allows_in_an_hour() {
        let rows = [
            ("60/minute", 3600),
            ("2/second", 7200),
            ("1/hour", 1),
            ("5/day", 5),
            ("7/month", 7),
            ("4294967295/second", 15_461_882_262_000),
        ];
        for (rate, per_hour) in rows {
            let Rate { limit, window } = rate.parse().unwrap();
            let quota = Quota { name: String::new(), limit, window, mode: Mode::Enforced };
            assert_eq!(quota.per_hour(), per_hour, "{rate}");
        }
    }
}
