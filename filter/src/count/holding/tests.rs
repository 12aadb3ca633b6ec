use ledger_wire::{ItemError, Share};

use super::*;
use crate::window::Window;

const SHARING: Sharing =
    Sharing { timeout: 250, term: 1_000, ahead: 10_000, beyond: Beyond::Percent(10), in_shadow: false };
const EPOCH: u32 = 7;
const NAME: Hex128 = Hex128(1);

/// The instant `millis` after that at which all tests begin.
fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos((1_764_081_180_000 + millis) * 1_000_000)
}

/// A count of 600 units a minute that has used and holds nothing.
fn unused() -> Count {
    let (window, index) = (Window::MINUTE, Window::MINUTE.index_at(at(0)));
    let (flow, held) = (Flow::default(), Held { limit: 600, ..Held::default() });
    Count { window, index, generation: 1, used: 0, flow, held }
}

fn share(share: u32, others: u32) -> Answer {
    Answer::Share(Share { share, others, reset: 0, settling: false })
}

/// A count that has used and holds, as the answer to its first ask has left it; and what others hold.
fn holding(used: u32, held: u32, others: u32) -> Count {
    let mut count = unused();
    let asked = ask(&mut count, 1, 0);
    count.leave(&asked);
    answer(&mut count, &asked, &share(used + held, others));
    count.charge_share(used, at(0));
    count
}

fn ask(count: &mut Count, cost: u32, millis: u64) -> Stated {
    count.ask(cost, NAME, at(millis), SHARING)
}

/// Takes up an answer. A count that begins for it is the second.
fn answer(count: &mut Count, stated: &Stated, answer: &Answer) {
    count.answered(stated, answer, (EPOCH, 2), at(0), SHARING);
}

fn attend(count: &mut Count, epoch: Option<u32>, millis: u64) -> Option<Stated> {
    count.attend(NAME, epoch, at(millis), SHARING)
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
        let mut count = holding(10, held, 0);
        count.held.waiting = waiting;
        assert_eq!(count.lacks(cost, limit), waited, "{held} {limit} {waiting} {cost}");
        assert_eq!(count.lacks_at_first(cost, limit), first, "{held} {limit} {waiting} {cost}");
    }
}

#[test]
fn each_ask_states_what_all_wait_for_until_they_leave_or_have_died() {
    let mut count = unused();
    let said = |need, cost| Says::Ask { need, cost, hold: need };
    let asks = [(0, 2, 2), (10, 1, 3), (20, 5, 8)].map(|(millis, cost, need)| {
        let stated = ask(&mut count, cost, millis);
        assert_eq!(stated.statement.says, said(need, cost));
        stated
    });
    assert_eq!(asks.map(|stated| stated.statement.seq), [1, 2, 3]);
    count.leave(&asks[1]);
    answer(&mut count, &asks[2], &share(8, 0));
    assert_eq!(ask(&mut count, 1, 30).statement.says, said(8, 1));
    // The last ask has no answer, so one of those who are counted may still wait for it.
    let last = ask(&mut count, 1, 600);
    assert_eq!(last.statement.says, said(9, 1));
    answer(&mut count, &last, &share(8, 0));
    assert_eq!(ask(&mut count, 1, 851).statement.says, said(1, 1));
}

#[test]
fn an_answer_counts_once_and_only_for_the_count_that_asked_and_not_beyond_a_return() {
    let mut overtaken = unused();
    let (first, second) = (ask(&mut overtaken, 1, 0), ask(&mut overtaken, 1, 0));
    answer(&mut overtaken, &second, &share(9, 4));
    answer(&mut overtaken, &first, &share(5, 2));
    assert_eq!((overtaken.held.share, overtaken.held.others), (9, 4), "an older answer");
    answer(&mut overtaken, &second, &share(5, 2));
    assert_eq!(overtaken.held.share, 9, "the same answer again");

    let mut idle = holding(10, 20, 0);
    let asked_before = ask(&mut idle, 1, 0);
    let returned = attend(&mut idle, Some(EPOCH), 1_500).unwrap();
    let lowered = (returned.statement.says, idle.held.share);
    assert_eq!(lowered, (Says::Return { keep: 0 }, 10), "lower before it is sent");
    answer(&mut idle, &asked_before, &share(30, 0));
    assert_eq!(idle.held.share, 10, "an answer from before a return");
    answer(&mut idle, &returned, &share(10, 0));

    let mut lowered = holding(10, 20, 0);
    let stated = ask(&mut lowered, 1, 0);
    answer(&mut lowered, &stated, &share(11, 0));
    assert_eq!(lowered.held.share, 11, "an answer sets the share, also to less");

    let mut another = Count { generation: 2, ..holding(10, 20, 0) };
    let stated = ask(&mut holding(10, 20, 0), 1, 0);
    for answer in [share(90, 0), Answer::Reset(5)] {
        another.answered(&stated, &answer, (EPOCH, 3), at(0), SHARING);
    }
    let Count { generation, held: Held { share, reset, .. }, .. } = another;
    assert_eq!((generation, share, reset), (2, 30, 0), "an answer to another count");
}

