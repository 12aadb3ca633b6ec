use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::super::batch::MAX_BYTES;
use super::*;

fn config() -> Arc<Config> {
    let json = br#"{"plans": {"pro": {"standard": ["60/minute"], "chat": "unlimited"}}, "classes": [{"name": "chat", "match": [{"path": "/chat"}]}],
        "usage": {"cluster": "c", "path": "/usage"}}"#;
    Arc::new(Config::from_json(json).unwrap())
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_seconds(1_764_410_400 + seconds)
}

fn caller(subscriber: String) -> Caller {
    let subscriber = Some(subscriber.into());
    Caller { subscriber, key: [7; 8], organisation: None, plan: 0, quotas: None, watch: None }
}

/// A gateway of no fleet, with the random number of its VM.
struct Alone(u64);

impl Gateway for Alone {
    type Error = core::convert::Infallible;

    fn names(&mut self) -> Result<(Hex128, u64), Self::Error> {
        Ok((Hex128(0xabc), self.0))
    }

    fn shares(&self, _: &Meter) -> bool {
        false
    }

    fn news(&mut self, _: &Rc<Meter>) -> Vec<News> {
        Vec::new()
    }
}

/// A reporter, and a service that takes what it posts.
struct Reporting {
    reporter: Reporter,
    vm: u64,
    seconds: u64,
}

impl Reporting {
    fn new(vm: u64) -> Self {
        let mut reporting = Self { reporter: Reporter::new(&config()).unwrap(), vm, seconds: 0 };
        assert_eq!(reporting.batch(), None);
        reporting
    }

    fn batch(&mut self) -> Option<Vec<u8>> {
        let Ok(is_ready) = self.reporter.is_ready(at(self.seconds), &mut Alone(self.vm));
        self.reporter.batch().filter(|_| is_ready).map(<[u8]>::to_vec)
    }

    fn answered(&mut self, status: Option<u16>) -> Result<(), NotTaken> {
        self.reporter.answered(status, at(self.seconds))
    }
}

fn events(batch: &[u8]) -> Vec<Value> {
    assert!(batch.len() <= MAX_BYTES, "{}", batch.len());
    serde_json::from_slice(batch).unwrap()
}

#[test]
fn an_interval_ends_with_one_event_for_each_caller_and_class_and_one_for_strangers() {
    let mut reporting = Reporting::new(0x9b1e);
    let acme = reporting.reporter.meter(1, caller("acme".to_owned()));
    let of_plan = Caller { subscriber: None, organisation: Some("o".into()), ..caller(String::new()) };
    let of_plan = reporting.reporter.meter(0, of_plan);
    for used in [Some(2), Some(3), None] {
        reporting.reporter.add(&of_plan, used);
        reporting.reporter.add(&acme, used);
        reporting.reporter.add_stranger(1, used);
    }
    reporting.seconds = 9;
    assert_eq!(reporting.batch(), None);
    reporting.seconds = 10;
    let batch = events(&reporting.batch().unwrap());
    let found: BTreeMap<_, _> =
        batch.iter().map(|event| (event["subject"].as_str().unwrap(), event)).collect();
    let expected = serde_json::json!({
        "specversion": "1.0", "type": "weir.usage", "source": "00000000000000000000000000000abc", "subject": "acme",
        "id": found["acme"]["id"], "time": "2025-11-29T10:00:10.000Z", "datacontenttype": "application/json",
        "data": {"from": "2025-11-29T10:00:00.000Z", "to": "2025-11-29T10:00:10.000Z", "key": "07070707",
                 "class": "standard", "plan": "pro", "requests": 2, "units": 5, "refused": 1},
    });
    assert_eq!(*found["acme"], expected);
    let data = &found["key:0707070707070707"]["data"];
    assert_eq!((&data["organisation"], &data["class"]), (&"o".into(), &"chat".into()));
    let strangers = found["strangers"];
    assert_eq!(strangers["type"], "weir.usage.strangers");
    let fields: Vec<_> = strangers["data"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["class", "from", "refused", "requests", "to", "units"]);
    let ids: Vec<_> = batch.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["0000000000009b1e-0-0", "0000000000009b1e-0-1", "0000000000009b1e-0-2"]);
    reporting.answered(Some(204)).unwrap();
    reporting.seconds = 30;
    assert_eq!(reporting.batch(), None, "nothing was used since");
}

