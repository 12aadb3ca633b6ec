use core::fmt;
use core::num::NonZeroU32;
use std::sync::Arc;

use ledger_wire::{Says, Share};

use super::*;
use crate::count::fingerprint::Who;
use crate::count::holding::Beyond;
use crate::count::levels::{Levels, Others};
use crate::count::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData};
use crate::count::table::Capacity;
use crate::quota::{Mode, QuotaSet};
use crate::window::Window;

const SHARING: Sharing =
    Sharing { timeout: 250, term: 1_000, ahead: 0, beyond: Beyond::Nothing, in_shadow: false };
/// When all tests begin, in milliseconds since the epoch.
const BEGIN: u64 = 1_764_081_180_000;

/// Shared data, a clock that a test sets, and a log.
#[derive(Default)]
struct TestHost {
    data: VmLocalData,
    /// Since all tests begin.
    millis: u64,
    logged: Vec<String>,
}

impl SharedData for TestHost {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.data.get(name)
    }
    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.data.set(name, value, cas)
    }
}

impl CounterHost for TestHost {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        Ok(Timestamp::from_nanos((BEGIN + self.millis) * 1_000_000))
    }

    fn log(&mut self, _: LogLevel, message: fmt::Arguments<'_>) {
        self.logged.push(message.to_string());
    }
}

/// A worker of a gateway, whose keys have a hundred units a minute.
struct Worker {
    counters: Counters,
    client: Client,
}

impl Worker {
    fn new(host: &mut TestHost) -> Self {
        let capacity = Capacity { known: 2_048, strangers: 4 };
        let counters = Counters::open(host, [7; 16], "", capacity).unwrap().in_fleet(true);
        Self { counters, client: Client::new(SHARING) }
    }

    /// What a request of a subscriber needs.
    fn demand(&self, subscriber: &str) -> Demand {
        let (who, limit) = (Who::Subscriber(subscriber), NonZeroU32::new(100).unwrap());
        let (window, mode) = (Window::MINUTE, Mode::Enforced);
        let quota = Quota { name: "q".to_owned(), limit, window, mode, refundable: true };
        let names = Some([SharedName::new("", who, "standard"); 2]);
        let levels = Levels {
            own: self.counters.counter(who, "standard"),
            others: Some(Arc::new(Others { organisation: None, names })),
        };
        Demand { quotas: Arc::new(QuotaSet::new(vec![quota])), levels, cost: 1 }
    }

    /// A request of a subscriber comes.
    fn charge(&mut self, host: &mut TestHost, subscriber: &str) -> Next {
        let (demand, mut standings) = (self.demand(subscriber), Standings::new());
        self.client.charge(&mut self.counters, host, &demand, &mut standings).unwrap()
    }

    /// The same of one that waits, with its call.
    fn ask(&mut self, host: &mut TestHost, subscriber: &str) -> (Waiting, Call) {
        waits(self.charge(host, subscriber))
    }

    /// The call of a request has ended.
    fn answered(
        &mut self,
        host: &mut TestHost,
        subscriber: &str,
        waiting: Waiting,
        response: Result<Response, AnswerError>,
    ) -> Next {
        let (demand, mut standings) = (self.demand(subscriber), Standings::new());
        let of = (&demand, &mut standings);
        self.client.answered(&mut self.counters, host, of, waiting, response).unwrap()
    }

    /// A request is admitted, and `ahead` more units are held.
    fn hold(&mut self, host: &mut TestHost, subscriber: &str, ahead: u32) {
        let (waiting, call) = self.ask(host, subscriber);
        let next = self.answered(host, subscriber, waiting, Ok(answers(host, &call, ahead)));
        assert_eq!(admission(&next), Admission::Admitted);
    }

    /// A request comes whose calls all fail at once.
    fn fail(&mut self, host: &mut TestHost, subscriber: &str) {
        let (mut waiting, _) = self.ask(host, subscriber);
        for _ in 1..MOST_CALLS {
            (waiting, _) = waits(self.answered(host, subscriber, waiting, Err(AnswerError::None)));
        }
        let next = self.answered(host, subscriber, waiting, Err(AnswerError::None));
        assert_eq!(admission(&next), Admission::Denied);
    }

    fn tick(&mut self, host: &mut TestHost) -> Option<Call> {
        self.client.tick(&mut self.counters, host)
    }

