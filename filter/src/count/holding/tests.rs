use ledger_wire::Share;

use super::*;
use crate::window::Window;

const TERMS: Terms = Terms { timeout: 250, term: 1_000, ahead: 10_000 };
const EPOCH: u32 = 7;

/// The instant `millis` after that at which all tests begin.
fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos((1_764_081_180_000 + millis) * 1_000_000)
}

fn subject(limit: u32) -> Subject {
    Subject { counter: Hex128(1), period: Window::MINUTE.at(at(0)), limit }
}

fn share(share: u32, others: u32) -> Answer {
    Answer::Share(Share { share, others, reset: 0, settling: false })
}

/// A count that has used and holds, as the answer to its first ask has left it; and what others hold.
fn holding(used: u32, held: u32, others: u32) -> Holding {
    let mut holding = Holding::begin(1, 0, 0);
    let asked = holding.ask(1, &subject(600), at(0), TERMS);
    holding.leave(&asked);
    holding.answered(&asked, &share(used + held, others), EPOCH, 2, TERMS);
    holding.charge(used, at(0));
    holding
}

fn says(stated: Option<Stated>) -> Option<Says> {
    stated.map(|stated| stated.statement.says)
}

#[test]
fn a_request_is_admitted_from_the_share_and_takes_nothing_that_others_wait_for() {
    // Held, the limit, waited for, the cost; lacking to a request that has waited, and to one that has not.
    let rows = [
        (3, 600, 0, 3, false, false),
        (3, 600, 0, 4, true, true),
        (3, 600, 1, 3, false, true),
        (3, 600, 1, 2, false, false),
        (3, 12, 0, 3, true, true),
    ];
    for (held, limit, waiting, cost, waited, first) in rows {
        let holding = Holding { waiting, ..holding(10, held, 0) };
        assert_eq!(holding.lacks(cost, limit), waited, "{held} {limit} {waiting} {cost}");
        assert_eq!(holding.lacks_at_first(cost, limit), first, "{held} {limit} {waiting} {cost}");
    }
}

#[test]
fn each_ask_states_what_all_wait_for_until_they_leave_or_have_died() {
    let mut holding = Holding::begin(1, 0, 0);
    let ask = |need, cost| Says::Ask { need, cost, hold: need };
    let asks = [(0, 2, 2), (10, 1, 3), (20, 5, 8)].map(|(millis, cost, need)| {
        let stated = holding.ask(cost, &subject(600), at(millis), TERMS);
        assert_eq!(stated.statement.says, ask(need, cost));
        stated
    });
    assert_eq!(asks.map(|stated| stated.statement.seq), [1, 2, 3]);
    holding.leave(&asks[1]);
    holding.answered(&asks[2], &share(8, 0), EPOCH, 2, TERMS);
    assert_eq!(holding.ask(1, &subject(600), at(30), TERMS).statement.says, ask(8, 1));
    // The last ask has no answer, so one of those who are counted may still wait for it.
    let last = holding.ask(1, &subject(600), at(600), TERMS);
    assert_eq!(last.statement.says, ask(9, 1));
    holding.answered(&last, &share(8, 0), EPOCH, 2, TERMS);
    assert_eq!(holding.ask(1, &subject(600), at(851), TERMS).statement.says, ask(1, 1));
}

