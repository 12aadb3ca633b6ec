//! Requests and items that are refused.

use serde_json::{Value, json};

use crate::process::Process;
use crate::statement::{ask, give_back, now, shares, with, without};

#[tokio::test]
async fn a_request_that_is_refused_as_a_whole_says_why() {
    let ledger = Process::start(&[]).await;
    let large = format!(
        "{{\"gateway\": \"00000000000000000000000000000001\", \"now\": 1, \"items\": [{}]}}",
        " ".repeat(256 * 1024)
    );
    let item = ask(1, 1, 0, 1, 1, 600);
    let many = shares(1, &vec![json!({}); 1_001]).to_string();
    let most = shares(1, &vec![json!({}); 1_000]).to_string();
    let named = |gateway: Value| json!({ "gateway": gateway, "now": 1, "items": [item] }).to_string();
    let good = named(json!("0123456789abcdef0123456789abcdef"));
    let (empty, short, long) = (named(json!("")), named(json!("0123")), named(json!("0".repeat(33))));
    let (number, upper) = (named(json!(1)), named(json!("0123456789ABCDEF0123456789ABCDEF")));
    //  method, path, body, status, code
    for (method, path, body, status, code) in [
        ("POST", "/v1/shares", "{", 400, "bad_request"),
        ("POST", "/v1/shares", "", 400, "bad_request"),
        ("POST", "/v1/shares", "[]", 400, "bad_request"),
        (
            "POST",
            "/v1/shares",
            "{\"gateway\": \"00000000000000000000000000000001\", \"now\": 1}",
            400,
            "bad_request",
        ),
        (
            "POST",
            "/v1/shares",
            "{\"gateway\": \"00000000000000000000000000000001\", \"now\": -1, \"items\": []}",
            400,
            "bad_request",
        ),
        (
            "POST",
            "/v1/shares",
            "{\"gateway\": \"00000000000000000000000000000001\", \"now\": 1, \"items\": [}",
            400,
            "bad_request",
        ),
        ("POST", "/v1/shares", &empty, 400, "bad_request"),
        ("POST", "/v1/shares", &short, 400, "bad_request"),
        ("POST", "/v1/shares", &long, 400, "bad_request"),
        ("POST", "/v1/shares", &number, 400, "bad_request"),
        ("POST", "/v1/shares", &upper, 400, "bad_request"),
        ("POST", "/v1/shares", &good, 200, ""),
        ("POST", "/v1/shares", &large, 413, "too_large"),
        ("POST", "/v1/shares", &many, 413, "too_large"),
        ("POST", "/v1/shares", &most, 200, ""),
        ("GET", "/v1/shares", "", 405, "method_not_allowed"),
        ("POST", "/healthz", "", 405, "method_not_allowed"),
        ("POST", "/v2/shares", "", 404, "not_found"),
        ("GET", "/", "", 404, "not_found"),
    ] {
        let answer = ledger.send(method, path, &[], body).await;
        assert_eq!(
            answer.status.as_u16(),
            status,
            "{method} {path} {}: {answer:?}",
            &body[..body.len().min(80)]
        );
        if status != 200 {
            let error = &answer.json()["error"];
            assert_eq!(error["code"], code, "{answer:?}");
            assert!(!error["message"].as_str().unwrap().is_empty(), "{answer:?}");
            assert_eq!(answer.headers["content-type"], "application/json");
        }
    }
}

