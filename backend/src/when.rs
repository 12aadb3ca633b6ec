//! Instants as people write them: `24 hours ago`, `2026-01-05`, `2026-01-05T10:00:00Z`.
//!
//! The whole text has to be an expression; dates are not looked for inside other words. Relative expressions mean exact
//! instants: `24 hours ago` is the present minus 24 hours, not the start of a day. A day is 24 hours and a week is
//! seven of them; months and years are steps of the calendar in the given time zone.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

/// The text is no instant, or one out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid date")]
pub(crate) struct InvalidInstant;

/// Which end of a range is meant, where a text names a whole day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// The first instant of the day.
    Start,
    /// The last millisecond of the day.
    End,
}

/// The instant that `text` names when the clock shows `now`. Days and times without an offset are those of `zone`.
///
/// # Errors
/// [`InvalidInstant`] if the text is not wholly an expression, or the instant cannot be represented.
pub(crate) fn parse(
    text: &str,
    now: Timestamp,
    zone: &TimeZone,
    edge: Edge,
) -> Result<Timestamp, InvalidInstant> {
    let text = text.trim();
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    match words.as_slice() {
        ["now"] => Ok(now),
        ["today"] => day(now.to_zoned(zone.clone()).date(), zone, edge),
        ["yesterday"] => {
            let today = now.to_zoned(zone.clone()).date();
            day(today.yesterday().map_err(|_| InvalidInstant)?, zone, edge)
        }
        ["in", rest @ ..] => shift(now, span(rest)?, zone),
        [rest @ .., "ago"] => shift(now, span(rest)?.negate(), zone),
        _ => absolute(text, zone, edge),
    }
}

/// `["24", "hours"]`, `["24h"]` or `["an", "hour"]` as a span of one unit.
fn span(words: &[&str]) -> Result<Span, InvalidInstant> {
    let (amount, unit) = match words {
        [amount @ ("a" | "an"), unit] => (*amount, *unit),
        [amount, unit] if amount.bytes().all(|byte| byte.is_ascii_digit()) => (*amount, *unit),
        [joined] => {
            let digits = joined.bytes().take_while(u8::is_ascii_digit).count();
            joined.split_at(digits)
        }
        _ => return Err(InvalidInstant),
    };
    let amount: i64 = match amount {
        "a" | "an" => 1,
        digits => digits.parse().map_err(|_| InvalidInstant)?,
    };
    let span = match unit {
        "s" | "sec" | "secs" | "second" | "seconds" => Span::new().try_seconds(amount),
        "m" | "min" | "mins" | "minute" | "minutes" => Span::new().try_minutes(amount),
        "h" | "hr" | "hrs" | "hour" | "hours" => Span::new().try_hours(amount),
        "d" | "day" | "days" => Span::new().try_hours(amount.checked_mul(24).ok_or(InvalidInstant)?),
        "w" | "week" | "weeks" => Span::new().try_hours(amount.checked_mul(24 * 7).ok_or(InvalidInstant)?),
        "month" | "months" => Span::new().try_months(amount),
        "y" | "year" | "years" => Span::new().try_years(amount),
        _ => return Err(InvalidInstant),
    };
    span.map_err(|_| InvalidInstant)
}

fn shift(now: Timestamp, span: Span, zone: &TimeZone) -> Result<Timestamp, InvalidInstant> {
    let shifted = now.to_zoned(zone.clone()).checked_add(span).map_err(|_| InvalidInstant)?;
    Ok(shifted.timestamp())
}

fn absolute(text: &str, zone: &TimeZone, edge: Edge) -> Result<Timestamp, InvalidInstant> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant);
    }
    // The forms without separators are too easily something else.
    if text.as_bytes().get(4) != Some(&b'-') || text.as_bytes().get(7) != Some(&b'-') {
        return Err(InvalidInstant);
    }
    // `Date` and `DateTime` parse each other's texts, so the length tells which was meant.
    if text.len() == "2026-01-05".len() {
        return day(text.parse::<Date>().map_err(|_| InvalidInstant)?, zone, edge);
    }
    // A civil time with a zone or an offset would have parsed as an instant above.
    if text.contains(['[', 'Z', 'z', '+']) {
        return Err(InvalidInstant);
    }
    let civil = text.parse::<DateTime>().map_err(|_| InvalidInstant)?;
    zone.to_ambiguous_timestamp(civil).compatible().map_err(|_| InvalidInstant)
}