#[test]
fn an_answer_counts_once_and_only_for_the_count_that_asked_and_not_beyond_a_return() {
    let asked = |holding: &mut Holding| holding.ask(1, &subject(600), at(0), TERMS);
    let mut overtaken = Holding::begin(1, 0, 0);
    let (first, second) = (asked(&mut overtaken), asked(&mut overtaken));
    overtaken.answered(&second, &share(9, 4), EPOCH, 2, TERMS);
    overtaken.answered(&first, &share(5, 2), EPOCH, 2, TERMS);
    assert_eq!((overtaken.share, overtaken.others), (9, 4), "an older answer");
    overtaken.answered(&second, &share(5, 2), EPOCH, 2, TERMS);
    assert_eq!(overtaken.share, 9, "the same answer again");

    let mut idle = holding(10, 20, 0);
    let asked_before = asked(&mut idle);
    let returned = idle.attend(&subject(600), Some(EPOCH), at(1_500), TERMS).unwrap();
    assert_eq!(
        (returned.statement.says, idle.share),
        (Says::Return { keep: 0 }, 10),
        "lower before it is sent"
    );
    idle.answered(&asked_before, &share(30, 0), EPOCH, 2, TERMS);
    assert_eq!(idle.share, 10, "an answer from before a return");
    idle.answered(&returned, &share(10, 0), EPOCH, 2, TERMS);

    let mut lowered = holding(10, 20, 0);
    let stated = asked(&mut lowered);
    lowered.answered(&stated, &share(11, 0), EPOCH, 2, TERMS);
    assert_eq!(lowered.share, 11, "an answer sets the share, also to less");

    let mut another = Holding { generation: 2, ..holding(10, 20, 0) };
    another.answered(&asked(&mut holding(10, 20, 0)), &share(90, 0), EPOCH, 3, TERMS);
    another.answered(&asked(&mut holding(10, 20, 0)), &Answer::Reset(5), EPOCH, 3, TERMS);
    assert_eq!((another.generation, another.share, another.reset), (2, 30, 0), "an answer to another count");
}

#[test]
fn a_reset_begins_the_count_again_as_another_holder() {
    let mut holding = holding(10, 20, 0);
    let stated = holding.ask(30, &subject(600), at(0), TERMS);
    holding.answered(&stated, &Answer::Reset(1_764_081_180_000), EPOCH, 9, TERMS);
    assert_eq!(holding, Holding::begin(9, 0, 1_764_081_180_000));
    holding.answered(&stated, &Answer::Reset(5), EPOCH, 10, TERMS);
    assert_eq!(holding.generation, 9);
}

#[test]
fn a_refusal_needs_the_word_of_the_ledger_about_this_request_in_time() {
    let mut asking = holding(10, 0, 0);
    let stated = asking.ask(3, &subject(600), at(0), TERMS);
    let settling = Answer::Share(Share { share: 10, others: 590, reset: 0, settling: true });
    let rows = [
        ("nothing is left", share(10, 590), 600, 100, true),
        ("too little is left", share(10, 588), 600, 100, true),
        ("enough is left", share(10, 587), 600, 100, false),
        ("the plan was raised", share(10, 590), 700, 100, false),
        ("its worker was stuck", share(10, 590), 600, 251, false),
        ("the store may have lost something", settling, 600, 100, false),
        ("the counter was reset", Answer::Reset(5), 600, 100, false),
    ];
    for (what, answer, limit, millis, refused) in rows {
        assert_eq!(asking.is_refused(&stated, &answer, limit, at(millis), TERMS), refused, "{what}");
    }
    let another = Holding { generation: 2, ..asking };
    assert!(!another.is_refused(&stated, &share(10, 590), 600, at(100), TERMS), "another count asked");
}

#[test]
fn once_nothing_is_left_one_request_asks_after_pauses_that_grow_to_a_term() {
    let mut holding = holding(10, 0, 0);
    let mut refuses_until = Vec::new();
    let mut now = 0;
    for _ in 0..5 {
        let stated = holding.ask(1, &subject(600), at(now), TERMS);
        assert!(holding.pauses == 0 || holding.refuses(1, 600, at(now + 1), TERMS), "one asks already");
        holding.answered(&stated, &share(10, 590), EPOCH, 2, TERMS);
        let pause = (0..3_000).find(|after| !holding.refuses(1, 600, at(now + after), TERMS)).unwrap();
        refuses_until.push(pause);
        assert!(!holding.refuses(1, 601, at(now), TERMS), "a raised plan helps at once");
        now += pause;
    }
    assert_eq!(refuses_until, [250, 500, 1_000, 1_000, 1_000]);
    // However many of those who ask die, nobody is refused by what is older.
    for after in 0..3_000 {
        let (is_paused, is_asked) = (after < 1_000, after < 1_250);
        let told_at = now - 1_000;
        let mut asking = holding;
        asking.ask(1, &subject(600), at(told_at + after), TERMS);
        assert_eq!(holding.refuses(1, 600, at(told_at + after), TERMS), is_paused, "{after}");
        assert_eq!(asking.refuses(1, 600, at(told_at + after), TERMS), is_asked, "{after}");
    }
    assert!(!holding.refuses(1, 600, at(0), TERMS), "the clock has stepped back");
    let stated = holding.ask(1, &subject(600), at(now + 1_000), TERMS);
    holding.answered(&stated, &share(10, 590), EPOCH, 2, TERMS);
    assert_eq!(holding.pauses, 1, "a later time begins with a short pause");
}

