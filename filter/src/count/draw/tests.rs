use super::*;
use crate::config::rate::Rate;
use crate::count::consume::{Charge, Consumed, consume};

const ALICE: Fingerprint = Fingerprint::from_number(1);
const TERMS: LeaseTerms = LeaseTerms { min_window: 10, timeout: 250 };
/// A second of a minute, an hour and a day that have just begun.
const START: u64 = 1_763_596_800;

fn quota(rate: &str, mode: Mode) -> Quota {
    let Rate { limit, window } = rate.parse().unwrap();
    Quota { name: rate.to_owned(), limit, window, mode }
}

fn enforced(rate: &str) -> Quota {
    quota(rate, Mode::Enforced)
}

/// An entry, and the time.
struct Stored {
    entry: Vec<u8>,
    milliseconds: u64,
}

impl Stored {
    fn new() -> Self {
        Self { entry: Vec::new(), milliseconds: 0 }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos((START * 1000 + self.milliseconds) * 1_000_000)
    }

    /// What a request comes to, and what is used of each quota.
    fn draw_at(&mut self, quotas: &[Quota], cost: u32, beyond: Beyond) -> (Drawn, Vec<u32>) {
        let (mut next, mut standings) = (Vec::new(), Standings::new());
        let draw = Draw { fingerprint: ALICE, quotas, cost, terms: &TERMS, beyond };
        let drawn = draw.from(&self.entry, self.now(), &mut next, &mut standings).unwrap();
        if drawn != (Drawn::Refused { moved: false }) {
            self.entry = next;
        }
        (drawn, standings.iter().map(|standing| standing.used).collect())
    }

    fn draw(&mut self, quotas: &[Quota]) -> Drawn {
        self.draw_at(quotas, 1, Beyond::Ask).0
    }

    fn settle(&mut self, quota: &Quota, ask: Ask, answer: Answer) -> bool {
        let mut next = Vec::new();
        let settled = settle(&self.entry, ALICE, quota, ask, answer, self.now(), &mut next).unwrap();
        if settled {
            self.entry = next;
        }
        settled
    }

    /// Has the service grant what a request asks for, which leaves `left`.
    fn lease(&mut self, quotas: &[Quota], left: u32) -> u32 {
        let Drawn::Short(ask) = self.draw(quotas) else { panic!("something is leased already") };
        assert!(self.settle(&quotas[ask.quota], ask, Answer::Granted { left: Some(left) }));
        ask.units
    }

    /// How many requests are admitted before one is not, and what that one comes to.
    fn draw_all(&mut self, quotas: &[Quota]) -> (u32, Drawn) {
        let mut admitted = 0;
        loop {
            match self.draw(quotas) {
                Drawn::Admitted(_) => admitted += 1,
                drawn => return (admitted, drawn),
            }
        }
    }
}

const REFUSED: Drawn = Drawn::Refused { moved: false };

#[test]
fn what_is_leased_is_admitted_then_more_is_asked_for_until_nothing_is_left() {
    let (mut stored, quotas) = (Stored::new(), [enforced("600/minute")]);
    assert_eq!(stored.lease(&quotas, 597), 3);
    let (admitted, drawn) = stored.draw_all(&quotas);
    assert_eq!(admitted, 3);
    let Drawn::Short(ask) = drawn else { panic!("{drawn:?}") };
    // Others have taken all but what this one gets.
    assert!(stored.settle(&quotas[0], ask, Answer::Granted { left: Some(0) }));
    assert_eq!(stored.draw_all(&quotas), (ask.units, REFUSED));
    stored.milliseconds = 60_000;
    assert!(matches!(stored.draw(&quotas), Drawn::Short(_)), "a new window");
}

#[test]
fn a_window_that_is_too_short_for_leases_is_asked_for_by_each_request_until_it_is_used_up() {
    let (mut stored, quotas) = (Stored::new(), [enforced("5/second")]);
    for left in [4, 3, 2, 1, 0] {
        assert_eq!(stored.lease(&quotas, left), 1);
        assert_eq!(stored.draw(&quotas), Drawn::Admitted(None));
    }
    assert_eq!(stored.draw(&quotas), REFUSED);
}

#[test]
fn all_quotas_are_drawn_from_or_none() {
    let (mut stored, quotas) = (Stored::new(), [enforced("100/minute"), enforced("1000/day")]);
    for place in [0, 1] {
        let Drawn::Short(ask) = stored.draw(&quotas) else { panic!("nothing is leased") };
        assert_eq!(ask.quota, place);
        stored.settle(&quotas[place], ask, Answer::Granted { left: Some(50) });
    }
    let used = |stored: &mut Stored| stored.draw_at(&quotas, 1, Beyond::Ask).1;
    let Drawn::Short(ask) = stored.draw_all(&quotas).1 else { panic!("both can have more") };
    stored.settle(&quotas[ask.quota], ask, Answer::OverLimit { left: Some(0) });
    let last = used(&mut stored);
    assert_eq!(stored.draw(&quotas), REFUSED);
    assert_eq!(used(&mut stored), last, "a refused request uses nothing");
}

