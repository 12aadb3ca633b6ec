//! Documents of a gateway in a fleet: what is asked of the ledger for them, and what they say.

use ledger_wire::{Answer as LedgerAnswer, Hex128, ItemError, Response, Share, Statement};
use serde_json::{Value, json};

use super::*;
use crate::fleet::messages::AnswerError;

const FLEET: &str = r#""usage_path": "/quota", "fleet": {"cluster": "ledger"}"#;
/// Calls of a request that fail at the instant when they are made.
const CALLS_THAT_FAIL: usize = 4;
/// Requests for one counter that may wait at a time.
const PLACES: usize = 256;
const RESET: &str = "/weir/subscribers/f/reset?class=standard&quota=standard&key=";

fn key(key: &str) -> String {
    format!("sha256:{}", digest(key.as_bytes()).map(|byte| format!("{byte:02x}")).concat())
}

fn with_operators(fields: &str) -> Filter {
    let tokens = json!({"tokens": [{"name": "on-call", "token": key("token")}]});
    Filter::with(&format!(r#""operators": {tokens}, {fields}"#))
}

/// A request that may have to wait for the ledger.
struct Asking {
    filter: Filter,
    headers: Vec<u8>,
    decided: Decided,
}

impl Asking {
    fn begin(filter: Filter, method: &str, path: &str, authorization: &str) -> Self {
        let authorization = format!("Bearer {authorization}");
        let headers = [
            (":method", method.as_bytes()),
            (":path", path.as_bytes()),
            ("authorization", authorization.as_bytes()),
        ];
        let mut asking = Self { filter, headers: serialize(&headers), decided: Decided::default() };
        asking.filter.limiter.decide(&mut asking.filter.host, &asking.headers, &mut asking.decided);
        asking
    }

    fn usage() -> Self {
        Self::begin(Filter::with(FLEET), "GET", "/quota", "free-1")
    }

    /// What it has stated and waits for.
    fn stated(&self) -> Vec<Statement> {
        let Some(Answer::Later(wait)) = self.decided.answer.as_deref() else { return Vec::new() };
        let all = wait.waiting.asked().iter().flat_map(|asked| &asked.statements);
        all.map(|stated| stated.statement).collect()
    }

    /// Ends what it waits for. Without answers, its call fails as often as it is made.
    fn answer(&mut self, answers: Option<&[LedgerAnswer]>) {
        let Self { filter, headers, decided } = self;
        let (items, now) = (answers.map(<[_]>::to_vec), filter.host.seconds * 1_000);
        let responded = items.map(|items| Response { epoch: Hex128(7), now, items }).ok_or(AnswerError::None);
        for _ in 0..if responded.is_ok() { 1 } else { CALLS_THAT_FAIL } {
            let Some(Answer::Later(wait)) = decided.answer.as_deref_mut() else { panic!("it waits") };
            assert!(wait.waiting.take_call().is_some());
            filter.limiter.go_on(&mut filter.host, headers, decided, responded.clone());
        }
    }

    /// The status and the document of its answer.
    fn answered(&self) -> (u16, Value) {
        let answer = self.decided.answer.as_deref().unwrap();
        assert!(!matches!(answer, Answer::Later(_)), "it waits");
        let reply = Reply::new(self.filter.limiter.config(), &self.decided, answer, None);
        (reply.status, serde_json::from_str(&reply.body).unwrap())
    }
}

fn share(others: u32) -> LedgerAnswer {
    LedgerAnswer::Share(Share { share: 0, others, reset: 0, settling: false })
}

fn settling(others: u32) -> LedgerAnswer {
    LedgerAnswer::Share(Share { share: 0, others, reset: 0, settling: true })
}

fn refused() -> LedgerAnswer {
    LedgerAnswer::Refused(ItemError { code: "store".into(), field: None, message: String::new() })
}

#[test]
fn a_document_counts_what_others_hold_or_says_that_it_does_not_know() {
    // What the ledger answers, what is left of two, and whose use that counts.
    let rows = [
        (Some(share(1)), 1, "fleet"),
        (Some(settling(1)), 1, "gateway"),
        (Some(refused()), 2, "gateway"),
        (None, 2, "gateway"),
    ];
    for (answer, left, scope) in rows {
        let path = format!("/weir/subscribers/f?key={}", key("free-1"));
        let operator = Asking::begin(with_operators(FLEET), "GET", &path, "token");
        for (mut asking, counter) in [(Asking::usage(), ""), (operator, "/counters/0")] {
            let [Statement { says, used: 0, limit: 2, .. }] = asking.stated()[..] else { panic!() };
            assert_eq!(says, ledger_wire::Says::Ask { need: 0, cost: 0, hold: 0 });
            asking.answer(answer.as_ref().map(std::slice::from_ref));
            let (status, document) = asking.answered();
            let quota = document.pointer(&format!("{counter}/classes/1/quotas/0/remaining"));
            assert_eq!((status, quota, &document["scope"]), (200, Some(&json!(left)), &json!(scope)));
        }
    }
}

#[test]
fn a_document_without_shared_quotas_waits_for_nothing() {
    let shadow = Filter::with(&format!(r#""enforcement": "shadow", {FLEET}"#));
    let asking = Asking::begin(shadow, "GET", "/quota", "free-1");
    assert_eq!(asking.answered().1["scope"], "gateway", "in shadow mode nothing is shared");
    let config = json!({
        "plans": {"pro": {"standard": "unlimited"}},
        "subscribers": [{"id": "p", "plan": "pro", "keys": [key("pro")]}],
        "usage_path": "/quota",
        "fleet": {"cluster": "ledger"},
    });
    let config = Config::from_json(config.to_string().as_bytes()).unwrap();
    let unlimited = Filter { limiter: Limiter::new(Arc::new(config)), ..Filter::with("") };
    assert_eq!(Asking::begin(unlimited, "GET", "/quota", "pro").answered().1["scope"], "fleet");
}

#[test]
fn a_count_that_was_reset_elsewhere_is_asked_about_again_in_time() {
    for (seconds, expected) in [(0, "fleet"), (1, "gateway")] {
        let mut asking = Asking::usage();
        let [first] = asking.stated()[..] else { panic!() };
        asking.filter.host.seconds += seconds;
        asking.answer(Some(&[LedgerAnswer::Reset(9)]));
        if seconds == 0 {
            let [again] = asking.stated()[..] else { panic!() };
            assert_eq!((first.reset, again.reset, again.limit), (0, 9, 2));
            assert_ne!(first.generation, again.generation);
            asking.answer(Some(&[share(1)]));
        }
        assert_eq!(asking.answered().1["scope"], expected);
    }
}

#[test]
fn a_reset_is_stated_under_a_higher_number_and_answered_once_the_ledger_has_it() {
    let free = LedgerAnswer::Share(Share { share: 0, others: 0, reset: 60_000, settling: false });
    // What the ledger answers to the statement of the reset.
    let rows = [
        (Some(free), 200),
        (Some(settling(0)), 200),
        (Some(LedgerAnswer::Reset(u64::MAX)), 503),
        (Some(refused()), 503),
        (None, 503),
    ];
    for (answer, expected) in rows {
        // What was answered before, and the use that is known from it.
        for (view, used) in [(Some(share(2)), 2), (None, 0)] {
            let path = format!("{RESET}{}", key("free-1"));
            let mut asking = Asking::begin(with_operators(FLEET), "POST", &path, "token");
            asking.answer(view.as_ref().map(std::slice::from_ref));
            let [stated] = asking.stated()[..] else { panic!() };
            // The clock is at 60 s.
            assert_eq!((stated.used, stated.seq, stated.reset), (0, 1, 60_000));
            asking.answer(answer.as_ref().map(std::slice::from_ref));
            let (status, document) = asking.answered();
            assert_eq!(status, expected, "{document}");
            if status == 200 {
                let scope = if view.is_some() { "fleet" } else { "gateway" };
                let left = &document["counters"][0]["classes"][1]["quotas"][0]["remaining"];
                assert_eq!((left, &document["scope"]), (&json!(2), &json!(scope)));
            } else {
                let message = document["error"]["message"].as_str().unwrap();
                assert!(message.contains("The other gateways do not know it yet"), "{message}");
            }
            let audits = asking.filter.host.logged.iter().filter(|line| line.starts_with("audit "));
            let audits: Vec<_> = audits.collect();
            assert_eq!(audits.len(), 1, "{audits:?}");
            assert!(audits[0].contains(&format!(r#""used_before":{used},"used_after":0"#)), "{audits:?}");
        }
    }
}

#[test]
fn a_reset_has_a_higher_number_than_the_ledgers_though_the_clock_is_behind() {
    let path = format!("{RESET}{}", key("free-1"));
    let mut asking = Asking::begin(with_operators(FLEET), "POST", &path, "token");
    asking.answer(Some(&[LedgerAnswer::Reset(70_000)]));
    asking.answer(Some(&[share(2)]));
    assert_eq!(asking.stated()[0].reset, 70_001);
}

#[test]
fn documents_wait_at_places_like_all_requests() {
    let Asking { mut filter, headers, .. } = Asking::usage();
    let mut waiting = Vec::new();
    for _ in 0..=PLACES {
        let mut decided = Decided::default();
        filter.limiter.decide(&mut filter.host, &headers, &mut decided);
        waiting.push(decided);
    }
    let last = waiting.pop().unwrap();
    let refusal = last.answer.as_deref();
    assert!(matches!(refusal, Some(Answer::Refused(Refusal::NoPlace))), "{refusal:?}");
    assert!(waiting.iter().all(|decided| matches!(decided.answer.as_deref(), Some(Answer::Later(_)))));
}

#[test]
fn as_many_keys_are_listed_as_one_call_can_ask_about() {
    let classes: Vec<_> = (0..12).map(|class| format!("class-{class}")).collect();
    let quotas: Value = classes.iter().map(|class| (class.clone(), json!(["9/minute"]))).collect();
    let keys: Vec<_> = (0..100).map(|number| key(&number.to_string())).collect();
    let config = json!({
        "plans": {"pro": quotas},
        "classes": classes.iter().map(|class| json!({"name": class, "match": [{"path": format!("/{class}")}]}))
            .collect::<Vec<_>>(),
        "default_class": "class-0",
        "subscribers": [{"id": "p", "plan": "pro", "keys": keys}],
        "operators": {"tokens": [{"name": "on-call", "token": key("token")}]},
        "fleet": {"cluster": "ledger"},
    });
    let config = Config::from_json(config.to_string().as_bytes()).unwrap();
    let filter = Filter { limiter: Limiter::new(Arc::new(config)), ..Filter::with("") };
    let mut asking = Asking::begin(filter, "GET", "/weir/subscribers/p", "token");
    assert_eq!(asking.stated().len(), 83 * 12);
    asking.answer(None);
    let (_, state) = asking.answered();
    assert_eq!((state["counters"].as_array().unwrap().len(), &state["omitted"]), (83, &json!(17)));
}
