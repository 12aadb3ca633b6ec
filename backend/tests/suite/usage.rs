//! Usage: batches of reports in, sums, exports and webhook events out.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use backend::{Clock, Settings, Sums};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::receiver::Receiver;
use crate::service::{Answer, START, Service, settings};

on_both_databases! {
    a_batch_counts_once_however_often_and_from_where_it_is_sent,
    a_batch_counts_as_a_whole_or_is_refused_with_the_place_and_the_reason,
    the_batch_that_the_book_shows_is_taken,
    the_longest_texts_and_the_largest_numbers_fit,
    groups_and_ranges_are_those_of_the_reports,
    the_export_of_a_month_has_what_was_reported_in_it,
    subscribers_are_listed_by_what_is_asked_for,
    a_threshold_is_told_once_to_the_webhooks_of_the_workspace,
    what_was_known_is_forgotten_when_its_time_is_over,
    gateways_that_report_the_same_accounts_at_once_all_count,
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: i64 = 3_600_000;

pub(crate) fn with_token() -> Settings {
    Settings { internal_token: Some("s3cret".to_owned()), ..settings() }
}

/// Sends a batch with the token.
pub(crate) async fn take(service: &Service, batch: &Value) -> Answer {
    let request = Request::post("/internal/usage").header("authorization", "Bearer s3cret");
    let request = request.header("content-type", "application/cloudevents-batch+json");
    service.send_internal(request.body(Body::from(batch.to_string())).unwrap()).await
}

pub(crate) async fn is_taken(service: &Service, batch: &Value) {
    let answer = take(service, batch).await;
    assert_eq!(answer.status, 204, "{}", answer.body);
}

/// A report of requests, units and refusals in the ten seconds from an instant.
pub(crate) fn used(
    subscriber: &str,
    id: &str,
    from: &str,
    (requests, units, refused): (i64, i64, i64),
) -> Value {
    let to: Timestamp = from.parse().unwrap();
    let to = to + SignedDuration::from_secs(10);
    json!({
        "specversion": "1.0", "type": "weir.usage", "source": "gateway-1", "subject": subscriber, "id": id, "time": to,
        "data": {
            "from": from, "to": to, "key": "2bb80d53", "class": "standard", "plan": "pro", "requests": requests,
            "units": units, "refused": refused,
            "tightest": {"quota": "standard", "limit": 1000, "used": units, "to": to + SignedDuration::from_hours(1)},
        },
    })
}

pub(crate) fn with(mut event: Value, changes: &Value) -> Value {
    for (path, value) in changes.as_object().unwrap() {
        let place = path.split('.').fold(&mut event, |place, field| &mut place[field]);
        *place = value.clone();
    }
    event
}

pub(crate) fn threshold(subscriber: &str, id: &str, share: i64, from: Timestamp, to: Timestamp) -> Value {
    json!({
        "specversion": "1.0", "type": "weir.threshold", "source": "gateway-1", "subject": subscriber, "id": id, "time": from,
        "data": {"class": "standard", "quota": "standard-month", "share": share, "limit": 1000, "used": share * 10, "from": from, "to": to},
    })
}

/// The id of the first key, by which the directory names the subscriber to gateways.
pub(crate) async fn subscriber(service: &Service) -> String {
    service.backend.store().keys().await.unwrap().remove(0).id
}

async fn total(service: &Service) -> Value {
    service.get("/usage?interval=all").await.body
}

fn sums((requests, units, refused): (i64, i64, i64)) -> Value {
    json!({"requests": requests, "units": units, "refused": refused})
}

async fn a_batch_counts_once_however_often_and_from_where_it_is_sent(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let id = &subscriber(&service).await;
    let event = |event: &str| used(id, event, START, (10, 12, 1));
    let batch = json!([event("a-b-7-0"), with(event("a-b-7-1"), &json!({"data.class": "analytics"}))]);
    //  batch, and how often reports of ten requests have counted after it
    let rows = [
        (batch.clone(), 2),
        (batch.clone(), 2),
        // Another batch, another VM whose name differs by a part, another process, and a batch of strangers.
        (json!([event("a-b-8-0")]), 3),
        (json!([event("a-7-0")]), 4),
        (json!([with(event("a-b-7-0"), &json!({"source": "gateway-2"}))]), 5),
        (json!([with(event("a-b-9-0"), &json!({"type": "weir.usage.strangers"}))]), 5),
        // Two batches in one body, one of which was taken.
        (json!([event("a-b-7-0"), event("a-b-10-0")]), 6),
    ];
    for (batch, counted) in rows {
        is_taken(&service, &batch).await;
        assert_eq!(total(&service).await, sums((10 * counted, 12 * counted, counted)), "{batch}");
    }
    // At once, and after a restart.
    let batch = json!([event("c-1-0"), event("c-1-1")]);
    join_all((0..8).map(|_| is_taken(&service, &batch))).await;
    let service = service.restart().await;
    is_taken(&service, &batch).await;
    assert_eq!(total(&service).await, sums((80, 96, 8)));
    for token in [None, Some("other")] {
        let request = Request::post("/internal/usage");
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        let answer = service.send_internal(request.body(Body::from("[]")).unwrap()).await;
        assert_eq!(answer.error().0, 401);
    }
    assert_eq!(service.post("/internal/usage", &json!([])).await.error().0, 404, "clients cannot reach it");
}

async fn a_batch_counts_as_a_whole_or_is_refused_with_the_place_and_the_reason(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let id = &subscriber(&service).await;
    let good = |place: usize| used(id, &format!("a-1-{place}"), START, (1, 1, 1));
    //  what is changed in the second event, and the message
    let table = [
        (
            json!({"type": "weir.other"}),
            "invalid_value: [1].type: Invalid option: expected one of weir.usage, weir.usage.strangers, weir.threshold",
        ),
        (
            json!({"subject": null}),
            "invalid_type: [1].subject: Invalid input: expected string, received undefined",
        ),
        (
            json!({"subject": ""}),
            "invalid_type: [1].subject: Invalid input: expected string, received undefined",
        ),
        (json!({"subject": "a\u{0}"}), "custom: [1].subject: Invalid string: must not contain NUL"),
        (json!({"source": null}), "invalid_type: [1].source: Invalid input: expected string, received null"),
        (json!({"id": "a-1"}), "custom: [1].id: Expected <vm>-<batch>-<place>"),
        (json!({"id": "-1-1"}), "custom: [1].id: Expected <vm>-<batch>-<place>"),
        (json!({"id": "a-x-1"}), "custom: [1].id: Expected <vm>-<batch>-<place>"),
        (json!({"id": "a-1-0"}), "custom: [1].id: An earlier event has this id and source"),
        (json!({"data": null}), "invalid_type: [1].data: Invalid input: expected object, received null"),
        (
            json!({"data.units": -1}),
            "too_small: [1].data.units: Too small: expected a whole number to be >=0",
        ),
        (
            json!({"data.units": 1.5}),
            "too_small: [1].data.units: Too small: expected a whole number to be >=0",
        ),
        (
            json!({"data.refused": 1_u64 << 41}),
            "too_big: [1].data.refused: Too big: expected number to be <=1099511627776",
        ),
        (
            json!({"data.requests": "1"}),
            "invalid_type: [1].data.requests: Invalid input: expected number, received string",
        ),
        (
            json!({"data.class": "x".repeat(65)}),
            "too_big: [1].data.class: Too big: expected string to have <=64 characters",
        ),
        (json!({"data.from": "now"}), "[1].data.from: "),
        (
            json!({"data.from": "1969-12-31T23:59:59Z"}),
            "custom: [1].data.from: Invalid range: from is before 1970",
        ),
        (json!({"data.to": "2026-03-15T12:34:56Z"}), "custom: [1].data.to: Invalid range: to is before from"),
        (
            json!({"data.tightest": {"quota": "q", "limit": 0, "used": 0}}),
            "too_small: [1].data.tightest.limit: Too small: expected a whole number to be >=1",
        ),
    ];
    for (changes, expected) in table {
        let answer = take(&service, &json!([good(0), with(good(1), &changes), good(2)])).await;
        let (status, _, message) = answer.error();
        assert!(status == 422 && message.contains(expected), "{changes}: {status} {message}");
    }
    let many: Vec<Value> = (0..2_001).map(good).collect();
    for (batch, expected) in [
        (json!({}), "expected array, received object"),
        (json!([[]]), "[0]: Invalid input: expected object, received array"),
        (json!(many), "Too big: expected array to have <=2000 items"),
    ] {
        let answer = take(&service, &batch).await;
        assert!(answer.error().0 == 422 && answer.error().2.contains(expected), "{}", answer.body);
    }
    assert_eq!(take(&service, &json!("x".repeat(1 << 20))).await.error().0, 413);
    assert_eq!(total(&service).await, sums((0, 0, 0)), "of no batch");
    is_taken(&service, &json!([good(0), good(1), good(2)])).await;
    assert_eq!(total(&service).await, sums((3, 3, 3)), "a refused batch was not taken");
}

async fn the_batch_that_the_book_shows_is_taken(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let batch: Value = serde_json::from_str(include_str!("../../../envoy/meters/usage-batch.json")).unwrap();
    is_taken(&service, &batch).await;
    let range = (Timestamp::UNIX_EPOCH, "2027-01-01T00:00:00Z".parse().unwrap());
    let all = service.backend.store().export_usage(range, None, service.now()).await.unwrap();
    let all: Vec<_> = all
        .iter()
        .map(|(of, sums)| (of.subscriber.as_str(), of.organisation.as_str(), of.plan.as_str(), *sums))
        .collect();
    let sums = |requests, units, refused| Sums { requests, units, refused };
    let expected = [
        ("", "", "", sums(40, 40, 2)),
        ("acme", "acme-holding", "pro", sums(120, 118, 3)),
        ("key:2bb80d537b1da3e3", "", "free", sums(0, 0, 7)),
    ];
    assert_eq!(all, expected);
}

async fn the_longest_texts_and_the_largest_numbers_fit(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    // Letters that no compression makes shorter, of the longest code.
    let long = |length: u32| {
        (0..length).map(|n| char::from_u32(0x1_0000 + n * 7919 % 0x8000).unwrap()).collect::<String>()
    };
    let largest = 1_i64 << 40;
    let event = with(
        used(&long(255), &format!("{}-1-0", long(250)), START, (largest, largest, largest)),
        &json!({
            "source": long(255), "data.organisation": long(255), "data.key": long(16), "data.class": long(64), "data.plan": long(64),
            "data.tightest": {"quota": long(64), "limit": 1, "used": largest},
        }),
    );
    let reached = threshold(&long(255), &long(255), 100, service.now(), service.now());
    let reached =
        with(reached, &json!({"data.class": long(64), "data.quota": long(64), "data.limit": largest}));
    is_taken(&service, &json!([event, reached])).await;
    let range = (Timestamp::UNIX_EPOCH, service.now() + SignedDuration::from_hours(1));
    let exported = service.backend.store().export_usage(range, Some(long(255)), service.now()).await.unwrap();
    assert_eq!(exported.len(), 1);
    assert_eq!(exported[0].1, Sums { requests: largest, units: largest, refused: largest });
}

/// A report as it was sent.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) subscriber: String,
    key: Option<&'static str>,
    class: &'static str,
    plan: &'static str,
    pub(crate) from: Timestamp,
    pub(crate) sums: (i64, i64, i64),
}

