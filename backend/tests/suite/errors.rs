//! Everything that is refused is refused in the envelope.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request};
use backend::Settings;

use crate::database::{Database, on_both_databases};
use crate::service::{Answer, Service, settings};

type Headers<'a> = &'a [(&'a str, &'a [u8])];

async fn send(
    service: &Service,
    method: Method,
    path: &str,
    headers: Headers<'_>,
    body: impl Into<Body>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    service.send(request.body(body.into()).unwrap()).await
}

on_both_databases! {
    who_brings_no_good_key_is_told_why,
    unknown_routes_methods_and_bodies_are_refused_in_the_envelope,
    a_body_beyond_the_bound_is_413,
    a_body_with_too_many_values_is_422,
    a_request_that_does_not_arrive_in_time_is_408,
    a_body_is_plain_json_with_or_without_a_byte_order_mark,
}

async fn a_body_is_plain_json_with_or_without_a_byte_order_mark(database: Database) {
    let service = Service::start(database).await;
    let key = format!("Bearer {}", service.key());
    let body: &[u8] = br#"{"url": "https://example.com/"}"#;
    //  content coding, what precedes the body, and the status
    for (coding, before, status) in [
        (None, "", 200),
        (None, "\u{feff}", 200),
        (Some("identity"), "", 200),
        (None, "\u{feff}\u{feff}", 400),
        (Some("gzip"), "", 415),
        (Some("identity, gzip"), "", 415),
    ] {
        let mut headers: Vec<(&str, &[u8])> = vec![("authorization", key.as_bytes())];
        headers.extend(coding.map(|coding| ("content-encoding", coding.as_bytes())));
        let body = [before.as_bytes(), body].concat();
        let answer = send(&service, Method::POST, "/links", &headers, body).await;
        assert_eq!(answer.status, status, "{coding:?} {before:?}");
        if status == 415 {
            assert_eq!(answer.error().1, "unsupported_media_type");
        }
    }
}

