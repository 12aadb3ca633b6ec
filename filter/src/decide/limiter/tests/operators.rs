use serde_json::{Value, json};

use super::*;

/// The filter of the public listener, and that of the operators' listener beside it, over the same shared data.
struct Listeners {
    public: Filter,
    operators: Limiter,
}

/// The last part of a request's path, for each of [`Filter`]'s subscribers.
const FREE: &str = "/weir/subscribers/f";
const PRO: &str = "/weir/subscribers/p";

fn key(key: &str) -> String {
    format!("sha256:{}", digest(key.as_bytes()).map(|byte| format!("{byte:02x}")).concat())
}

fn operators() -> Value {
    json!({"tokens": [{"name": "on-call", "token": key("token")}]})
}

impl Listeners {
    fn with(fields: &str) -> Self {
        let comma = if fields.is_empty() { "" } else { "," };
        let operators = Filter::with(&format!(r#""operators": {}{comma}{fields}"#, operators()));
        Self { public: Filter::with(fields), operators: operators.limiter }
    }

    fn of(public: &Value) -> Self {
        let limiter =
            |json: &Value| Limiter::new(Arc::new(Config::from_json(json.to_string().as_bytes()).unwrap()));
        let mut with_operators = public.clone();
        with_operators["operators"] = operators();
        let public = Filter { limiter: limiter(public), ..Filter::with("") };
        Self { public, operators: limiter(&with_operators) }
    }

    /// Statuses of requests to the public listener; 0 is one that is passed on.
    fn call<const N: usize>(&mut self, key: &str) -> [u16; N] {
        [(); N].map(|()| status(&self.public.send("GET", "/links", &format!("Bearer {key}"))))
    }

    /// Sends a request to the operators' listener.
    fn send(&mut self, headers: &[u8]) -> Sent {
        std::mem::swap(&mut self.public.limiter, &mut self.operators);
        let sent = self.public.decide(headers);
        std::mem::swap(&mut self.public.limiter, &mut self.operators);
        sent
    }

    /// Status and body of the answer to an operator.
    fn ask(&mut self, method: &str, path: &str) -> (u16, Value) {
        let headers = [
            (":method", method.as_bytes()),
            (":path", path.as_bytes()),
            ("authorization", b"Bearer token"),
            ("x-request-id", b"4711\n"),
        ];
        let sent = self.send(&serialize(&headers));
        assert!(sent.outcomes.is_empty() && sent.charged.is_none(), "{sent:?}");
        let reply = sent.reply.unwrap();
        assert!(!reply.body.contains("token"), "{reply:?}");
        (reply.status, serde_json::from_str(&reply.body).unwrap())
    }

    /// What is left of a quota of the subscriber's first counter, by the places of class and quota.
    fn left(&mut self, path: &str, [class, quota]: [usize; 2]) -> u64 {
        let (status, state) = self.ask("GET", path);
        assert_eq!(status, 200, "{state}");
        state["counters"][0]["classes"][class]["quotas"][quota]["remaining"].as_u64().unwrap()
    }
}

#[test]
fn an_operator_sees_what_the_caller_sees() {
    let mut listeners = Listeners::with(r#""usage_path": "/quota""#);
    let _: [u16; 2] = listeners.call("pro");
    let usage = listeners.public.send("GET", "/quota", "Bearer pro").reply.unwrap().body;
    let mut expected: Value = serde_json::from_str(&usage).unwrap();
    expected["key"] = json!(key("pro"));
    let (status, state) = listeners.ask("GET", PRO);
    assert_eq!((status, &state), (200, &json!({"subscriber": "p", "counters": [expected]})));
    assert_eq!(listeners.left(PRO, [1, 0]), 1);
}

#[test]
fn a_customer_goes_on_after_a_reset_of_one_quota_and_the_log_says_who_did_it() {
    let mut listeners = Listeners::of(&json!({
        "plans": {"pro": {"standard": ["3/minute", "5/hour"], "analytics": ["1/day"]}},
        "classes": [{"name": "analytics", "match": [{"path": "/analytics"}]}],
        "subscribers": [{"id": "p", "plan": "pro", "keys": [key("pro")]}],
    }));

    assert_eq!(status(&listeners.public.send("GET", "/analytics", "Bearer pro")), 0);
    assert_eq!(listeners.call("pro"), [0, 0, 0, 429]);
    listeners.public.host.logged.clear();
    let (status, state) =
        listeners.ask("POST", "/weir/subscribers/p/reset?class=standard&quota=standard-minute");
    assert_eq!(status, 200, "{state}");
    insta::assert_snapshot!(
        listeners.public.host.logged.join("\n"),
        @r#"audit {"operator":"on-call","action":"reset","subscriber":"p","key":"07ed4007","class":"standard","quota":"standard-minute","limit":3,"used_before":3,"used_after":0,"request_id":"4711\n"}"#
    );
    let left =
        |class: usize, quota: usize| &state["counters"][0]["classes"][class]["quotas"][quota]["remaining"];
    assert_eq!([left(1, 0), left(1, 1), left(0, 0)], [3, 2, 0], "{state}");
    // The hour, of which two were left, is as it was.
    assert_eq!(listeners.call("pro"), [0, 0, 429]);
}

#[test]
fn keys_with_separate_quotas_are_reset_one_by_one() {
    let mut listeners = Listeners::with("");
    assert_eq!((listeners.call("free-1"), listeners.call("free-2")), ([0, 0, 429], [0, 0, 429]));
    let reset = format!("{FREE}/reset?class=standard&quota=standard");
    let (status, refusal) = listeners.ask("POST", &reset);
    assert_eq!(status, 422, "{refusal}");
    let (status, state) = listeners.ask("POST", &format!("{reset}&key={}", key("free-2")));
    assert_eq!((status, state["counters"].as_array().unwrap().len()), (200, 1), "{state}");
    assert_eq!((listeners.call("free-1"), listeners.call("free-2")), ([429], [0]));
    let (_, state) = listeners.ask("GET", FREE);
    let keys: Vec<_> = state["counters"].as_array().unwrap().iter().map(|counter| &counter["key"]).collect();
    assert_eq!(keys, [&json!(key("free-1")), &json!(key("free-2"))]);
}

#[test]
fn keys_that_share_their_quotas_are_one_counter() {
    let mut listeners = Listeners::with(r#""count_by": "subscriber""#);
    assert_eq!((listeners.call("free-1"), listeners.call("free-2")), ([0, 0], [429]));
    let (_, state) = listeners.ask("GET", FREE);
    assert_eq!(
        (state["counters"].as_array().unwrap().len(), &state["counters"][0]["key"]),
        (1, &Value::Null)
    );
    assert_eq!(listeners.ask("POST", &format!("{FREE}/reset?class=standard&quota=standard")).0, 200);
    assert_eq!(listeners.call("free-2"), [0]);
}

#[test]
fn a_quota_of_an_organisation_is_reset_for_all_of_its_keys() {
    let team = |id: &str, keys: &[&str]| {
        let keys: Vec<_> = keys.iter().copied().map(key).collect();
        json!({"id": id, "plan": "pro", "keys": keys, "parent": {"organisation": "acme", "limits": {"standard": ["3/day"]}}})
    };
    let mut listeners = Listeners::of(&json!({
        "plans": {"pro": {"standard": ["3/hour"]}},
        "subscribers": [team("p", &["pro", "pro-2"]), team("q", &["other"])],
    }));
    assert_eq!((listeners.call("pro"), listeners.call("other")), ([0, 0], [0, 429]));
    let (_, state) = listeners.ask("GET", PRO);
    let quotas = state["counters"][0]["classes"][0]["quotas"].as_array().unwrap();
    let name = quotas[1]["name"].as_str().unwrap();
    assert_eq!((quotas.len(), &quotas[1]["remaining"]), (2, &json!(0)), "{state}");
    let (status, state) = listeners.ask("POST", &format!("{PRO}/reset?class=standard&quota={name}"));
    assert_eq!(status, 200, "{state}");
    let logged = listeners.public.host.logged.join("");
    assert!(logged.contains(r#""organisation":"acme","class""#) && !logged.contains(r#""key""#), "{logged}");
    // The hour of each key is as it was.
    assert_eq!((listeners.call("pro"), listeners.call("other")), ([0, 429], [0, 0, 429]));
}

#[test]
fn what_an_operator_may_not_or_cannot_do_is_said() {
    let unknown_class = "Query parameter class: expected analytics or standard.";
    let unknown_quota = "Query parameter quota: expected standard.";
    let no_quota = "Query parameter quota: expected another class, because no quota of this class limits the subscriber.";
    let rows = [
        ("GET", "/links".to_owned(), 404, "There is no such endpoint."),
        ("GET", "/weir/subscribers/q".to_owned(), 404, "No subscriber with a key has this id."),
        ("GET", format!("{FREE}?key={}", key("pro")), 404, "The subscriber has no such key."),
        ("PUT", FREE.to_owned(), 405, "This endpoint takes GET, HEAD."),
        ("POST", format!("{PRO}/reset?class=bulk&quota=standard"), 422, unknown_class),
        ("POST", format!("{PRO}/reset?class=standard&quota=standard-day"), 422, unknown_quota),
        (
            "POST",
            format!("{FREE}/reset?class=analytics&quota=analytics&key={}", key("free-1")),
            422,
            no_quota,
        ),
    ];
    let mut listeners = Listeners::with("");
    for (method, path, status, message) in rows {
        let (found, refusal) = listeners.ask(method, &path);
        assert_eq!((found, &refusal["error"]["message"]), (status, &json!(message)), "{method} {path}");
    }
    assert!(listeners.public.host.logged.is_empty(), "{:?}", listeners.public.host.logged);
}

#[test]
fn nothing_is_passed_on_whatever_fails() {
    // the status with which reading shared data fails, and the answer's
    for (fails, expected) in [(10, 503), (12, 501)] {
        let mut listeners = Listeners::with("");
        listeners.public.host.fails = Some(fails);
        assert_eq!(listeners.ask("GET", PRO).0, expected);
        assert_eq!(listeners.ask("POST", &format!("{PRO}/reset?class=standard&quota=standard")).0, expected);
    }
    let mut listeners = Listeners::with(r#""enforcement": "shadow", "missing_key": {"action": "pass"}"#);
    for (path, expected) in [("/", 404), ("/links", 404), ("/weir/subscribers/p", 401)] {
        let headers = [(":method", &b"GET"[..]), (":path", path.as_bytes())];
        assert_eq!(status(&listeners.send(&serialize(&headers))), expected, "{path}");
    }
    assert_eq!(status(&listeners.send(b"")), 503, "no headers");
}

#[test]
fn the_public_listener_does_not_answer_operators() {
    let mut listeners = Listeners::with(r#""missing_key": {"action": "pass"}"#);
    for token in ["", "Bearer token"] {
        let sent = listeners.public.send("GET", PRO, token);
        assert_eq!(status(&sent), 0, "{token}: passed on");
    }
}

#[test]
fn subscribers_of_the_directory_are_seen_once_it_has_answered() {
    use crate::directory::tests::{load, row};
    let mut listeners = Listeners::with(r#""directory": {"cluster": "c", "path": "/k"}"#);
    assert_eq!(listeners.ask("GET", "/weir/subscribers/new").0, 503);
    assert_eq!(listeners.left(PRO, [1, 0]), 3, "one of the configuration");
    // The configuration has the first of these keys, so the directory's row does not count.
    let rows = ["pro", "new-1", "new-2", "new-3"].map(|key| (digest(key.as_bytes()), "new"));
    let rows = rows.into_iter().chain((0..200).map(|number| ([number; 32], "many")));
    let rows: Vec<_> = rows.map(|(key, subscriber)| row(&key, subscriber, "pro")).collect();
    load(&mut listeners.public.host, &listeners.operators.config().clone(), &rows);
    listeners.operators.look_at_directory(&mut listeners.public.host).unwrap();
    let (_, state) = listeners.ask("GET", "/weir/subscribers/new");
    let keys: Vec<_> = state["counters"].as_array().unwrap().iter().map(|counter| &counter["key"]).collect();
    // In the order of the hashes.
    let mut expected = ["new-1", "new-2", "new-3"].map(key);
    expected.sort();
    assert_eq!(keys, expected.map(|key| json!(key)).iter().collect::<Vec<_>>());
    let (_, state) = listeners.ask("GET", "/weir/subscribers/many");
    assert_eq!((state["counters"].as_array().unwrap().len(), &state["omitted"]), (100, &json!(100)));
}
