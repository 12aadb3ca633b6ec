//! When a window starts and ends.

use core::num::{NonZeroU32, NonZeroU64};
use std::borrow::Cow;

use crate::time::Timestamp;

/// Seconds in a minute, an hour and a day.
pub(crate) const MINUTE: u32 = 60;
pub(crate) const HOUR: u32 = 60 * MINUTE;
pub(crate) const DAY: u32 = 24 * HOUR;

const WEEK: u32 = 7 * DAY;

/// The bits of a [`Window::code`] that say which kind of window it is, and those that say where in it a subscriber's periods begin.
const KIND: u32 = 0xF000_0000;
const WEEKS: u32 = 1 << 28;
const YEARS: u32 = 2 << 28;
const BILLING_MONTHS: u32 = 3 << 28;
const BILLING_YEARS: u32 = 4 << 28;
/// A rate, whose other bits are these and how many units flow back in a unit of time, of which there are up to [`MAX_RATE`].
const RATES: u32 = 5 << 28;
const IN_SHADOW: u32 = 1 << 22;
const RATE_UNIT: u32 = 1 << 20;

/// Requests in flight, whose other bits are [`IN_SHADOW`] and for how many seconds one is counted at the longest.
const IN_FLIGHT: u32 = 6 << 28;
/// Milliseconds of a slot of time, for each second of those: an eighth.
const SLOT: u64 = 125;

/// The most units that flow back in a unit of time.
pub const MAX_RATE: u32 = 1_000_000;

/// The units of windows: the name, the letter that stands for it in a duration, and its [`Window::code`].
pub(crate) const UNITS: [(&str, &str, u32); 9] = [
    ("second", "s", 1),
    ("minute", "m", MINUTE),
    ("hour", "h", HOUR),
    ("day", "d", DAY),
    ("week", "", WEEKS),
    ("month", "", 0),
    ("year", "", YEARS),
    ("billing_month", "", BILLING_MONTHS),
    ("billing_year", "", BILLING_YEARS),
];

/// The place of an instant in its year, at which a subscriber's billing periods begin: the month and the day, both from 0, and the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Anchor(u32);

impl Anchor {
    /// The place of a second of a day, which is given by its year from 1970 on, month and day. `None` if there is no such day.
    pub(crate) fn of((year, month, day): (u32, u32, u32), second: u32) -> Option<Self> {
        let (month, day) = (month.checked_sub(1).filter(|month| *month < 12)?, day.checked_sub(1)?);
        let since_1970 = u64::from(year.checked_sub(1970)? * 12 + month);
        let is_day = u64::from(day) < days(since_1970);
        is_day.then_some(Self((month * 31 + day) * DAY + second))
    }
}

/// The length of a quota's window, or the rate at which its units flow back: what a count of it is about.
///
/// Windows of a fixed length are aligned to the Unix epoch, so a day is a UTC day. Weeks begin on Monday, and months and years are the UTC
/// calendar's: all workers and gateways agree on where a window starts without talking to each other. Billing months and years begin where the
/// subscriber's [`Anchor`] says, which is a part of the window. A rate has no windows: each unit flows back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(u32);

/// One window in time: `[start, end)` in seconds since the epoch, and its place in the sequence of such windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// How many windows of this kind ended between the epoch and this one's start.
    pub index: u32,
    /// First second, inclusive. 0 for a window that began before the epoch.
    pub start: u64,
    /// The second at which the next window starts.
    pub end: u64,
}

/// The kinds of windows that have no length of their own in seconds from the epoch on.
enum Calendar {
    Weeks,
    /// So many months, and where in them a window begins: after so many months, days and seconds. `anchored` windows may begin before the epoch.
    Months {
        months: u64,
        first: u64,
        day: u64,
        second: u64,
        anchored: bool,
    },
}

impl Window {
    /// One minute.
    pub const MINUTE: Self = Self(MINUTE);
    /// The UTC calendar month.
    pub const CALENDAR_MONTH: Self = Self(0);

    /// A window of this many seconds, of at most 366 days.
    #[must_use]
    pub const fn of_seconds(seconds: NonZeroU32) -> Self {
        Self(seconds.get())
    }

    /// The length of a window that begins at a multiple of it; `None` for weeks, months and years.
    #[must_use]
    pub const fn seconds(self) -> Option<NonZeroU32> {
        if self.0 & KIND == 0 { NonZeroU32::new(self.0) } else { None }
    }

    /// The rate of so many units in a second, a minute, an hour or a day, which is the first, second, third or fourth of [`UNITS`]. Quotas in shadow
    /// mode take what an enforced one would take, and so have counts of their own.
    #[must_use]
    pub(crate) const fn of_rate(units: u32, unit: u32, in_shadow: bool) -> Self {
        let shadow = if in_shadow { IN_SHADOW } else { 0 };
        Self(RATES | shadow | (unit * RATE_UNIT) | units)
    }