    fn tick_answered(&mut self, host: &mut TestHost, call: &Call) -> Option<Call> {
        let response = Ok(answers(host, call, 0));
        self.client.tick_answered(&mut self.counters, host, response)
    }
}

fn waits(next: Next) -> (Waiting, Call) {
    let Next::Waits(mut waiting) = next else { panic!("{next:?}") };
    let call = waiting.take_call().unwrap();
    (waiting, call)
}

fn admission(next: &Next) -> Admission {
    let Next::Counted(counted) = next else { panic!("{next:?}") };
    counted.admission
}

fn response(host: &TestHost, items: Vec<Answer>) -> Response {
    Response { epoch: Hex128(7), now: BEGIN + host.millis, items }
}

/// What a ledger answers that has enough, and gives `ahead` units beyond what is asked for.
fn answers(host: &TestHost, call: &Call, ahead: u32) -> Response {
    let answer = |statement: &Statement| {
        let units = match statement.says {
            Says::Ask { need, .. } => need + ahead,
            Says::Return { keep } => keep,
        };
        let share = statement.used + units;
        Answer::Share(Share { share, others: 0, reset: statement.reset, settling: false })
    };
    response(host, call.statements.iter().map(answer).collect())
}

/// The answer to one who asks after others have taken what was left for a moment.
fn taken(host: &TestHost) -> Response {
    response(host, vec![Answer::Share(Share { share: 0, others: 0, reset: 0, settling: false })])
}

#[test]
fn a_new_client_looks_through_the_table_and_states_what_others_have_left() {
    for is_retired in [false, true] {
        let mut host = TestHost::default();
        let mut died = Worker::new(&mut host);
        for subscriber in ["a", "b", "c"] {
            died.hold(&mut host, subscriber, 20);
        }
        host.millis = 1_500;
        let mut worker = Worker::new(&mut host);
        if is_retired {
            worker.client.retire();
            assert!(!worker.client.has_work() && !worker.client.is_busy());
            assert_eq!(worker.tick(&mut host), None);
            continue;
        }
        assert!(worker.client.has_work() && worker.client.is_busy());
        let call = worker.tick(&mut host).unwrap();
        let stated: Vec<_> =
            call.statements.iter().map(|statement| (statement.used, statement.says)).collect();
        assert_eq!(stated, [(1, Says::Return { keep: 0 }); 3]);
        assert!(!worker.client.is_busy(), "the next tick may come in its time");
        assert_eq!(worker.tick(&mut host), None, "one call at a time");
        assert_eq!(worker.tick_answered(&mut host, &call), None);
        assert_eq!(worker.tick(&mut host), None, "all is settled");
    }
}

#[test]
fn a_new_epoch_has_the_client_look_through_the_table_again() {
    let mut host = TestHost::default();
    let (mut worker, mut other) = (Worker::new(&mut host), Worker::new(&mut host));
    let call = worker.tick(&mut host).unwrap();
    assert_eq!(call.statements, [], "it only asks for the epoch");
    worker.tick_answered(&mut host, &call);
    other.hold(&mut host, "a", 20);
    // When the worker ticks, the epoch that it is told then, and how many statements it makes.
    for (millis, epoch, statements) in [(1_000, 7, 0), (2_000, 7, 0), (3_000, 8, 1), (4_000, 8, 0)] {
        host.millis = millis;
        let call = worker.tick(&mut host).unwrap();
        assert_eq!(call.statements, [], "{millis}");
        let told = Response { epoch: Hex128(epoch), ..answers(&host, &call, 0) };
        let next = worker.client.tick_answered(&mut worker.counters, &mut host, Ok(told));
        assert_eq!(next.as_ref().map_or(0, |call| call.statements.len()), statements, "{millis}");
        if let Some(call) = next {
            let told = Response { epoch: Hex128(epoch), ..answers(&host, &call, 0) };
            worker.client.tick_answered(&mut worker.counters, &mut host, Ok(told));
        }
    }
}

