//! Short links followed.

use axum::body::Body;
use axum::http::{HeaderName, Method, Request};
use backend::{ClickRules, KeptAddress, LocationHeaders, Settings};
use serde_json::json;

use crate::database::{Database, on_both_databases};
use crate::service::{Service, settings};

const CHROME: &str = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) \
                      Chrome/142.0.0.0 Safari/537.36";

on_both_databases! {
    people_and_libraries_are_counted_and_bots_and_heads_are_not,
    visits_that_no_person_makes_are_not_counted,
    a_user_agent_of_any_bytes_is_read,
    parameters_of_the_short_link_are_handed_on,
    destinations_keep_their_bytes,
    slashes_at_the_ends_of_a_key_do_not_count,
    of_a_long_destination_the_start_is_recorded,
    a_link_leads_nowhere_once_it_has_expired,
    clicks_made_before_the_end_are_stored_by_it,
    places_are_what_the_gateway_says,
    a_visitor_may_be_counted_once_an_hour,
    addresses_are_taken_from_trusted_proxies_only,
    a_click_that_the_database_refuses_is_lost_and_counted_and_the_others_are_recorded,
    many_long_clicks_are_all_recorded,
    keys_that_look_like_others_are_refused,
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

async fn visits_that_no_person_makes_are_not_counted(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/", "key": "k"})).await;
    //  header, its value, query, and the outcome in the metrics
    let table = [
        ("sec-purpose", "prefetch", "", "prefetch"),
        ("sec-purpose", "Prefetch;prerender", "", "prefetch"),
        ("purpose", "prefetch", "", "prefetch"),
        ("x-purpose", "preview", "", "prefetch"),
        ("x-moz", "prefetch", "", "prefetch"),
        ("dub-no-track", "1", "", "untracked"),
        ("accept", "*/*", "?dub-no-track", "untracked"),
        ("accept", "*/*", "?a=1&dub-no-track=1", "untracked"),
        ("sec-purpose", "other", "", "recorded"),
        ("dnt", "1", "?no-track", "recorded"),
    ];
    for (name, value, query, expected) in table {
        let count = async || {
            service.backend.flush_clicks().await;
            let metrics = service.send_internal(Request::get("/metrics").body(Body::empty()).unwrap()).await;
            let metric = format!("weir_backend_clicks_total{{outcome=\"{expected}\"}} ");
            let lines = metrics.body.as_str().unwrap().to_owned();
            lines.lines().find_map(|line| line.strip_prefix(&metric)?.parse::<u64>().ok()).unwrap()
        };
        let before = count().await;
        let request = Request::get(format!("/r/k{query}")).header("user-agent", CHROME).header(name, value);
        let answer = service.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, 302, "{name}: {value}");
        assert_eq!(count().await, before + 1, "{name}: {value} {query}");
    }
    assert_eq!(service.get("/analytics").await.body["clicks"], 2);
}

async fn a_user_agent_of_any_bytes_is_read(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/", "key": "k"})).await;
    let mut counted = 0;
    //  user agent, what is stored of it, and whether it counts
    let table: [(&[u8], &str, bool); 4] = [
        ("Googlebot/2.1 é".as_bytes(), "", false),
        (b"Googlebot/2.1 \xe9", "", false),
        ("Firefox é".as_bytes(), "Firefox é", true),
        (b"Firefox \xe9", "Firefox \u{fffd}", true),
    ];
    for (agent, stored, counts) in table {
        let visit = Request::get("/r/k").header("user-agent", agent).body(Body::empty()).unwrap();
        assert_eq!(service.send(visit).await.status, 302);
        service.backend.flush_clicks().await;
        counted += u64::from(counts);
        let events = service.get("/events").await;
        assert_eq!(events.each("click").len() as u64, counted, "{agent:?}");
        if counts {
            let mut agents = events.each("click").into_iter().map(|click| &click["ua"]);
            assert!(agents.any(|agent| agent == stored), "{agent:?}: {}", events.body);
        }
    }
}

