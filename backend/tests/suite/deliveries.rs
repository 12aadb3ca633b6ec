//! Deliveries: attempts, the log, replays, and webhooks that fail.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Executor;

use crate::database::{Database, on_both_databases};
use crate::receiver::{Receiver, Silent, Slow};
use crate::service::Service;

on_both_databases! {
    a_delivery_is_retried_with_the_same_id_when_its_wait_is_over,
    an_event_can_be_replayed_and_a_sample_sent,
    a_receiver_that_answers_410_gets_no_more_events,
    retry_after_delays_the_next_attempt,
    a_webhook_is_disabled_when_every_attempt_has_failed_for_five_days,
    a_wait_counts_from_the_end_of_an_attempt,
    retries_come_before_first_attempts,
    events_without_an_attempt_are_dropped_after_three_days_and_the_log_says_so,
    a_receiver_that_never_answers_delays_no_other,
    many_receivers_that_never_answer_delay_no_other_workspace,
    deliveries_to_a_disabled_webhook_resume_once_it_is_enabled,
    deliveries_are_listed_newest_first_from_a_cursor_on,
    an_event_whose_delivery_is_pending_is_not_replayed,
    a_success_stands_whatever_an_attempt_that_took_longer_than_its_lease_says,
    the_log_has_the_beginning_of_an_answer,
}

/// The log of a webhook, once its newest delivery has had `attempts` attempts.
pub(crate) async fn log_after(service: &Service, webhook: &Value, attempts: usize) -> Value {
    let path = format!("/webhooks/{}/deliveries", webhook["id"].as_str().unwrap());
    loop {
        let log = service.get(&path).await.body;
        if log[0]["attempts"].as_array().is_some_and(|made| made.len() == attempts) {
            return log;
        }
        tokio::task::yield_now().await;
    }
}

async fn a_delivery_is_retried_with_the_same_id_when_its_wait_is_over(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    receiver.answer((StatusCode::INTERNAL_SERVER_ERROR, "no"));
    receiver.answer((StatusCode::FOUND, [("location", "/elsewhere")]));
    service.link(&json!({"url": "https://example.com"})).await;
    let first = receiver.next().await.json();
    for (attempt, wait) in [(1, 6), (2, 360)] {
        assert_eq!(log_after(&service, &webhook, attempt).await[0]["status"], "pending");
        assert!(receiver.is_empty());
        service.clock.advance(Duration::from_secs(wait));
        assert_eq!(receiver.next().await.json(), first);
    }
    let log = log_after(&service, &webhook, 3).await;
    assert_eq!((&log[0]["status"], &log[0]["eventId"]), (&json!("delivered"), &first["id"]));
    let statuses: Vec<&Value> =
        log[0]["attempts"].as_array().unwrap().iter().map(|made| &made["httpStatus"]).collect();
    assert_eq!(statuses, [500, 302, 200]);
    assert_eq!(log[0]["attempts"][0]["responseBody"], "no");
    assert!(receiver.is_empty());
}

async fn an_event_can_be_replayed_and_a_sample_sent(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    service.link(&json!({"url": "https://example.com"})).await;
    let first = receiver.next().await.json();
    // A delivery that is pending is not sent a second time.
    log_after(&service, &webhook, 1).await;
    let replay = format!("{path}/deliveries/{}/replay", first["id"].as_str().unwrap());
    assert_eq!(service.post(&replay, &json!({})).await.body, json!({"id": first["id"]}));
    assert_eq!(receiver.next().await.json(), first);
    assert_eq!(
        service.post(&format!("{path}/deliveries/evt_nobody/replay"), &json!({})).await.error().0,
        404
    );
    for trigger in ["link.created", "link.updated", "link.deleted", "link.clicked", "usage.threshold_reached"]
    {
        let made = service.post(&format!("{path}/test"), &json!({"trigger": trigger})).await.body;
        let delivery = receiver.next().await;
        delivery.verify(webhook["secret"].as_str().unwrap());
        assert_eq!((&delivery.json()["event"], &delivery.json()["id"]), (&json!(trigger), &made["id"]));
    }
}