async fn who_brings_no_good_key_is_told_why(database: Database) {
    let service = Service::start(database).await;
    let unknown = (401, "unauthorized", "Unauthorized: Invalid API key.");
    let table: [(Headers<'_>, _); 7] = [
        (&[], (401, "unauthorized", "Missing Authorization header.")),
        (&[("authorization", b"Bearer weir_nobody")], unknown),
        (&[("authorization", b"bearer weir_nobody")], unknown),
        (&[("authorization", b"Bearer \xff\xfe")], unknown),
        (&[("authorization", b"Bearer ")], unknown),
        (&[("authorization", b"Basic abc")], (400, "bad_request", "")),
        (
            &[("authorization", b"Bearer a"), ("authorization", b"Bearer b")],
            (400, "bad_request", "More than one Authorization header."),
        ),
    ];
    for (headers, (status, code, message)) in table {
        for path in ["/links", "/analytics", "/events", "/webhooks"] {
            let answer = send(&service, Method::GET, path, headers, "").await;
            let error = answer.error();
            assert_eq!((error.0, error.1), (status, code), "{path} {headers:?}");
            assert!(message.is_empty() || error.2 == message, "{path} {headers:?}: {}", error.2);
        }
    }
}

async fn unknown_routes_methods_and_bodies_are_refused_in_the_envelope(database: Database) {
    let service = Service::start(database).await;
    let (_, key) = service.new_workspace("second").await;
    let key = format!("Bearer {key}");
    let key: Headers<'_> = &[("authorization", key.as_bytes())];
    let table = [
        (Method::GET, "/nothing", "", 404, "not_found"),
        (Method::POST, "/track/lead", "{}", 404, "not_found"),
        (Method::POST, "/track/sale", "{}", 404, "not_found"),
        (Method::GET, "/customers", "", 404, "not_found"),
        (Method::PATCH, "/customers/cus_1", "{}", 404, "not_found"),
        (Method::GET, "/partners", "", 404, "not_found"),
        (Method::POST, "/partners/links", "{}", 404, "not_found"),
        (Method::GET, "/partners/analytics", "", 404, "not_found"),
        (Method::GET, "/commissions", "", 404, "not_found"),
        (Method::GET, "/payouts", "", 404, "not_found"),
        (Method::GET, "/bounties/bnty_1/submissions", "", 404, "not_found"),
        (Method::GET, "/discount-codes", "", 404, "not_found"),
        (Method::POST, "/tokens/embed/referrals", "{}", 404, "not_found"),
        (Method::GET, "/domains/status", "", 404, "not_found"),
        (Method::POST, "/domains/register", "{}", 404, "not_found"),
        (Method::DELETE, "/domains/s.test", "", 404, "not_found"),
        (Method::POST, "/domains", "{}", 405, "method_not_allowed"),
        (Method::POST, "/tags", "", 400, "bad_request"),
        (Method::POST, "/folders", "[]", 422, "unprocessable_entity"),
        (Method::DELETE, "/tags/%00", "", 400, "bad_request"),
        (Method::DELETE, "/analytics", "", 405, "method_not_allowed"),
        (Method::POST, "/links", "", 400, "bad_request"),
        (Method::POST, "/links", "{", 400, "bad_request"),
        (Method::POST, "/links", "[]", 422, "unprocessable_entity"),
        (Method::POST, "/links", "null", 422, "unprocessable_entity"),
        (Method::POST, "/links", r#"{"url":null}"#, 422, "unprocessable_entity"),
        (Method::POST, "/links", r#"{"url":"https://e.test","password":"x"}"#, 422, "unprocessable_entity"),
        (Method::POST, "/links", r#"{"url":"javascript:alert(1)"}"#, 422, "unprocessable_entity"),
        (Method::POST, "/links", r#"{"url":"https://e.test","key":"a b"}"#, 422, "unprocessable_entity"),
        (Method::POST, "/links", r#"{"url":"https://e.test","title":"\u0000"}"#, 422, "unprocessable_entity"),
        (Method::POST, "/links", r#"{"url":"https://e.test","domain":"other.test"}"#, 403, "forbidden"),
        (
            Method::POST,
            "/links",
            r#"{"url":"https://e.test","tagIds":["tag_nobody"]}"#,
            422,
            "unprocessable_entity",
        ),
        (Method::GET, "/links/link_nobody", "", 404, "not_found"),
        (Method::GET, "/links/%00", "", 400, "bad_request"),
        (Method::GET, "/links?search=%00", "", 422, "unprocessable_entity"),
        (Method::GET, "/webhooks/%00", "", 400, "bad_request"),
        (Method::GET, "/links/%ff", "", 400, "bad_request"),
    ];
    for (method, path, body, status, code) in table {
        let answer = send(&service, method.clone(), path, key, body).await;
        assert_eq!((answer.error().0, answer.error().1), (status, code), "{method} {path} {body}");
    }
}

async fn a_body_beyond_the_bound_is_413(database: Database) {
    let service = Service::start(database).await;
    let (_, key) = service.new_workspace("second").await;
    let key = format!("Bearer {key}");
    let key: Headers<'_> = &[("authorization", key.as_bytes())];
    for (length, status) in [(backend::MAX_BODY_BYTES, 400), (backend::MAX_BODY_BYTES + 1, 413)] {
        let answer = send(&service, Method::POST, "/links/bulk", key, vec![b' '; length]).await;
        assert_eq!(answer.error().0, status, "{length} bytes");
    }
}

async fn a_body_with_too_many_values_is_422(database: Database) {
    let service = Service::start(database).await;
    let key = format!("Bearer {}", service.key());
    let key: Headers<'_> = &[("authorization", key.as_bytes())];
    let too_many = "too_big: : Too big: expected the body to have <=100000 JSON values";
    // A list of objects: each has two values.
    let objects = |count: usize| format!("[{}]", vec![r#"{"":0}"#; count].join(","));
    for path in ["/links", "/links/bulk", "/tags", "/folders", "/webhooks"] {
        for (body, refused) in [(objects(49_999), false), (objects(50_000), true), (objects(1_000_000), true)]
        {
            let answer = send(&service, Method::POST, path, key, body).await;
            assert_eq!(answer.status, 422, "{path}");
            assert_eq!(answer.error().2 == too_many, refused, "{path}: {}", answer.body);
        }
    }
}

async fn a_request_that_does_not_arrive_in_time_is_408(database: Database) {
    let request_timeout = Duration::from_millis(20);
    let service = Service::with_settings(database, Settings { request_timeout, ..settings() }).await;
    let key = format!("Bearer {}", service.key());
    let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>());
    let answer = send(&service, Method::POST, "/links", &[("authorization", key.as_bytes())], never).await;
    assert_eq!(answer.error(), (408, "request_timeout", "The request took too long."));
}
