//! What must hold, and the rules without which it does not.

use filter::count::charge::{Admission, By};
use filter::count::counters::Counted;
use filter::count::entry::Count;
use filter::rules::Rule;

use crate::gateway::{Gateway, Place};
use crate::run::Run;
use crate::store::Key;
use crate::streams::Stream;
use crate::world::{Fault, MILLI, SECOND, TERM, TIMEOUT, Time};

/// What must hold in every world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// In each window and under each reset number, the use is at most the limit, beside what the promises except.
    Over,
    /// Nobody is refused while units are free for longer than two terms, and nobody without the ledger's word while all is well.
    Refused,
    /// Once a count is idle, its share is its use, at the gateway and at the ledger, and nobody is counted as waiting.
    Kept,
    /// After an outage, a worker asks the ledger again within half a second, and within a second the ledger decides.
    Whole,
    /// No request waits longer than its timeout.
    InTime,
}

/// The rules, each with the check that misses it.
pub const MISSED_BY: [(Rule, Check); 28] = [
    (Rule::AskNeverLowers, Check::Over),
    (Rule::OlderIsIgnored, Check::Over),
    (Rule::AnotherHolder, Check::Over),
    (Rule::ResetStands, Check::Over),
    (Rule::Settling, Check::Over),
    (Rule::Timely, Check::Over),
    (Rule::AnswerIsForAsker, Check::Over),
    (Rule::ReturnVoids, Check::Over),
    (Rule::AnswerVoids, Check::Kept),
    (Rule::ReturnLowersFirst, Check::Over),
    (Rule::AnswerSets, Check::Kept),
    (Rule::OnlyAnswersRefuse, Check::Refused),
    (Rule::EachQuotasAnswer, Check::Refused),
    (Rule::WaitersFirst, Check::Refused),
    (Rule::NeedOfAll, Check::Refused),
    (Rule::AllAgain, Check::Refused),
    (Rule::PausesEnd, Check::Refused),
    (Rule::AgeFromAsk, Check::Refused),
    (Rule::UnansweredIsRestated, Check::Kept),
    (Rule::DebtIsStated, Check::Kept),
    (Rule::IdleReturns, Check::Kept),
    (Rule::EpochRestates, Check::Over),
    (Rule::ResetIsStated, Check::Kept),
    (Rule::LookReturns, Check::Kept),
    (Rule::TrialsAreInstants, Check::Whole),
    (Rule::CallsEndInTime, Check::InTime),
    (Rule::HeldSurvives, Check::Kept),
    (Rule::StartWalks, Check::Kept),
];

/// As often a request asks while all is well and units are free: again if what it needs of one quota was taken while it waited for another, and
/// once more for an organisation, whose quotas are looked at when the caller's own have room.
const MOST_ASKS: u32 = 2;

impl Run {
    /// Units of a window that were used beyond what the ledger knows.
    fn debts(&self, key: Key) -> u64 {
        let debts =
            self.gateways.iter().enumerate().map(|(number, gateway)| match self.count(number, key.0) {
                Some(count) if count.index == key.1 => {
                    let share = self.store.share(key, (gateway.name, count.generation));
                    u64::from(count.used.saturating_sub(share))
                }
                _ => 0,
            });
        debts.sum()
    }

    /// A request was decided.
    pub(crate) fn check_decision(&mut self, stream: u32, counted: Counted) {
        let Stream { place, since, caller, ref request, .. } = self.streams[stream as usize];
        let Place { gateway, worker, .. } = place;
        let Some((demand, standings)) = request else { return };
        let is_shared = demand.levels.are_shared();
        let standings = self.world.subjects_of(caller).zip(standings.clone()).collect::<Vec<_>>();
        let Some((first, standing)) = standings.first().copied() else { return };
        let key = (first, standing.index);
        let units = self.facts.units(key);
        let tally = &mut self.facts.tally;
        match counted.admission {
            Admission::Admitted => tally.admitted += 1,
            Admission::Refused => tally.first_429 = tally.first_429.or(Some(units)),
            Admission::Denied | Admission::Lacking | Admission::Full => {}
        }
        let Gateway { stepped_at, workers, .. } = &self.gateways[gateway];
        let (is_timed, is_stuck) = (*stepped_at < since, workers[worker].stuck_until > since);
        if is_timed && !is_stuck && self.now > since + Time::from(TIMEOUT + 1) * MILLI {
            self.violated(Check::InTime, key, "waited too long");
        }
        for (subject, standing) in standings {
            let key = (subject, standing.index);
            match (counted.admission, counted.by) {
                (Admission::Refused, By::Ledger) if standing.exhausted => self.check_refusal(gateway, key),
                (_, By::Beyond) => self.note(key, gateway, || format!("decides alone: {counted:?}")),
                _ => {}
            }
        }
        if counted.by == By::Beyond && is_shared && is_timed {
            self.check_alone(stream, key);
        }
    }