#[test]
fn the_next_window_begins_with_nothing_but_the_pace() {
    let busy = Holding { rate: 6_000, used_at: at(900).into(), ..holding(40, 20, 30) };
    let mut next = busy.next(2);
    assert_eq!(next, Holding { rate: 6_000, used_at: at(900).into(), ..Holding::begin(2, 0, 0) });
    let asked = next.ask(1, &subject(600), at(1_000), TERMS).statement;
    assert_eq!(asked.says, Says::Ask { need: 1, cost: 1, hold: 31 }, "it asks in advance at once");
}

#[test]
fn a_tick_states_what_nobody_waits_for() {
    let keep = |keep| Some(Says::Return { keep });
    let ahead = |hold| Some(Says::Ask { need: 0, cost: 0, hold });
    let busy = |held| Holding { rate: 6_000, used_at: at(900).into(), ..holding(40, held, 0) };
    let debt = Holding { used: 45, ..holding(40, 0, 0) };
    let mut unanswered = holding(40, 0, 0);
    unanswered.ask(1, &subject(600), at(1_000), TERMS);
    let rows = [
        ("nothing of a count that has stated nothing", Holding::begin(1, 0, 0), 9_000, None),
        ("nothing of a count that holds nothing", holding(40, 0, 0), 9_000, None),
        ("not yet what may still be used", holding(40, 20, 0), 1_499, None),
        ("what an idle count holds", holding(40, 20, 0), 1_500, keep(0)),
        ("not yet what may still be answered", unanswered, 1_499, None),
        ("what was not answered", unanswered, 1_500, keep(0)),
        ("what was used beyond the share", debt, 500, keep(30)),
        ("nothing of a busy count that holds enough for a term", busy(6), 1_000, None),
        (
            "an ask in advance, of use for ten seconds but at most a part of the limit",
            busy(5),
            1_000,
            ahead(30),
        ),
        ("nothing in advance of a count that may soon be idle", busy(5), 1_900, None),
    ];
    for (what, mut holding, millis, expected) in rows {
        let stated = holding.attend(&subject(600), Some(EPOCH), at(millis), TERMS);
        assert_eq!(says(stated), expected, "{what}");
        assert_eq!(holding.attend(&subject(600), Some(EPOCH), at(millis), TERMS), None, "{what}, once");
    }
    let mut busy = busy(0);
    let month = Subject { period: Window::CalendarMonth.at(at(0)), ..subject(600) };
    assert_eq!(busy.attend(&month, Some(EPOCH), at(1_000), TERMS), None, "little is not held for a month");
    let slow = Holding { rate: 999, ..busy };
    assert_eq!({ slow }.attend(&subject(600), Some(EPOCH), at(1_000), TERMS), None, "nothing for slow keys");
    let none = Terms { ahead: 0, ..TERMS };
    assert_eq!(busy.attend(&subject(600), Some(EPOCH), at(1_000), none), None, "nothing if nothing is to be");
}

#[test]
fn in_a_new_epoch_all_is_stated_again_at_once_and_held_no_more() {
    let mut holding = holding(40, 20, 0);
    holding.ask(90, &subject(600), at(10), TERMS);
    assert_eq!(holding.attend(&subject(600), None, at(20), TERMS), None, "the epoch is not known yet");
    let stated = holding.attend(&subject(600), Some(EPOCH + 1), at(20), TERMS).unwrap();
    assert_eq!((stated.statement.says, holding.share), (Says::Return { keep: 0 }, 40));
    assert_eq!(holding.attend(&subject(600), Some(EPOCH + 1), at(30), TERMS), None, "once");
    let again = holding.attend(&subject(600), Some(EPOCH + 1), at(520), TERMS).unwrap();
    holding.answered(&again, &share(40, 0), EPOCH + 1, 2, TERMS);
    assert_eq!(holding.attend(&subject(600), Some(EPOCH + 1), at(9_000), TERMS), None, "it is stated");
}