#[test]
fn a_limit_that_is_raised_helps_at_once_and_one_that_is_lowered_clamps() {
    let mut stored = Stored::new();
    let [hundred, twice, few] = ["100/minute", "200/minute", "2/minute"].map(|rate| [enforced(rate)]);
    stored.lease(&hundred, 0);
    stored.draw_all(&hundred);
    assert_eq!(stored.draw(&hundred), REFUSED);
    let Drawn::Short(ask) = stored.draw(&twice) else { panic!("a hundred more are left") };
    stored.settle(&twice[0], ask, Answer::Granted { left: Some(90) });
    assert!(matches!(stored.draw(&twice), Drawn::Admitted(_)));
    // Ten are held; two are used.
    assert_eq!(stored.draw(&few), REFUSED);
}

#[test]
fn a_shadow_quota_sees_what_the_fleet_uses_and_neither_asks_nor_refuses() {
    let quotas = [
        enforced("100/minute"),
        Quota { name: "low".to_owned(), ..quota("10/minute", Mode::Shadow) },
        quota("9/hour", Mode::Shadow),
    ];
    let mut stored = Stored::new();
    // Others have taken 50 of the minute; the hour is this gateway's own count.
    let leased = stored.lease(&quotas, 50 - 1);
    assert_eq!(leased, 1);
    let mut standings = Standings::new();
    let draw = Draw { fingerprint: ALICE, quotas: &quotas, cost: 1, terms: &TERMS, beyond: Beyond::Ask };
    let drawn = draw.from(&stored.entry, stored.now(), &mut Vec::new(), &mut standings).unwrap();
    assert!(matches!(drawn, Drawn::Admitted(_)));
    let seen: Vec<_> = standings.iter().map(|standing| (standing.used, standing.exhausted)).collect();
    assert_eq!(seen, [(51, false), (51, true), (1, false)]);
}

#[test]
fn beyond_what_is_leased_the_configuration_decides_while_nobody_answers() {
    let quotas = [enforced("100/minute")];
    let mut stored = Stored::new();
    let Drawn::Short(ask) = stored.draw(&quotas) else { panic!("nothing is leased") };
    stored.settle(&quotas[0], ask, Answer::Nothing);
    assert_eq!(stored.draw_at(&quotas, 1, Beyond::Nothing).0, REFUSED);
    // Its own share, however often it is granted.
    for _ in 0..3 {
        stored.settle(&quotas[0], Ask { units: 10, ..ask }, Answer::Own(10));
    }
    for _ in 0..10 {
        assert_eq!(stored.draw_at(&quotas, 1, Beyond::Nothing).0, Drawn::Admitted(None));
    }
    assert_eq!(stored.draw_at(&quotas, 1, Beyond::Nothing).0, REFUSED);
    // What passes nevertheless is paid for by the next lease.
    for _ in 0..5 {
        assert_eq!(stored.draw_at(&quotas, 1, Beyond::Pass).0, Drawn::Admitted(None));
    }
    let Drawn::Short(ask) = stored.draw(&quotas) else { panic!("it may ask again") };
    assert!(ask.units >= 6, "{ask:?}");
}

#[test]
fn what_was_used_stays_used_when_a_gateway_joins_a_fleet_and_when_it_leaves() {
    let quotas = [enforced("100/minute")];
    let mut stored = Stored::new();
    let mut next = Vec::new();
    let mut consume_here = |stored: &mut Stored, cost| {
        let mut standings = Standings::new();
        let charge = Charge { fingerprint: ALICE, quotas: &quotas, cost };
        let consumed = consume(&stored.entry, charge, stored.now(), &mut next, &mut standings);
        assert_eq!(consumed, Ok(Consumed::Admitted));
        stored.entry.clone_from(&next);
        standings[0].used
    };
    assert_eq!(consume_here(&mut stored, 40), 40);
    let Drawn::Short(ask) = stored.draw(&quotas) else { panic!("the forty are not paid for") };
    assert!(ask.units >= 41);
    stored.settle(&quotas[0], ask, Answer::Granted { left: Some(100 - ask.units) });
    assert!(matches!(stored.draw(&quotas), Drawn::Admitted(_)));
    assert_eq!(consume_here(&mut stored, 1), 42);
    assert!(stored.settle(&quotas[0], Ask { units: 9, ..ask }, Answer::Granted { left: Some(0) }));
    assert_eq!(stored.draw_all(&quotas).0, ask.units + 9 - 42, "the lease is still there");
}

#[test]
fn a_clock_that_steps_back_takes_no_lease_along() {
    let quotas = [enforced("100/minute")];
    let mut stored = Stored::new();
    stored.milliseconds = 600_000;
    stored.lease(&quotas, 99);
    stored.draw(&quotas);
    stored.milliseconds = 0;
    let Drawn::Short(_) = stored.draw(&quotas) else { panic!("the lease was another window's") };
}
