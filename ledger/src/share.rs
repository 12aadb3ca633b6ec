//! The ledger's side of the protocol: what one statement makes of one counter in one window.
//!
//! Pure and without a loop over holders: a counter keeps the sum of all shares, so a statement costs the same however many gateways
//! share the counter. The script of the stores does exactly this. All numbers are below 2⁵³, in which the script counts exactly.

use ledger_wire::{Answer, Says, Share, Statement};

/// How far outside its window, by the ledger's clock, a statement is still taken, in milliseconds. It is less than the time for which a
/// store keeps what has ended, so nothing begins again that was forgotten.
pub const CLOCK_TOLERANCE: u64 = 60_000;
/// How long nothing is granted after an epoch began, in milliseconds: the time in which gateways state what they have used. That holds for
/// windows that begin later, too, because a gateway whose clock is ahead may have used them.
pub const SETTLING: u64 = 2_000;

/// One counter in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// The highest reset number that was stated.
    pub reset: u64,
    /// The sum of the shares of all holders.
    pub shares: u64,
}

/// One holder's part of a counter in a window: one count of one gateway. A holder that is not known has stated nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The number of its newest statement.
    pub seq: u32,
    /// Units that it may use in this window, in all.
    pub share: u32,
}

/// What a grant depends on beside the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether the store is settling ([`SETTLING`]): use is noted, nothing is granted.
    pub settling: bool,
    /// Gateways among which what is held in advance is divided; at least 1.
    pub gateways: u32,
}

/// What a statement makes of its counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// The counter. If its reset number has changed, the store forgets all other holders.
    pub counter: Counter,
    /// The holder who stated.
    pub holder: Holder,
    /// The answer.
    pub answer: Answer,
}

/// Whether the window of `statement` may be stated at `now`, in milliseconds since 1970.
#[must_use]
pub fn is_timely(statement: &Statement, now: u64) -> bool {
    let since = statement.begins.saturating_mul(1000).saturating_sub(CLOCK_TOLERANCE);
    let until = statement.ends.saturating_mul(1000).saturating_add(CLOCK_TOLERANCE);
    (since..=until).contains(&now)
}

/// Takes a statement of `holder`, who is a part of `counter`.
#[must_use]
pub fn state(counter: Counter, holder: Holder, statement: &Statement, terms: Terms) -> Stated {
    let Statement { seq, used, reset, limit, says, .. } = *statement;
    if reset < counter.reset {
        return Stated { counter, holder, answer: Answer::Reset(counter.reset) };
    }
    let (counter, mut holder) = match reset > counter.reset {
        true => (Counter { reset, shares: 0 }, Holder::default()),
        false => (counter, holder),
    };
    let others = counter.shares.saturating_sub(holder.share.into());
    // A return under the number of the newest statement takes back what that was granted.
    if seq > holder.seq || seq == holder.seq && matches!(says, Says::Return { .. }) {
        let share = match says {
            Says::Ask { need, cost, hold } => {
                let share = holder.share.max(used);
                let free = match terms.settling {
                    true => 0,
                    false => saturate(u64::from(limit).saturating_sub(others + u64::from(share))),
                };
                share + granted(share - used, free, [need, cost, hold], terms.gateways)
            }
            Says::Return { keep } => holder.share.min(used.saturating_add(keep)).max(used),
        };
        holder = Holder { seq, share };
    }
    let counter = Counter { shares: others + u64::from(holder.share), ..counter };
    let answer = Share { share: holder.share, others: saturate(others), reset, settling: terms.settling };
    Stated { counter, holder, answer: Answer::Share(answer) }
}

/// Units that an ask is granted of `free` ones, beside the `has` that it has not used: what requests wait for, and then towards what the
/// gateway would like to hold. That is at most half of an even part of what is free, so that it shrinks as the end nears.
fn granted(has: u32, free: u32, [need, cost, hold]: [u32; 3], gateways: u32) -> u32 {
    if has.saturating_add(free) < cost {
        return 0;
    }
    let needed = need.saturating_sub(has).min(free);
    let ahead = hold.saturating_sub(has.max(need)).min((free - needed) / gateways.max(1).saturating_mul(2));
    needed + ahead
}