#[test]
fn a_batch_is_sent_again_unchanged_until_it_is_taken_or_refused_for_good() {
    let rows = [
        (Some(200), Some(0)),
        (Some(299), Some(0)),
        (Some(400), Some(1)),
        (Some(422), Some(1)),
        (Some(404), Some(1)),
        (None, None),
        (Some(401), None),
        (Some(403), None),
        (Some(408), None),
        (Some(429), None),
        (Some(302), None),
        (Some(500), None),
        (Some(503), None),
    ];
    for (status, lost) in rows {
        let mut reporting = Reporting::new(1);
        let acme = reporting.reporter.meter(0, caller("acme".to_owned()));
        reporting.reporter.add(&acme, Some(1));
        reporting.seconds = 10;
        let batch = reporting.batch().unwrap();
        // What is used meanwhile is another batch's.
        reporting.reporter.add(&acme, Some(5));
        assert_eq!(reporting.answered(status).is_ok(), lost == Some(0), "{status:?}");
        assert_eq!(reporting.reporter.take_lost(), lost.unwrap_or(0), "{status:?}");
        // Pauses of 1, 2, 4, 8 and then 10 s.
        for pause in [1, 2, 4, 8, 10, 10] {
            if lost.is_some() {
                break;
            }
            reporting.seconds += pause - 1;
            assert_eq!(reporting.batch(), None, "{status:?} after {pause}");
            reporting.seconds += 1;
            assert_eq!(reporting.batch().as_ref(), Some(&batch), "{status:?} after {pause}");
            let _not_taken = reporting.answered(status);
        }
        if lost.is_none() {
            reporting.seconds += 10;
            assert_eq!(reporting.batch(), Some(batch));
            reporting.answered(Some(200)).unwrap();
        }
        reporting.seconds += 10;
        let next = events(&reporting.batch().unwrap());
        assert_eq!((&next[0]["id"], &next[0]["data"]["units"]), (&"0000000000000001-1-0".into(), &5.into()));
    }
}

#[test]
fn a_clock_that_steps_back_holds_nothing_up() {
    let mut reporting = Reporting::new(1);
    let acme = reporting.reporter.meter(0, caller("acme".to_owned()));
    reporting.reporter.add(&acme, Some(1));
    reporting.seconds = 1_000;
    assert!(reporting.batch().is_some());
    let _not_taken = reporting.answered(Some(500));
    reporting.seconds = 10;
    assert!(reporting.batch().is_some());
    reporting.answered(Some(200)).unwrap();
    reporting.reporter.add(&acme, Some(1));
    assert!(reporting.batch().is_some());
}

#[test]
fn more_than_a_batch_holds_follows_in_the_next_and_names_longer_than_a_batch_are_lost() {
    let mut reporting = Reporting::new(1);
    let mut meters = Vec::new();
    for number in 0..2_000 {
        let meter = reporting.reporter.meter(0, caller(format!("subscriber-{number}")));
        reporting.reporter.add(&meter, Some(1));
        meters.push(meter);
    }
    let long = reporting.reporter.meter(0, caller("x".repeat(MAX_BYTES)));
    reporting.reporter.add(&long, Some(1));
    reporting.seconds = 10;
    let mut subjects = std::collections::BTreeSet::new();
    let mut batches = 0;
    while let Some(batch) = reporting.batch() {
        batches += 1;
        subjects.extend(events(&batch).iter().map(|event| event["subject"].to_string()));
        // The rest comes at once.
        reporting.answered(Some(200)).unwrap();
    }
    assert_eq!((batches, subjects.len(), reporting.reporter.take_lost()), (3, 2_000, 1));
}

#[test]
fn what_is_beyond_the_bound_is_counted_as_lost() {
    let mut reporting = Reporting::new(1);
    for number in 0..MOST + 3 {
        let meter = reporting.reporter.meter(0, caller(format!("subscriber-{number}")));
        reporting.reporter.add(&meter, Some(1));
    }
    assert_eq!(reporting.reporter.take_lost(), 3);
    // Before the interval ends, because so many have something to report.
    let mut found = 0;
    while let Some(batch) = reporting.batch() {
        found += events(&batch).len();
        reporting.answered(Some(200)).unwrap();
    }
    assert_eq!(found, MOST);
}

#[test]
fn a_configuration_that_ends_reports_at_once_and_gives_up_when_nobody_takes_it() {
    for (status, lost) in [(Some(200), 0), (Some(400), 1), (Some(500), 3), (None, 3)] {
        let mut reporting = Reporting::new(1);
        let all: Vec<_> =
            (0..3).map(|number| reporting.reporter.meter(0, caller(format!("{number}")))).collect();
        reporting.reporter.add(&all[0], Some(1));
        reporting.seconds = 10;
        assert!(reporting.batch().is_some());
        reporting.reporter.add(&all[1], Some(1));
        reporting.reporter.add(&all[2], Some(1));
        assert!(reporting.reporter.end());
        let _taken_or_not = reporting.answered(status);
        if reporting.batch().is_some() {
            reporting.answered(Some(200)).unwrap();
        }
        assert!(reporting.reporter.has_ended());
        assert_eq!(reporting.reporter.take_lost(), lost, "{status:?}");
    }
    assert!(!Reporting::new(1).reporter.end(), "nothing was used");
}

