use proptest::prelude::*;

use super::*;
use crate::count::holding::Held;
use crate::count::rate::Flow;
use crate::window::Window;

/// Seconds that a request is counted at the longest, and those of a slot.
const LONGEST: u64 = 80;
const A_SLOT: u64 = LONGEST / 8;

/// Requests of one counter as a list of them, beside the count that is tested.
struct Model {
    count: Count,
    writes: u32,
    now: u64,
    requests: Vec<Begun>,
}

/// A request that has begun and not ended.
struct Begun {
    slot: u32,
    generation: u32,
    /// When it began, by the earliest time that the clock has shown since.
    at: u64,
    /// The latest age that the clock has shown.
    oldest: u64,
}

impl Model {
    fn begun_at(now: u64) -> Self {
        let window = Window::of_longest(LONGEST as u32, false);
        let (flow, held) = (Flow::default(), Held::default());
        let count = Count { window, index: 0, generation: 0, used: 0, flow, held };
        let mut model = Self { count, writes: 0, now, requests: Vec::new() };
        model.go_to(now);
        model
    }

    /// Reads the clock, as each step on a record does. Returns how many requests there are.
    fn go_to(&mut self, now: u64) -> u32 {
        (self.now, self.writes) = (now, self.writes + 1);
        self.count.go_on(Timestamp::from_seconds(now), self.writes);
        for Begun { at, oldest, .. } in &mut self.requests {
            *at = now.min(*at);
            *oldest = (now - *at).max(*oldest);
        }
        self.count.used
    }

    fn begin(&mut self) {
        self.count.begin_request();
        let Count { index: slot, generation, .. } = self.count;
        self.requests.push(Begun { slot, generation, at: self.now, oldest: 0 });
    }

    /// Ends a request. Returns whether that gave its place back.
    fn end(&mut self, place: usize) -> bool {
        let Begun { slot, generation, .. } = self.requests.remove(place);
        self.count.end_request(slot, generation)
    }

    /// Requests that have lasted less than this, whatever the clock has shown since they began.
    fn younger_than(&self, age: u64) -> u32 {
        self.requests.iter().filter(|request| request.oldest < age).count() as u32
    }
}

/// A step: another time, a request that begins, or the end of one of those in flight.
#[derive(Clone, Copy, Debug)]
enum Event {
    Time(i64),
    Begins,
    Ends(prop::sample::Index),
}

fn events(times: std::ops::Range<i64>) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        1 => times.prop_map(Event::Time),
        2 => Just(Event::Begins),
        2 => any::<prop::sample::Index>().prop_map(Event::Ends),
    ];
    prop::collection::vec(event, 0..200)
}

/// Time at which the stories begin.
const BEGIN: u64 = 1_764_081_183;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// As long as time goes on, all are counted that have lasted less than `longest`, and none that have lasted an eighth more.
    #[test]
    fn while_time_goes_on_requests_are_counted_until_they_end_or_have_lasted_longest(events in events(0..40)) {
        let mut model = Model::begun_at(BEGIN);
        for event in events {
            match event {
                Event::Time(seconds) => {
                    model.go_to(model.now + seconds.unsigned_abs());
                }
                Event::Begins => model.begin(),
                Event::Ends(_) if model.requests.is_empty() => {}
                Event::Ends(index) => {
                    let place = index.index(model.requests.len());
                    let lasted = model.now - model.requests[place].at;
                    let was_counted = model.end(place);
                    prop_assert!(was_counted || lasted >= LONGEST);
                    prop_assert!(!was_counted || lasted < LONGEST + A_SLOT);
                }
            }
            let counted = model.count.used;
            let expected = model.younger_than(LONGEST)..=model.younger_than(LONGEST + A_SLOT);
            prop_assert!(expected.contains(&counted), "{counted} of {expected:?}");
        }
    }

    /// Whatever the clock does, no place is free while its request is in flight, unless the clock has shown that it lasted `longest`. All are free
    /// once that time has passed without a step.
    #[test]
    fn a_clock_that_steps_frees_no_place_too_soon_and_keeps_none_for_ever(events in events(-4_000..4_000)) {
        let mut model = Model::begun_at(BEGIN);
        for event in events {
            match event {
                Event::Time(seconds) => {
                    model.go_to(model.now.saturating_add_signed(seconds));
                }
                Event::Begins => model.begin(),
                Event::Ends(_) if model.requests.is_empty() => {}
                Event::Ends(index) => {
                    model.end(index.index(model.requests.len()));
                }
            }
            prop_assert!(model.count.used >= model.younger_than(LONGEST));
        }
        // A slot that stands is one ahead.
        prop_assert_eq!(model.go_to(model.now + LONGEST + 2 * A_SLOT), 0);
    }

    /// A clock that steps back by less than a slot loses nothing.
    #[test]
    fn after_a_small_step_back_each_request_gives_its_place_back(back in 1..A_SLOT, begun in 1..50_usize) {
        let mut model = Model::begun_at(BEGIN);
        (0..begun).for_each(|_| model.begin());
        model.go_to(BEGIN - back);
        (0..begun).for_each(|_| model.begin());
        prop_assert_eq!(model.count.used, 2 * begun as u32);
        for left in (0..2 * begun).rev() {
            prop_assert!(model.end(left / 2));
            prop_assert_eq!(model.count.used, left as u32);
        }
    }
}

#[test]
fn a_place_is_given_back_once_and_not_after_a_reset() {
    let mut model = Model::begun_at(BEGIN);
    (0..3).for_each(|_| model.begin());
    model.count.reset(model.writes + 1, Timestamp::from_seconds(BEGIN));
    assert_eq!(model.go_to(BEGIN + 1), 0);
    model.begin();
    assert!((0..3).all(|_| !model.end(0)), "begun before the reset");
    assert_eq!(model.count.used, 1);
    let Begun { slot, generation, .. } = model.requests[0];
    assert_eq!([(); 2].map(|()| model.count.end_request(slot, generation)), [true, false]);
}

#[test]
fn what_nobody_gives_back_is_free_after_longest_and_an_eighth_and_not_before_longest() {
    for offset in 0..A_SLOT {
        let mut model = Model::begun_at(BEGIN + offset);
        model.begin();
        let free = (0..).find(|lasted| model.go_to(BEGIN + offset + lasted) == 0);
        assert!((LONGEST..=LONGEST + A_SLOT).contains(&free.unwrap()), "begun {offset} s later: {free:?}");
    }
}

/// Requests of slots that were far ahead are kept from now on as if they began now, and give nothing back.
#[test]
fn requests_begun_by_a_clock_that_was_wrong_keep_their_places_for_longest_and_an_eighth() {
    let mut model = Model::begun_at(BEGIN + 1_000_000);
    model.begin();
    assert_eq!(model.go_to(BEGIN), 1);
    model.begin();
    assert!(!model.end(0), "it moved");
    assert!(model.end(0), "it has begun since");
    assert_eq!(model.go_to(BEGIN + LONGEST - 1), 1);
    assert_eq!(model.go_to(BEGIN + LONGEST + A_SLOT), 0);
}