#[test]
fn while_the_ledger_is_away_one_allowance_serves_the_whole_window() {
    let mut holding = holding(4, 1, 0);
    let mut admits = |cost, limit, allowance| {
        let admits = holding.may_go_beyond(cost, limit, allowance);
        if admits {
            holding.charge_beyond(cost, at(0));
        }
        (admits, holding.used, holding.beyond)
    };
    assert_eq!(admits(5, 600, 0), (true, 9, 4), "one request at least");
    assert_eq!(admits(1, 600, 4), (false, 9, 4), "no more than is allowed");
    assert_eq!(admits(1, 600, 5), (true, 10, 5), "as much as is allowed");
    let mut last = Holding { beyond: 0, ..holding };
    assert!(!last.may_go_beyond(1, 10, 5), "never beyond the limit");
    // An answer pays the debt, but not the allowance.
    let stated = last.ask(1, &subject(600), at(0), TERMS);
    holding.answered(&stated, &share(10, 0), EPOCH, 2, TERMS);
    assert_eq!((holding.missing(1), holding.beyond), (1, 5));
    assert!(!holding.may_go_beyond(1, 600, 5));
}

#[test]
fn who_only_looks_needs_nothing_and_gives_back_what_an_idle_count_holds() {
    // Milliseconds since the last use, whether all is answered, and what is stated.
    let rows = [
        (400, true, Says::Ask { need: 0, cost: 0, hold: 30 }),
        (1_499, false, Says::Ask { need: 1, cost: 0, hold: 31 }),
        (1_500, true, Says::Return { keep: 0 }),
        (1_500, false, Says::Ask { need: 1, cost: 0, hold: 1 }),
    ];
    for (millis, is_answered, expected) in rows {
        let mut holding = holding(100, 20, 0);
        if !is_answered {
            holding.ask(1, &subject(600), at(millis), TERMS);
        }
        let stated = holding.look(&subject(600), at(millis), TERMS);
        assert_eq!(stated.statement.says, expected, "{millis} {is_answered}");
        assert_eq!((stated.statement.used, holding.used), (100, 100));
    }
}

#[test]
fn what_the_ledger_has_just_said_is_not_asked_again_by_who_only_looks() {
    let mut asked = holding(100, 20, 0);
    asked.ask(1, &subject(600), at(0), TERMS);
    let rows = [(holding(100, 20, 0), 249, true), (holding(100, 20, 0), 250, false), (asked, 100, false)];
    for (holding, millis, is_fresh) in rows {
        assert_eq!(holding.is_fresh(at(millis), TERMS), is_fresh, "{millis}");
    }
    assert!(!Holding::begin(1, 0, 0).is_fresh(at(0), TERMS), "nothing was said");
    assert!(!holding(100, 20, 0).reset(2, at(0)).is_fresh(at(0), TERMS), "a reset is stated");
}

#[test]
fn a_reset_begins_anew_under_a_higher_number_and_is_stated_until_it_is_answered() {
    let now = at(0).millis();
    // The number before, and after.
    for (before, after) in
        [(0, now), (now - 1, now), (now, now + 1), (now + 5, now + 6), (u64::MAX, u64::MAX)]
    {
        let mut holding = Holding { reset: before, ..holding(10, 20, 30) }.reset(2, at(0));
        assert_eq!(holding, Holding::begin(2, 0, after), "{before}");
        let stated = holding.look(&subject(600), at(0), TERMS).statement;
        assert_eq!((stated.reset, stated.used, stated.generation), (after, 0, 2));
        let again = [400, 500, 900, 1_000]
            .map(|millis| holding.attend(&subject(600), Some(EPOCH), at(millis), TERMS));
        let resets = again.map(|stated| stated.map(|stated| stated.statement.reset));
        assert_eq!(resets, [None, Some(after), None, Some(after)], "no answer");
        let answer = Answer::Share(Share { share: 0, others: 0, reset: after, settling: false });
        holding.answered(&again[3].unwrap(), &answer, EPOCH, 3, TERMS);
        assert!(holding.is_settled());
        assert_eq!(holding.attend(&subject(600), Some(EPOCH), at(9_000), TERMS), None);
    }
}
