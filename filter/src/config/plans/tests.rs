use super::super::tests::refused;

#[test]
fn every_mistake_in_a_plan_or_class_has_its_message_and_its_path() {
    let rows = [
        (
            r#"{"pro": {"standard": ["600/fortnight"]}}"#,
            "[]",
            r#"plans.pro.standard[0]: "600/fortnight": unknown unit, expected second, minute, hour, day or month"#,
        ),
        (
            r#"{"pro": {"standard": [{"limit": 0, "window": "minute"}]}}"#,
            "[]",
            "plans.pro.standard[0].limit: 0: expected a nonzero u32",
        ),
        (
            r#"{"pro": {"standard": [{"limit": 1, "window": "0s"}]}}"#,
            "[]",
            r#"plans.pro.standard[0].window: "0s": a window is 1 to 4294967295 seconds long"#,
        ),
        (r#"{"pro": {"standard": [{"limit": 1}]}}"#, "[]", "plans.pro.standard[0]: missing field `window`"),
        (
            r#"{"pro": {"standard": [{"limit": 1, "window": "day", "burst": 2}]}}"#,
            "[]",
            "plans.pro.standard[0].burst: unknown field, expected one of limit, window, name, mode",
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
            r#"{"pro": {"standard": [7]}}"#,
            "[]",
            r#"plans.pro.standard[0]: 7: expected a quota such as "60/minute" or {"limit": 60, "window": "90s"}, found a number"#,
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
            r#"plans.pro.standard[1].name: "standard-second": given twice"#,
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
        (r#"{"pro": {}}"#, r#"[{"name": "a"}, {"name": "a"}]"#, r#"classes[1].name: "a": given twice"#),
        (
            r#"{"pro": {}}"#,
            r#"[{"name": "a", "cost": 0}]"#,
            "classes[0].cost: 0: out of range, expected 1 or more; list requests that are free of charge in exempt",
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
    ];
    for (plans, classes, message) in rows {
        assert_eq!(
            refused(&format!(r#"{{"plans": {plans}, "classes": {classes}}}"#)),
            message,
            "{plans} {classes}"
        );
    }
}
