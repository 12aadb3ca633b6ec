//! Questions about clicks at known instants.

use jiff::SignedDuration;
use serde_json::json;

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    relative_and_absolute_ranges_are_exact_and_events_agree,
    a_click_counts_up_to_the_millisecond_of_its_range,
    top_links_are_ordered_by_clicks_and_named,
    a_day_is_a_series_of_25_hours_from_zero,
    what_cannot_be_understood_is_refused_by_name,
    events_come_in_pages_in_either_direction,
}

async fn relative_and_absolute_ranges_are_exact_and_events_agree(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let id = link["id"].as_str().unwrap();
    service.click_hours_ago(id, &[25, 23, 1]).await;
    let ago = |hours| (service.now() - SignedDuration::from_hours(hours)).to_string();
    let day = ago(24);
    let two_hours = ago(2);
    //  range                                                     clicks in it, hours ago
    let table: [(String, &[i64]); 11] = [
        ("start=24+hours+ago".into(), &[1, 23]),
        ("start=24%20hours%20ago&end=2%20hours%20ago".into(), &[23]),
        (format!("start={day}"), &[1, 23]),
        (format!("start={day}&end={two_hours}"), &[23]),
        ("start=23+hours+ago".into(), &[1, 23]),
        ("start=1439+minutes+ago&end=61+minutes+ago".into(), &[23]),
        ("start=2+days+ago".into(), &[1, 23, 25]),
        ("start=1+week+ago&end=1+day+ago".into(), &[25]),
        ("end=24+hours+ago".into(), &[25]),
        ("".into(), &[1, 23]),
        ("start=2026-03-14&end=2026-03-14".into(), &[23, 25]),
    ];
    for (range, hours) in table {
        let count = hours.len();
        let top = service.get(&format!("/analytics?groupBy=top_links&{range}")).await;
        assert_eq!(top.each("clicks"), vec![&json!(count)], "top_links {range}");
        assert_eq!(top.each("link"), [id], "top_links {range}");
        assert_eq!(service.get(&format!("/analytics?{range}")).await.body["clicks"], count, "count {range}");
        let series = service.get(&format!("/analytics?groupBy=timeseries&{range}")).await;
        let sum: i64 = series.each("clicks").iter().map(|clicks| clicks.as_i64().unwrap()).sum();
        assert_eq!(sum, i64::try_from(count).unwrap(), "timeseries {range}");
        let instants: Vec<_> = hours.iter().map(|hours| json!(ago(*hours))).collect();
        assert_eq!(
            service.get(&format!("/events?{range}")).await.each("timestamp"),
            instants.iter().collect::<Vec<_>>(),
            "events {range}"
        );
    }
}

async fn a_click_counts_up_to_the_millisecond_of_its_range(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[2]).await;
    //  the click is at 10:34:56.789
    let table = [
        ("start=2026-03-15T10:34:56.789Z", 1),
        ("start=2026-03-15T10:34:56.790Z", 0),
        ("start=2026-03-15T10:34:56.7891Z", 0),
        ("start=2026-03-15T10:00:00Z&end=2026-03-15T10:34:56.789Z", 1),
        ("start=2026-03-15T10:00:00Z&end=2026-03-15T10:34:56.788Z", 0),
        ("start=2026-03-15T12:34:56.789%2B02:00", 1),
    ];
    for (range, clicks) in table {
        assert_eq!(service.get(&format!("/analytics?{range}")).await.body["clicks"], clicks, "{range}");
    }
}

async fn top_links_are_ordered_by_clicks_and_named(database: Database) {
    let service = Service::start(database).await;
    let mut ids = Vec::new();
    for key in ["a", "b", "c"] {
        let link = service
            .link(&json!({"url": format!("https://example.com/{key}"), "key": key, "title": key}))
            .await;
        ids.push(link["id"].as_str().unwrap().to_owned());
    }
    service.click_hours_ago(&ids[0], &[1]).await;
    service.click_hours_ago(&ids[2], &[1, 2, 3]).await;
    let top = service.get("/analytics?groupBy=top_links").await;
    assert_eq!(
        top.body[0],
        json!({
            "link": ids[2], "id": ids[2], "domain": "s.test", "key": "c", "shortLink": "https://s.test/r/c",
            "url": "https://example.com/c", "title": "c", "comments": null, "folderId": null, "partnerId": null,
            "createdAt": "2026-03-15T12:34:56.789Z", "clicks": 3, "leads": 0, "sales": 0, "saleAmount": 0,
        })
    );
    assert_eq!(top.each("key"), ["c", "a"]);
}

async fn a_day_is_a_series_of_25_hours_from_zero(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[0, 24]).await;
    let series = service.get("/analytics?groupBy=timeseries").await;
    assert_eq!(series.each("start").len(), 25);
    assert_eq!(
        series.body[0],
        json!({"start": "2026-03-14T12:00:00.000Z", "clicks": 1, "leads": 0, "sales": 0, "saleAmount": 0})
    );
    assert_eq!(series.body[1]["clicks"], 0);
    assert_eq!(series.body[24]["clicks"], 1);
}

async fn what_cannot_be_understood_is_refused_by_name(database: Database) {
    let service = Service::start(database).await;
    let table = [
        ("start=yonder", "custom: start: Invalid date"),
        ("end=24+hours", "custom: end: Invalid date"),
        ("start=1+hour+ago&end=2+hours+ago", "custom: start: Invalid range: start is after end"),
        ("timezone=Mars/Base", "custom: timezone: Invalid IANA time zone"),
    ];
    for (query, message) in table {
        for path in ["/analytics", "/events"] {
            let answer = service.get(&format!("{path}?{query}")).await;
            assert_eq!(answer.error(), (422, "unprocessable_entity", message));
        }
    }
    let answer = service.get("/analytics?groupBy=moon").await;
    assert!(
        answer.error().2.starts_with("invalid_value: groupBy: Invalid type value. Valid values are: count, ")
    );
}

async fn events_come_in_pages_in_either_direction(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[5, 4, 3, 2, 1]).await;
    let hours = |answer: &crate::service::Answer| {
        let hour = |event: &&serde_json::Value| event.as_str().unwrap()[11..13].to_owned();
        answer.each("timestamp").iter().map(hour).collect::<Vec<_>>()
    };
    assert_eq!(hours(&service.get("/events").await), ["11", "10", "09", "08", "07"]);
    assert_eq!(hours(&service.get("/events?limit=2&page=2").await), ["09", "08"]);
    // What the published clients send along.
    assert_eq!(hours(&service.get("/events?limit=2&sortOrder=asc&order=desc").await), ["07", "08"]);
    let event = &service.get("/events?limit=1").await.body[0];
    assert_eq!(
        (&event["event"], &event["qr"], &event["click"]["qr"]),
        (&json!("click"), &json!(0), &json!(false))
    );
    assert_eq!(event["link"]["clicks"], 5);
    assert_eq!(event["click_id"], event["click"]["id"]);
    assert_eq!(service.get("/events?limit=1001").await.error().0, 422);
}