    /// A request is refused because a quota has too little left, as the ledger has said.
    fn check_refusal(&mut self, gateway: usize, key: Key) {
        let Some(count) = self.count(gateway, key.0) else { return };
        self.note(key, gateway, || format!("refuses: {count:?}"));
        if self.world.knows_ages() && self.world.checks_refusals {
            let taken = self.store.shares(key) + self.debts(key);
            self.facts.refused(key, count.held.reset, self.now, self.least_limit(key.0), taken);
        }
    }

    /// The ledger has not decided a request, so `on_unavailable` has.
    fn check_alone(&mut self, stream: u32, key: Key) {
        let Stream { place, since, failed, asks, .. } = self.streams[stream as usize];
        // A silent replica costs half of the time, so that a request that has to ask again may run out of it.
        let has_time = (failed, asks) == (2, 0) || !self.world.has(Fault::Replica);
        if self.world.is_reachable() && has_time {
            self.violated(Check::Refused, key, "decided alone");
        }
        let Some(returned_at) = self.returned_at.filter(|_| self.world.is_whole_again()) else { return };
        let called_at = self.gateways[place.gateway].workers[place.worker].called_at;
        // A call that was made just before has half of the timeout to fail.
        let soon = SECOND / 2 + Time::from(TIMEOUT) * MILLI / 2;
        if since >= returned_at + soon && called_at < returned_at {
            self.violated(Check::Whole, key, "does not ask again");
        }
        if since >= returned_at + SECOND {
            self.violated(Check::Whole, key, "decided alone");
        }
    }

    /// In a world where nothing keeps it, a count that has been idle for two terms holds nothing.
    pub(crate) fn check_idle(&mut self, place: Place) {
        if place.worker > 0 || !self.world.is_prompt() {
            return;
        }
        for subject in 0..self.world.subjects.len() {
            let record = self.world.subjects[subject].record;
            if self.now > self.gateways[place.gateway].touched[record] + 2 * Time::from(TERM) * MILLI {
                self.check_kept(place.gateway, subject, "idle for two terms");
            }
        }
    }

    /// A request has asked as often as it should have to: what it lacks must be used up.
    pub(crate) fn check_free(&mut self, stream: u32) {
        let Stream { place: Place { gateway, .. }, caller, asks, ref request, .. } =
            self.streams[stream as usize];
        let Some((demand, _)) = request else { return };
        let cost = demand.cost;
        let most = MOST_ASKS + u32::from(self.world.own < self.world.quotas.len());
        if asks < most || !self.world.is_reachable() || !self.world.is_steady() {
            return;
        }
        for subject in self.world.subjects_of(caller).collect::<Vec<_>>() {
            let Some(Count { index, used, held, .. }) = self.count(gateway, subject) else { continue };
            let key = (subject, index);
            let taken = self.store.shares(key) + u64::from(self.facts.most);
            let is_lacking = used + cost
                > held.share.min(self.gateways[gateway].limits[self.world.subjects[subject].place]);
            if is_lacking && taken <= self.least_limit(subject).into() {
                self.violated(Check::Refused, key, "asked again and again");
            }
        }
    }

    /// All is idle.
    pub(crate) fn check_end(&mut self) {
        for gateway in 0..self.world.gateways {
            for subject in 0..self.world.subjects.len() {
                if self.world.is_long(subject) {
                    self.check_kept(gateway, subject, "idle");
                }
            }
        }
        for window in &self.store.windows {
            if window.holders.iter().map(|(_, holder)| u64::from(holder.share)).sum::<u64>()
                != window.counter.shares
            {
                self.facts.violated(Check::Kept, window.key, "the sum of the shares");
            }
        }
        self.facts.check_over(&self.world);
    }

    fn check_kept(&mut self, gateway: usize, subject: usize, when: &'static str) {
        let Some(count) = self.count(gateway, subject) else { return };
        let now = self.clock(gateway);
        let Count { index, used, held, .. } = count;
        // In shadow mode, a gateway counts by itself, and states nothing of a count that no request of a fleet has touched.
        let is_unshared = held.limit == 0 && self.world.has(Fault::Mode);
        // By a clock that has stepped back, it is not idle.
        if held.used_at.until(now) < 2 * TERM || index < count.window.index_at(now) || is_unshared {
            return;
        }
        let key = (subject, index);
        let Some(share) =
            self.gateways.get(gateway).map(|of| self.store.share(key, (of.name, count.generation)))
        else {
            return;
        };
        let reset = self.store.window(key).map_or(0, |window| window.counter.reset);
        // What is used in shadow mode, perhaps by a configuration that drains, the ledger knows with the next request.
        let has_shadow = self.world.has(Fault::Mode);
        let is_use = |share: u32| share == used || has_shadow && share < used;
        // Of a reset, a gateway hears with its next statement.
        let is_known = match held.seq {
            0 => true,
            _ => reset > held.reset || reset == held.reset && is_use(share),
        };
        if !is_use(held.share) || !is_known {
            self.note(key, gateway, || format!("holds {count:?}, by the ledger {share} under reset {reset}"));
            self.violated(Check::Kept, key, when);
        }
        if held.waiting > 0 && !self.world.is_mortal() {
            self.note(key, gateway, || format!("has {count:?}"));
            self.violated(Check::Kept, key, "nobody waits");
        }
    }
}
