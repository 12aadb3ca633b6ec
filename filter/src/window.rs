//! When a window starts and ends.

use core::num::NonZeroU32;
use std::borrow::Cow;

use crate::time::Timestamp;

/// Seconds in a minute, an hour and a day.
pub(crate) const MINUTE: u32 = 60;
pub(crate) const HOUR: u32 = 60 * MINUTE;
pub(crate) const DAY: u32 = 24 * HOUR;

/// The units of windows: the name, the letter that stands for it in a duration, and its [`Window::code`].
pub(crate) const UNITS: [(&str, &str, u32); 5] =
    [("second", "s", 1), ("minute", "m", MINUTE), ("hour", "h", HOUR), ("day", "d", DAY), ("month", "", 0)];

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
    /// One minute.
    pub const MINUTE: Self = Self::whole(MINUTE);

    const fn whole(seconds: u32) -> Self {
        match NonZeroU32::new(seconds) {
            Some(seconds) => Self::Seconds(seconds),
            None => Self::CalendarMonth,
        }
    }

    /// The window in which `now` falls.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Period {
        self.period(self.index_at(now))
    }

    /// The index of the window in which `now` falls.
    #[must_use]
    pub fn index_at(self, now: Timestamp) -> u32 {
        match self {
            Self::Seconds(length) => {
                u32::try_from(now.seconds() / u64::from(length.get())).unwrap_or(u32::MAX)
            }
            Self::CalendarMonth => month_at(now.seconds()),
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

    /// The window of one unit.
    #[must_use]
    pub fn named(unit: &str) -> Option<Self> {
        UNITS.iter().find(|(name, ..)| *name == unit).map(|(.., code)| Self::from_code(*code))
    }

    /// How a quota of this window ends the sentence "60 requests per …", and the end of a derived quota name: `minute`, `month`, `90s`.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        let code = self.code();
        match UNITS.iter().find(|(.., of_unit)| *of_unit == code) {
            Some((name, ..)) => Cow::Borrowed(name),
            None => Cow::Owned(format!("{code}s")),
        }
    }
}

/// The average length of a month in seconds: 400 years have 146,097 days.
const AVERAGE_MONTH: u64 = 146_097 * DAY as u64 / 4800;

/// The number of months between January 1970 and the month of this second.
// Out of line: a compiler would compute it for every request, before it knows whether a window is a month.
#[inline(never)]
fn month_at(seconds: u64) -> u32 {
    let mut month = u32::try_from(seconds / AVERAGE_MONTH).unwrap_or(u32::MAX);
    // No month starts more than two days before or after an average one would.
    if month_start(month) > seconds {
        month = month.saturating_sub(1);
    } else if month_start(month.saturating_add(1)) <= seconds {
        month = month.saturating_add(1);
    }
    month
}

/// The first second of the month `month` months after January 1970, in the proleptic Gregorian calendar.
fn month_start(month: u32) -> u64 {
    // In years that start in March, the leap day is the last, and the lengths of the months repeat every five: 153 days.
    let since_march = u64::from(month) + 1970 * 12 - 2;
    let (year, month) = (since_march / 12, since_march % 12);
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    (days - DAYS_BEFORE_1970) * u64::from(DAY)
}

/// Days from 1 March of the year 0 to 1 January 1970.
const DAYS_BEFORE_1970: u64 = 719_468;

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
            ["second", "minute", "day", "month", "90s"].map(|window| window.parse::<Window>().unwrap())
        {
            let period = window.at(at("2026-11-21T02:03:04Z"));
            assert_eq!(Window::from_code(window.code()), window);
            assert_eq!(window.period(period.index), period);
        }
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        let mut first = jiff::civil::Date::new(1970, 1, 1).unwrap();
        for month in 0..12 * 8000 {
            let start =
                first.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_second().unsigned_abs();
            assert_eq!(month_start(month), start, "{first}");
            assert_eq!(
                (month_at(start), month_at(start.saturating_sub(1))),
                (month, month.saturating_sub(1)),
                "{first}"
            );
            first = first.saturating_add(jiff::Span::new().months(1));
        }
    }

    #[test]
    fn the_ends_of_time_are_windows_too() {
        for window in [Window::from_code(1), Window::CalendarMonth] {
            for nanos in [0, u64::MAX] {
                let period = window.at(Timestamp::from_nanos(nanos));
                assert!(period.start < period.end, "{window:?} at {nanos}: {period:?}");
            }
            assert!(window.period(u32::MAX).start <= window.period(u32::MAX).end);
        }
    }
}