/// What happens to the reporters of two configurations of a VM.
#[derive(Clone, Debug)]
enum Happens {
    Used(usize, Option<u32>),
    Stranger(Option<u32>),
    Passes(u64),
    /// A batch is posted, if one is due. It is taken or not, and then the answer arrives or not.
    Posted(bool, Option<u16>),
    /// Another configuration follows, and the one before ends.
    Pushed,
}

fn happens() -> impl Strategy<Value = Happens> {
    let used = prop_oneof![4 => (0..5_u32).prop_map(Some), 1 => Just(None)];
    let status = prop_oneof![Just(None), Just(Some(200)), Just(Some(401)), Just(Some(422)), Just(Some(500))];
    prop_oneof![
        8 => (0..12_usize, used.clone()).prop_map(|(who, used)| Happens::Used(who, used)),
        2 => used.prop_map(Happens::Stranger),
        3 => (0..15_u64).prop_map(Happens::Passes),
        6 => (any::<bool>(), status).prop_map(|(taken, status)| Happens::Posted(taken, status)),
        1 => Just(Happens::Pushed),
    ]
}

proptest! {
    /// What is reported, each id once, and what was lost or is still to be reported, is what was used. An id is that of the same event always.
    #[test]
    fn nothing_is_reported_twice_or_forgotten(steps in prop::collection::vec(happens(), 1..200)) {
        let mut reporting = Reporting::new(0);
        let mut meters: BTreeMap<usize, Rc<Meter>> = BTreeMap::new();
        let (mut used, mut taken, mut lost) = ([0_u64; 2], BTreeMap::new(), 0);
        let mut vm = 0;
        let take = |batch: &[u8], taken: &mut BTreeMap<String, Value>| {
            for event in events(batch) {
                let id = event["id"].as_str().unwrap().to_owned();
                if let Some(before) = taken.insert(id, event.clone()) {
                    assert_eq!(before, event);
                }
            }
        };
        let mut post = |reporting: &mut Reporting, is_taken: bool, status: Option<u16>| {
            let Some(batch) = reporting.batch() else { return false };
            // A service that has taken a batch before takes it again.
            let is_known = events(&batch).iter().any(|event| taken.contains_key(event["id"].as_str().unwrap()));
            let status = if is_known && status == Some(422) { Some(200) } else { status };
            if status != Some(422) && (is_taken || status == Some(200)) {
                take(&batch, &mut taken);
            }
            let answer = reporting.answered(status);
            if let Err(NotTaken::Refused { requests, .. }) = answer {
                lost += requests;
            }
            true
        };
        for step in steps {
            match step {
                Happens::Used(who, units) => {
                    let new = || reporting.reporter.meter(who % 2, caller(format!("caller-{who}")));
                    let meter = Rc::clone(meters.entry(who).or_insert_with(new));
                    reporting.reporter.add(&meter, units);
                    used[0] += 1;
                    used[1] += u64::from(units.unwrap_or(0));
                }
                Happens::Stranger(units) => {
                    reporting.reporter.add_stranger(1, units);
                    used[0] += 1;
                    used[1] += u64::from(units.unwrap_or(0));
                }
                Happens::Passes(seconds) => reporting.seconds += seconds,
                Happens::Posted(is_taken, status) => {
                    post(&mut reporting, is_taken, status);
                }
                Happens::Pushed => {
                    vm += 1;
                    let mut next = Reporting::new(vm);
                    next.seconds = reporting.seconds;
                    next.reporter.take_over(&mut reporting.reporter);
                    prop_assert!(!reporting.reporter.end());
                    (reporting, meters) = (next, BTreeMap::new());
                }
            }
        }
        reporting.seconds += 30;
        while post(&mut reporting, true, Some(200)) {}
        let number = |event: &Value, field: &str| event["data"][field].as_u64().unwrap();
        let requests: u64 = taken.values().map(|event| number(event, "requests") + number(event, "refused")).sum();
        let units: u64 = taken.values().map(|event| number(event, "units")).sum();
        // Of a batch that was refused for good, the service may have taken nothing.
        prop_assert_eq!(requests + lost, used[0]);
        prop_assert!(lost > 0 || units == used[1]);
        prop_assert_eq!(reporting.reporter.take_lost(), lost);
    }
}
