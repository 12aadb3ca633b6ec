use super::*;
use crate::decide::reply::Reply;
use crate::request::header_pairs::serialize;
use crate::time::Timestamp;

mod filter;
mod fleet;
mod operators;
mod organisation;
mod settlement;
mod usage;

use self::filter::{Filter, Sent, status};

#[test]
fn a_request_takes_the_way_of_its_key_and_class() {
    let mut filter = Filter::with("");
    use Outcome::{Allowed, Exempt, Limited, MissingKey, NotInPlan, UnknownKey};
    let steps = [
        // status 0: passed on
        ("GET", "/links", "Bearer free-1", 0, &[Allowed][..]),
        ("GET", "/links", "Bearer free-1", 0, &[Allowed]),
        ("GET", "/links", "Bearer free-1", 429, &[Limited]),
        ("GET", "/links", "Bearer free-2", 0, &[Allowed]),
        ("GET", "/%61nalytics/", "Bearer free-2", 403, &[NotInPlan]),
        ("GET", "/analytics", "Bearer pro", 0, &[Allowed]),
        ("GET", "/analytics", "Bearer pro", 429, &[Limited]),
        ("POST", "/analytics", "Bearer pro", 0, &[Allowed]),
        ("OPTIONS", "/links", "Bearer free-1", 0, &[Exempt]),
        ("GET", "/r/abc/", "", 0, &[Exempt]),
        ("GET", "/links", "Bearer nobody", 0, &[UnknownKey]),
        ("GET", "/links", "", 0, &[MissingKey]),
        ("GET", "/links", "Basic free-1", 0, &[MissingKey]),
        ("GET", "/links", "Bearer free-1, Bearer pro", 400, &[UnknownKey]),
    ];
    for (method, path, authorization, expected, outcomes) in steps {
        let sent = filter.send(method, path, authorization);
        assert_eq!(
            (status(&sent), sent.outcomes.as_slice()),
            (expected, outcomes),
            "{method} {path} {authorization}"
        );
        let counted = !matches!(outcomes, [Exempt | NotInPlan]) && expected != 400;
        assert_eq!(sent.charged.is_some(), counted, "{method} {path} {authorization}");
    }
    assert!(filter.host.logged.iter().all(|line| !line.contains("free-1")), "{:?}", filter.host.logged);
}

