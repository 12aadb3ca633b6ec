use serde_json::Value;

use super::*;
use crate::decide::headers::tests::charged;
use crate::decide::outcome::{Outcome, Outcomes};
use crate::quota::Mode;
use crate::request::header_pairs::HeaderPairs;
use crate::time::Timestamp;

fn config(fields: &str) -> Config {
    let json = format!(r#"{{"plans": {{"free": {{"standard": ["60/minute"]}}}}{fields}}}"#);
    Config::from_json(json.as_bytes()).unwrap()
}

/// The reply to a request of the plan `free`, or of a stranger, whose minute is used up.
fn reply(
    config: &Config,
    refusal: Refusal,
    plan: Option<usize>,
    is_grpc: bool,
    origin: Option<&[u8]>,
) -> Reply {
    let quotas = [("60/minute", Mode::Enforced, 60), ("2/second", Mode::Enforced, 1)];
    let decided = Decided {
        answer: None,
        plan,
        subscriber: None,
        class: 0,
        outcomes: Outcomes::from(Outcome::Limited),
        charged: Some(charged(&quotas, 1, &[true, false], Timestamp::from_seconds(83))),
        is_grpc,
        has_origin: origin.is_some(),
        is_refused: true,
    };
    Reply::new(config, &decided, &Answer::Refused(refusal), origin)
}

fn message(reply: &Reply) -> String {
    let body: Value = serde_json::from_str(&reply.body).unwrap();
    body["error"]["message"].as_str().unwrap().to_owned()
}

fn header<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    HeaderPairs::parse(&reply.headers).unwrap().get(name).map(|value| str::from_utf8(value).unwrap())
}

