use SettlementEvent::{Failed, GivenBack, Refunded, UnknownCost};

use super::*;
use crate::config::roster::{ParentTerms, RosterBuilder, Terms};

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
        let verdict = filter.send("GET", "/links", &format!("Bearer {key}"));
        let report = verdict.report.as_ref().unwrap();
        let found: Vec<_> = report.standings.iter().map(|standing| standing.used).collect();
        assert_eq!((status(&verdict), found), (expected, used), "step {step}");
    }
    let refused = filter.send("GET", "/links", "Bearer b").reply.unwrap();
    assert!(refused.message.contains("4 requests per hour for the organisation"), "{}", refused.message);
    assert!(refused.body.contains(r#""violated-policies":["organisation"]"#), "{}", refused.body);
    let given_back = filter.limiter.drain_settlements()[GivenBack as usize];
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
        let mut verdict = filter.send("GET", "/links", "Bearer a");
        assert_eq!(status(&verdict), 0);
        let (mut report, open) = (verdict.report.take().unwrap(), verdict.reservation.take().unwrap());
        let headers = serialize(&[(":status", b"503")]);
        assert!(filter.limiter.settle_by_response(&mut filter.host, open, &headers, &mut report).is_none());
        assert_eq!(report.standings.iter().map(|standing| standing.used).collect::<Vec<_>>(), [0, 0]);
    }
}

#[test]
fn a_key_without_quotas_is_limited_by_its_organisation_alone() {
    let mut filter = filter(r#""unlimited""#, "");
    let steps = [(0, vec![1]), (0, vec![2]), (0, vec![3]), (0, vec![4]), (429, vec![4])];
    for (step, (expected, used)) in steps.into_iter().enumerate() {
        let verdict = filter.send("GET", "/links", "Bearer a");
        let report = verdict.report.as_ref().unwrap();
        let found: Vec<_> = report.standings.iter().map(|standing| standing.used).collect();
        assert_eq!((status(&verdict), found), (expected, used), "step {step}");
    }
    assert_eq!(filter.limiter.drain_settlements(), [0; 4], "there was nothing to give back");
}

#[test]
fn settlements_and_organisations_have_metrics_where_there_are_any() {
    let seen = |limiter: &Limiter| {
        SettlementEvent::ALL.into_iter().filter(|event| limiter.may_see(*event)).collect::<Vec<_>>()
    };
    assert_eq!(seen(&filter(MINUTELY, "").limiter), [Failed, GivenBack]);
    let mut filter = Filter::with(r#""directory": {"cluster": "keys", "path": "/keys"}"#);
    let mut answer = |parent: Option<&str>| {
        let mut roster = RosterBuilder::default();
        let parent = parent.map(|id| ParentTerms { organisation: id.to_owned(), limits: Vec::new() });
        let terms = Terms { plan: "pro".to_owned(), limits: Vec::new(), parent };
        roster.add(digest(b"new"), "new", terms).unwrap();
        let directory = Subscribers::new(Arc::new(roster.build().0), &filter.limiter.config().catalog);
        filter.limiter.set_directory(Some(Arc::new(directory)));
        seen(&filter.limiter)
    };
    assert_eq!(answer(None), []);
    assert_eq!(answer(Some("acme")), [Failed, GivenBack]);
    let refunds = r#", "classes": [{"name": "chat", "refund": {"statuses": [500]}}]"#;
    let settled = Config::from_json(
        format!(r#"{{"plans": {{"pro": {{"standard": {MINUTELY}}}}}{refunds}}}"#).as_bytes(),
    );
    assert_eq!(seen(&Limiter::new(Arc::new(settled.unwrap()))), [Refunded, UnknownCost, Failed]);
}