#[test]
fn a_reset_begins_the_count_again_as_another_holder() {
    let mut count = holding(10, 20, 0);
    let stated = ask(&mut count, 30, 0);
    let mut told = |reset, generation| {
        count.answered(&stated, &Answer::Reset(reset), (EPOCH, generation), at(0), SHARING);
        count
    };
    let held = Held { reset: 1_764_081_180_000, ..unused().held };
    assert_eq!(told(1_764_081_180_000, 9), Count { generation: 9, held, ..unused() });
    assert_eq!(told(5, 10).generation, 9);
}

#[test]
fn a_refusal_needs_the_word_of_the_ledger_about_this_request_in_time() {
    let mut asking = holding(10, 0, 0);
    let stated = ask(&mut asking, 3, 0);
    let settling = Answer::Share(Share { share: 10, others: 590, reset: 0, settling: true });
    let refused = Answer::Refused(ItemError { code: "store".into(), field: None, message: String::new() });
    use Verdict::{Granted, Refused, Undecided};
    let rows = [
        ("nothing is left", share(10, 590), 600, 100, Refused),
        ("too little is left", share(10, 588), 600, 100, Refused),
        ("enough is left", share(10, 587), 600, 100, Granted),
        ("the plan was raised", share(10, 590), 700, 100, Granted),
        ("its worker was stuck", share(10, 590), 600, 251, Granted),
        ("the store may have lost something", settling, 600, 100, Undecided),
        ("the statement was refused", refused, 600, 100, Undecided),
        ("the counter was reset", Answer::Reset(5), 600, 100, Granted),
    ];
    for (what, answer, limit, millis, verdict) in rows {
        assert_eq!(asking.verdict(&stated, &answer, (3, limit), at(millis), SHARING), verdict, "{what}");
    }
    let another = Count { generation: 2, ..asking };
    let verdict = another.verdict(&stated, &share(10, 590), (3, 600), at(100), SHARING);
    assert_eq!(verdict, Granted, "another count asked");
}

#[test]
fn once_nothing_is_left_one_request_asks_after_pauses_that_grow_to_a_term() {
    let refuses = |count: &Count, limit, millis| count.refuses(1, limit, at(millis), SHARING);
    let mut count = holding(10, 0, 0);
    let mut refuses_until = Vec::new();
    let mut now = 0;
    for _ in 0..5 {
        let stated = ask(&mut count, 1, now);
        assert!(count.held.pauses == 0 || refuses(&count, 600, now + 1), "one asks already");
        answer(&mut count, &stated, &share(10, 590));
        let pause = (0..3_000).find(|after| !refuses(&count, 600, now + after)).unwrap();
        refuses_until.push(pause);
        assert!(!refuses(&count, 601, now), "a raised plan helps at once");
        now += pause;
    }
    assert_eq!(refuses_until, [250, 500, 1_000, 1_000, 1_000]);
    // However many of those who ask die, nobody is refused by what is older.
    for after in 0..3_000 {
        let (is_paused, is_asked) = (after < 1_000, after < 1_250);
        let told_at = now - 1_000;
        let mut asking = count;
        ask(&mut asking, 1, told_at + after);
        assert_eq!(refuses(&count, 600, told_at + after), is_paused, "{after}");
        assert_eq!(refuses(&asking, 600, told_at + after), is_asked, "{after}");
    }
    assert!(!refuses(&count, 600, 0), "the clock has stepped back");
    let stated = ask(&mut count, 1, now + 1_000);
    answer(&mut count, &stated, &share(10, 590));
    assert_eq!(count.held.pauses, 1, "a later time begins with a short pause");
}