#[test]
fn a_refusal_says_which_quota_and_when_to_retry_in_both_conventions() {
    let free = reply(&config(""), Refusal::Limited, Some(0), false, None);
    assert_eq!((free.status, free.grpc_status, header(&free, "retry-after")), (429, -1, Some("37")));
    assert_eq!(header(&free, "x-envoy-ratelimited"), Some("true"));
    insta::assert_snapshot!(free.body, @r#"{"error":{"code":"rate_limit_exceeded","message":"Too many requests: 60 requests per minute on the free plan; retry in 37 s.","doc_url":"https://www.rfc-editor.org/rfc/rfc6585#section-4"},"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["q-minute"]}"#);
    let rows = [
        ("", None, "60 requests per minute for an address without a known key"),
        (
            r#", "classes": [{"name": "standard", "cost": 2}]"#,
            Some(0),
            "60 units per minute on the free plan",
        ),
        // A stranger pays one unit, whatever the class.
        (
            r#", "classes": [{"name": "standard", "cost": 2}]"#,
            None,
            "60 requests per minute for an address without a known key",
        ),
    ];
    for (fields, plan, expected) in rows {
        let found = message(&reply(&config(fields), Refusal::Limited, plan, false, None));
        assert_eq!(found, format!("Too many requests: {expected}; retry in 37 s."), "{fields}");
    }
    // The subscriber's own limit is not called the plan's.
    let other = Config::from_json(br#"{"plans": {"free": {"standard": ["50/minute"]}}}"#).unwrap();
    let found = message(&reply(&other, Refusal::Limited, Some(0), false, None));
    assert_eq!(found, "Too many requests: 60 requests per minute for this subscriber; retry in 37 s.");
}

#[test]
fn a_401_names_the_schemes_by_which_a_request_may_carry_its_key() {
    let rows = [
        ("", "Bearer"),
        (r#"[{"header": "authorization", "scheme": "basic"}]"#, r#"Basic realm="api""#),
        (r#"[{"header": "x-api-key"}, {"query": "api_key"}]"#, "ApiKey"),
        (r#"[{"metadata": ["jwt", "sub"]}, {"header": "authorization", "scheme": "Bearer"}]"#, "Bearer"),
        (
            r#"[{"header": "authorization", "scheme": "Token"}, {"header": "authorization", "scheme": "Bearer"}, {"query": "k"}]"#,
            "Token, Bearer, ApiKey",
        ),
    ];
    for (sources, expected) in rows {
        let fields =
            if sources.is_empty() { String::new() } else { format!(r#", "key_sources": {sources}"#) };
        for refusal in [Refusal::UnknownKey, Refusal::MissingKey] {
            let reply = reply(&config(&fields), refusal, None, false, None);
            assert_eq!(header(&reply, "www-authenticate"), Some(expected), "{sources}");
        }
        let other = reply(&config(&fields), Refusal::AmbiguousKey, None, false, None);
        assert_eq!(header(&other, "www-authenticate"), None);
    }
}

#[test]
fn every_reply_is_json_that_nobody_caches_with_the_one_code_that_the_published_clients_accept() {
    let rows = [
        (Refusal::NotInPlan, "", 403, "forbidden", None),
        (Refusal::NotInPlan, r#", "not_in_plan": {"status": 402}"#, 402, "forbidden", None),
        (Refusal::NotInPlan, r#", "not_in_plan": {"status": 404}"#, 404, "not_found", None),
        (Refusal::UnknownKey, "", 401, "unauthorized", None),
        (Refusal::MissingKey, "", 401, "unauthorized", None),
        (Refusal::AmbiguousKey, "", 400, "bad_request", None),
        (Refusal::AmbiguousPath, "", 400, "bad_request", None),
        (Refusal::NotReady, "", 503, "internal_server_error", Some("1")),
        (Refusal::CountFailed, "", 503, "internal_server_error", Some("1")),
        (Refusal::NoSubscriber, "", 404, "not_found", None),
        (Refusal::SeveralKeys, "", 422, "unprocessable_entity", None),
        (Refusal::NoDirectoryYet, "", 503, "internal_server_error", Some("1")),
    ];
    for (refusal, fields, status, code, retry_after) in rows {
        let reply = reply(&config(fields), refusal, Some(0), false, None);
        assert_eq!(header(&reply, "content-type"), Some("application/json"), "{reply:?}");
        assert_eq!(header(&reply, "cache-control"), Some("no-store"), "{reply:?}");
        assert_eq!((reply.status, header(&reply, "retry-after")), (status, retry_after), "{reply:?}");
        assert_eq!((reply.grpc_status, header(&reply, "x-envoy-ratelimited")), (-1, None), "{reply:?}");
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((&body["error"]["code"], body.get("type")), (&code.into(), None), "{reply:?}");
    }
    let none = Reply::without_configuration(false);
    assert_eq!((none.status, none.grpc_status, header(&none, "retry-after")), (503, -1, Some("1")));
}

#[test]
fn an_operators_refusal_has_the_header_that_its_status_asks_for() {
    let rows = [
        (Refusal::NoOperator, 401, "www-authenticate", "Bearer"),
        (Refusal::Method { allow: "POST" }, 405, "allow", "POST"),
    ];
    for (refusal, status, name, value) in rows {
        let reply = reply(&config(""), refusal, None, false, None);
        assert_eq!((reply.status, header(&reply, name)), (status, Some(value)), "{name}");
    }
}

#[test]
fn a_grpc_request_alone_gets_a_grpc_status_and_the_plain_message() {
    let limited = reply(&config(""), Refusal::Limited, Some(0), true, None);
    let expected = "Too many requests: 60 requests per minute on the free plan; retry in 37 s.";
    assert_eq!((limited.grpc_status, limited.body.as_str()), (8, expected));
    assert_eq!(header(&limited, "grpc-retry-pushback-ms"), Some("37000"));
    let details = grpc::retry_details(8, expected, 37);
    assert_eq!(header(&limited, "grpc-status-details-bin"), Some(details.as_str()));
    let plain = reply(&config(""), Refusal::Limited, Some(0), false, None);
    for name in ["grpc-retry-pushback-ms", "grpc-status-details-bin"] {
        assert_eq!(header(&plain, name), None);
    }
    // A browser's call with every header that a refusal may have.
    let all = config(r#", "headers": {"allow_origin": ["https://app.example.com"]}"#);
    let all = reply(&all, Refusal::Limited, Some(0), true, Some(b"https://app.example.com"));
    assert_eq!(HeaderPairs::parse(&all.headers).unwrap().iter().count(), 8);
    let rows = [
        (Refusal::NotInPlan, 7),
        (Refusal::UnknownKey, 16),
        (Refusal::MissingKey, 16),
        (Refusal::AmbiguousKey, 3),
        (Refusal::NotReady, 14),
    ];
    let config = config(r#", "not_in_plan": {"status": 402}"#);
    for (refusal, status) in rows {
        let found = reply(&config, refusal, Some(0), true, None);
        assert_eq!(found.grpc_status, status, "{found:?}");
        // A call that cannot succeed later is not invited to come back.
        let pushback = (status == 14).then_some("1000");
        assert_eq!(header(&found, "grpc-retry-pushback-ms"), pushback, "{found:?}");
    }
    assert_eq!(Reply::without_configuration(true).grpc_status, 14);
}

#[test]
fn a_browser_may_read_the_filters_answers_if_its_origin_is_allowed() {
    let origin = Some("https://app.example.com");
    let any = r#", "headers": {"allow_origin": "*"}"#;
    let list = r#", "headers": {"allow_origin": ["https://app.example.com", "https://b.example.com"]}"#;
    let rows = [
        ("", origin, None, None),
        (any, origin, Some("*"), None),
        (any, None, None, None),
        (list, origin, origin, Some("Origin")),
        (list, Some("https://evil.example.com"), None, None),
    ];
    for (fields, origin, allowed, vary) in rows {
        let reply = reply(&config(fields), Refusal::Limited, Some(0), false, origin.map(str::as_bytes));
        let found = (header(&reply, "access-control-allow-origin"), header(&reply, "vary"));
        assert_eq!(found, (allowed, vary), "{fields} {origin:?}");
    }
}