async fn a_receiver_that_answers_410_gets_no_more_events(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    receiver.answer(StatusCode::GONE);
    service.link(&json!({"url": "https://example.com"})).await;
    receiver.next().await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    while service.get(&path).await.body["disabledAt"].is_null() {
        tokio::task::yield_now().await;
    }
    service.link(&json!({"url": "https://example.com"})).await;
    service.shut_down().await;
    assert!(receiver.is_empty());
}

async fn retry_after_delays_the_next_attempt(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    receiver.answer((StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "600")]));
    service.link(&json!({"url": "https://example.com"})).await;
    let first = receiver.next().await.json();
    let log = log_after(&service, &webhook, 1).await;
    assert_eq!(log[0]["nextAttemptAt"], "2026-03-15T12:44:56.789Z");
    service.clock.advance(Duration::from_secs(600));
    assert_eq!(receiver.next().await.json(), first);
}

async fn a_webhook_is_disabled_when_every_attempt_has_failed_for_five_days(database: Database) {
    const HOUR: u64 = 3_600;
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    //  hours since the last event, status of the answer to the only attempt of an event, and whether the webhook is disabled then
    for (hours, status, disabled) in [
        (0, 500, false),
        (119, 503, false),
        // A success begins anew.
        (0, 200, false),
        (100, 500, false),
        (60, 404, false),
        (59, 429, false),
        (1, 500, true),
    ] {
        service.clock.advance(Duration::from_secs(hours * HOUR));
        // Retries of earlier events fail, too.
        for _ in 0..100 {
            receiver.answer(StatusCode::from_u16(status).unwrap());
        }
        let link = service.link(&json!({"url": "https://example.com"})).await;
        if disabled {
            // The retry of an earlier event may do it before this one is sent.
            while service.get(&path).await.body["disabledAt"].is_null() {
                tokio::task::yield_now().await;
            }
            break;
        }
        while receiver.next().await.json()["data"]["id"] != link["id"] {}
        let log = log_after(&service, &webhook, 1).await;
        assert_eq!(log[0]["attempts"][0]["httpStatus"], status);
        let shown = service.get(&path).await.body;
        assert_eq!(shown["disabledAt"], Value::Null, "{status} after {hours} h");
        receiver.forget_answers();
    }
    let enabled = service.patch(&path, &json!({"disabled": false})).await;
    assert_eq!(enabled.status, StatusCode::OK);
    let link = service.link(&json!({"url": "https://example.com"})).await;
    while receiver.next().await.json()["data"]["id"] != link["id"] {}
    log_after(&service, &webhook, 1).await;
    assert_eq!(service.get(&path).await.body["disabledAt"], Value::Null, "its failures count anew");
}

async fn a_wait_counts_from_the_end_of_an_attempt(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Slow::start().await;
    let webhook = service.webhook(&receiver.url(), &["link.created"]).await;
    service.link(&json!({"url": "https://example.com"})).await;
    let (first, answer) = receiver.next().await;
    // The receiver takes eight seconds, and wants a pause of six.
    service.clock.advance(Duration::from_secs(8));
    answer.send("503 Service Unavailable\r\nretry-after: 6").unwrap();
    let log = log_after(&service, &webhook, 1).await;
    assert_eq!(log[0]["attempts"][0]["timestamp"], "2026-03-15T12:34:56.789Z");
    assert_eq!(log[0]["nextAttemptAt"], "2026-03-15T12:35:10.789Z");
    service.clock.advance(Duration::from_secs(6));
    assert_eq!(receiver.next().await.0, first);
}

