//! Short links followed.

use axum::body::Body;
use axum::http::{HeaderName, Method, Request};
use backend::{ClickRules, LocationHeaders, Settings};
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
    places_are_what_the_gateway_says,
    a_visitor_may_be_counted_once_an_hour,
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
        (&json!("Chrome"), &json!("Mac OS"), &json!("Desktop"))
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

async fn follow_with(service: &Service, headers: &[(&str, &str)]) -> String {
    let mut request = Request::get("/r/k").header("user-agent", CHROME);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = service.send(request.body(Body::empty()).unwrap()).await;
    service.backend.flush_clicks().await;
    answer.headers["location"].to_str().unwrap().to_owned()
}

async fn places_are_what_the_gateway_says(database: Database) {
    let name = |name| Some(HeaderName::from_static(name));
    let location = LocationHeaders {
        continent: name("x-continent"),
        country: name("x-country"),
        region: name("x-region"),
        city: name("x-city"),
    };
    let clicks = ClickRules { location, ..ClickRules::default() };
    let service = Service::with_settings(database, Settings { clicks, ..Settings::default() }).await;
    let link = json!({"url": "https://example.com/", "key": "k", "geo": {"de": "https://example.de/"}});
    service.link(&link).await;
    let berlin = [("x-continent", "eu"), ("x-country", "de"), ("x-region", "BE"), ("x-city", "M%C3%BCnchen")];
    assert_eq!(follow_with(&service, &berlin).await, "https://example.de/");
    let nonsense = [("x-continent", "Mu"), ("x-country", "D3"), ("x-forwarded-for", "6.6.6.6, 192.0.2.7")];
    assert_eq!(follow_with(&service, &nonsense).await, "https://example.com/");
    let events = service.get("/events?sortOrder=asc").await;
    assert_eq!(events.each("continent"), ["EU", "Unknown"]);
    assert_eq!(events.each("country"), ["DE", "Unknown"]);
    assert_eq!(events.body[0]["click"]["region"], "DE-BE");
    assert_eq!(events.each("city"), ["München", "Unknown"]);
    assert_eq!(events.each("ip"), ["", "192.0.2.7"]);
    let cities = service.get("/analytics?groupBy=cities").await;
    assert_eq!(
        cities.body,
        json!([{"country": "DE", "region": "DE-BE", "city": "München", "clicks": 1, "leads": 0, "sales": 0, "saleAmount": 0}])
    );
}

async fn a_visitor_may_be_counted_once_an_hour(database: Database) {
    let clicks = ClickRules { once_per_hour: true, count_bots: true, ..ClickRules::default() };
    let service = Service::with_settings(database, Settings { clicks, ..Settings::default() }).await;
    service.link(&json!({"url": "https://example.com/", "key": "k"})).await;
    let count = async || service.get("/analytics").await.body["clicks"].as_i64().unwrap();
    for (address, minutes, expected) in [
        ("192.0.2.1", 0, 1),
        ("192.0.2.1", 30, 1),
        ("192.0.2.2", 0, 2),
        ("192.0.2.1", 29, 2),
        ("192.0.2.1", 1, 3),
    ] {
        service.clock.advance(std::time::Duration::from_secs(minutes * 60));
        follow_with(&service, &[("x-forwarded-for", address)]).await;
        assert_eq!(count().await, expected, "{address} {minutes} minutes later");
    }
    service.follow(Method::GET, "/r/k", "Googlebot/2.1").await;
    service.backend.flush_clicks().await;
    assert_eq!(count().await, 4, "bots count where they are told to");
}
