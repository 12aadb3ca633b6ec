//! The contract's statements on analytics, events and webhooks, through both gateways.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tests::backend::SteppedService;
use tests::exchange::{get, post};
use tests::gateway::Kind;
use tests::on_both_gateways;
use tests::receiver::Receiver;
use tests::stage::Stage;

const HOUR: Duration = Duration::from_secs(3600);
const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

// 4.1, 4: GET /analytics with groupBy=top_links, start and end; GET /events
fn clicks_are_counted_from_24_hours_ago_on_and_events_agree(kind: Kind) {
    let now: Timestamp = "2026-03-15T12:34:56Z".parse().unwrap();
    let ago = |hours: i64| now - SignedDuration::from_hours(hours);
    let service = SteppedService::start(ago(25)).unwrap();
    let stage = Stage::before(kind, service.keys.clone(), service.address(), service.directory(), |policy| {
        // Counted by the month, so that the analytics calls below need no pauses.
        policy.with_at("/plans/pro/analytics", json!(["1000/month"]))
    });
    let created = stage.send_as("pro", post("/links").json(&json!({"url": "https://example.com/docs"})));
    assert_eq!(created.status(), 200, "{created}");
    let key = created.json().unwrap()["key"].as_str().unwrap().to_owned();
    let click = || {
        let answer = stage.send(&get(format!("/r/{key}")).header("user-agent", BROWSER));
        assert_eq!((answer.status(), answer.header("location")), (302, Some("https://example.com/docs")));
        assert_eq!(answer.header("x-ratelimit-limit"), None, "following a link is no API call: {answer}");
        service.flush_clicks();
    };
    click();
    service.advance(2 * HOUR);
    click();
    service.advance(22 * HOUR);
    click();
    service.advance(HOUR);

    let ask = |path: &str| {
        let answer = stage.send_as("pro", get(path));
        assert_eq!(answer.status(), 200, "{path}: {answer}");
        answer.json().unwrap()
    };
    let encoded = |instant: Timestamp| instant.to_string().replace(':', "%3A");
    //  query                                                      clicks, at these hours ago, the newest first
    let rows: [(String, &[i64]); 6] = [
        ("start=24%20hours%20ago".to_owned(), &[1, 23]),
        ("start=24+hours+ago&end=2+hours+ago".to_owned(), &[23]),
        (format!("start={}", encoded(ago(24))), &[1, 23]),
        (format!("start={}&end={}", encoded(ago(24)), encoded(ago(2))), &[23]),
        ("start=26+hours+ago".to_owned(), &[1, 23, 25]),
        ("start=30+minutes+ago".to_owned(), &[]),
    ];
    for (query, hours) in rows {
        let top = ask(&format!("/analytics?event=clicks&groupBy=top_links&{query}"));
        let clicks: Vec<_> = top.as_array().unwrap().iter().map(|link| link["clicks"].as_u64()).collect();
        let expected: Vec<_> =
            Some(hours.len() as u64).filter(|count| *count > 0).map(Some).into_iter().collect();
        assert_eq!(clicks, expected, "{query}: {top}");

        let events = ask(&format!("/events?event=clicks&{query}"));
        let instants: Vec<Timestamp> = events
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["timestamp"].as_str().unwrap().parse().unwrap())
            .collect();
        assert_eq!(instants, hours.iter().map(|hours| ago(*hours)).collect::<Vec<_>>(), "{query}");
    }
    // 4: the list is paginated
    let pages: Vec<usize> = (1..=3)
        .map(|page| ask(&format!("/events?start=26+hours+ago&limit=2&page={page}")).as_array().unwrap().len())
        .collect();
    assert_eq!(pages, [2, 1, 0]);
}

// 6.3 Webhooks do not count against the request limits
#[test]
fn a_thousand_webhook_deliveries_cost_nothing_and_creating_the_webhook_costs_one() {
    const DELIVERIES: usize = 1000;
    let stage =
        Stage::with(Kind::Envoy, |policy| policy.with_at("/plans/pro/standard", json!(["600/month"])));
    let receiver = Receiver::start().unwrap();
    let remaining = || stage.send_as("pro", get("/links/count")).number("x-ratelimit-remaining").unwrap();
    assert_eq!(remaining(), 599);

    let created = stage.send_as(
        "pro",
        post("/webhooks").json(&json!({
            "name": "receiver", "url": receiver.url(), "triggers": ["link.created", "link.clicked"],
        })),
    );
    assert_eq!(created.status(), 201, "{created}");
    assert_eq!(created.number("x-ratelimit-remaining"), Some(598), "{created}");
    let secret = created.json().unwrap()["secret"].as_str().unwrap().to_owned();

    let link = stage.send_as("pro", post("/links").json(&json!({"url": "https://example.com/"})));
    assert_eq!(link.number("x-ratelimit-remaining"), Some(597), "{link}");
    let key = link.json().unwrap()["key"].as_str().unwrap().to_owned();
    for _ in 1..DELIVERIES {
        let answer = stage.send(&get(format!("/r/{key}")).header("user-agent", BROWSER));
        assert_eq!(answer.status(), 302, "{answer}");
    }

    let deliveries = receiver.wait_for(DELIVERIES, Duration::from_secs(60)).unwrap();
    let events: Vec<Value> = deliveries.iter().map(|delivery| delivery.verify(&secret).unwrap()).collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!((of("link.created"), of("link.clicked")), (1, DELIVERIES - 1));
    assert_eq!(remaining(), 596, "{DELIVERIES} deliveries and {} clicks cost nothing", DELIVERIES - 1);
}

on_both_gateways! {
    clicks_are_counted_from_24_hours_ago_on_and_events_agree
}