    /// What a rate is made of: units that flow back in so many seconds, and the name of these; `None` for a window.
    #[must_use]
    pub fn rate(self) -> Option<(u32, NonZeroU32, &'static str)> {
        if self.0 & KIND != RATES {
            return None;
        }
        let units = self.0 % RATE_UNIT;
        let (name, _, seconds) = UNITS.get(usize::try_from(self.0 / RATE_UNIT % 4).ok()?)?;
        Some((units, NonZeroU32::new(*seconds)?, name))
    }

    /// The nanoseconds in which a unit of a rate flows back, rounded up; `None` for a window.
    #[must_use]
    #[inline(always)]
    pub fn flows_back(self) -> Option<NonZeroU64> {
        if self.0 & KIND == RATES { self.nanoseconds_of_a_unit() } else { None }
    }

    #[inline(never)]
    fn nanoseconds_of_a_unit(self) -> Option<NonZeroU64> {
        let (units, seconds, _) = self.rate()?;
        NonZeroU64::new((u64::from(seconds.get()) * 1_000_000_000).div_ceil(u64::from(units.max(1))))
    }

    /// Requests in flight, each of which is counted for so many seconds at the longest, a day at most. In shadow mode they have a count of their own,
    /// as those of rates do.
    #[must_use]
    pub(crate) const fn of_longest(seconds: u32, in_shadow: bool) -> Self {
        let shadow = if in_shadow { IN_SHADOW } else { 0 };
        Self(IN_FLIGHT | shadow | seconds)
    }

    /// Whether it is about requests in flight.
    #[must_use]
    #[inline(always)]
    pub const fn is_in_flight(self) -> bool {
        self.0 & KIND == IN_FLIGHT
    }

    /// For how many seconds a request in flight is counted at the longest; `None` for a window or a rate.
    #[must_use]
    pub const fn longest(self) -> Option<NonZeroU32> {
        if self.is_in_flight() { NonZeroU32::new(self.0 & !(KIND | IN_SHADOW)) } else { None }
    }

    /// Whether the gateways of a fleet can share counts of it.
    #[must_use]
    #[inline(always)]
    pub const fn is_shared(self) -> bool {
        self.0 & KIND < RATES
    }

    /// Whether it lasts for a day or longer. The units of a rate are back bit by bit.
    #[must_use]
    pub fn is_long(self) -> bool {
        self.is_shared() && self.seconds().is_none_or(|length| length.get() >= DAY)
    }

    /// Whether it is a window of an hour or longer.
    #[must_use]
    pub fn is_of_hours(self) -> bool {
        self.is_shared() && self.seconds().is_none_or(|length| length.get() >= HOUR)
    }

    /// Whether its length changes with the month or the year.
    #[must_use]
    pub fn is_calendar(self) -> bool {
        self.is_shared() && self.seconds().is_none()
    }

    /// The window in which `now` falls.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Period {
        self.period(self.index_at(now))
    }

    /// The index of the window in which `now` falls, or for requests in flight of the slot, an eighth of the longest time.
    #[must_use]
    #[inline(always)]
    pub fn index_at(self, now: Timestamp) -> u32 {
        match self.seconds() {
            Some(length) => u32::try_from(now.seconds() / u64::from(length.get())).unwrap_or(u32::MAX),
            None => self.calendar_index_at(now),
        }
    }

    // Out of line: a compiler would compute it for every request, before it knows which window it has.
    #[inline(never)]
    fn calendar_index_at(self, now: Timestamp) -> u32 {
        match self.longest() {
            Some(longest) => {
                u32::try_from(now.millis() / (u64::from(longest.get()) * SLOT)).unwrap_or(u32::MAX)
            }
            None if self == Self::CALENDAR_MONTH => month_at(now.seconds()),
            None if !self.is_shared() => 0,
            None => self.calendar().index_at(now.seconds()),
        }
    }

    /// The window with this index.
    #[must_use]
    #[inline]
    pub fn period(self, index: u32) -> Period {
        let Some(length) = self.seconds() else { return self.calendar_period(index) };
        let length = u64::from(length.get());
        let start = u64::from(index) * length;
        Period { index, start, end: start + length }
    }

    #[inline(never)]
    fn calendar_period(self, index: u32) -> Period {
        let (this, next) = (u64::from(index), u64::from(index) + 1);
        if self == Self::CALENDAR_MONTH {
            return Period { index, start: month_start(this), end: month_start(next) };
        }
        let calendar = self.calendar();
        Period { index, start: calendar.start(this), end: calendar.start(next) }
    }

    fn calendar(self) -> Calendar {
        let (kind, place) = (self.0 & KIND, u64::from(self.0 & !KIND));
        let (days, second) = (place / u64::from(DAY), place % u64::from(DAY));
        let anchored = kind == BILLING_MONTHS || kind == BILLING_YEARS;
        match kind {
            WEEKS => Calendar::Weeks,
            YEARS | BILLING_YEARS => {
                Calendar::Months { months: 12, first: days / 31, day: days % 31, second, anchored }
            }
            _ => Calendar::Months { months: 1, first: 0, day: days, second, anchored },
        }
    }

    /// The same for a subscriber whose periods begin at this place, if it is a billing period.
    #[must_use]
    pub fn anchored(self, Anchor(place): Anchor) -> Self {
        match self.0 & KIND {
            BILLING_MONTHS => Self(BILLING_MONTHS | (place % (31 * DAY))),
            BILLING_YEARS => Self(BILLING_YEARS | place),
            _ => self,
        }
    }

    /// The `u32` that stands for it in a counter's record: a window's seconds, 0 for a month, and of others the kind in the highest bits.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.0
    }

    /// The window that [`Window::code`] stands for.
    #[must_use]
    pub const fn from_code(code: u32) -> Self {
        Self(code)
    }

    /// The window of one unit.
    #[must_use]
    pub fn named(unit: &str) -> Option<Self> {
        UNITS.iter().find(|(name, ..)| *name == unit).map(|(.., code)| Self(*code))
    }

    /// The end of a derived quota name: `minute`, `month`, `billing_month`, `90s`, `rate`, `in-flight`.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        if !self.is_shared() {
            return Cow::Borrowed(if self.is_in_flight() { "in-flight" } else { "rate" });
        }
        let code = if self.0 & KIND == 0 { self.0 } else { self.0 & KIND };
        match UNITS.iter().find(|(.., of_unit)| *of_unit == code) {
            Some((name, ..)) => Cow::Borrowed(name),
            None => Cow::Owned(format!("{code}s")),
        }
    }
}