#[tokio::test]
async fn an_item_that_is_refused_says_which_field_is_wrong_and_the_others_count() {
    let ledger = Process::start(&[]).await;
    let item = || ask(1, 1, 0, 1, 1, 600);
    let now = now() / 1_000;
    //  what differs from a good item, the code and the field of its error
    let table: Vec<(Value, &str, Option<&str>)> = vec![
        (json!({ "counter": "0123" }), "invalid", Some("counter")),
        (json!({ "counter": "0123456789ABCDEF0123456789ABCDEF" }), "invalid", Some("counter")),
        (json!({ "counter": 1 }), "invalid", Some("counter")),
        (json!({ "window": -1 }), "invalid", Some("window")),
        (json!({ "window": 4_294_967_296_u64 }), "invalid", Some("window")),
        (json!({ "limit": 4_294_967_296_u64 }), "invalid", Some("limit")),
        (json!({ "generation": 1.5 }), "invalid", Some("generation")),
        (json!({ "seq": 0 }), "invalid", Some("seq")),
        (json!({ "seq": "1" }), "invalid", Some("seq")),
        (json!({ "used": 4_294_967_296_u64 }), "invalid", Some("used")),
        (json!({ "need": -1 }), "invalid", Some("need")),
        (json!({ "cost": [] }), "invalid", Some("cost")),
        (json!({ "hold": true }), "invalid", Some("hold")),
        (json!({ "keep": -1 }), "invalid", Some("keep")),
        (json!({ "keep": 1 }), "invalid", Some("need")),
        (json!({ "reset": 9_007_199_254_740_992_u64 }), "invalid", Some("reset")),
        (json!({ "reset": 9_007_199_254_740_991_u64 }), "", None),
        (json!({ "ends": 9_007_199_254_740_992_u64 }), "invalid", Some("ends")),
        (json!({ "begins": now, "ends": now }), "invalid", Some("ends")),
        (json!({ "begins": now - 366 * 86_400, "ends": now + 1 }), "invalid", Some("ends")),
        (json!({ "begins": now + 62, "ends": now + 100 }), "clock", None),
        (json!({ "begins": now + 50, "ends": now + 100 }), "", None),
        (json!({ "begins": now - 100, "ends": now - 62 }), "clock", None),
        (json!({ "begins": now - 100, "ends": now - 50 }), "", None),
    ];
    let mut items: Vec<Value> = table
        .iter()
        .enumerate()
        .map(|(index, (fields, ..))| {
            let fields = if fields.get("counter").is_some() {
                fields.clone()
            } else {
                with(fields.clone(), &json!({ "counter": crate::statement::hex(100 + index as u32) }))
            };
            with(item(), &fields)
        })
        .collect();
    items.extend(
        [
            "counter",
            "window",
            "begins",
            "ends",
            "limit",
            "generation",
            "seq",
            "used",
            "reset",
            "need",
            "cost",
            "hold",
        ]
        .map(|field| without(item(), field)),
    );
    items.extend([json!(null), json!(1), json!([])]);
    items.extend([ask(2, 1, 0, 1, 1, 600), give_back(3, 1, 0, 0)]);
    let answers = ledger.state(1, &items).await;
    assert_eq!(answers.len(), items.len());
    let mut answers = answers.iter();
    for ((fields, code, field), answer) in table.iter().zip(&mut answers) {
        if code.is_empty() {
            assert_eq!(answer["share"], 1, "{fields}: {answer}");
        } else {
            assert_eq!(
                (answer["error"]["code"].as_str(), answer["error"]["field"].as_str()),
                (Some(*code), *field),
                "{fields}: {answer}"
            );
            assert!(answer["error"]["message"].is_string(), "{answer}");
        }
    }
    for field in [
        "counter",
        "window",
        "begins",
        "ends",
        "limit",
        "generation",
        "seq",
        "used",
        "reset",
        "need",
        "cost",
        "hold",
    ] {
        assert_eq!(answers.next().unwrap()["error"]["field"], field);
    }
    for item in ["null", "1", "[]"] {
        assert_eq!(answers.next().unwrap()["error"]["code"], "invalid", "{item}");
    }
    assert_eq!(*answers.next().unwrap(), json!({ "share": 1, "others": 0, "reset": 0 }));
    assert_eq!(*answers.next().unwrap(), json!({ "share": 0, "others": 0, "reset": 0 }));
}
