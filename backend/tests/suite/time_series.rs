//! The entries of time series: where they begin, and that each has the clicks of its events.

use std::time::Duration;

use backend::Click;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    months_and_quarters_to_date_are_days_from_their_first_day_on,
    each_entry_has_the_clicks_of_its_events_when_the_clocks_change,
    a_range_that_begins_before_the_first_entry_is_refused,
}

async fn a_range_that_begins_before_the_first_entry_is_refused(database: Database) {
    let service = Service::start(database).await;
    for (start, end) in [
        ("-009999-01-02T01:59:59Z", "9999-12-30T22:00:00Z"),
        ("-009999-01-02T01:59:59Z", "-009999-03-01T00:00:00Z"),
        ("-009999-01-02T01:59:59Z", "-009999-01-02T03:00:00Z"),
        ("0001-01-01T00:00:00Z", "9999-12-30T22:00:00Z"),
    ] {
        let query = format!("/analytics?groupBy=timeseries&start={start}&end={end}");
        let answer = service.get(&query).await;
        let (status, _, message) = answer.error();
        assert!(status == 422 && message.starts_with("custom: start: Invalid range"), "{query}: {message}");
    }
    let last = "/analytics?groupBy=timeseries&start=9999-12-30T20:30:00Z&end=9999-12-30T22:00:00Z";
    assert_eq!(service.get(last).await.each("clicks"), [0, 0, 0]);
}

/// Advances the clock to an instant.
fn advance(service: &Service, to: &str) {
    let to: Timestamp = to.parse().unwrap();
    service.clock.advance(Duration::try_from(to.duration_since(service.now())).unwrap());
}

fn instants(values: &[&Value]) -> Vec<Timestamp> {
    values.iter().map(|value| value.as_str().unwrap().parse().unwrap()).collect()
}

async fn months_and_quarters_to_date_are_days_from_their_first_day_on(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    //  the clock, the time zone, and the start of each entry
    let table: [(&str, &str, &[&str]); 5] = [
        ("2026-04-01T00:30:00Z", "UTC", &["2026-04-01T00:00:00.000Z"]),
        ("2026-04-01T23:30:00Z", "UTC", &["2026-04-01T00:00:00.000Z"]),
        ("2026-04-01T23:40:00Z", "Asia/Kolkata", &["2026-03-31T18:30:00.000Z", "2026-04-01T18:30:00.000Z"]),
        ("2026-04-02T12:30:00Z", "UTC", &["2026-04-01T00:00:00.000Z", "2026-04-02T00:00:00.000Z"]),
        (
            "2026-04-03T00:10:00Z",
            "UTC",
            &["2026-04-01T00:00:00.000Z", "2026-04-02T00:00:00.000Z", "2026-04-03T00:00:00.000Z"],
        ),
    ];
    for (now, zone, starts) in table {
        advance(&service, now);
        service.click_hours_ago(link["id"].as_str().unwrap(), &[0]).await;
        for interval in ["mtd", "qtd"] {
            let query = format!("interval={interval}&timezone={zone}");
            let series = service.get(&format!("/analytics?groupBy=timeseries&{query}")).await;
            assert_eq!(series.each("start"), starts, "{query} at {now}");
            let sum: u64 = series.each("clicks").iter().map(|clicks| clicks.as_u64().unwrap()).sum();
            let count = service.get(&format!("/analytics?{query}")).await;
            assert_eq!(count.body["clicks"], sum, "{query} at {now}");
        }
    }
}

async fn each_entry_has_the_clicks_of_its_events_when_the_clocks_change(database: Database) {
    let service = Service::start(database).await;
    advance(&service, "2026-11-15T00:00:00Z");
    let link = service.link(&json!({"url": "https://example.com"})).await;
    for first in ["2026-03-26T00:00:00Z", "2026-10-22T00:00:00Z"] {
        // Six days and more. Entries have different numbers of clicks.
        let first: Timestamp = first.parse().unwrap();
        let at = |n: i64| first + SignedDuration::from_mins(37 * n);
        let clicks: Vec<Click> = (0..250).map(|n| Click::new(link["id"].as_str().unwrap(), at(n))).collect();
        service.backend.store().record_clicks(&clicks).await.unwrap();
    }
    //  range, its first entry, and how many entries have how many hours
    let table = [
        ("start=2026-03-27&end=2026-03-31", "2026-03-26T23:00:00Z", vec![(24, 3), (23, 1)]),
        ("start=2026-10-23&end=2026-10-27", "2026-10-22T22:00:00Z", vec![(24, 3), (25, 1)]),
        ("start=2026-03-28T12:20:00Z&end=2026-03-30T12:10:00Z", "2026-03-28T12:00:00Z", vec![(1, 48)]),
        ("start=2026-10-24T12:20:00Z&end=2026-10-26T12:10:00Z", "2026-10-24T12:00:00Z", vec![(1, 48)]),
    ];
    for (range, first, lengths) in table {
        let query = format!("timezone=Europe/Berlin&{range}");
        let series = service.get(&format!("/analytics?groupBy=timeseries&{query}")).await;
        let starts = instants(&series.each("start"));
        assert_eq!(starts[0], first.parse().unwrap(), "{range}");
        for &(hours, entries) in &lengths {
            let length = SignedDuration::from_hours(hours);
            let found = starts.windows(2).filter(|pair| pair[1].duration_since(pair[0]) == length).count();
            assert_eq!(found, entries, "{range}: entries of {hours} hours");
        }
        assert_eq!(starts.len() - 1, lengths.iter().map(|(_, entries)| entries).sum::<usize>(), "{range}");
        let events = service.get(&format!("/events?limit=1000&{query}")).await;
        let events = instants(&events.each("timestamp"));
        assert!(events.len() > 70, "{range}: {} events", events.len());
        let of_entry = |index: usize| {
            let is_in = |at: &&Timestamp| {
                **at >= starts[index] && starts.get(index + 1).is_none_or(|next| *at < next)
            };
            json!(events.iter().filter(is_in).count())
        };
        let expected: Vec<Value> = (0..starts.len()).map(of_entry).collect();
        assert_eq!(series.each("clicks"), expected.iter().collect::<Vec<_>>(), "{range}");
    }
}