fn saturate(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use ledger_wire::Hex128;

    use super::*;

    const TERMS: Terms = Terms { settling: false, gateways: 2 };

    fn statement(seq: u32, used: u32, says: Says) -> Statement {
        let counter = Hex128(1);
        Statement {
            counter,
            window: 1,
            begins: 60,
            ends: 120,
            limit: 100,
            generation: 1,
            seq,
            used,
            reset: 5,
            says,
        }
    }

    fn ask(need: u32, cost: u32, hold: u32) -> Says {
        Says::Ask { need, cost, hold }
    }

    #[test]
    fn a_share_grows_by_asks_and_shrinks_by_returns() {
        // The holder's share, what the others hold, then what is stated: number, used and the rest; and the share after it.
        let rows = [
            ("grants what is needed", 0, 0, statement(10, 0, ask(3, 1, 3)), 3),
            ("grants what is held, by half of an even part", 0, 0, statement(10, 0, ask(4, 1, 60)), 28),
            ("grants beside what it has", 10, 0, statement(10, 8, ask(5, 1, 5)), 13),
            ("grants what is left", 10, 88, statement(10, 10, ask(5, 1, 9)), 12),
            ("grants nothing that would be too little", 10, 88, statement(10, 10, ask(8, 3, 9)), 10),
            ("grants the last with what it has", 10, 88, statement(10, 9, ask(8, 3, 9)), 12),
            ("never lowers by an ask", 50, 0, statement(10, 5, ask(1, 1, 1)), 50),
            ("takes up use beyond the share", 10, 95, statement(10, 40, ask(1, 1, 1)), 40),
            ("gives back", 50, 0, statement(10, 5, Says::Return { keep: 0 }), 5),
            ("keeps", 50, 0, statement(10, 5, Says::Return { keep: 7 }), 12),
            ("keeps no more than it has", 50, 0, statement(10, 5, Says::Return { keep: 70 }), 50),
            ("gives back less than it used beyond", 50, 0, statement(10, 55, Says::Return { keep: 0 }), 55),
            (
                "takes back by a return of the same number",
                50,
                0,
                statement(9, 5, Says::Return { keep: 0 }),
                5,
            ),
            ("ignores an ask of the same number", 10, 0, statement(9, 5, ask(20, 1, 20)), 10),
            ("ignores what is older", 50, 0, statement(8, 5, Says::Return { keep: 0 }), 50),
        ];
        for (what, share, others, statement, then) in rows {
            let counter = Counter { reset: 5, shares: u64::from(share + others) };
            let stated = state(counter, Holder { seq: 9, share }, &statement, TERMS);
            let answer = Share { share: then, others, reset: 5, settling: false };
            assert_eq!(stated.holder.share, then, "{what}");
            assert_eq!(stated.counter, Counter { reset: 5, shares: u64::from(then + others) }, "{what}");
            assert_eq!(stated.answer, Answer::Share(answer), "{what}");
        }
    }

    #[test]
    fn the_higher_reset_number_stands() {
        let (holder, ask) = (Holder { seq: 9, share: 50 }, statement(10, 50, ask(1, 1, 1)));
        let later = Counter { reset: 6, shares: 90 };
        let stated = state(later, holder, &ask, TERMS);
        assert_eq!(stated, Stated { counter: later, holder, answer: Answer::Reset(6) });
        let stated = state(Counter { reset: 4, shares: 90 }, holder, &ask, TERMS);
        assert_eq!(stated.counter, Counter { reset: 5, shares: 51 });
        assert_eq!(stated.holder, Holder { seq: 10, share: 51 });
    }

    #[test]
    fn a_store_that_settles_notes_and_grants_nothing() {
        let terms = Terms { settling: true, ..TERMS };
        let stated = state(Counter::default(), Holder::default(), &statement(10, 40, ask(9, 1, 9)), terms);
        let answer = Share { share: 40, others: 0, reset: 5, settling: true };
        assert_eq!(stated.answer, Answer::Share(answer));
    }

    #[test]
    fn a_window_is_stated_from_a_minute_before_it_begins_until_a_minute_after_it_ends() {
        let statement = statement(1, 0, ask(1, 1, 1));
        for (now, timely) in [(0, true), (180_000, true), (180_001, false)] {
            assert_eq!(is_timely(&statement, now), timely, "{now}");
        }
        assert!(!is_timely(&Statement { begins: 61, ..statement }, 999));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let most = u32::MAX;
        for says in [ask(most, most, most), ask(0, 0, most), Says::Return { keep: most }] {
            for (share, others) in [(0, 0), (most, 0), (most, 1 << 52), (0, 1 << 52)] {
                let counter = Counter { reset: 5, shares: others + u64::from(share) };
                let statement = Statement { limit: most, ..statement(most, most, says) };
                let stated =
                    state(counter, Holder { seq: 0, share }, &statement, Terms { gateways: most, ..TERMS });
                assert_eq!(stated.holder.share, most);
            }
        }
    }
}
