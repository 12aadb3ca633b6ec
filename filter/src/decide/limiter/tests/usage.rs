//! What is reported of requests.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::config::Entitlement;
use crate::count::fingerprint::Who;
use crate::decide::settlement::Moment;

const USAGE: &str = r#""usage": {"cluster": "c", "path": "/usage", "interval": "10s"}"#;

/// Requests that went on, their units, and those that were refused, by subject and class.
type Reported = BTreeMap<(String, String), [u64; 3]>;

impl Filter {
    /// Ends the interval. What is reported then.
    fn reports(&mut self) -> Vec<Value> {
        // The first look begins the interval.
        let mut events = Vec::new();
        for seconds in [0, 10] {
            self.host.seconds += seconds;
            while let Some(batch) = self.limiter.report(&mut self.host) {
                events.extend(serde_json::from_slice::<Vec<Value>>(batch).unwrap());
                self.limiter.reported(&mut self.host, Some(200));
            }
        }
        events
    }

    fn reported(&mut self) -> Reported {
        let mut reported = Reported::new();
        for event in self.reports() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let key = (text(&event["subject"]), text(&event["data"]["class"]));
            let sums = reported.entry(key).or_default();
            for (sum, field) in sums.iter_mut().zip(["requests", "units", "refused"]) {
                *sum += event["data"][field].as_u64().unwrap();
            }
        }
        reported
    }
}

fn expected<const N: usize>(rows: [(&str, &str, [u64; 3]); N]) -> Reported {
    rows.into_iter().map(|(subject, class, sums)| ((subject.to_owned(), class.to_owned()), sums)).collect()
}

#[test]
fn requests_are_reported_by_subscriber_and_class_and_strangers_by_class_alone() {
    let mut filter = Filter::with(USAGE);
    let steps = [
        ("/links", "Bearer free-1", 0),
        ("/links", "Bearer free-1", 0),
        ("/links", "Bearer free-1", 429),
        ("/links", "Bearer free-2", 0),
        ("/analytics", "Bearer free-2", 403),
        ("/analytics", "Bearer pro", 0),
        ("/r/exempt", "Bearer pro", 0),
        ("/links", "Bearer nobody", 0),
        ("/analytics", "", 0),
        ("/links", "Bearer free-1, Bearer pro", 400),
    ];
    for (path, authorization, status) in steps {
        assert_eq!(super::status(&filter.send("GET", path, authorization)), status, "{path} {authorization}");
    }
    let rows = [
        ("f", "standard", [3, 3, 1]),
        ("f", "analytics", [0, 0, 1]),
        ("p", "analytics", [1, 1, 0]),
        ("strangers", "standard", [1, 1, 1]),
        ("strangers", "analytics", [1, 1, 0]),
    ];
    assert_eq!(filter.reported(), expected(rows));
    assert_eq!(filter.reported(), Reported::new());
}

#[test]
fn an_event_says_where_its_caller_stood_at_its_last_request() {
    let mut filter = Filter::with(USAGE);
    for _ in 0..2 {
        filter.send("GET", "/links", "Bearer free-1");
    }
    let events = filter.reports();
    let hash = digest(b"free-1").map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(events[0]["data"]["key"], hash[..8]);
    let tightest =
        serde_json::json!({"quota": "standard", "limit": 2, "used": 2, "to": "1970-01-01T00:02:00Z"});
    assert_eq!(events[0]["data"]["tightest"], tightest);
}

#[test]
fn a_request_that_a_response_settles_is_reported_with_what_it_was_due() {
    let classes = r#""cost": {"reserve": 10, "actual": {"response_header": "x-cost"}}, "refund": {"statuses": ["5xx"]}"#;
    let key = digest(b"chat").map(|byte| format!("{byte:02x}")).concat();
    //  the quotas of the class, what the response has, and the units that are reported; `None` while the stream goes on
    let responses: [(&[(&str, &str)], u64); 4] = [
        (&[(":status", "200"), ("x-cost", "4")], 4),
        (&[(":status", "200"), ("x-cost", "40")], 40),
        (&[(":status", "503")], 0),
        (&[(":status", "200")], 10),
    ];
    for quotas in [r#"["1000/minute"]"#, r#""unlimited""#] {
        let json = format!(
            r#"{{"plans": {{"pro": {{"standard": ["3/minute"], "chat": {quotas}}}}},
                "classes": [{{"name": "chat", "match": [{{"path": "/chat"}}], {classes}}}],
                "subscribers": [{{"id": "p", "plan": "pro", "keys": ["sha256:{key}"]}}], {USAGE}}}"#
        );
        let config = Arc::new(Config::from_json(json.as_bytes()).unwrap());
        let mut filter = Filter { limiter: Limiter::new(config), ..Filter::with("") };
        for (headers, units) in responses {
            let mut charged = filter.send("GET", "/chat", "Bearer chat").charged.unwrap();
            assert_eq!(filter.reported(), Reported::new(), "the stream goes on: {quotas}");
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            filter.limiter.settle(&mut filter.host, &mut charged, Moment::Headers(&serialize(&headers)));
            if charged.is_open {
                filter.limiter.settle(&mut filter.host, &mut charged, Moment::End);
            }
            assert_eq!(filter.reported(), expected([("p", "chat", [1, units, 0])]), "{quotas} {headers:?}");
        }
    }
}