#[test]
fn a_path_that_upstreams_read_differently_is_refused() {
    let rows = [
        "//analytics",
        "/x/../analytics",
        "/analytics;a=b",
        "/analytics%2F",
        "/x/../r/abc",
        "/links/ext_a/..;/..;/r",
        "/links/ext_a/%2E.;/%2E.;/r",
        "/links/a/..;x=1/../r/b",
        "/links/%2e%2e;/r",
        "/links/a;/../../r",
        "/links/.;/../r/x",
        "/links/../quota",
    ];
    let usage = r#""usage_path": "/quota""#;
    for path in rows {
        let mut filter = Filter::with(usage);
        let sent = filter.send("GET", path, "Bearer pro");
        let reply = sent.reply.as_ref().unwrap_or_else(|| panic!("{path} passes"));
        assert_eq!((reply.status, reply.details), (400, "weir_ambiguous_path"), "{path}");
        assert_eq!(sent.outcomes.as_slice(), [Outcome::AmbiguousPath], "{path}");

        let mut filter = Filter::with(&format!(r#"{usage}, "enforcement": "shadow""#));
        let (standard, counted) = (filter.limiter.config().catalog.default_class, Some(0));
        for outcome in [Outcome::Allowed, Outcome::Allowed, Outcome::ShadowLimited] {
            let sent = filter.send("GET", path, "Bearer free-1");
            assert_eq!((sent.class, sent.plan, sent.reply), (standard, counted, None), "{path}");
            assert_eq!(sent.outcomes.as_slice(), [outcome, Outcome::AmbiguousPath], "{path}");
        }
    }
    let mut filter = Filter::with("");
    assert_eq!(filter.send("OPTIONS", "//analytics", "").outcomes.as_slice(), [Outcome::Exempt]);
    assert_eq!(filter.send("GET", "/links//x/..;/y", "Bearer pro").outcomes.as_slice(), [Outcome::Allowed]);
}

#[test]
fn keys_of_a_subscriber_share_a_quota_if_it_is_counted_by_subscriber() {
    let mut filter = Filter::with(r#""count_by": "subscriber""#);
    let statuses = ["free-1", "free-2", "free-1", "free-2"]
        .map(|key| status(&filter.send("GET", "/", &format!("Bearer {key}"))));
    assert_eq!(statuses, [0, 0, 429, 429]);
}

#[test]
fn strangers_are_counted_by_address_whatever_they_send() {
    let mut filter = Filter::with(
        r#""unknown_key": {"action": "limit", "quotas": ["2/minute"]}, "missing_key": {"action": "limit", "quotas": ["2/minute"]}"#,
    );
    let steps = [
        ("192.0.2.1:1", "Bearer x", 0),
        ("192.0.2.1:2", "", 0),
        ("192.0.2.1:3", "Bearer y", 429),
        ("192.0.2.1:3", "", 429),
        ("192.0.2.2:1", "Bearer x", 0),
        ("[2001:db8::1]:1", "", 0),
        ("[2001:db8::2]:1", "", 0),
        ("[2001:db8::3]:1", "", 429),
        ("/unix", "", 0),
    ];
    for (address, authorization, expected) in steps {
        filter.host.address = address;
        let sent = filter.send("GET", "/", authorization);
        assert_eq!(status(&sent), expected, "{address} {authorization}");
    }
}

#[test]
fn strangers_are_rejected_or_passed_if_that_is_configured() {
    let mut filter =
        Filter::with(r#""unknown_key": {"action": "reject"}, "missing_key": {"action": "pass"}"#);
    assert_eq!(status(&filter.send("GET", "/", "Bearer x")), 401);
    let passed = filter.send("GET", "/", "");
    assert!(passed.reply.is_none() && passed.charged.is_none());
}

#[test]
fn a_filter_in_shadow_mode_refuses_nothing_and_says_what_it_would_have() {
    let mut filter = Filter::with(r#""enforcement": "shadow", "unknown_key": {"action": "reject"}"#);
    let steps = [
        ("/", "Bearer free-1", Outcome::Allowed),
        ("/", "Bearer free-1", Outcome::Allowed),
        ("/", "Bearer free-1", Outcome::ShadowLimited),
        ("/analytics", "Bearer free-1", Outcome::NotInPlan),
        ("/", "Bearer x", Outcome::UnknownKey),
        ("/", "Bearer x,Bearer y", Outcome::UnknownKey),
    ];
    for (path, authorization, outcome) in steps {
        let sent = filter.send("GET", path, authorization);
        assert!(sent.reply.is_none(), "{path} {authorization}");
        let would_be_refused = outcome != Outcome::Allowed;
        assert_eq!(
            (sent.outcomes.as_slice(), sent.is_refused),
            (&[outcome][..], would_be_refused),
            "{path} {authorization}"
        );
    }
}

#[test]
fn what_cannot_be_counted_goes_by_on_error() {
    for (on_error, expected) in [("allow", 0), ("deny", 503)] {
        let mut filter = Filter::with(&format!(r#""on_error": "{on_error}""#));
        filter.host.fails = Some(10);
        for authorization in ["Bearer free-1", "Bearer x", ""] {
            let sent = filter.send("GET", "/", authorization);
            assert_eq!(status(&sent), expected, "{on_error} {authorization}");
            assert_eq!(sent.outcomes.as_slice(), [Outcome::Error]);
        }
        let no_headers = filter.decide(&[]);
        assert_eq!(status(&no_headers), expected);
        filter.host.fails = None;
        assert_eq!(filter.send("GET", "/", "Bearer free-1").outcomes.as_slice(), [Outcome::Allowed]);
    }
}

#[test]
fn an_error_is_logged_once_a_second_and_counted_each_time() {
    let mut filter = Filter::with("");
    let fails = "a request could not be counted: proxy_get_shared_data answered status 10";
    let foreign =
        "a request could not be counted: the header of the counters' tables in shared data is malformed";
    // the second, whether shared data fails (or else its header is foreign), the line that 100 requests leave in the log
    let steps = [
        (60, true, Some(fails.to_owned())),
        (60, true, None),
        (60, false, Some(format!("{foreign} (199 more error lines were left out)"))),
        (61, true, Some(format!("{fails} (99 more error lines were left out)"))),
        (61, false, Some(format!("{foreign} (99 more error lines were left out)"))),
        (61, false, None),
    ];
    for (second, fails, expected) in steps {
        (filter.host.seconds, filter.host.foreign) = (second, !fails);
        filter.host.fails = fails.then_some(10);
        filter.host.logged.clear();
        for _ in 0..100 {
            let sent = filter.send("GET", "/", "Bearer free-1");
            assert_eq!(sent.outcomes.as_slice(), [Outcome::Error]);
        }
        assert_eq!(filter.host.logged, expected.into_iter().collect::<Vec<_>>(), "second {second}");
    }
}

#[test]
fn trusted_metadata_says_who_is_calling_and_on_which_plan() {
    let mut filter = Filter::with(
        r#""key_sources": [{"metadata": ["jwt", "sub"]}], "plan_source": {"metadata": ["jwt", "plan"]}"#,
    );
    let steps = [
        (Some("alice"), Some("free"), Outcome::Allowed),
        (Some("alice"), Some("free"), Outcome::Allowed),
        (Some("alice"), Some("free"), Outcome::Limited),
        (Some("bob"), Some("free"), Outcome::Allowed),
        (Some("alice"), Some("pro"), Outcome::Allowed), // what was used stays used: one of three is left
        (Some("alice"), Some("pro"), Outcome::Limited),
        (Some("alice"), Some("gold"), Outcome::UnknownKey),
        (Some("alice"), None, Outcome::UnknownKey),
        (Some("free-1"), Some("pro"), Outcome::Allowed), // a subscriber of the configuration keeps its plan
        (None, Some("pro"), Outcome::MissingKey),
    ];
    for (subject, plan, outcome) in steps {
        (filter.host.subject, filter.host.plan) = (subject, plan);
        let sent = filter.send("GET", "/", "Bearer ignored");
        assert_eq!(sent.outcomes.as_slice(), [outcome], "{subject:?} {plan:?}");
        if subject == Some("free-1") {
            assert_eq!(sent.plan, Some(0));
        }
    }
}

#[test]
fn a_caller_is_told_where_it_stands_free_of_charge_and_a_stranger_is_not() {
    let mut filter = Filter::with(
        r#""usage_path": "/quota", "unknown_key": {"action": "limit", "quotas": ["1/minute"]}, "missing_key": {"action": "pass"}"#,
    );
    filter.send("GET", "/links", "Bearer free-1");
    let bodies = [(); 3].map(|()| {
        let sent = filter.send("GET", "/quota", "Bearer free-1");
        let reply = sent.reply.unwrap();
        assert_eq!((reply.status, sent.outcomes.as_slice()), (200, &[Outcome::Exempt][..]));
        assert!(sent.charged.is_none());
        reply.body
    });
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    insta::assert_snapshot!(bodies[0], @r#"{"plan":"free","classes":[{"name":"analytics","included":false,"unlimited":false,"cost":1,"quotas":[]},{"name":"standard","included":true,"unlimited":false,"cost":1,"quotas":[{"name":"standard","limit":2,"window":60,"remaining":1,"reset":120}]}]}"#);
    let steps = [
        ("GET", "Bearer nobody", 401),
        ("GET", "Bearer nobody", 429),
        ("GET", "", 401),
        ("HEAD", "Bearer free-1", 200),
        ("POST", "Bearer free-1", 0),
    ];
    for (method, authorization, expected) in steps {
        let sent = filter.send(method, "/quota?x", authorization);
        assert_eq!(status(&sent), expected, "{method} {authorization}");
    }
}

#[test]
fn unknown_keys_wait_for_the_directory_as_configured_and_then_it_knows_them() {
    let limit = r#"{"action": "limit", "quotas": ["4/minute"]}"#;
    for (not_ready, before, afterwards) in
        [(r#""pass""#, 0, 0), (r#""unavailable""#, 503, 503), (limit, 0, 429)]
    {
        let mut filter = Filter::with(&format!(
            r#""unknown_key": {{"action": "reject"}}, "directory": {{"cluster": "c", "path": "/k", "not_ready": {not_ready}}}"#
        ));
        let ask = |filter: &mut Filter| {
            ["new", "odd", "free-1"].map(|key| status(&filter.send("GET", "/", &format!("Bearer {key}"))))
        };
        assert_eq!(ask(&mut filter), [before, before, 0], "{not_ready}");
        assert_eq!(ask(&mut filter), [before, before, 0], "{not_ready}");
        assert_eq!(
            ask(&mut filter),
            [afterwards, afterwards, 429],
            "{not_ready}: an address has its own quota"
        );
        filter.load(&[("new", "pro"), ("odd", "gold")]);
        assert_eq!(ask(&mut filter), [0, 401, 429], "{not_ready}");
    }
}

/// What is asked of shared data, beside what is counted.
fn reads(filter: &mut Filter, key: &str) -> (u16, usize) {
    let before = filter.host.reads;
    let sent = filter.send("GET", "/", &format!("Bearer {key}"));
    let reads = filter.host.reads - before;
    (status(&sent), reads)
}

#[test]
fn a_change_of_the_directory_costs_a_key_one_read_at_its_next_request() {
    let mut filter = Filter::with(
        r#""unknown_key": {"action": "reject"}, "directory": {"cluster": "c", "path": "/k"}, "counters": {"known": 64, "strangers": 4}"#,
    );
    filter.load(&[("a", "free"), ("b", "free"), ("c", "free")]);
    for key in ["a", "b", "c"] {
        reads(&mut filter, key);
        filter.host.seconds += 60;
    }
    // Until the counters know how the host numbers writes, they read, too.
    let usual = |filter: &mut Filter, key: &str| {
        for _ in 0..8 {
            reads(filter, key);
            filter.host.seconds += 60;
        }
        reads(filter, key)
    };
    let steady = usual(&mut filter, "a");
    assert_eq!(usual(&mut filter, "nobody"), (401, 1), "an unknown key");
    // One changes its plan, one stays, and one goes.
    filter.load(&[("a", "free"), ("b", "pro")]);
    filter.host.seconds += 60;
    assert_eq!(reads(&mut filter, "a"), (steady.0, steady.1 + 1));
    filter.host.seconds += 60;
    assert_eq!(reads(&mut filter, "a"), steady, "and its next request nothing");
    let plan = |filter: &mut Filter, key: &str| filter.send("GET", "/", &format!("Bearer {key}")).plan;
    assert_eq!(plan(&mut filter, "b"), Some(1));
    assert_eq!(reads(&mut filter, "c"), (401, 1));
    assert_eq!(reads(&mut filter, "free-1").0, 0, "a key of the configuration");
}

#[test]
fn an_endpoint_is_classed_below_the_base_path_only() {
    let mut filter = Filter::with(r#""base_path": "/v1""#);
    let rows = [
        ("/v1/analytics", Outcome::NotInPlan),
        ("/v1/analytics/?x", Outcome::NotInPlan),
        ("/v1/r/x", Outcome::Exempt),
        ("/analytics", Outcome::Allowed),
        ("/r/x", Outcome::Allowed),
        ("/v10/analytics", Outcome::Limited),
    ];
    for (path, outcome) in rows {
        assert_eq!(filter.send("GET", path, "Bearer free-1").outcomes.as_slice(), [outcome], "{path}");
    }
}

/// The line that explains a decision, without what stands before the JSON.
fn explained(filter: &mut Filter, method: &str, path: &str, headers: &[(&str, &str)]) -> serde_json::Value {
    let pseudo = [(":method", method), (":path", path)];
    let headers: Vec<_> =
        pseudo.iter().chain(headers).map(|(name, value)| (*name, value.as_bytes())).collect();
    let headers = serialize(&headers);
    let mut decided = Decided::default();
    filter.limiter.decide(&mut filter.host, &headers, &mut decided);
    let answer = decided.answer.as_ref();
    let reply = answer.map(|answer| Reply::new(filter.limiter.config(), &decided, answer, None));
    filter.host.logged.clear();
    let reply = reply.as_ref().map(|reply| (reply.status, reply.details));
    filter.limiter.explain(&mut filter.host, &headers, &decided, reply);
    let [line] = filter.host.logged.as_slice() else { panic!("{:?}", filter.host.logged) };
    assert!(!line.contains("free-1") && !line.contains("nobody"), "a key is in {line}");
    serde_json::from_str(line.strip_prefix("decision ").unwrap()).unwrap()
}

#[test]
fn a_decision_is_explained_from_the_key_source_to_the_answer() {
    let fields = r#""key_sources": [{"header": "authorization", "scheme": "Bearer"}, {"query": "key"}],
        "unknown_key": {"action": "reject"}, "missing_key": {"action": "pass"}, "usage_path": "/weir",
        "log_decisions": true"#;
    let mut filter = Filter::with(fields);
    let free = [("authorization", "Bearer free-1")];
    let quota = |remaining: u32, exhausted: bool| {
        serde_json::json!([{"name": "standard", "limit": 2, "window": 60, "remaining": remaining, "reset": 120,
            "exhausted": exhausted, "mode": "enforced"}])
    };
    //  path, headers: key, subscriber, plan, class, quotas, outcomes, decision
    let none = serde_json::json!([]);
    type Row<'a> =
        (&'a str, &'a [(&'a str, &'a str)], [Option<&'a str>; 4], serde_json::Value, &'a str, &'a str);
    let rows: [Row<'_>; 9] = [
        (
            "/links",
            &free,
            [Some("header authorization"), Some("f"), Some("free"), Some("standard")],
            quota(1, false),
            "allowed",
            "forwarded",
        ),
        (
            "/links?key=free-1",
            &free,
            [Some("header authorization, query key"), Some("f"), Some("free"), Some("standard")],
            quota(0, false),
            "allowed",
            "forwarded",
        ),
        (
            "/links?key=free-1",
            &[],
            [Some("query key"), Some("f"), Some("free"), Some("standard")],
            quota(0, true),
            "limited",
            "answered 429 weir_rate_limited",
        ),
        (
            "/analytics",
            &free,
            [Some("header authorization"), Some("f"), Some("free"), Some("analytics")],
            none.clone(),
            "not_in_plan",
            "answered 403 weir_not_in_plan",
        ),
        (
            "/links",
            &[("authorization", "Bearer nobody")],
            [Some("header authorization"), None, None, Some("standard")],
            none.clone(),
            "unknown_key",
            "answered 401 weir_unknown_key",
        ),
        (
            "/links",
            &[],
            [Some("none"), None, None, Some("standard")],
            none.clone(),
            "missing_key",
            "forwarded",
        ),
        (
            "/links?key=nobody",
            &free,
            [Some("header authorization, query key"), None, None, Some("standard")],
            none.clone(),
            "unknown_key",
            "answered 400 weir_ambiguous_key",
        ),
        (
            "/weir",
            &free,
            [Some("header authorization"), Some("f"), None, Some("standard")],
            none.clone(),
            "exempt",
            "answered 200 weir_usage",
        ),
        ("/r/x", &free, [Some("not read"), None, None, Some("standard")], none, "exempt", "forwarded"),
    ];
    for (path, headers, way, quotas, outcome, decision) in rows {
        let line = explained(&mut filter, "GET", path, headers);
        let found = ["key", "subscriber", "plan", "class"].map(|field| line[field].as_str());
        assert_eq!(found, way, "{path}: {line}");
        assert_eq!((&line["quotas"], &line["outcomes"][0]), (&quotas, &outcome.into()), "{path}: {line}");
        assert_eq!(line["decision"], decision, "{path}: {line}");
    }
}

#[test]
fn with_strict_headers_another_spelling_of_the_key_is_refused_and_without_it_is_no_key() {
    let fields = r#""key_sources": [{"header": "x-api-key"}, {"query": "api_key"}], "missing_key": {"action": "reject"}"#;
    let strict = format!(r#"{fields}, "strict_headers": true"#);
    //  the path, the header's name, and the statuses with and without it; 0 if the request goes on
    let rows = [
        ("/", "X-Api-Key", 0, 0),
        ("/?x=1;y=2", "x-api-key", 0, 0),
        ("/", "x_api_key", 400, 401),
        ("/?x=1;api_key=free-1", "other", 400, 401),
        ("/?x=1;api_key=pro", "x-api-key", 400, 0),
        ("/?Api-Key=pro", "x-api-key", 400, 0),
    ];
    for (path, name, in_strict, otherwise) in rows {
        for (fields, expected) in [(strict.as_str(), in_strict), (fields, otherwise)] {
            let sent = Filter::with(fields).send_with(path, &[(name, "free-1")]);
            assert_eq!(status(&sent), expected, "{path} {name}");
        }
    }
    // Nor does a caller that is remembered by its header.
    let mut filter = Filter::with(r#""key_sources": [{"header": "x-api-key"}], "strict_headers": true"#);
    let key = ("x-api-key", "free-1");
    for (headers, expected) in [(vec![key], 0), (vec![key, ("X_Api_Key", "pro")], 400), (vec![key], 0)] {
        assert_eq!(status(&filter.send_with("/", &headers)), expected);
    }
}

#[test]
fn a_claim_that_is_no_text_names_nobody_and_is_logged_once_a_minute() {
    let fields = r#""key_sources": [{"metadata": ["jwt", "sub"]}], "plan_source": {"metadata": ["jwt", "plan"]},
        "unknown_key": {"action": "reject"}"#;
    let mut filter = Filter::with(fields);
    let mut send = |subject, plan, seconds| {
        (filter.host.subject, filter.host.plan, filter.host.seconds) = (Some(subject), Some(plan), seconds);
        filter.host.logged.clear();
        let sent = filter.send("GET", "/", "");
        (status(&sent), core::mem::take(&mut filter.host.logged))
    };
    let line = |claim: &str| {
        vec![format!("{claim} is neither a text nor a whole number below 2^53, so it names nobody")]
    };
    let (subject, plan) = (
        line("key_sources: the value of metadata metadata.jwt.sub"),
        line("plan_source: the value of metadata metadata.jwt.plan"),
    );
    // A boolean.
    const ODD: &str = "\u{1}";
    assert_eq!(send("somebody", "free", 60), (0, vec![]));
    assert_eq!(send(ODD, "free", 60), (401, subject.clone()));
    assert_eq!(send(ODD, "pro", 119), (401, vec![]));
    // These lines say how many were left out, too.
    for (subject, plan, seconds, line) in [("another", ODD, 119, plan), (ODD, "free", 120, subject)] {
        let (refused, logged) = send(subject, plan, seconds);
        assert_eq!((refused, logged.len()), (401, 1));
        assert!(logged[0].starts_with(&line[0]), "{logged:?}");
    }
}