/// A count that uses six units a second, 900 milliseconds after all tests begin.
fn busy(held: u32) -> Count {
    let count = holding(40, held, 0);
    Count { held: Held { rate: 6_000, used_at: at(900).into(), ..count.held }, ..count }
}

#[test]
fn the_next_window_begins_with_nothing_but_the_pace() {
    let next = busy(20).held.next();
    assert_eq!(next, Held { rate: 6_000, used_at: at(900).into(), ..Held::default() });
    let mut next = Count { held: Held { limit: 600, ..next }, ..unused() };
    let says = ask(&mut next, 1, 1_000).statement.says;
    assert_eq!(says, Says::Ask { need: 1, cost: 1, hold: 31 }, "it asks in advance at once");
}

#[test]
fn a_tick_states_what_nobody_waits_for() {
    let keep = |keep| Some(Says::Return { keep });
    let ahead = |hold| Some(Says::Ask { need: 0, cost: 0, hold });
    let debt = Count { used: 45, ..holding(40, 0, 0) };
    let mut unanswered = holding(40, 0, 0);
    ask(&mut unanswered, 1, 1_000);
    let rows = [
        ("nothing of a count that has stated nothing", unused(), 9_000, None),
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
    for (what, mut count, millis, expected) in rows {
        let mut tick = || attend(&mut count, Some(EPOCH), millis);
        assert_eq!(says(tick()), expected, "{what}");
        assert_eq!(tick(), None, "{what}, once");
    }
    let (window, index) = (Window::CALENDAR_MONTH, Window::CALENDAR_MONTH.index_at(at(0)));
    let mut of_month = Count { window, index, ..busy(0) };
    assert_eq!(attend(&mut of_month, Some(EPOCH), 1_000), None, "little is not held for a month");
    let mut slow = Count { held: Held { rate: 999, ..busy(0).held }, ..busy(0) };
    assert_eq!(attend(&mut slow, Some(EPOCH), 1_000), None, "nothing for slow keys");
    let none = Sharing { ahead: 0, ..SHARING };
    let stated = busy(0).attend(NAME, Some(EPOCH), at(1_000), none);
    assert_eq!(stated, None, "nothing if nothing is to be");
}

#[test]
fn in_shadow_mode_a_tick_gives_back_what_is_held_and_states_nothing_else() {
    let shadow = Sharing { in_shadow: true, ..SHARING };
    let (mut lately, mut unanswered) = (busy(0), busy(20));
    ask(&mut lately, 0, 1_000);
    ask(&mut unanswered, 1, 1_000);
    let keep_none = Some(Says::Return { keep: 0 });
    // What is stated, and whether nothing is left to state before.
    let rows = [
        ("nothing of a count that holds nothing", unused(), 1_000, None, true),
        ("what a busy count holds, at once", busy(20), 1_000, keep_none, false),
        ("not what the gateway has used by itself", Count { used: 90, ..busy(20) }, 9_000, None, true),
        ("nothing in advance", busy(0), 1_000, None, true),
        ("nothing while an answer may come", lately, 1_100, None, false),
        ("what was not answered", unanswered, 1_500, keep_none, false),
        ("what was not answered, though nothing is held", lately, 1_500, keep_none, false),
    ];
    for (what, mut count, millis, expected, is_settled) in rows {
        assert_eq!(count.is_settled(None, shadow), is_settled, "{what}");
        let stated = count.attend(NAME, Some(EPOCH), at(millis), shadow);
        assert_eq!(says(stated), expected, "{what}");
        if stated.is_some() {
            assert_eq!(count.held.share, 40, "{what}");
        }
    }
    let mut lost = Count { used: 60, ..busy(20) };
    let stated = lost.attend(NAME, Some(EPOCH + 1), at(9_000), shadow);
    assert_eq!(stated, None, "a new epoch takes nothing from who holds nothing");
}

#[test]
fn in_a_new_epoch_all_is_stated_again_at_once_and_held_no_more() {
    let mut count = holding(40, 20, 0);
    ask(&mut count, 90, 10);
    assert_eq!(attend(&mut count, None, 20), None, "the epoch is not known yet");
    let stated = attend(&mut count, Some(EPOCH + 1), 20).unwrap();
    assert_eq!((stated.statement.says, count.held.share), (Says::Return { keep: 0 }, 40));
    assert_eq!(attend(&mut count, Some(EPOCH + 1), 30), None, "once");
    let again = attend(&mut count, Some(EPOCH + 1), 520).unwrap();
    count.answered(&again, &share(40, 0), (EPOCH + 1, 2), at(520), SHARING);
    assert_eq!(attend(&mut count, Some(EPOCH + 1), 9_000), None, "it is stated");
}

#[test]
fn while_the_ledger_is_away_one_allowance_serves_the_whole_window() {
    let mut count = holding(4, 1, 0);
    let mut admits = |cost, limit, allowance| {
        let admits = count.may_go_beyond(cost, limit, allowance);
        if admits {
            count.charge_share(cost, at(0));
        }
        (admits, count.used, count.held.beyond)
    };
    assert_eq!(admits(5, 600, 0), (true, 9, 4), "one request at least");
    assert_eq!(admits(1, 600, 4), (false, 9, 4), "no more than is allowed");
    assert_eq!(admits(1, 600, 5), (true, 10, 5), "as much as is allowed");
    let at_its_limit = Count { held: Held { beyond: 0, ..count.held }, ..count };
    assert!(!at_its_limit.may_go_beyond(1, 10, 5), "never beyond the limit");
    // An answer pays the debt, but not the allowance.
    let stated = ask(&mut count, 1, 0);
    answer(&mut count, &stated, &share(10, 0));
    assert_eq!((count.missing(1), count.held.beyond), (1, 5));
    assert!(!count.may_go_beyond(1, 600, 5));
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
        let mut count = holding(100, 20, 0);
        if !is_answered {
            ask(&mut count, 1, millis);
        }
        let stated = count.look(NAME, at(millis), SHARING).unwrap();
        assert_eq!(stated.statement.says, expected, "{millis} {is_answered}");
        assert_eq!((stated.statement.used, count.used), (100, 100));
    }
}