async fn destinations_keep_their_bytes(database: Database) {
    let service = Service::start(database).await;
    //  destination, query of the visitor, and where the visitor is sent
    let table = [
        ("https://example.com?q=%F3&a&sig=%2b+", "", "https://example.com?q=%F3&a&sig=%2b+"),
        (
            "https://example.com?q=%F3&a&sig=%2b+",
            "?fbclid=1",
            "https://example.com?q=%F3&a&sig=%2b+&fbclid=1",
        ),
        ("https://Example.com/a/../b#f?x", "?fbclid=%2b", "https://Example.com/a/../b?fbclid=%2b#f?x"),
        ("mailto:a@example.com?subject=A%20B", "?fbclid=1", "mailto:a@example.com?subject=A%20B"),
        ("HTTP://example.com/x", "?q=%F3", "HTTP://example.com/x?q=%F3"),
        ("https://example.com/x?a=1", "?qr=1&redir_url=x&dub-no-track", "https://example.com/x?a=1"),
        ("app://open?x=1", "?x=2", "app://open?x=1"),
        ("https://example.com/ä b", "?c=ü", "https://example.com/%C3%A4%20b?c=%C3%BC"),
    ];
    for (index, (url, query, expected)) in table.into_iter().enumerate() {
        let link = service.link(&json!({"url": url, "key": format!("k{index}")})).await;
        assert_eq!(link["url"], url);
        let answer = service.follow(Method::GET, &format!("/r/k{index}{query}"), CHROME).await;
        assert_eq!(answer.headers["location"], expected, "{url} {query}");
    }
    // Campaign parameters leave the rest as it is, too.
    let link = json!({"url": "https://example.com?q=%F3&utm_source=a", "key": "utm", "utm_source": "b c"});
    assert_eq!(service.link(&link).await["url"], "https://example.com?q=%F3&utm_source=b+c");
}

async fn slashes_at_the_ends_of_a_key_do_not_count(database: Database) {
    let service = Service::start(database).await;
    assert_eq!(service.link(&json!({"url": "https://example.com/", "key": "/a/b/"})).await["key"], "a/b");
    for path in ["/r/a/b", "/r/a/b/", "/r//a/b//", "/r/a%2Fb/"] {
        assert_eq!(service.follow(Method::GET, path, CHROME).await.status, 302, "{path}");
    }
    service.backend.flush_clicks().await;
    for key in ["a/b", "a/b/", "/A/b/"] {
        let link = service.get(&format!("/links/info?domain=s.test&key={key}")).await;
        assert_eq!(link.body["key"], "a/b", "{key}");
        assert_eq!(
            service.get(&format!("/analytics?domain=s.test&key={key}")).await.body["clicks"],
            4,
            "{key}"
        );
    }
    assert_eq!(service.follow(Method::GET, "/r///", CHROME).await.status, 404);
}

async fn parameters_of_the_short_link_are_handed_on(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/x?a=1&b=2", "key": "k"})).await;
    let answer = service.follow(Method::GET, "/r/k?b=3&c=%C3%A9&qr=1", CHROME).await;
    assert_eq!(answer.headers["location"], "https://example.com/x?a=1&b=3&c=%C3%A9");
    service.backend.flush_clicks().await;
    assert_eq!(service.get("/events").await.body[0]["click"]["trigger"], "qr");
}

async fn of_a_long_destination_the_start_is_recorded(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/x?", "key": "k"})).await;
    let long = format!("/r/k?p={}", "p".repeat(50_000));
    let answer = service.follow(Method::GET, &long, CHROME).await;
    let destination = answer.headers["location"].to_str().unwrap();
    assert_eq!(destination.len(), "https://example.com/x?p=".len() + 50_000);
    service.backend.flush_clicks().await;
    let event = &service.get("/events").await.body[0];
    assert_eq!(event["url"], destination[..2_048]);
    for (url, clicks) in [(&destination[..2_048], 1), (&destination[..2_047], 0)] {
        let answer = service.get(&format!("/analytics?url={}", url.replace('?', "%3F"))).await;
        assert_eq!(answer.body["clicks"], clicks, "{} characters", url.len());
    }
}