/// Reports of two days and more before now, some of them of others, and sends them in batches of twenty.
pub(crate) async fn send_many(service: &Service, mine: &str) -> Vec<Sent> {
    let mut sent = Vec::new();
    for n in 0..400_i64 {
        let subscriber = [mine, mine, mine, "somebody"][n as usize % 4].to_owned();
        sent.push(Sent {
            subscriber,
            key: [Some("2bb80d53"), Some("0f1e2d3c"), None][n as usize % 3],
            class: ["standard", "analytics"][n as usize / 3 % 2],
            plan: ["free", "pro"][usize::from(n > 150)],
            from: service.now() - SignedDuration::from_secs(n * 431),
            sums: (n % 7, 2 * (n % 7) + 1, n % 2),
        });
    }
    for (number, batch) in sent.chunks(20).enumerate() {
        let event = |(place, of): (usize, &Sent)| {
            let event = used(&of.subscriber, &format!("a-{number}-{place}"), &of.from.to_string(), of.sums);
            with(event, &json!({"data.key": of.key, "data.class": of.class, "data.plan": of.plan}))
        };
        is_taken(service, &json!(batch.iter().enumerate().map(event).collect::<Vec<_>>())).await;
    }
    sent
}

/// The sums of reports in groups.
fn grouped(sent: &[Sent], group: impl Fn(&Sent) -> Value) -> Vec<(Value, (i64, i64, i64))> {
    let mut groups: BTreeMap<String, (Value, (i64, i64, i64))> = BTreeMap::new();
    for of in sent {
        let group = group(of);
        let (_, all) = groups.entry(group.to_string().replace("null", "")).or_insert((group, (0, 0, 0)));
        *all = (all.0 + of.sums.0, all.1 + of.sums.1, all.2 + of.sums.2);
    }
    groups.into_values().collect()
}

