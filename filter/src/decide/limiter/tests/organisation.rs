use super::*;
use crate::decide::settlement::Moment;

const MINUTELY: &str = r#"["3/minute"]"#;

/// Two keys of an organisation. Each has `granted`, such as 3 requests a minute; together they have 4 an hour.
fn filter(granted: &str, more: &str) -> Filter {
    let subscriber = |id: &str| {
        let key = digest(id.as_bytes()).map(|byte| format!("{byte:02x}")).concat();
        format!(
            r#"{{"id": "{id}", "plan": "pro", "keys": ["sha256:{key}"],
                "parent": {{"organisation": "acme", "limits": {{"standard": ["4/hour"]}}}}}}"#
        )
    };
    let json = format!(
        r#"{{"plans": {{"pro": {{"standard": {granted}}}}}, "subscribers": [{}, {}]{more}}}"#,
        subscriber("a"),
        subscriber("b")
    );
    Filter {
        limiter: Limiter::new(Arc::new(Config::from_json(json.as_bytes()).unwrap())),
        ..Filter::with("")
    }
}

#[test]
fn a_request_is_charged_to_its_key_and_to_the_organisation_or_to_neither() {
    let mut filter = filter(MINUTELY, "");
    let steps = [
        // key, status (0: passed on), used of the key and of the organisation
        ("a", 0, vec![1, 1]),
        ("a", 0, vec![2, 2]),
        ("a", 0, vec![3, 3]),
        // Its own quota refuses, and the organisation is not asked.
        ("a", 429, vec![3]),
        ("b", 0, vec![1, 4]),
        // The organisation's refuses, and the key gets its unit back.
        ("b", 429, vec![1, 4]),
        ("b", 429, vec![1, 4]),
    ];
    for (step, (key, expected, used)) in steps.into_iter().enumerate() {
        let sent = filter.send("GET", "/links", &format!("Bearer {key}"));
        let report = sent.charged.as_ref().unwrap();
        let found: Vec<_> = report.standings.iter().map(|standing| standing.used).collect();
        assert_eq!((status(&sent), found), (expected, used), "step {step}");
    }
    let refused = filter.send("GET", "/links", "Bearer b").reply.unwrap();
    assert!(refused.body.contains("4 requests per hour for the organisation"), "{}", refused.body);
    assert!(refused.body.contains(r#""violated-policies":["organisation"]"#), "{}", refused.body);
    let given_back = filter.limiter.drain_events(&mut filter.host)[Event::OrganisationGivenBack as usize];
    assert_eq!(given_back, 3);
}

#[test]
fn a_usage_report_has_the_quotas_of_both() {
    let mut filter = filter(MINUTELY, r#", "usage_path": "/quota""#);
    filter.send("GET", "/links", "Bearer a");
    filter.send("GET", "/links", "Bearer b");
    let body = filter.send("GET", "/quota", "Bearer b").reply.unwrap().body;
    let usage: serde_json::Value = serde_json::from_str(&body).unwrap();
    let left: Vec<_> = usage["classes"][0]["quotas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|quota| (quota["name"].as_str().unwrap(), quota["remaining"].as_u64().unwrap()))
        .collect();
    assert_eq!(left, [("standard", 2), ("organisation", 2)]);
}

#[test]
fn a_refund_gives_back_to_both() {
    let refunds = r#", "classes": [{"name": "standard", "refund": {"statuses": ["5xx"]}}]"#;
    let mut filter = filter(MINUTELY, refunds);
    for _ in 0..9 {
        let sent = filter.send("GET", "/links", "Bearer a");
        assert_eq!(status(&sent), 0);
        let mut charged = sent.charged.unwrap();
        let headers = serialize(&[(":status", b"503")]);
        filter.limiter.settle(&mut filter.host, &mut charged, Moment::Headers(&headers));
        assert!(!charged.is_open);
        assert_eq!(charged.standings.iter().map(|standing| standing.used).collect::<Vec<_>>(), [0, 0]);
    }
}

#[test]
fn a_key_without_quotas_is_limited_by_its_organisation_alone() {
    let mut filter = filter(r#""unlimited""#, "");
    let steps = [(0, vec![1]), (0, vec![2]), (0, vec![3]), (0, vec![4]), (429, vec![4])];
    for (step, (expected, used)) in steps.into_iter().enumerate() {
        let sent = filter.send("GET", "/links", "Bearer a");
        let report = sent.charged.as_ref().unwrap();
        let found: Vec<_> = report.standings.iter().map(|standing| standing.used).collect();
        assert_eq!((status(&sent), found), (expected, used), "step {step}");
    }
    assert!(
        filter.limiter.drain_events(&mut filter.host).iter().all(|sum| *sum == 0),
        "there was nothing to give back"
    );
}