impl Calendar {
    fn index_at(&self, seconds: u64) -> u32 {
        let index = match *self {
            Self::Weeks => (seconds + BEFORE_MONDAY) / u64::from(WEEK),
            Self::Months { months, anchored, .. } => {
                let last = u64::from(month_at(seconds)) / months + u64::from(anchored);
                // A window that begins later in this month or year has not begun yet.
                last - u64::from(anchored && self.start(last) > seconds)
            }
        };
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    fn start(&self, index: u64) -> u64 {
        match *self {
            Self::Weeks => (index * u64::from(WEEK)).saturating_sub(BEFORE_MONDAY),
            Self::Months { months, first, day, second, anchored } => {
                let month = (index * months + first).checked_sub(if anchored { months } else { 0 });
                month.map_or(0, |month| {
                    // The last day of a month that is too short.
                    let day = if day < 28 { day } else { day.min(days(month) - 1) };
                    month_start(month) + day * u64::from(DAY) + second
                })
            }
        }
    }
}

/// From the Monday before the epoch, which was a Thursday.
const BEFORE_MONDAY: u64 = 3 * DAY as u64;

/// The average length of a month in seconds: 400 years have 146,097 days.
const AVERAGE_MONTH: u64 = 146_097 * DAY as u64 / 4800;

/// The number of months between January 1970 and the month of this second.
fn month_at(seconds: u64) -> u32 {
    let mut month = u32::try_from(seconds / AVERAGE_MONTH).unwrap_or(u32::MAX);
    // No month starts more than two days before or after an average one would.
    if month_start(month.into()) > seconds {
        month = month.saturating_sub(1);
    } else if month_start(u64::from(month) + 1) <= seconds {
        month = month.saturating_add(1);
    }
    month
}

/// The year, the month and the day of a second, as the calendar counts them.
pub(crate) fn date(seconds: u64) -> (u64, u64, u64) {
    let month = u64::from(month_at(seconds));
    let day = seconds.saturating_sub(month_start(month)) / u64::from(DAY);
    (1970 + month / 12, month % 12 + 1, day + 1)
}

/// The first second of the month `month` months after January 1970, in the proleptic Gregorian calendar.
fn month_start(month: u64) -> u64 {
    // In years that start in March, the leap day is the last, and the lengths of the months repeat every five: 153 days.
    let since_march = month + 1970 * 12 - 2;
    let (year, month) = (since_march / 12, since_march % 12);
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    (days - DAYS_BEFORE_1970) * u64::from(DAY)
}

/// The days of that month.
fn days(month: u64) -> u64 {
    (month_start(month + 1) - month_start(month)) / u64::from(DAY)
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
            ("week", "2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"),
            ("week", "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"),
            ("week", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-05T00:00:00Z"),
            ("year", "2028-12-31T23:59:59Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z"),
            ("billing_month", "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"),
            ("billing_year", "2026-02-28T23:59:59Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
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
            ["second", "minute", "day", "month", "90s", "week", "year", "billing_month", "billing_year"]
                .map(|window| window.parse::<Window>().unwrap())
        {
            let period = window.at(at("2026-11-21T02:03:04Z"));
            assert_eq!(Window::from_code(window.code()), window);
            assert_eq!(window.period(period.index), period);
        }
    }

    #[test]
    fn weeks_and_years_are_those_of_the_calendar_for_a_hundred_years() {
        use jiff::civil::Weekday;
        let mut day = jiff::civil::Date::new(1970, 1, 1).unwrap();
        let second = |date: jiff::civil::Date| {
            date.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_second().max(0).unsigned_abs()
        };
        while day.year() < 2071 {
            let now = Timestamp::from_seconds(second(day) + 43_200);
            let monday = day.nth_weekday(-1, Weekday::Monday).unwrap();
            let monday = if day.weekday() == Weekday::Monday { day } else { monday };
            let week = Window::named("week").unwrap().at(now);
            assert_eq!(
                (week.start, week.end),
                (second(monday), second(monday.saturating_add(jiff::Span::new().days(7)))),
                "{day}"
            );
            let year = Window::named("year").unwrap().at(now);
            let expected = [day.first_of_year(), day.last_of_year().tomorrow().unwrap()].map(second);
            assert_eq!([year.start, year.end], expected, "{day}");
            day = day.tomorrow().unwrap();
        }
    }

    /// When the periods of so many months begin in the hundred years from 1970 on, by a date library: on the anchor's day, or the last of a shorter
    /// month.
    fn starts(anchor: jiff::civil::DateTime, months: i32) -> Vec<u64> {
        // A month's periods are those of its day in any month.
        let first = jiff::civil::Date::new(1970, if months == 1 { 1 } else { anchor.month() }, 1).unwrap();
        let start = |period: i32| {
            let month = first.saturating_add(jiff::Span::new().months(period * months));
            let day = month.with().day(anchor.day().min(month.days_in_month())).build().unwrap();
            let start = day.to_datetime(anchor.time()).to_zoned(jiff::tz::TimeZone::UTC).unwrap();
            start.timestamp().as_second().max(0).unsigned_abs()
        };
        (-1..100 * 12 / months + 1).map(start).collect()
    }

    #[test]
    fn billing_periods_begin_where_a_date_library_says_for_a_hundred_years() {
        let anchors = [
            "2026-01-31T00:00:00Z",
            "2026-01-30T23:59:59Z",
            "2026-01-29T12:34:56Z",
            "2026-02-28T00:00:00Z",
            "2024-02-29T06:00:00Z",
            "2026-03-31T18:00:01Z",
            "2026-04-30T00:00:00Z",
            "2026-12-31T23:59:59Z",
            "2026-01-01T00:00:00Z",
            "2026-07-15T09:30:00Z",
        ];
        for anchor in anchors {
            let civil: jiff::Timestamp = anchor.parse().unwrap();
            let civil = civil.to_zoned(jiff::tz::TimeZone::UTC).datetime();
            for (unit, months) in [("billing_month", 1), ("billing_year", 12)] {
                let window = Window::named(unit).unwrap().anchored(crate::config::instant(anchor).unwrap());
                for between in starts(civil, months).windows(2) {
                    let (start, end) = (between[0], between[1]);
                    for now in [start, end.saturating_sub(1)] {
                        let period = window.at(Timestamp::from_seconds(now));
                        assert!(
                            end == 0 || (period.start, period.end) == (start, end),
                            "{unit} of {anchor} at {now}: {period:?}, not {start} to {end}"
                        );
                    }
                    if end > 0 {
                        let (now, before) = (Timestamp::from_seconds(end), Timestamp::from_seconds(end - 1));
                        assert_eq!(
                            window.index_at(now),
                            window.index_at(before) + 1,
                            "{unit} of {anchor} at {end}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        let mut first = jiff::civil::Date::new(1970, 1, 1).unwrap();
        for month in 0..12 * 8000_u32 {
            let start =
                first.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_second().unsigned_abs();
            assert_eq!(month_start(month.into()), start, "{first}");
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
        let codes = [1, u32::MAX, KIND, BILLING_MONTHS - 1, WEEKS - 1];
        let anchored = [0, 12 * 31 * DAY - 1]
            .into_iter()
            .flat_map(|place| [BILLING_MONTHS, BILLING_YEARS].map(|kind| kind | place));
        for window in UNITS.map(|(.., code)| code).into_iter().chain(codes).chain(anchored).map(Window) {
            for nanos in [0, u64::MAX] {
                let period = window.at(Timestamp::from_nanos(nanos));
                assert!(period.start < period.end, "{window:?} at {nanos}: {period:?}");
            }
            assert!(window.period(u32::MAX).start <= window.period(u32::MAX).end);
            assert!(!window.name().is_empty());
        }
    }
}
