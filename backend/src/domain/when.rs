//! Parses and writes instants: `24 hours ago`, `2026-01-05`, `2026-01-05T10:00:00Z`.
//!
//! The whole text must be an expression; dates inside other words do not count. Relative expressions are exact: `24
//! hours ago` is now minus 24 hours, not the start of a day. A day is 24 hours and a week is 7 days. Months and
//! years are calendar steps in the given time zone.

use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::friendly::SpanParser;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};
use serde::Serializer;

/// The text is not an instant, or the instant is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Invalid date: expected RFC 3339 such as 2026-01-05T10:00:00Z, a day such as 2026-01-05, or a time such as \
     24 hours ago, 1 day 2 hours ago, last 7 days, in 2 hours, now, today or yesterday"
)]
pub(crate) struct InvalidInstant;

/// An instant in JSON: RFC 3339 in UTC with milliseconds.
pub(crate) fn rfc3339(instant: Timestamp) -> String {
    format!("{instant:.3}")
}

/// Writes an instant in JSON.
pub(crate) fn as_rfc3339<S: Serializer>(instant: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*instant))
}

/// The end of a range for which a text is parsed. It matters if the text names a whole day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// The first instant of the day.
    Start,
    /// The last millisecond of the day.
    End,
}

/// Maximum length of an expression, in bytes.
const MAX_LENGTH: usize = 255;

/// Parses `text` relative to `now`. Days, and times without an offset, are in `zone`.
///
/// # Errors
/// [`InvalidInstant`] if the text is not an expression or the instant cannot be represented.
pub(crate) fn parse(
    text: &str,
    now: Timestamp,
    zone: &TimeZone,
    edge: Edge,
) -> Result<Timestamp, InvalidInstant> {
    let text = text.trim();
    if text.len() > MAX_LENGTH {
        return Err(InvalidInstant);
    }
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split([' ', '\t', ',']).filter(|word| !word.is_empty()).collect();
    let now = now.to_zoned(zone.clone());
    let shifted = |span: Span| now.checked_add(span).map(|at| at.timestamp()).map_err(|_| InvalidInstant);
    match words.as_slice() {
        ["now"] => Ok(now.timestamp()),
        ["today"] => day(now.date(), zone, edge),
        ["yesterday"] => day(now.date().yesterday().map_err(|_| InvalidInstant)?, zone, edge),
        ["last" | "past", unit] if !unit.starts_with(|first: char| first.is_ascii_digit()) => {
            shifted(span(&["1", unit])?.negate())
        }
        ["last" | "past", rest @ ..] | [rest @ .., "ago"] => shifted(span(rest)?.negate()),
        ["in", rest @ ..] | [rest @ .., "from", "now"] => shifted(span(rest)?),
        [short] => match short.strip_prefix('-').map(|short| span(&[short])) {
            Some(Ok(span)) => shifted(span.negate()),
            // Years before 0 have a sign too.
            Some(Err(_)) | None => absolute(text, zone, edge),
        },
        _ => absolute(text, zone, edge),
    }
}

/// Parses amounts with units, as [`jiff::fmt::friendly`] reads them: `24 hours`, `24h`, `1.5 hours`, `2 days 3 hours`. Days have 24 hours, also when
/// clocks change.
fn span(words: &[&str]) -> Result<Span, InvalidInstant> {
    let text = words.join(" ");
    // A sign, or a second `ago`, would be one too many.
    if !text.starts_with(|first: char| first.is_ascii_digit()) || text.contains("ago") {
        return Err(InvalidInstant);
    }
    let span = SpanParser::new().parse_span(&text).map_err(|_| InvalidInstant)?;
    let days = 7 * i64::from(span.get_weeks()) + i64::from(span.get_days());
    let hours = i64::from(span.get_hours()) + 24 * days;
    span.weeks(0).days(0).try_hours(hours).map_err(|_| InvalidInstant)
}

fn absolute(text: &str, zone: &TimeZone, edge: Edge) -> Result<Timestamp, InvalidInstant> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant);
    }
    // Forms without separators are too ambiguous.
    if text.as_bytes().get(4) != Some(&b'-') || text.as_bytes().get(7) != Some(&b'-') {
        return Err(InvalidInstant);
    }
    // `Date` and `DateTime` accept each other's texts, so the length decides.
    if text.len() == "2026-01-05".len() {
        return day(text.parse::<Date>().map_err(|_| InvalidInstant)?, zone, edge);
    }
    // A civil time with a zone or offset has already parsed as an instant.
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
            ("2 hours from now", "2026-03-31T14:30:00Z"),
            ("24hrs ago", "2026-03-30T12:30:00Z"),
            ("3d ago", "2026-03-28T12:30:00Z"),
            ("1w ago", "2026-03-24T12:30:00Z"),
            ("30 min ago", "2026-03-31T12:00:00Z"),
            ("1.5 hours ago", "2026-03-31T11:00:00Z"),
            ("2 days, 3 hours ago", "2026-03-29T09:30:00Z"),
            ("last week", "2026-03-24T12:30:00Z"),
            ("last month", "2026-02-28T12:30:00Z"),
            ("past 24 hours", "2026-03-30T12:30:00Z"),
            ("last 7 days", "2026-03-24T12:30:00Z"),
            ("last 24h", "2026-03-30T12:30:00Z"),
            ("-24h", "2026-03-30T12:30:00Z"),
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
            ("-000001-01-05T10:00:00Z", "-000001-01-05T10:00:00Z"),
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
            "1. hours ago",
            ".5 hours ago",
            "1 quarter ago",
            "half an hour ago",
            "an hour ago",
            "two hours ago",
            "1.5 months ago",
            "2 hours and ago",
            "last",
            "-",
            "-h",
            "--24h",
            "2 days and 3 hours ago",
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