async fn retries_come_before_first_attempts(database: Database) {
    const CLICKS: usize = 40;
    const AT_ONCE: usize = 4;
    let service = Service::start(database).await;
    let mut receiver = Slow::start().await;
    service.webhook(&receiver.url(), &["link.clicked"]).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[0; CLICKS]).await;
    service.clock.advance(Duration::from_secs(1));
    let mut attempted = Vec::new();
    // The second four are under way while the first four wait for their second attempts.
    for _ in 0..2 {
        let mut under_way = Vec::new();
        for _ in 0..AT_ONCE {
            under_way.push(receiver.next().await);
        }
        if !attempted.is_empty() {
            service.clock.advance(Duration::from_secs(60));
        }
        for (event, answer) in under_way {
            attempted.push(event);
            answer.send("500 Internal Server Error").unwrap();
        }
    }
    // They are due now, and 32 clicks had no attempt.
    let mut next = BTreeSet::new();
    for _ in 0..AT_ONCE {
        next.insert(receiver.next().await.0);
    }
    assert_eq!(next, attempted[..AT_ONCE].iter().cloned().collect());
}

async fn events_without_an_attempt_are_dropped_after_three_days_and_the_log_says_so(database: Database) {
    const CLICKS: usize = 30;
    let service = Service::start(database).await;
    let receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/"), &["link.created", "link.clicked"]).await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    let other = service.link(&json!({"url": "https://example.com/other"})).await;
    log_after(&service, &webhook, 1).await;
    // A lease that was taken by a process that is gone stands for a webhook that is too slow.
    service.patch(&path, &json!({"disabled": true})).await;
    for link in [&other, &other] {
        service.click_hours_ago(link["id"].as_str().unwrap(), &[0; CLICKS / 2]).await;
    }
    let unattempted = "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
        SELECT d.event_seq, d.webhook_seq, 0, e.created_at FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq";
    service.database().connect().await.execute(unattempted).await.unwrap();
    let dropped = async || {
        let metrics = service.metrics().await;
        let line =
            metrics.lines().find_map(|line| line.strip_prefix("weir_backend_webhook_events_dropped_total "));
        line.unwrap().parse::<usize>().unwrap()
    };
    service.clock.advance(Duration::from_secs(71 * 3_600));
    service.patch(&path, &json!({"name": "still within three days"})).await;
    assert_eq!(dropped().await, 0);
    service.clock.advance(Duration::from_secs(3_600));
    let all = async {
        while dropped().await < CLICKS + 1 {
            service.clock.advance(Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("old events are dropped");
    assert_eq!(dropped().await, CLICKS + 1);
    let log = service.get(&format!("{path}/deliveries")).await;
    let dropped = log.body.as_array().unwrap().iter().filter(|delivery| delivery["status"] == "failed");
    let dropped: Vec<&Value> = dropped.collect();
    let errors: Vec<&Value> = dropped.iter().map(|failed| &failed["attempts"][0]["error"]).collect();
    let of_clicks = "dropped: no attempt within three days; 29 events of clicks were dropped with this one";
    assert_eq!(errors, [of_clicks, "dropped: no attempt within three days"]);
    let events: Vec<&Value> = dropped.iter().map(|failed| &failed["event"]).collect();
    assert_eq!(events, ["link.clicked", "link.created"]);
    // An enabled webhook goes on with what is left.
    service.patch(&path, &json!({"disabled": false})).await;
    let mut receiver = receiver;
    receiver.next().await;
    service.click_hours_ago(other["id"].as_str().unwrap(), &[0]).await;
    service.clock.advance(Duration::from_secs(1));
    assert_eq!(receiver.next().await.json()["event"], "link.clicked");
    assert!(receiver.is_empty());
}

async fn a_receiver_that_never_answers_delays_no_other(database: Database) {
    const CLICKS: usize = 200;
    let service = Service::start(database).await;
    let silent = Silent::start().await;
    let mut receiver = Receiver::start().await;
    for url in [silent.url(), receiver.url("/")] {
        service.webhook(&url, &["link.clicked"]).await;
    }
    let link = service.link(&json!({"url": "https://example.com"})).await;
    service.click_hours_ago(link["id"].as_str().unwrap(), &[0; CLICKS]).await;
    service.clock.advance(Duration::from_secs(1));
    for _ in 0..CLICKS {
        receiver.next().await;
    }
    assert!((1..=4).contains(&silent.most_at_once()), "{} at once", silent.most_at_once());
}

async fn many_receivers_that_never_answer_delay_no_other_workspace(database: Database) {
    // More deliveries than the sender makes at a time: twenty webhooks of each workspace, with four deliveries each.
    const WORKSPACES: usize = 4;
    const WEBHOOKS: usize = 20;
    const AT_A_TIME: usize = 256;
    const CLICKS: usize = 50;
    let service = Service::start(database).await;
    let silent = Silent::start().await;
    let mut receiver = Receiver::start().await;
    service.webhook(&receiver.url("/"), &["link.clicked"]).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    for number in 0..WORKSPACES {
        let (_, key) = service.new_workspace(&number.to_string()).await;
        for webhook in 0..WEBHOOKS {
            let url = format!("{}{number}/{webhook}", silent.url());
            let body = json!({"name": "rx", "url": url, "triggers": ["link.clicked"]});
            let made = service.call_as(&key, Method::POST, "/webhooks", Some(&body)).await;
            assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
        }
        let body = json!({"url": "https://example.com"});
        let link = service.call_as(&key, Method::POST, "/links", Some(&body)).await.body;
        service.click_hours_ago(link["id"].as_str().unwrap(), &[0; 4]).await;
    }
    service.clock.advance(Duration::from_secs(1));
    while silent.most_at_once() < AT_A_TIME / 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    service.click_hours_ago(link["id"].as_str().unwrap(), &[0; CLICKS]).await;
    service.clock.advance(Duration::from_secs(1));
    for _ in 0..CLICKS {
        receiver.next().await;
    }
    let timed_out = "SELECT COUNT(*) FROM webhook_attempts WHERE http_status IS NULL";
    let mut connection = service.database().connect().await;
    let timed_out: i64 = sqlx::query_scalar(timed_out).fetch_one(&mut connection).await.unwrap();
    assert_eq!(timed_out, 0, "all arrive before a receiver has timed out");
    let most = silent.most_at_once();
    assert!(most < AT_A_TIME, "{most} at once");
}

async fn deliveries_to_a_disabled_webhook_resume_once_it_is_enabled(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    receiver.answer(StatusCode::INTERNAL_SERVER_ERROR);
    service.link(&json!({"url": "https://example.com"})).await;
    let first = receiver.next().await.json();
    log_after(&service, &webhook, 1).await;
    service.patch(&path, &json!({"disabled": true})).await;
    service.clock.advance(Duration::from_secs(3_600));
    // After a later event of another webhook has arrived, the service has checked the due deliveries.
    let other = service.webhook(&receiver.url("/other"), &["link.updated"]).await;
    let test = format!("/webhooks/{}/test", other["id"].as_str().unwrap());
    service.post(&test, &json!({})).await;
    assert_eq!(receiver.next().await.json()["event"], "link.updated");
    assert!(receiver.is_empty());
    service.patch(&path, &json!({"disabled": false})).await;
    assert_eq!(receiver.next().await.json(), first);
}

async fn deliveries_are_listed_newest_first_from_a_cursor_on(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    let path = format!("/webhooks/{}/deliveries", webhook["id"].as_str().unwrap());
    let mut events = Vec::new();
    for n in 0..3 {
        service.link(&json!({"url": format!("https://example.com/{n}")})).await;
        events.insert(0, receiver.next().await.json()["id"].clone());
    }
    // A replayed event has two deliveries, which are told apart by their ids.
    log_after(&service, &webhook, 1).await;
    service.post(&format!("{path}/{}/replay", events[0].as_str().unwrap()), &json!({})).await;
    receiver.next().await;
    events.insert(0, events[0].clone());
    let (mut found, mut cursor) = (Vec::new(), String::new());
    for expected in [2, 2, 0] {
        let page = service.get(&format!("{path}?pageSize=2{cursor}")).await;
        assert_eq!(page.each("eventId").len(), expected);
        found.extend(page.each("eventId").into_iter().cloned());
        if let Some(last) = page.each("id").last() {
            cursor = format!("&startingAfter={}", last.as_str().unwrap());
        }
    }
    assert_eq!(found, events);
    for refused in
        ["startingAfter=", "startingAfter=evt_1", "startingAfter=dlv_x", "pageSize=101", "pageSize=0"]
    {
        assert_eq!(service.get(&format!("{path}?{refused}")).await.error().0, 422, "{refused}");
    }
}

async fn an_event_whose_delivery_is_pending_is_not_replayed(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    receiver.answer(StatusCode::INTERNAL_SERVER_ERROR);
    service.link(&json!({"url": "https://example.com"})).await;
    let first = receiver.next().await.json();
    log_after(&service, &webhook, 1).await;
    let path = format!("/webhooks/{}/deliveries", webhook["id"].as_str().unwrap());
    let replay = format!("{path}/{}/replay", first["id"].as_str().unwrap());
    let deliveries = async || service.get(&path).await.each("id").len();
    let empty = json!({});
    //  what happens before, and the number of deliveries after three replays at once
    for (wait, expected) in [(0, 1), (6, 2)] {
        service.clock.advance(Duration::from_secs(wait));
        if wait > 0 {
            receiver.next().await;
            log_after(&service, &webhook, 2).await;
            receiver.answer(StatusCode::INTERNAL_SERVER_ERROR);
        }
        let [a, b, c] = [(); 3].map(|()| service.post(&replay, &empty));
        let (a, b, c) = tokio::join!(a, b, c);
        for answer in [a, b, c] {
            assert_eq!(answer.body, json!({"id": first["id"]}));
        }
        assert_eq!(deliveries().await, expected, "after {wait} s");
    }
}

async fn a_success_stands_whatever_an_attempt_that_took_longer_than_its_lease_says(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Slow::start().await;
    let webhook = service.webhook(&receiver.url(), &["link.created"]).await;
    //  the answers to the first and the second attempt, and which one comes first
    for (answers, first) in [
        (["500 Internal Server Error", "200 OK"], 1),
        (["500 Internal Server Error", "200 OK"], 0),
        (["200 OK", "500 Internal Server Error"], 0),
        (["200 OK", "500 Internal Server Error"], 1),
    ] {
        service.link(&json!({"url": "https://example.com"})).await;
        let (event, stalled) = receiver.next().await;
        // The lease ends, and the event is sent again.
        service.clock.advance(Duration::from_secs(31));
        let (again, second) = receiver.next().await;
        assert_eq!(again, event);
        let mut answering = [Some(stalled), Some(second)];
        for (attempts, which) in [(1, first), (2, 1 - first)] {
            answering[which].take().unwrap().send(answers[which]).unwrap();
            log_after(&service, &webhook, attempts).await;
        }
        let log = log_after(&service, &webhook, 2).await;
        assert_eq!(log[0]["status"], "delivered", "{answers:?}, {first} first");
        // Nothing of it is due later.
        service.clock.advance(Duration::from_secs(3_600));
    }
    service.link(&json!({"url": "https://example.com/last"})).await;
    let (event, answer) = receiver.next().await;
    answer.send("200 OK").unwrap();
    assert_eq!(log_after(&service, &webhook, 1).await[0]["eventId"], event);
}

async fn the_log_has_the_beginning_of_an_answer(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    //  the answer, and what the log has of it
    for (answer, expected) in [
        ("x".repeat(1_024), "x".repeat(1_024)),
        ("x".repeat(2_048), "x".repeat(1_024)),
        ("é".repeat(100_000), "é".repeat(512)),
        (String::new(), String::new()),
    ] {
        receiver.answer((StatusCode::INTERNAL_SERVER_ERROR, answer));
        service.link(&json!({"url": "https://example.com"})).await;
        receiver.next().await;
        let log = log_after(&service, &webhook, 1).await;
        let attempt = &log[0]["attempts"][0];
        assert_eq!((&attempt["httpStatus"], &attempt["responseBody"]), (&json!(500), &json!(expected)));
    }
}