async fn a_link_leads_nowhere_once_it_has_expired(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com", "key": "a", "expiresAt": "in 1 hour"})).await;
    let expired = json!({"url": "https://example.com", "key": "b", "expiresAt": "in 1 hour", "expiredUrl": "over.test"});
    service.link(&expired).await;
    assert_eq!(service.follow(Method::GET, "/r/a", CHROME).await.status, 302);
    // A day is over at its end, in UTC.
    let day = json!({"url": "https://example.com", "key": "day", "expiresAt": "2026-03-15"});
    assert_eq!(service.link(&day).await["expiresAt"], "2026-03-15T23:59:59.999Z");
    assert_eq!(service.follow(Method::GET, "/r/day", CHROME).await.status, 302);
    service.clock.advance(std::time::Duration::from_secs(3600));
    assert_eq!(service.follow(Method::GET, "/r/a", CHROME).await.status, 410);
    assert_eq!(service.follow(Method::GET, "/r/b", CHROME).await.headers["location"], "https://over.test");
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

async fn follow_with(service: &Service, headers: &[(&str, impl AsRef<[u8]>)]) -> String {
    let mut request = Request::get("/r/k").header("user-agent", CHROME);
    for (name, value) in headers {
        request = request.header(*name, value.as_ref());
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
    let clicks = ClickRules { location, trusted_hops: 1, ..ClickRules::default() };
    let service = Service::with_settings(database, Settings { clicks, ..settings() }).await;
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
    assert_eq!(events.each("ip"), ["", "192.0.2.0"]);
    let cities = service.get("/analytics?groupBy=cities").await;
    assert_eq!(
        cities.body,
        json!([{"country": "DE", "region": "DE-BE", "city": "München", "clicks": 1, "leads": 0, "sales": 0, "saleAmount": 0}])
    );
}

async fn a_visitor_may_be_counted_once_an_hour(database: Database) {
    let clicks =
        ClickRules { once_per_hour: true, count_bots: true, trusted_hops: 1, ..ClickRules::default() };
    let service = Service::with_settings(database, Settings { clicks, ..settings() }).await;
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

async fn addresses_are_taken_from_trusted_proxies_only(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/", "key": "k"})).await;
    let mut service = Some(service);
    //  trusted proxies, X-Forwarded-For, and the address; the connection's is not known here
    let table: [(u8, &[&[u8]], &str); 18] = [
        (0, &[b"192.0.2.7"], ""),
        (0, &[], ""),
        (1, &[], ""),
        (1, &[b"192.0.2.7"], "192.0.2.7"),
        (1, &[b"6.6.6.6, 192.0.2.7"], "192.0.2.7"),
        (1, &[b"6.6.6.6", b"192.0.2.7"], "192.0.2.7"),
        (1, &[b"6.6.6.6, nonsense"], ""),
        (2, &[b"6.6.6.6, 192.0.2.7, 10.0.0.1"], "192.0.2.7"),
        (2, &[b"6.6.6.6, 192.0.2.7", b"10.0.0.1"], "192.0.2.7"),
        (2, &[b"10.0.0.1"], ""),
        // Gateways hand on what a client wrote before their entry, of any bytes.
        (1, &[b"\xe9, 192.0.2.7"], "192.0.2.7"),
        (1, &[b"\xff\xfe", b"192.0.2.7"], "192.0.2.7"),
        (2, &[b"\xe9, 192.0.2.7, \xe9"], "192.0.2.7"),
        (1, &[b"192.0.2.7, \xe9"], ""),
        // Some add the port.
        (1, &[b"192.0.2.7:1234"], "192.0.2.7"),
        (1, &[b"6.6.6.6, [2001:db8::1]:443"], "2001:db8::1"),
        (1, &[b"[2001:db8::1]"], "2001:db8::1"),
        (1, &[b"2001:db8::1"], "2001:db8::1"),
    ];
    for (trusted_hops, fields, expected) in table {
        let clicks = ClickRules { trusted_hops, ip: KeptAddress::Full, ..ClickRules::default() };
        let running = service.take().unwrap().restart_with(Settings { clicks, ..settings() }).await;
        let headers: Vec<(&str, &[u8])> = fields.iter().map(|field| ("x-forwarded-for", *field)).collect();
        follow_with(&running, &headers).await;
        let event = &running.get("/events?limit=1").await.body[0];
        assert_eq!(event["ip"], expected, "{trusted_hops} {:?}", fields.concat().escape_ascii().to_string());
        running.clock.advance(std::time::Duration::from_secs(1));
        service = Some(running);
    }
}

async fn a_click_that_the_database_refuses_is_lost_and_counted_and_the_others_are_recorded(
    database: Database,
) {
    let location =
        LocationHeaders { city: Some(HeaderName::from_static("x-city")), ..LocationHeaders::default() };
    let clicks = ClickRules { location, ..ClickRules::default() };
    let service = Service::with_settings(database, Settings { clicks, ..settings() }).await;
    service.link(&json!({"url": "https://example.com/", "key": "k"})).await;
    let mut connection = service.database().connect().await;
    let refuse = if service.database().is_sqlite() {
        "CREATE TRIGGER refuse BEFORE INSERT ON clicks WHEN NEW.city = 'poison' BEGIN SELECT RAISE(ABORT, 'refused'); END"
    } else {
        "ALTER TABLE clicks ADD CHECK (city <> 'poison')"
    };
    sqlx::query(refuse).execute(&mut connection).await.unwrap();
    for city in ["a", "b", "poison", "c", "d", "poison", "e"] {
        let request = Request::get("/r/k").header("user-agent", CHROME).header("x-city", city);
        assert_eq!(service.send(request.body(Body::empty()).unwrap()).await.status, 302);
    }
    service.backend.flush_clicks().await;
    assert_eq!(service.get("/analytics").await.body["clicks"], 5);
    let mut cities = service
        .get("/events")
        .await
        .each("city")
        .iter()
        .map(|city| city.as_str().unwrap().to_owned())
        .collect::<Vec<_>>();
    cities.sort();
    assert_eq!(cities, ["a", "b", "c", "d", "e"]);
    let metrics = service.send_internal(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let metrics = metrics.body.as_str().unwrap().to_owned();
    assert!(metrics.contains("weir_backend_clicks_total{outcome=\"lost\"} 2"), "{metrics}");
    assert!(metrics.contains("weir_backend_clicks_total{outcome=\"recorded\"} 5"), "{metrics}");
    // Nothing is left that a process started next would try again.
    let service = service.restart().await;
    assert_eq!(service.get("/analytics").await.body["clicks"], 5);
}

async fn many_long_clicks_are_all_recorded(database: Database) {
    const CLICKS: usize = 400;
    let service = Service::start(database).await;
    let hook = json!({"name": "x", "url": "http://127.0.0.1:9/", "triggers": ["link.clicked"], "linkScope": "workspace"});
    assert_eq!(service.post("/webhooks", &hook).await.status, 201);
    let description = "x".repeat(32_000);
    service.link(&json!({"url": "https://example.com/", "key": "k", "description": description})).await;
    // Each click has a destination of its own, and all together are more than is queued or recorded at once.
    for n in 0..CLICKS {
        let answer =
            service.follow(Method::GET, &format!("/r/k?n={n}&x={}", "x".repeat(60_000)), CHROME).await;
        assert_eq!(answer.status, 302);
    }
    service.backend.flush_clicks().await;
    assert_eq!(service.get("/analytics").await.body["clicks"], CLICKS);
    assert_eq!(service.get("/events?limit=200").await.each("click").len(), 200);
}

async fn keys_that_look_like_others_are_refused(database: Database) {
    let service = Service::start(database).await;
    for key in ["do\u{200b}cs", "do\u{202e}cs", "cafe\u{301}"] {
        let link = json!({"url": "https://example.com/", "key": key});
        let answer = service.post("/links", &link).await;
        assert_eq!(answer.error(), (422, "unprocessable_entity", "custom: key: Invalid key."), "{key:?}");
        let answer = service.post("/links/bulk", &json!([{"url": "https://example.com/"}, link])).await;
        assert_eq!(answer.error(), (422, "unprocessable_entity", "custom: [1].key: Invalid key."), "{key:?}");
    }
}
