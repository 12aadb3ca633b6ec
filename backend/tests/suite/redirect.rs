//! Short links followed.

use axum::http::Method;
use serde_json::json;

use crate::database::{Database, on_both_databases};
use crate::service::Service;

const CHROME: &str = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) \
                      Chrome/142.0.0.0 Safari/537.36";

on_both_databases! {
    people_and_libraries_are_counted_and_bots_and_heads_are_not,
    parameters_of_the_short_link_are_handed_on,
    a_link_leads_nowhere_once_it_has_expired,
    clicks_made_before_the_end_are_stored_by_it,
}

async fn people_and_libraries_are_counted_and_bots_and_heads_are_not(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/x", "key": "k"})).await;
    //  method        user agent                                     counts
    let table = [
        (Method::GET, CHROME, true),
        (Method::GET, "curl/8.5.0", true),
        (Method::GET, "", true),
        (Method::HEAD, CHROME, false),
        (Method::GET, "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", false),
        (Method::GET, "WhatsApp/2.23.20", false),
    ];
    let mut expected = 0;
    for (method, user_agent, counts) in table {
        let answer = service.follow(method.clone(), "/r/K", user_agent).await;
        assert_eq!(answer.status, 302, "{method} {user_agent}");
        assert_eq!(answer.headers["location"], "https://example.com/x");
        expected += i64::from(counts);
        service.backend.flush_clicks().await;
        assert_eq!(service.get("/analytics").await.body["clicks"], expected, "{method} {user_agent}");
    }
    let event = &service.get("/events?sortOrder=asc").await.body[0];
    assert_eq!(
        (&event["browser"], &event["os"], &event["device"]),
        (&json!("Chrome"), &json!("Mac OSX"), &json!("Desktop"))
    );
    assert_eq!(event["link"]["lastClicked"], "2026-03-15T12:34:56.789Z");
}

async fn parameters_of_the_short_link_are_handed_on(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/x?a=1&b=2", "key": "k"})).await;
    let answer = service.follow(Method::GET, "/r/k?b=3&c=%C3%A9&qr=1", CHROME).await;
    assert_eq!(answer.headers["location"], "https://example.com/x?a=1&b=3&c=%C3%A9");
    service.backend.flush_clicks().await;
    assert_eq!(service.get("/events").await.body[0]["click"]["trigger"], "qr");
}

async fn a_link_leads_nowhere_once_it_has_expired(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com", "key": "a", "expiresAt": "in 1 hour"})).await;
    let expired = json!({"url": "https://example.com", "key": "b", "expiresAt": "in 1 hour", "expiredUrl": "over.test"});
    service.link(&expired).await;
    assert_eq!(service.follow(Method::GET, "/r/a", CHROME).await.status, 302);
    service.clock.advance(std::time::Duration::from_secs(3600));
    assert_eq!(service.follow(Method::GET, "/r/a", CHROME).await.status, 410);
    assert_eq!(service.follow(Method::GET, "/r/b", CHROME).await.headers["location"], "https://over.test/");
    assert_eq!(
        service.follow(Method::GET, "/r/nobody", CHROME).await.error(),
        (404, "not_found", "Link not found.")
    );
    assert_eq!(service.follow(Method::GET, "/r/%00", CHROME).await.status, 400);
}

async fn clicks_made_before_the_end_are_stored_by_it(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    for _ in 0..500 {
        service.follow(Method::GET, "/r/k", CHROME).await;
    }
    let service = service.restart().await;
    assert_eq!(service.get("/analytics").await.body["clicks"], 500);
}