#[test]
fn while_the_ledger_is_away_one_request_in_a_pause_tries_and_another_at_once_if_its_client_leaves() {
    let mut host = TestHost::default();
    let mut worker = Worker::new(&mut host);
    for _ in 0..2 {
        worker.fail(&mut host, "a");
    }
    // When a request comes, and whether it may ask; whether its client leaves then. Otherwise nobody hears of it again.
    let steps = [
        (0, false, false),
        (99, false, false),
        (100, true, false),
        (101, false, false),
        (199, false, false),
        (200, true, true),
        (201, true, false),
        (202, false, false),
        (299, false, false),
    ];
    for (millis, asks, leaves) in steps {
        host.millis = millis;
        match worker.charge(&mut host, "a") {
            Next::Waits(waiting) => {
                assert!(asks, "{millis}");
                if leaves {
                    worker.client.ended(&mut worker.counters, &mut host, &waiting);
                }
            }
            counted @ Next::Counted(_) => {
                assert_eq!((asks, admission(&counted)), (false, Admission::Denied), "{millis}");
            }
        }
    }
    host.millis = 301;
    let (waiting, call) = worker.ask(&mut host, "a");
    let response = answers(&host, &call, 0);
    let next = worker.answered(&mut host, "a", waiting, Ok(response));
    assert_eq!(admission(&next), Admission::Admitted);
    worker.ask(&mut host, "a");
    worker.ask(&mut host, "b");
}

#[test]
fn the_calls_of_a_request_end_when_its_time_does() {
    // When its calls have failed, how long each call may take, and whether it still waits.
    let rows: [(&[u64], &[u32], bool); 8] = [
        (&[], &[125], true),
        (&[125], &[125, 125], true),
        (&[10], &[125, 125], true),
        (&[130], &[125, 120], true),
        (&[10, 240], &[125, 125, 10], true),
        (&[125, 250], &[125, 125], false),
        (&[400], &[125], false),
        (&[10, 20, 30, 40], &[125, 125, 125, 125], false),
    ];
    for (failures, timeouts, still_waits) in rows {
        let mut host = TestHost::default();
        let mut worker = Worker::new(&mut host);
        let (waiting, call) = worker.ask(&mut host, "a");
        let (mut waiting, mut found) = (Some(waiting), vec![call.timeout]);
        for millis in failures {
            host.millis = *millis;
            let waited = waiting.take().unwrap();
            match worker.answered(&mut host, "a", waited, Err(AnswerError::None)) {
                Next::Waits(mut again) => {
                    found.push(again.take_call().unwrap().timeout);
                    waiting = Some(again);
                }
                counted @ Next::Counted(_) => {
                    assert_eq!(admission(&counted), Admission::Denied, "{failures:?}");
                }
            }
        }
        assert_eq!((found.as_slice(), waiting.is_some()), (timeouts, still_waits), "{failures:?}");
    }
}

#[test]
fn a_call_that_had_less_time_than_others_does_not_stop_the_worker_from_calling_when_it_runs_out() {
    let mut host = TestHost::default();
    let mut worker = Worker::new(&mut host);
    let subscribers = ["a", "b", "c"];
    let waiting = subscribers.map(|subscriber| worker.ask(&mut host, subscriber).0);
    host.millis = 200;
    let mut asked_again = Vec::new();
    for (subscriber, waiting) in subscribers.into_iter().zip(waiting) {
        let response = taken(&host);
        let (waiting, call) = waits(worker.answered(&mut host, subscriber, waiting, Ok(response)));
        assert_eq!(call.timeout, 50);
        asked_again.push((subscriber, waiting));
    }
    host.millis = 250;
    for (subscriber, waiting) in asked_again {
        let next = worker.answered(&mut host, subscriber, waiting, Err(AnswerError::None));
        assert_eq!(admission(&next), Admission::Denied);
        assert!(!worker.client.breaker.is_open(), "{subscriber}");
    }
}

#[test]
fn a_ledger_that_lets_all_calls_run_out_is_not_called_on_however_late_that_is_heard() {
    for late in [0, 1, 30] {
        let mut host = TestHost::default();
        let mut worker = Worker::new(&mut host);
        for (began, is_open) in [(0, false), (1_000, true)] {
            host.millis = began;
            let (waiting, first) = worker.ask(&mut host, "a");
            host.millis += u64::from(first.timeout) + late;
            let next = worker.answered(&mut host, "a", waiting, Err(AnswerError::None));
            let (waiting, second) = waits(next);
            host.millis += u64::from(second.timeout) + late;
            let next = worker.answered(&mut host, "a", waiting, Err(AnswerError::None));
            assert_eq!(admission(&next), Admission::Denied);
            assert_eq!(worker.client.breaker.is_open(), is_open, "{late} ms late");
        }
    }
}