#[test]
fn what_the_ledger_has_just_said_is_not_asked_again_by_who_only_looks() {
    let (mut asked, mut reset) = (holding(100, 20, 0), holding(100, 20, 0));
    ask(&mut asked, 1, 0);
    reset.reset(2, at(0));
    let rows = [
        ("it was just said", holding(100, 20, 0), 249, false),
        ("it was said a while ago", holding(100, 20, 0), 250, true),
        ("it is not answered", asked, 100, true),
        ("nothing was said", unused(), 0, true),
        ("a reset is stated", reset, 0, true),
    ];
    for (what, mut count, millis, states) in rows {
        assert_eq!(count.look(NAME, at(millis), SHARING).is_some(), states, "{what}");
    }
}

#[test]
fn a_reset_begins_anew_under_a_higher_number_and_is_stated_until_it_is_answered() {
    let now = at(0).millis();
    // The number before, and after.
    for (before, after) in
        [(0, now), (now - 1, now), (now, now + 1), (now + 5, now + 6), (u64::MAX, u64::MAX)]
    {
        let mut count = holding(10, 20, 30);
        count.held.reset = before;
        count.reset(2, at(0));
        let anew = Count { generation: 2, held: Held { reset: after, ..unused().held }, ..unused() };
        assert_eq!(count, anew, "{before}");
        let stated = count.look(NAME, at(0), SHARING).unwrap().statement;
        assert_eq!((stated.reset, stated.used, stated.generation), (after, 0, 2));
        let again = [400, 500, 900, 1_000].map(|millis| attend(&mut count, Some(EPOCH), millis));
        let resets = again.map(|stated| stated.map(|stated| stated.statement.reset));
        assert_eq!(resets, [None, Some(after), None, Some(after)], "no answer");
        let told = Answer::Share(Share { share: 0, others: 0, reset: after, settling: false });
        answer(&mut count, &again[3].unwrap(), &told);
        assert!(count.is_settled(None, SHARING));
        assert_eq!(attend(&mut count, Some(EPOCH), 9_000), None);
    }
}