/// The start of the period of a length, in milliseconds, as responses have it.
fn start_of(at: Timestamp, length: i64) -> Value {
    let at = at.as_millisecond();
    json!(format!("{:.3}", Timestamp::from_millisecond(at - at % length).unwrap()))
}

async fn groups_and_ranges_are_those_of_the_reports(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let mine = subscriber(&service).await;
    let mut sent = send_many(&service, &mine).await;
    sent.retain(|of| of.subscriber == mine);
    let instant = |text: &str| text.parse::<Timestamp>().unwrap();
    // At first, minutes of all reports are there; later only those of a day.
    for advanced in [0, 1] {
        //  query, and the range of the reports that it selects: minutes of the last day, and hours before that
        for (query, from, to) in [
            ("interval=all", "1970-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("", "2026-03-14T12:34:00Z", "2026-03-15T12:35:00Z"),
            (
                "start=2026-03-15T03:10:20Z&end=2026-03-15T03:40:20Z",
                "2026-03-15T03:10:00Z",
                "2026-03-15T03:41:00Z",
            ),
            (
                "start=2026-03-15T03:10:00Z&end=2026-03-15T09:39:59.999Z",
                "2026-03-15T03:10:00Z",
                "2026-03-15T09:40:00Z",
            ),
            (
                "start=2026-03-14T05:10:00Z&end=2026-03-14T05:20:00Z",
                "2026-03-14T05:00:00Z",
                "2026-03-14T06:00:00Z",
            ),
            ("start=2026-03-14&end=2026-03-14", "2026-03-14T00:00:00Z", "2026-03-15T00:00:00Z"),
            ("start=2026-03-16", "2026-03-16T00:00:00Z", "2026-03-17T00:00:00Z"),
        ] {
            if query.starts_with("start=2026-03-16") {
                assert_eq!(service.get(&format!("/usage?{query}")).await.error().0, 422, "{query}");
                continue;
            }
            let (from, to) = (instant(from), instant(to));
            let mut selected = sent.clone();
            selected.retain(|of| of.from >= from && of.from < to);
            let all = grouped(&selected, |_| Value::Null).pop().map_or((0, 0, 0), |(_, all)| all);
            assert!(all.0 > 0, "{query} selects none");
            assert_eq!(service.get(&format!("/usage?{query}")).await.body, sums(all), "{query}");
            type Group = fn(&Sent) -> Value;
            let groups: [(&str, &str, Group); 5] = [
                ("day", "start", |of| start_of(of.from, 24 * HOUR)),
                ("hour", "start", |of| start_of(of.from, HOUR)),
                ("class", "class", |of| json!(of.class)),
                ("key", "key", |of| json!(of.key)),
                ("plan", "plan", |of| json!(of.plan)),
            ];
            for (by, field, group) in groups {
                let entry = |(group, (requests, units, refused)): (Value, (i64, i64, i64))| json!({field: group, "requests": requests, "units": units, "refused": refused});
                let expected: Vec<Value> = grouped(&selected, group).into_iter().map(entry).collect();
                let found = service.get(&format!("/usage?groupBy={by}&{query}")).await.body;
                assert_eq!(found, json!(expected), "{by} {query} {advanced}");
            }
        }
        // Not so far that the ranges above are older than a day.
        let old = "SELECT COUNT(*) FROM usage_minutes WHERE bucket < 1773486000000";
        if advanced == 0 {
            service.clock.advance(SECOND);
            let mut connection = service.database().connect().await;
            assert!(sqlx::query_scalar::<_, i64>(old).fetch_one(&mut connection).await.unwrap() > 0);
            while service.backend.store().expire_usage(service.now()).await.unwrap() {}
            assert_eq!(sqlx::query_scalar::<_, i64>(old).fetch_one(&mut connection).await.unwrap(), 0);
        }
    }
    for (query, message) in [
        ("groupBy=link", "count, day, hour, class, key, plan"),
        ("interval=2d", "24h, 7d"),
        ("start=soon", "Invalid date"),
        ("start=", "expected string to have >=1 characters"),
    ] {
        let answer = service.get(&format!("/usage?{query}")).await;
        assert!(answer.error().0 == 422 && answer.error().2.contains(message), "{query}: {}", answer.body);
    }
}

/// What a command prints.
fn printed(database: &Database, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
    let output = command.args(arguments).env("WEIR_DATABASE", &database.url).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn the_export_of_a_month_has_what_was_reported_in_it(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let mine = subscriber(&service).await;
    let mut sent = send_many(&service, &mine).await;
    // The last moment of the month, the first of the next, a name that CSV has to quote, and a stranger.
    let odd = "a,\"b\"\nc";
    for (place, (from, subject)) in
        [("2026-03-31T23:59:59.999Z", odd), ("2026-04-01T00:00:00Z", odd), ("2026-03-02T00:00:00Z", "")]
            .iter()
            .enumerate()
    {
        let mut event = used(subject, &format!("b-1-{place}"), from, (1, 2, 3));
        if subject.is_empty() {
            event = with(
                event,
                &json!({"type": "weir.usage.strangers", "subject": null, "data.key": null, "data.plan": null}),
            );
        }
        is_taken(&service, &json!([with(event, &json!({"id": format!("b-{place}-0")}))])).await;
        let (key, plan) = if subject.is_empty() { (None, "") } else { (Some("2bb80d53"), "pro") };
        let (from, subscriber) = (from.parse().unwrap(), (*subject).to_owned());
        sent.push(Sent { subscriber, key, class: "standard", plan, from, sums: (1, 2, 3) });
    }
    let april: Timestamp = "2026-04-01T00:00:00Z".parse().unwrap();
    let account = |of: &Sent| json!([of.subscriber, "", of.key.unwrap_or_default(), of.class, of.plan]);
    for (month, in_month) in [("2026-03", true), ("2026-04", false)] {
        let mut selected = sent.clone();
        selected.retain(|of| (of.from < april) == in_month);
        let all = grouped(&selected, account);
        let of_one: Vec<_> = all.iter().filter(|(account, _)| account[0] == *mine).cloned().collect();
        for (subscriber, expected) in [(None, &all), (Some(&mine), &of_one)] {
            let mut arguments = vec!["usage", "export", "--month", month, "--format", "json"];
            arguments.extend(subscriber.iter().flat_map(|id| ["--subscriber", id.as_str()]));
            let rows: Vec<Value> = serde_json::from_str(&printed(service.database(), &arguments)).unwrap();
            let row = |row: &Value| {
                let texts =
                    ["subscriber", "organisation", "key", "class", "plan"].map(|name| row[name].clone());
                let numbers = ["requests", "units", "refused"].map(|name| row[name].as_i64().unwrap());
                (json!(texts), (numbers[0], numbers[1], numbers[2]))
            };
            let mut found: Vec<_> = rows.iter().map(row).collect();
            found.sort_by_key(|(account, _)| account.to_string());
            let mut expected = expected.clone();
            expected.sort_by_key(|(account, _)| account.to_string());
            assert_eq!(found, expected, "{month} {subscriber:?}");
        }
        let csv = printed(service.database(), &["usage", "export", "--month", month]);
        let (header, rows) = csv.split_once('\n').unwrap();
        assert_eq!(header, "subscriber,organisation,key,class,plan,requests,units,refused");
        assert!(rows.contains("\"a,\"\"b\"\"\nc\",,2bb80d53,standard,pro,1,2,3\n"), "{rows}");
        assert_eq!(
            rows.contains("\n,,,standard,,1,2,3\n") || rows.starts_with(",,,standard,,1,2,3\n"),
            in_month,
            "{rows}"
        );
    }
}

async fn subscribers_are_listed_by_what_is_asked_for(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let now = Clock::system().now();
    let at = |minutes: i64| now - SignedDuration::from_mins(minutes);
    //  subscriber, minutes ago, requests, units and refused, what is used of the tightest quota, and minutes until its window ends
    let rows = [
        ("near", 5, (10, 10, 0), 950, 60),
        ("over", 5, (1, 1, 70), 1000, 60),
        ("far", 5, (900, 900, 5), 10, 60),
        ("was-near", 90, (20, 20, 0), 999, -10),
        ("yesterday", 26 * 60, (5000, 5000, 5000), 1000, -60),
        // The last report counts, whatever was before it and in which order they arrive.
        ("reset", 3, (1, 1, 0), 20, 60),
        ("reset", 5, (1, 1, 0), 990, 60),
    ];
    for (place, (id, minutes, sums, share, left)) in rows.into_iter().enumerate() {
        let tightest = json!({"quota": "month", "limit": 1000, "used": share, "to": at(-left)});
        let event = used(id, &format!("a-{place}-0"), &at(minutes).to_string(), sums);
        is_taken(&service, &json!([with(event, &json!({"data.tightest": tightest}))])).await;
    }
    let all = ["near", "over", "far", "was-near", "yesterday", "reset"];
    //  order, and the subscribers that come first in it
    for (sort, expected) in [
        ("share", vec!["over", "near", "reset", "far", "was-near", "yesterday"]),
        ("used", vec!["far", "was-near", "near", "reset", "over"]),
        ("refused", vec!["over", "far"]),
    ] {
        let text = printed(service.database(), &["usage", "list", "--sort", sort]);
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        let found: Vec<&str> = rows.iter().map(|row| *row.last().unwrap()).collect();
        assert_eq!(found[..expected.len()], expected, "{sort}");
        for row in [
            vec!["100.0", "%", "1", "1", "70", "pro", "month", "over"],
            vec!["1.0", "%", "900", "900", "5", "pro", "month", "far"],
            vec!["-", "20", "20", "0", "pro", "-", "was-near"],
        ] {
            assert!(rows.contains(&row), "{sort}: {row:?} in {text}");
        }
        let text = printed(service.database(), &["usage", "list", "--sort", sort, "--most", "2"]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].ends_with(expected[0]) && lines[2].ends_with(expected[1]), "{text}");
    }
    let text = printed(service.database(), &["usage", "list"]);
    assert!(text.contains(" 95.0 %"), "{text}");
    assert_eq!(text.lines().count(), 1 + all.len());
}

async fn a_threshold_is_told_once_to_the_webhooks_of_the_workspace(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let id = &subscriber(&service).await;
    let mut receiver = Receiver::start().await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    let webhook = service.webhook(&receiver.url("/all"), &["usage.threshold_reached", "link.deleted"]).await;
    // A scope is about links.
    let scoped = json!({
        "name": "rx", "url": receiver.url("/scoped"), "triggers": ["usage.threshold_reached"], "linkScope": "links", "linkIds": [link["id"]],
    });
    assert_eq!(service.post("/webhooks", &scoped).await.status, 201);
    service.webhook(&receiver.url("/other"), &["link.deleted"]).await;
    let from: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
    let to: Timestamp = "2026-04-01T00:00:00Z".parse().unwrap();
    let reached = |hash: &str, share| threshold(id, hash, share, from, to);
    // Gateways of a fleet tell the same, at once and later.
    let batches = [
        json!([reached("h80", 80), used(id, "a-1-0", START, (1, 1, 0))]),
        json!([with(reached("h80", 80), &json!({"source": "gateway-2"}))]),
        json!([reached("h80", 80), reached("h100", 100), threshold("nobody", "h1", 80, from, to)]),
    ];
    join_all(batches.iter().map(|batch| is_taken(&service, batch))).await;
    for batch in &batches {
        is_taken(&service, batch).await;
    }
    let mut arrived = Vec::new();
    for _ in 0..4 {
        let delivery = receiver.next().await;
        let body = delivery.json();
        arrived.push((body["id"].as_str().unwrap().to_owned(), body["data"]["share"].as_i64().unwrap()));
        if body["data"]["share"] == 100 {
            let data = json!({
                "subscriber": id, "class": "standard", "quota": "standard-month", "share": 100, "limit": 1000, "used": 1000,
                "from": "2026-03-01T00:00:00.000Z", "to": "2026-04-01T00:00:00.000Z",
            });
            assert_eq!((&body["event"], &body["data"]), (&json!("usage.threshold_reached"), &data));
            assert_eq!(body["createdAt"], "2026-03-01T00:00:00.000Z");
        }
    }
    arrived.sort();
    let expected = [("evt_h100", 100), ("evt_h100", 100), ("evt_h80", 80), ("evt_h80", 80)];
    assert_eq!(arrived, expected.map(|(id, share)| (id.to_owned(), share)));
    // A raised limit, or a reset, has another id.
    is_taken(&service, &json!([reached("h80-raised", 80)])).await;
    let mut again = [receiver.next().await, receiver.next().await];
    again.sort_by_key(|delivery| delivery.headers["webhook-signature"].to_str().unwrap().to_owned());
    let secret = webhook["secret"].as_str().unwrap();
    let signed = again.iter().filter(|delivery| {
        delivery.headers["dub-signature"] == backend::signature::dub(secret, &delivery.body)
    });
    assert_eq!(signed.count(), 1, "the secret of the other webhook is another");
    service.shut_down().await;
    assert!(receiver.is_empty());
}

async fn what_was_known_is_forgotten_when_its_time_is_over(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let id = &subscriber(&service).await;
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let end = service.now() + SignedDuration::from_hours(24);
    is_taken(
        &service,
        &json!([used(id, "a-1-0", START, (1, 1, 0)), threshold(id, "h", 80, service.now(), end)]),
    )
    .await;
    let rows = async || {
        while service.backend.store().expire_usage(service.now()).await.unwrap() {}
        let mut connection = service.database().connect().await;
        let mut counts = Vec::new();
        for table in ["usage_minutes", "usage_batches", "usage_thresholds", "usage_hours"] {
            let count = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
            counts.push(sqlx::query_scalar::<_, i64>(count).fetch_one(&mut connection).await.unwrap());
        }
        counts
    };
    //  hours that pass, and what is left of minutes, batches, thresholds and hours
    for (pass, expected) in [
        (0, [1, 1, 1, 1]),
        (24, [1, 1, 1, 1]),
        (2, [0, 1, 1, 1]),
        (7 * 24 - 27, [0, 1, 1, 1]),
        (2, [0, 0, 1, 1]),
        (22, [0, 0, 1, 1]),
        (2, [0, 0, 0, 1]),
    ] {
        service.clock.advance(hours(pass));
        assert_eq!(rows().await, expected, "{pass} hours later");
    }
    // Who knows whether it was told.
    is_taken(&service, &json!([threshold(id, "h", 80, end, end)])).await;
    assert_eq!(rows().await, [0, 0, 0, 1]);
    assert_eq!(total(&service).await, sums((1, 1, 0)));
}

async fn gateways_that_report_the_same_accounts_at_once_all_count(database: Database) {
    let service = Service::with_settings(database, with_token()).await;
    let id = &subscriber(&service).await;
    let subscribers: Vec<String> = (0..40).map(|n| format!("customer-{n}")).chain([id.clone()]).collect();
    let batch = |gateway: usize| {
        let mut events: Vec<Value> = subscribers
            .iter()
            .enumerate()
            .map(|(place, of)| used(of, &format!("vm{gateway}-1-{place}"), START, (1, 2, 1)))
            .collect();
        events.rotate_left(gateway);
        json!(events)
    };
    let batches: Vec<Value> = (0..12).map(batch).collect();
    join_all(batches.iter().map(|batch| is_taken(&service, batch))).await;
    assert_eq!(total(&service).await, sums((12, 24, 12)));
    let range = (Timestamp::UNIX_EPOCH, service.now() + SignedDuration::from_hours(1));
    let all = service.backend.store().export_usage(range, None, service.now()).await.unwrap();
    assert_eq!(all.len(), subscribers.len());
    assert!(all.iter().all(|(_, sums)| *sums == Sums { requests: 12, units: 24, refused: 12 }), "{all:?}");
}