#[test]
fn a_quarter_of_the_places_is_for_one_counter_and_each_is_free_when_its_request_goes_on() {
    let mut host = TestHost::default();
    let mut worker = Worker::new(&mut host);
    let mut waiting: Vec<_> = (0..256).map(|_| worker.ask(&mut host, "a")).collect();
    let others = (worker.ask(&mut host, "b"), worker.ask(&mut host, "c"));
    assert_eq!(admission(&worker.charge(&mut host, "a")), Admission::Full);
    let (gone, _) = waiting.pop().unwrap();
    worker.client.ended(&mut worker.counters, &mut host, &gone);
    drop(gone);
    let (answered, call) = worker.ask(&mut host, "a");
    assert_eq!(admission(&worker.charge(&mut host, "a")), Admission::Full);
    let response = answers(&host, &call, 0);
    let next = worker.answered(&mut host, "a", answered, Ok(response));
    assert_eq!(admission(&next), Admission::Admitted);
    worker.ask(&mut host, "a");
    let sums = Event::ALL.into_iter().zip(worker.client.events.drain());
    let full = sums.filter(|(event, _)| *event == Event::FleetPlacesFull);
    assert_eq!(full.map(|(_, sum)| sum).collect::<Vec<_>>(), [2]);
    drop(others);
}

#[test]
fn why_a_statement_was_refused_is_logged_once_a_minute_for_each_code_and_field() {
    let mut host = TestHost::default();
    let mut worker = Worker::new(&mut host);
    // The second, the code, the field and the message; and what is logged after its beginning, which all lines have.
    let steps = [
        (0, "clock", None, "it is 7", Some("clock: it is 7")),
        (1, "clock", None, "it is 8", None),
        (
            2,
            "malformed",
            Some("ends"),
            "too late",
            Some("malformed, field ends: too late (1 more error line was left out)"),
        ),
        (3, "malformed", Some("limit"), "odd", Some("malformed, field limit: odd")),
        (59, "malformed", Some("ends"), "too late", None),
        (60, "clock", None, "it is 9", Some("clock: it is 9 (1 more error line was left out)")),
        (61, "clock", None, "it is 9", None),
    ];
    for (second, code, field, message, expected) in steps {
        host.millis = second * 1_000;
        let (waiting, _) = worker.ask(&mut host, "a");
        let error =
            ItemError { code: code.into(), field: field.map(Into::into), message: message.to_owned() };
        let refused = response(&host, vec![Answer::Refused(error)]);
        let next = worker.answered(&mut host, "a", waiting, Ok(refused));
        assert_eq!(admission(&next), Admission::Denied, "the ledger does not decide");
        let expected = expected.map(|line| format!("weir: ledger: refused a statement: {line}"));
        assert_eq!(host.logged.drain(..).collect::<Vec<_>>(), Vec::from_iter(expected), "second {second}");
    }
}

#[test]
fn a_client_that_another_follows_ticks_until_all_is_settled_that_its_requests_have_used() {
    let mut host = TestHost::default();
    let mut worker = Worker::new(&mut host);
    let call = worker.tick(&mut host).unwrap();
    worker.tick_answered(&mut host, &call);
    worker.hold(&mut host, "a", 20);
    worker.client.retire();
    assert!(worker.client.has_work());
    assert_eq!(worker.tick(&mut host), None, "it may still be used");
    host.millis = 1_500;
    let call = worker.tick(&mut host).unwrap();
    let [Statement { used: 1, says: Says::Return { keep: 0 }, .. }] = call.statements[..] else {
        panic!("{call:?}")
    };
    worker.tick_answered(&mut host, &call);
    // Whether it is settled, the next tick finds out.
    for (millis, has_work) in [(1_600, true), (9_000, false)] {
        assert_eq!(worker.client.has_work(), has_work, "{millis}");
        host.millis = millis;
        assert_eq!(worker.tick(&mut host), None, "{millis}: no call only to see the epoch");
    }
    // A stream of this configuration is still open, and settles its charge.
    worker.client.settled(&worker.demand("a"));
    assert!(worker.client.has_work());
}
