//! When a window starts and ends.

use core::fmt;
use core::num::NonZeroU32;

use jiff::civil::Date;
use jiff::tz::Offset;

use crate::time::Timestamp;

/// Seconds in a minute, an hour and a day.
pub(crate) const MINUTE: u32 = 60;
pub(crate) const HOUR: u32 = 60 * MINUTE;
pub(crate) const DAY: u32 = 24 * HOUR;

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
}