#[test]
fn what_shadow_mode_lets_pass_and_what_on_error_decides_is_reported_as_it_was_decided() {
    //  more fields, whether counting fails, and what is reported of four requests of a quota of two
    let rows = [
        (r#""enforcement": "shadow""#, false, [4, 4, 0]),
        (r#""on_error": "allow""#, true, [4, 4, 0]),
        (r#""on_error": "deny""#, true, [0, 0, 4]),
    ];
    for (fields, fails, sums) in rows {
        let mut filter = Filter::with(&format!("{fields}, {USAGE}"));
        filter.send("GET", "/r/exempt", "");
        // Opens the counters, which are needed to know a caller.
        filter.send("GET", "/analytics", "Bearer pro");
        filter.host.fails = fails.then_some(2);
        for _ in 0..4 {
            filter.send("GET", "/links", "Bearer free-1");
        }
        filter.host.fails = None;
        let reported = filter.reported();
        assert_eq!(reported[&("f".to_owned(), "standard".to_owned())], sums, "{fields}");
    }
}

#[test]
fn nothing_is_lost_of_more_callers_than_are_remembered() {
    const CALLERS: usize = 130_000;
    let fields = format!(
        r#"{USAGE}, "key_sources": [{{"metadata": ["jwt", "sub"]}}], "plan_source": {{"metadata": ["jwt", "plan"]}}"#
    );
    let mut filter = Filter::with(&fields);
    let mut requests = 0;
    for round in 0..2 {
        for number in 0..CALLERS {
            filter.host.subject = Some(Box::leak(format!("caller-{number}").into_boxed_str()));
            filter.host.plan = Some("free");
            assert_eq!(status(&filter.send("GET", "/links", "")), 0, "{round} {number}");
            // A tick comes now and then.
            if number % 10_000 == 0 {
                let sums = filter.reported();
                requests += sums.values().map(|[requests, ..]| requests).sum::<u64>();
            }
        }
    }
    requests += filter.reported().values().map(|[requests, ..]| requests).sum::<u64>();
    assert_eq!(requests, 2 * CALLERS as u64);
    assert_eq!(filter.limiter.drain_events(&mut filter.host)[Event::UsageLost as usize], 0);
}

#[test]
fn a_configuration_that_follows_reports_what_the_one_before_has_left() {
    let mut before = Filter::with(USAGE);
    before.send("GET", "/links", "Bearer free-1");
    let mut after = Filter::with(USAGE);
    assert!(after.limiter.take_over(&mut before.limiter));
    assert!(!before.limiter.end_reports());
    after.send("GET", "/links", "Bearer free-1");
    assert_eq!(after.reported(), expected([("f", "standard", [2, 2, 0])]));
}

/// A threshold that is told: class, share, limit and units used.
type Threshold = (String, u64, u64, u64);

/// A filter of one subscriber with two classes, which cost 1 and 3 and have `limit` an hour each. It shares the host of `before`, if there is one.
fn with_limit(limit: u32, fields: &str, before: Option<Filter>) -> Filter {
    let key = digest(b"key").map(|byte| format!("{byte:02x}")).concat();
    let json = format!(
        r#"{{"plans": {{"pro": {{"standard": ["{limit}/hour", "1000/minute"], "bulk": ["{limit}/hour"]}}}},
            "classes": [{{"name": "bulk", "cost": 3, "refund": {{"statuses": ["5xx"]}}, "match": [{{"path": "/bulk"}}]}}],
            "subscribers": [{{"id": "acme", "plan": "pro", "keys": ["sha256:{key}"]}}], {USAGE}{fields}}}"#
    );
    let config = Arc::new(Config::from_json(json.as_bytes()).unwrap());
    let host = before.unwrap_or_else(|| Filter::with("")).host;
    Filter { limiter: Limiter::new(config), host }
}

impl Filter {
    /// Sends a request with the key, and answers it with this status. Another VM of the same process may send it.
    fn call(&mut self, path: &str, response: &str, times: usize) {
        for _ in 0..times {
            let sent = self.send("GET", path, "Bearer key");
            if let Some(mut charged) = sent.charged.filter(|charged| charged.is_open) {
                let headers: [(&str, &[u8]); 1] = [(":status", response.as_bytes())];
                self.limiter.settle(&mut self.host, &mut charged, Moment::Headers(&serialize(&headers)));
                self.limiter.settle(&mut self.host, &mut charged, Moment::End);
            }
        }
    }

    /// The thresholds that are told, and their ids.
    fn thresholds(&mut self) -> (Vec<Threshold>, Vec<String>) {
        let mut events = self.reports();
        events.retain(|event| event["type"] == "weir.threshold");
        events.sort_by_key(|event| (event["data"]["class"].to_string(), event["data"]["share"].as_u64()));
        let number = |event: &Value, field: &str| event["data"][field].as_u64().unwrap();
        let told = events.iter().map(|event| {
            let class = event["data"]["class"].as_str().unwrap().to_owned();
            (class, number(event, "share"), number(event, "limit"), number(event, "used"))
        });
        (told.collect(), events.iter().map(|event| event["id"].to_string()).collect())
    }

    /// Resets the hour of the class `standard`.
    fn reset(&mut self) {
        let (config, key) = (Arc::clone(self.limiter.config()), digest(b"key"));
        let Entitlement::Quotas(quotas) = &config.catalog.plans[0].1[config.catalog.default_class] else {
            panic!("no quotas");
        };
        let mut context = self.limiter.context(&mut self.host);
        let (counters, _, host) = context.opened().unwrap();
        let counter = counters.counter(Who::Key(&key), "standard");
        counters.reset(host, &counter, &quotas.quotas()[..1], None).unwrap();
    }
}

fn told<const N: usize>(rows: [(&str, u64, u64, u64); N]) -> Vec<Threshold> {
    rows.map(|(class, share, limit, used)| (class.to_owned(), share, limit, used)).to_vec()
}

#[test]
fn a_threshold_is_told_once_and_again_after_a_raised_limit_and_a_reset_but_not_after_a_refund() {
    let mut filter = with_limit(10, "", None);
    filter.call("/links", "200", 7);
    filter.call("/bulk", "200", 2);
    assert_eq!(filter.thresholds().0, told([]));
    filter.call("/links", "200", 1);
    filter.call("/bulk", "200", 1);
    // Another request that costs 3 does not fit, so all of the quota is used.
    let (found, first) = filter.thresholds();
    assert_eq!(found, told([("bulk", 80, 10, 9), ("bulk", 100, 10, 9), ("standard", 80, 10, 8)]));
    filter.call("/links", "200", 3);
    assert_eq!(filter.thresholds().0, told([("standard", 100, 10, 10)]));
    filter.call("/links", "200", 3);
    assert_eq!(filter.thresholds().0, told([]));

    let mut raised = with_limit(12, "", Some(filter));
    raised.call("/links", "200", 1);
    let (found, ids) = raised.thresholds();
    assert_eq!(found, told([("standard", 80, 12, 11)]));
    assert!(ids.iter().all(|id| !first.contains(id)));

    raised.reset();
    raised.call("/links", "200", 9);
    assert_eq!(raised.thresholds().0, told([]));
    raised.call("/links", "200", 1);
    let (found, after_reset) = raised.thresholds();
    assert_eq!(found, told([("standard", 80, 12, 10)]));
    assert!(after_reset.iter().all(|id| !ids.contains(id)));

    // A VM that starts tells it again, under the same id.
    let mut restarted = with_limit(12, "", Some(raised));
    restarted.call("/links", "200", 1);
    assert_eq!(restarted.thresholds(), (told([("standard", 80, 12, 11)]), after_reset));

    // The next window has a count of its own.
    restarted.host.seconds += 3_600;
    restarted.call("/links", "200", 10);
    let (found, next) = restarted.thresholds();
    assert_eq!(found, told([("standard", 80, 12, 10)]));
    assert!(next.iter().all(|id| !first.contains(id)));
}

#[test]
fn what_a_refund_gives_back_is_not_told_again() {
    let mut filter = with_limit(10, "", None);
    filter.call("/bulk", "200", 2);
    filter.call("/bulk", "503", 1);
    assert_eq!(filter.thresholds().0, told([("bulk", 80, 10, 9), ("bulk", 100, 10, 9)]).split_off(2));
    filter.call("/bulk", "200", 1);
    assert_eq!(filter.thresholds().0, told([("bulk", 80, 10, 9), ("bulk", 100, 10, 9)]));
    filter.call("/bulk", "200", 3);
    assert_eq!(filter.thresholds().0, told([]));
}

#[test]
fn nothing_is_told_in_shadow_mode() {
    let mut filter = with_limit(10, r#", "enforcement": "shadow""#, None);
    filter.call("/links", "200", 12);
    assert_eq!(filter.thresholds().0, told([]));
}
