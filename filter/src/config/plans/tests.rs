use super::super::cost::CostSource;
use super::super::tests::refused;
use super::Class;

#[test]
fn every_mistake_in_a_plan_or_class_has_its_message_and_its_path() {
    let rows = [
        (
            r#"{"pro": {"standard": ["600/fortnight"]}}"#,
            "[]",
            r#"plans.pro.standard[0]: "600/fortnight": unknown unit, expected second, minute, hour, day, week, month, year, billing_month or billing_year"#,
        ),
        (
            r#"{"pro": {"standard": [{"limit": 0, "window": "minute"}]}}"#,
            "[]",
            "plans.pro.standard[0].limit: 0: expected 1 or more",
        ),
        (
            r#"{"pro": {"standard": [{"limit": 1, "window": "0s"}]}}"#,
            "[]",
            r#"plans.pro.standard[0].window: "0s": a window is 1 s to 366 days long"#,
        ),
        (
            r#"{"pro": {"standard": [{"limit": 1, "window": "366d"}, {"limit": 1, "window": "367d"}]}}"#,
            "[]",
            r#"plans.pro.standard[1].window: "367d": a window of 31708800 s is longer than the longest, 366 days (31622400 s)"#,
        ),
        (
            r#"{"pro": {"standard": [{"limit": 1, "window": "31622401s"}]}}"#,
            "[]",
            r#"plans.pro.standard[0].window: "31622401s": a window of 31622401 s is longer than the longest, 366 days (31622400 s)"#,
        ),
        (r#"{"pro": {"standard": [{"limit": 1}]}}"#, "[]", "plans.pro.standard[0]: missing field `window`"),
        (
            r#"{"pro": {"standard": [{"limit": 1, "window": "day", "burst": 2}]}}"#,
            "[]",
            "plans.pro.standard[0].burst: unknown field, expected limit, window, name, mode, refundable",
        ),
        (
            r#"{"pro": {"standard": [{"limit": 1, "window": "day", "mode": "dry"}]}}"#,
            "[]",
            "plans.pro.standard[0].mode: \"dry\": expected enforced or shadow",
        ),
        (
            r#"{"pro": {"standard": [{"limit": 1, "window": "day", "name": "A"}]}}"#,
            "[]",
            r#"plans.pro.standard[0].name: "A": a name is 1 to 32 of a-z, 0-9, _ and -"#,
        ),
        (
            r#"{"pro": {"standard": [{"in_flight": 0}]}}"#,
            "[]",
            "plans.pro.standard[0].in_flight: 0: expected a whole number from 1 to 65535",
        ),
        (
            r#"{"pro": {"standard": [{"in_flight": 65536}]}}"#,
            "[]",
            "plans.pro.standard[0].in_flight: 65536: expected a whole number from 1 to 65535",
        ),
        (
            r#"{"pro": {"standard": [{"in_flight": 1, "longest": "7s"}]}}"#,
            "[]",
            r#"plans.pro.standard[0].longest: "7s": expected 8 to 86400 s"#,
        ),
        (
            r#"{"pro": {"standard": [{"in_flight": 1, "longest": "25h"}]}}"#,
            "[]",
            r#"plans.pro.standard[0].longest: "25h": expected 8 to 86400 s"#,
        ),
        (
            r#"{"pro": {"standard": [{"in_flight": 1, "window": "minute"}]}}"#,
            "[]",
            "plans.pro.standard[0].window: unknown field, expected in_flight, longest, name, mode",
        ),
        (
            r#"{"pro": {"standard": [{"in_flight": 2}, {"in_flight": 1}]}}"#,
            "[]",
            "plans.pro.standard[1]: another quota of this class has the same window and mode; keep the lower limit",
        ),
        (
            r#"{"pro": {"standard": [7]}}"#,
            "[]",
            r#"plans.pro.standard[0]: 7: expected a quota such as "60/minute", {"limit": 60, "window": "90s"}, {"rate": "10/second", "burst": 20} or {"in_flight": 10}"#,
        ),
        (
            r#"{"pro": {"standard": "60/minute"}}"#,
            "[]",
            r#"plans.pro.standard: "60/minute": expected a list of quotas such as ["60/minute"], or "unlimited""#,
        ),
        (r#"{"pro": {"standard": []}}"#, "[]", "plans.pro.standard: must not be empty"),
        (
            r#"{"pro": {"standard": ["1/second", "2/second"]}}"#,
            "[]",
            r#"plans.pro.standard[1]: another quota of this class has the same window and mode; keep the lower limit"#,
        ),
        (
            r#"{"pro": {"standard": ["1/minute", {"limit": 2, "window": "60s", "mode": "shadow"}]}}"#,
            "[]",
            r#"plans.pro.standard[1]: another quota of this class has the same name, "standard-minute", which this one gets by default; give this one a name"#,
        ),
        (
            r#"{"pro": {"standard": ["1/minute", {"limit": 2, "window": "1h", "name": "standard-minute"}]}}"#,
            "[]",
            r#"plans.pro.standard[1].name: "standard-minute": another quota of this class has the same name"#,
        ),
        (
            r#"{"pro": {"standard": ["1/minute", {"limit": 2, "window": "60s", "name": "b"}]}}"#,
            "[]",
            "plans.pro.standard[1]: another quota of this class has the same window and mode; keep the lower limit",
        ),
        (
            r#"{"pro": {"standard": ["1/second", "1/minute", "1/hour", "1/day", "1/month", {"limit": 1, "window": "2s"}, {"limit": 1, "window": "3s"}, {"limit": 1, "window": "4s"}, {"limit": 1, "window": "5s"}]}}"#,
            "[]",
            "plans.pro.standard: 9 quotas, at most 8 are possible",
        ),
        (r#"{"pro": {"bulk": ["1/second"]}}"#, "[]", r#"plans.pro.bulk: unknown class, expected standard"#),
        (
            r#"{"pro": {"standard": ["1/second"], "standard": ["2/second"]}}"#,
            "[]",
            r#"plans.pro.standard: given twice"#,
        ),
        (r#"{"pro": {}, "pro": {}}"#, "[]", r#"plans.pro: given twice"#),
        (
            r#"{"pro plan": {}}"#,
            "[]",
            r#"plans: "pro plan": a name is 1 to 64 of A-Z, a-z, 0-9, _ and -, and not "none", which is the plan of strangers"#,
        ),
        (
            r#"{"none": {}}"#,
            "[]",
            r#"plans: "none": a name is 1 to 64 of A-Z, a-z, 0-9, _ and -, and not "none", which is the plan of strangers"#,
        ),
        (
            r#"{"pro": {}}"#,
            r#"[{"name": "a.b"}]"#,
            r#"classes[0].name: "a.b": a name is 1 to 32 of a-z, 0-9, _ and -"#,
        ),
        (r#"{"pro": {}}"#, r#"[{"name": "a"}, {"name": "a"}]"#, "classes[1].name: given twice"),
        (
            r#"{"pro": {}}"#,
            r#"[{"name": "a", "cost": 0}]"#,
            "classes[0].cost: 0: expected 1 or more; list requests that are free of charge in exempt",
        ),
        (
            r#"{"pro": {}}"#,
            r#"[{"name": "a", "match": [{"path": "/x?y"}]}]"#,
            r#"classes[0].match[0].path: "/x?y": not in the normal form that requests' paths are compared in; write "/x""#,
        ),
        (
            r#"{"pro": {"a": ["5/second"]}}"#,
            r#"[{"name": "a", "cost": 6}]"#,
            r#"plans.pro.a[0]: a request of class "a" costs 6, more than this limit: none could ever pass"#,
        ),
        (
            r#"{"pro": {"a": ["5/second"]}}"#,
            r#"[{"name": "a", "cost": {"reserve": 6, "actual": {"response_header": "x-cost"}}}]"#,
            r#"plans.pro.a[0]: a request of class "a" reserves 6 units (its cost.reserve), more than this limit: none could ever pass"#,
        ),
        (
            r#"{"pro": {"a": ["5/minute", {"limit": 9, "window": "60s", "name": "b", "mode": "shadow", "refundable": false}]}}"#,
            r#"[{"name": "a"}]"#,
            "plans.pro.a[1]: another quota of this class has the same window, so they share one count; give both the same value of refundable",
        ),
    ];
    for (plans, classes, message) in rows {
        assert_eq!(
            refused(&format!(r#"{{"plans": {plans}, "classes": {classes}}}"#)),
            message,
            "{plans} {classes}"
        );
    }
}

#[test]
fn a_cost_after_the_response_is_refused_with_its_mistake() {
    let cost = r#"a whole number of units, or {"reserve": 1000, "actual": {"response_header": "x-cost"}}"#;
    let status = r#"a status from 200 to 599, or "2xx", "3xx", "4xx" or "5xx""#;
    let rows = [
        (r#""cost": -1"#, format!("cost: -1: expected {cost}")),
        (r#""cost": 1.5"#, format!("cost: 1.5: expected {cost}")),
        (r#""cost": 4294967296"#, format!("cost: 4294967296: expected {cost}")),
        (r#""cost": "6""#, format!(r#"cost: "6": expected {cost}"#)),
        (r#""cost": {}"#, "cost: missing field `reserve`".to_owned()),
        (r#""cost": {"reserve": 1}"#, "cost: missing field `actual`".to_owned()),
        (r#""cost": {"reserve": 1, "actual": {}}"#, "cost.actual: give response_header or metadata".to_owned()),
        (
            r#""cost": {"reserve": 1, "actual": {"response_header": "x", "metadata": ["a", "b"]}}"#,
            "cost.actual: give either response_header or metadata, not both".to_owned(),
        ),
        (
            r#""cost": {"reserve": 1, "actual": {"response_header": ":status"}}"#,
            r#"cost.actual.response_header: ":status": expected the name of a header (RFC 9110, section 5.1)"#.to_owned(),
        ),
        (
            r#""cost": {"reserve": 1, "actual": {"metadata": ["a"]}}"#,
            r#"cost.actual.metadata: expected the path of a value, for example ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]"#.to_owned(),
        ),
        (
            r#""cost": {"reserve": 0, "actual": {"response_header": "x"}}"#,
            "cost.reserve: 0: expected 1 or more".to_owned(),
        ),
        (r#""cost": {"reserve": 1, "actual": {"header": "x"}}"#, "cost.actual.header: unknown field, expected response_header, metadata".to_owned()),
        (r#""refund": {}"#, "refund: give statuses, grpc or both".to_owned()),
        (r#""refund": {"statuses": []}"#, "refund.statuses: must not be empty".to_owned()),
        (r#""refund": {"grpc": []}"#, "refund.grpc: must not be empty".to_owned()),
        (r#""refund": {"grpc": ["UNAVAILABLE", "CANCELED"]}"#, r#"refund.grpc[1]: "CANCELED": unknown gRPC status code, did you mean CANCELLED?"#.to_owned()),
        (r#""refund": {"grpc": ["5xx"]}"#, r#"refund.grpc[0]: "5xx": unknown gRPC status code, expected OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED or 12 others"#.to_owned()),
        (r#""refund": {"grpc": [14]}"#, r#"refund.grpc[0]: 14: expected the name of a gRPC status code, such as "UNAVAILABLE""#.to_owned()),
        (r#""refund": {"statuses": [500, 199]}"#, format!("refund.statuses[1]: 199: expected {status}")),
        (r#""refund": {"statuses": [600]}"#, format!("refund.statuses[0]: 600: expected {status}")),
        (r#""refund": {"statuses": [70000]}"#, format!("refund.statuses[0]: 70000: expected {status}")),
        (r#""refund": {"statuses": ["1xx"]}"#, format!(r#"refund.statuses[0]: "1xx": expected {status}"#)),
        (r#""refund": {"statuses": ["5XX"]}"#, format!(r#"refund.statuses[0]: "5XX": expected {status}"#)),
    ];
    for (fields, message) in rows {
        let json = format!(r#"{{"plans": {{"pro": {{}}}}, "classes": [{{"name": "a", {fields}}}]}}"#);
        assert_eq!(refused(&json), format!("classes[0].{message}"), "{fields}");
    }
}

#[test]
fn a_class_has_the_statuses_and_the_cost_that_are_given() {
    let json = br#"{"plans": {"pro": {}}, "classes": [
        {"name": "a", "cost": {"reserve": 9, "actual": {"response_header": "X-Cost"}}, "refund": {"statuses": ["5xx", 408]}},
        {"name": "b", "cost": {"reserve": 1, "actual": {"metadata": ["m", "n"]}}},
        {"name": "c", "refund": {"statuses": ["2xx", "3xx", "4xx"]}},
        {"name": "d", "cost": 7}
    ]}"#;
    let config = crate::config::Config::from_json(json).unwrap();
    assert!(config.settles());
    let [a, b, c, d, _] = config.catalog.classes.as_slice() else { panic!("{:?}", config.catalog.classes) };
    assert_eq!((a.units(), &a.cost.actual), (9, &Some(CostSource::ResponseHeader("x-cost".to_owned()))));
    assert_eq!((b.units(), &b.cost.actual), (1, &Some(CostSource::Metadata(b"metadata\0m\0n".to_vec()))));
    assert_eq!((c.units(), &c.cost.actual, d.units(), &d.cost.actual), (1, &None, 7, &None));
    assert_eq!([a, b, c, d].map(Class::is_settled), [true, true, true, false]);
    let refunded = |class: &Class| {
        [199, 200, 299, 300, 407, 408, 409, 499, 500, 599, 600]
            .into_iter()
            .filter(|status| class.refund.as_ref().is_some_and(|refund| refund.contains(*status)))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        [a, b, c, d].map(refunded),
        [vec![408, 500, 599], vec![], vec![200, 299, 300, 407, 408, 409, 499], vec![]]
    );
}

#[test]
fn a_refund_is_judged_by_the_status_of_its_kind_or_by_what_envoy_maps_it_to() {
    let refund = |json: &str| {
        let json = format!(r#"{{"plans": {{"pro": {{}}}}, "classes": [{{"name": "a", "refund": {json}}}]}}"#);
        crate::config::Config::from_json(json.as_bytes()).unwrap().catalog.classes[0].refund.clone().unwrap()
    };
    //   given                                               refunded statuses           refunded codes
    let rows: [(&str, &[u16], &[u32]); 5] = [
        (r#"{"statuses": ["5xx"]}"#, &[500, 503, 504], &[2, 4, 12, 13, 14, 15]),
        (r#"{"statuses": [503, 429]}"#, &[429, 503], &[8, 14]),
        (r#"{"grpc": ["UNAVAILABLE"]}"#, &[429, 503, 504], &[14]),
        (r#"{"grpc": ["OK", "UNKNOWN"]}"#, &[500], &[0, 2]),
        (r#"{"statuses": [200], "grpc": ["INTERNAL"]}"#, &[200], &[13]),
    ];
    for (json, statuses, codes) in rows {
        let refund = refund(json);
        let given = [200, 429, 500, 503, 504].into_iter().filter(|status| refund.contains(*status));
        assert_eq!(given.collect::<Vec<_>>(), statuses, "{json}");
        assert_eq!((0..17).filter(|code| refund.contains_grpc(*code)).collect::<Vec<_>>(), codes, "{json}");
    }
    let none = super::Refund::default();
    assert!(!none.contains(200) && !none.contains_grpc(0) && !none.contains_grpc(14));
}