fn day(date: Date, zone: &TimeZone, edge: Edge) -> Result<Timestamp, InvalidInstant> {
    let midnight = |date: Date| {
        let civil = date.to_datetime(Time::midnight());
        zone.to_ambiguous_timestamp(civil).compatible().map_err(|_| InvalidInstant)
    };
    match edge {
        Edge::Start => midnight(date),
        Edge::End => {
            let next = midnight(date.tomorrow().map_err(|_| InvalidInstant)?)?;
            next.checked_sub(1.millisecond()).map_err(|_| InvalidInstant)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Result<String, InvalidInstant> {
        let now = "2026-03-31T12:30:00Z".parse().unwrap();
        parse(text, now, &TimeZone::UTC, Edge::Start).map(|instant| instant.to_string())
    }

    #[test]
    fn relative_expressions_are_exact_instants() {
        let table = [
            ("now", "2026-03-31T12:30:00Z"),
            ("24 hours ago", "2026-03-30T12:30:00Z"),
            ("  24   Hours  AGO ", "2026-03-30T12:30:00Z"),
            ("1 hour ago", "2026-03-31T11:30:00Z"),
            ("an hour ago", "2026-03-31T11:30:00Z"),
            ("0 hours ago", "2026-03-31T12:30:00Z"),
            ("24h ago", "2026-03-30T12:30:00Z"),
            ("3 h ago", "2026-03-31T09:30:00Z"),
            ("90 minutes ago", "2026-03-31T11:00:00Z"),
            ("45 seconds ago", "2026-03-31T12:29:15Z"),
            ("7 days ago", "2026-03-24T12:30:00Z"),
            ("2 weeks ago", "2026-03-17T12:30:00Z"),
            ("1 month ago", "2026-02-28T12:30:00Z"),
            ("1 year ago", "2025-03-31T12:30:00Z"),
            ("in 2 hours", "2026-03-31T14:30:00Z"),
            ("today", "2026-03-31T00:00:00Z"),
            ("yesterday", "2026-03-30T00:00:00Z"),
        ];
        for (text, expected) in table {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn absolute_instants_are_read_with_and_without_an_offset() {
        let table = [
            ("2026-01-05T10:00:00Z", "2026-01-05T10:00:00Z"),
            ("2026-01-05T10:00:00.123+02:00", "2026-01-05T08:00:00.123Z"),
            ("2026-01-05T10:00:00", "2026-01-05T10:00:00Z"),
            ("2026-01-05 10:00", "2026-01-05T10:00:00Z"),
            ("2026-01-05", "2026-01-05T00:00:00Z"),
        ];
        for (text, expected) in table {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            " ",
            "24h",
            "24 hours",
            "hours ago",
            "ago",
            "in",
            "foo 3 days ago bar",
            "-5 hours ago",
            "1.5 hours ago",
            "24_hours_ago",
            "+24 hours ago",
            "99999999999 hours ago",
            "9223372036854775807 weeks ago",
            "20260105",
            "2026-01",
            "2026-13-45",
            "2026-02-30",
            "1767607200",
            "2026-01-05T10:00:00[Europe/Paris]",
            "\u{661} hours ago",
            "vor 3 Stunden",
        ] {
            assert_eq!(at(text), Err(InvalidInstant), "{text:?}");
        }
    }

    #[test]
    fn a_day_starts_and_ends_in_its_time_zone_also_when_clocks_change() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let now = "2026-03-31T12:30:00Z".parse().unwrap();
        let edge = |edge| parse("2026-03-29", now, &zone, edge).unwrap().to_string();
        assert_eq!(edge(Edge::Start), "2026-03-28T23:00:00Z");
        assert_eq!(edge(Edge::End), "2026-03-29T21:59:59.999Z");
    }
}
