//! Counts of clicks over time.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use crate::api::caller::Caller;
use crate::api::selection::{ClickQuery, Interval};
use crate::api::state::App;
use crate::http::error::ApiError;
use crate::store::{Reader, Step};

/// Length of one entry of a time series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granularity {
    Hour,
    Day,
    Month,
}

impl Granularity {
    fn of(click_query: &ClickQuery) -> Self {
        match click_query.interval {
            Some(Interval::All | Interval::YearToDate | Interval::LastDays(365)) => Self::Month,
            Some(Interval::LastDays(_) | Interval::MonthToDate | Interval::QuarterToDate) => Self::Day,
            Some(Interval::Last(_)) | None => {
                let length = click_query.selection.end.duration_since(click_query.selection.start);
                if length <= SignedDuration::from_hours(48) {
                    Self::Hour
                } else if length <= SignedDuration::from_hours(24 * 180) {
                    Self::Day
                } else {
                    Self::Month
                }
            }
        }
    }
}

/// The start of each entry of a time series, and its number of clicks. All are zero unless clicks are counted.
pub(super) async fn time_series(
    app: &App,
    caller: &Caller,
    reader: &mut Reader,
    click_query: &ClickQuery,
    counts_clicks: bool,
) -> Result<Vec<(Timestamp, i64)>, ApiError> {
    let starts = buckets(
        &click_query.zone,
        click_query.selection.start,
        click_query.selection.end,
        Granularity::of(click_query),
    );
    let starts = starts.ok_or_else(|| {
        let message = format!(
            "Invalid range: a time series has at most {MAX_BUCKETS} months. Choose interval=1y, or a start at most 100 years \
             before the end."
        );
        ApiError::invalid("custom", "start", &message)
    })?;
    let mut counts = vec![0_i64; starts.len()];
    if counts_clicks {
        let step = step_of(&starts);
        for (at, clicks) in
            app.store.timeline(reader, &caller.workspace, &click_query.selection, step).await?
        {
            // The first bucket starts at or before the first counted click.
            let index = starts.partition_point(|start| start.as_millisecond() <= at).saturating_sub(1);
            if let Some(count) = counts.get_mut(index) {
                *count += clicks;
            }
        }
    }
    Ok(starts.into_iter().zip(counts).collect())
}

/// Maximum number of entries of a time series: the months of 100 years.
const MAX_BUCKETS: usize = 1_200;

/// The starts of all hours, days or months of `zone` that overlap the range. None if there are more than
/// [`MAX_BUCKETS`], or the first of them cannot be represented.
fn buckets(
    zone: &TimeZone,
    start: Timestamp,
    end: Timestamp,
    granularity: Granularity,
) -> Option<Vec<Timestamp>> {
    let first = start.to_zoned(zone.clone());
    // Hours start at full hours of this zone and are steps of absolute time, so that changes of the clock do not matter.
    let past_hour = SignedDuration::new(
        i64::from(first.minute()) * 60 + i64::from(first.second()),
        first.subsec_nanosecond(),
    );
    let date = if granularity == Granularity::Month { first.date().first_of_month() } else { first.date() };
    let bucket = |index: i64| -> Option<Timestamp> {
        let date = match granularity {
            Granularity::Hour => return start.checked_sub(past_hour).ok()?.checked_add(index.hours()).ok(),
            Granularity::Day => date.checked_add(index.days()),
            Granularity::Month => date.checked_add(index.months()),
        };
        Some(date.ok()?.to_zoned(zone.clone()).ok()?.timestamp())
    };
    let mut starts = vec![bucket(0)?];
    // A bucket that cannot be represented starts after every range.
    for bucket in (1..).map_while(bucket).take_while(|bucket| *bucket <= end) {
        if starts.len() == MAX_BUCKETS {
            return None;
        }
        starts.push(bucket);
    }
    Some(starts)
}

/// The coarsest step at which all buckets start.
fn step_of(starts: &[Timestamp]) -> Step {
    let all_on = |length: i64| starts.iter().all(|start| start.as_millisecond().rem_euclid(length) == 0);
    if all_on(86_400_000) {
        Step::Day
    } else if all_on(3_600_000) {
        Step::Hour
    } else {
        Step::QuarterHour
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(zone: &str, start: &str, end: &str, granularity: Granularity) -> Vec<String> {
        let zone = TimeZone::get(zone).unwrap();
        let starts = buckets(&zone, start.parse().unwrap(), end.parse().unwrap(), granularity).unwrap();
        starts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn days_and_months_start_at_midnight_of_the_time_zone() {
        let days = starts("Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z", Granularity::Day);
        assert_eq!(days, ["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
        let months =
            starts("Asia/Kolkata", "2026-01-31T12:00:00Z", "2026-03-01T12:00:00Z", Granularity::Month);
        assert_eq!(months, ["2025-12-31T18:30:00Z", "2026-01-31T18:30:00Z", "2026-02-28T18:30:00Z"]);
    }

    #[test]
    fn hours_follow_the_minutes_of_the_time_zone() {
        let hours = starts("Asia/Kolkata", "2026-01-05T10:10:00Z", "2026-01-05T11:40:00Z", Granularity::Hour);
        assert_eq!(hours, ["2026-01-05T09:30:00Z", "2026-01-05T10:30:00Z", "2026-01-05T11:30:00Z"]);
    }
}
