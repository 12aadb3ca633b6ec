//! The step that every request takes on a record: check all quotas of a counter, then consume all of them, or none; in a fleet, take up what the
//! ledger has answered before, and ask it afterwards for what is lacking.

use ledger_wire::{Answer, Hex128};
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use super::entry::{Count, MAX_QUOTAS, Record};
use super::fingerprint::Who;
use super::holding::{Beyond, Sharing, Stated, Verdict};
use super::rate::{Flow, SECOND};
use super::swap::Step;
use crate::quota::{Mode, Quota};
use crate::rules::{Rule, without};
use crate::time::Timestamp;
use crate::window::Window;

/// Where a counter stands on one quota after a request was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Units of the limit that are used, with those that other gateways of a fleet hold; may exceed a limit that was lowered.
    pub used: u32,
    /// The place in time of the window in which the request was counted, or of the slot in which it began; 0 for a rate.
    pub index: u32,
    /// The generation of the count in that window.
    pub generation: u32,
    /// Whether the request did not fit.
    pub exhausted: bool,
    /// What is used of a rate. All of it is back at this instant at the earliest; with requests in flight it is worth a try in the next second.
    pub flow: Flow,
}

impl Standing {
    /// Where `count` stands on `quota`.
    pub(super) fn of(count: &Count, quota: &Quota, now: Timestamp) -> Self {
        let mut standing = Self { used: count.used(quota, now), flow: count.flow, ..Self::of_window(count) };
        if !quota.window.is_shared() {
            standing.flow.tat = match quota.window.is_in_flight() {
                true => now.nanos() / SECOND * SECOND + SECOND,
                false => standing.flow.tat.max(now.nanos()),
            };
        }
        standing
    }

    /// The same of a count of a window.
    #[inline(always)]
    fn of_window(count: &Count) -> Self {
        let Count { used, index, generation, .. } = *count;
        Self { used, index, generation, exhausted: false, flow: Flow::default() }
    }

    /// When all units of `quota`, whose standing this is, are there again, in UTC epoch seconds.
    #[must_use]
    pub fn reset(&self, quota: &Quota) -> u64 {
        match quota.window.is_shared() {
            true => quota.window.period(self.index).end,
            false => self.flow.full_at(),
        }
    }

    /// Seconds until there is room for `cost` units of `quota`, whose standing at `now` this is.
    #[must_use]
    pub fn seconds_until_room(&self, quota: &Quota, cost: u32, now: Timestamp) -> u64 {
        match quota.rate() {
            Some(rate) => self.flow.seconds_until(cost, rate, now),
            None => now.seconds_until(self.reset(quota)),
        }
    }

    /// Seconds until there are more units of `quota`, whose standing at `now` this is; `None` if nothing is used of a rate, and for
    /// requests in flight.
    #[must_use]
    pub fn seconds_until_more(&self, quota: &Quota, now: Timestamp) -> Option<u64> {
        let more = self.left(quota).saturating_add(1);
        let is_full = quota.window.is_in_flight() || !quota.window.is_shared() && self.flow.is_over(now);
        (!is_full).then(|| self.seconds_until_room(quota, more, now))
    }

    /// Units left of `quota`, whose standing this is. A limit that was lowered below what is used leaves none.
    #[must_use]
    pub fn left(&self, quota: &Quota) -> u32 {
        quota.limit.get().saturating_sub(self.used)
    }
}

/// One standing for each quota, in the quotas' order.
pub type Standings = SmallVec<[Standing; 2]>;

/// The statements about one counter.
pub type Statements = SmallVec<[Stated; 1]>;

/// The name of a counter, the same at every gateway of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedName(pub u128);

impl SharedName {
    /// The name of the counter of `who` in `class`. Strangers have none.
    #[must_use]
    pub fn new(namespace: &str, who: Who<'_>, class: &str) -> Self {
        let (kind, id) = match who {
            Who::Key(digest) => (b'k', digest.as_slice()),
            Who::Subscriber(id) => (b's', id.as_bytes()),
            Who::Organisation(id) => (b'o', id.as_bytes()),
            Who::Address(_) => (b'a', &[][..]),
        };
        let mut hash = Sha256::new();
        // With their lengths, so that no two lists of parts are the same bytes.
        for part in [namespace.as_bytes(), &[kind], id, class.as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        Self(hash.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes)))
    }

    /// The name of the counter's count of `window`.
    pub(crate) fn of(self, window: Window) -> Hex128 {
        Hex128(self.0 ^ u128::from(window.code()))
    }
}

/// A request to be counted by one record.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The quotas of the class, each of which is charged; at most [`MAX_QUOTAS`].
    pub quotas: &'a [Quota],
    /// Units of each.
    pub cost: u32,
    /// How a fleet shares them; `None` if the limits alone decide.
    pub shared: Option<Shared<'a>>,
}

/// A request to be counted by a record that a fleet shares.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    /// The counter's name in the fleet.
    pub name: SharedName,
    /// How it is shared.
    pub sharing: &'a Sharing,
    /// Since when the request waits, and what it has stated about this counter; `None` if it has just come.
    pub waited: Option<(Timestamp, &'a [Stated])>,
    /// The answers to that, and the store's epoch; `None` if there are none.
    pub answers: Option<(&'a [Answer], u32)>,
    /// What becomes of it if the share is too small.
    pub lack: Lack,
    /// How far it goes.
    pub until: Until,
}

/// What becomes of a request whose share is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It asks, as long as it may wait.
    Asks,
    /// What may be used beyond the share decides: the ledger is away.
    Decided,
    /// It would ask, but too many wait.
    Full,
}

/// How far a request goes with a record, which depends on what became of it at another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It is charged.
    Charged,
    /// It waits, and asks for what it will lack.
    Asked,
    /// It takes up the answers that it has got.
    TakenUp,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It was charged to all quotas.
    Admitted,
    /// A quota has no room for it, and it was charged to none.
    Refused,
    /// The ledger does not decide, and then nothing may be used beyond the share. It was charged to none.
    Denied,
    /// The gateway's share of a quota is too small for it. It was charged to none, and has asked for more.
    Lacking,
    /// The same, but too many wait.
    Full,
}

/// What has decided a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The limits, or what the gateway holds.
    Share,
    /// An answer of the ledger: its own, or a lately given one that nothing is left.
    Ledger,
    /// What may be used beyond the share.
    Beyond,
}

/// Whether a quota has room for a request. The worst of a request's quotas decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    Enough,
    Lacking,
    Denied,
    None,
}

impl Charge<'_> {
    /// Charges every quota, or none. `standings` receives where the counter stands afterwards, and `stated` what is to be sent.
    ///
    /// A refusal is stored if use moved from a window that the clock stepped back from: it would follow the clock from window to window
    /// otherwise, and lock the client out.
    #[inline(always)]
    pub(super) fn apply(
        &self,
        record: &mut Record,
        standings: &mut Standings,
        stated: &mut Statements,
    ) -> Step<(Admission, By)> {
        // The step is taken again if another worker has stored in between. What was not stored then must not be sent.
        stated.clear();
        let is_taken_up = self.shared.is_some_and(|shared| shared.take_up(record));
        let (room, by) = self.check(record, standings);
        let has_changed = is_taken_up || record.moved;
        let until = self.shared.map_or(Until::Charged, |shared| shared.until);
        let admission = match (room, until) {
            (Room::Enough, Until::Charged) => Admission::Admitted,
            (Room::None, _) => Admission::Refused,
            (Room::Denied, _) => Admission::Denied,
            (Room::Lacking, _) if self.shared.is_some_and(|shared| shared.lack == Lack::Full) => {
                Admission::Full
            }
            (Room::Enough | Room::Lacking, _) => Admission::Lacking,
        };
        match (admission, self.shared) {
            (Admission::Admitted, _) => self.consume(record, standings),
            (Admission::Lacking, Some(shared)) if until != Until::TakenUp => {
                *stated = shared.ask(record, self.quotas, self.cost);
            }
            _ => {}
        }
        if self.shared.is_some() {
            add_others(self.quotas, record, standings);
        }
        match admission == Admission::Admitted || has_changed || !stated.is_empty() {
            true => Step::Store((admission, by)),
            false => Step::Keep((admission, by)),
        }
    }

    /// Whether all quotas have room, and where they stand.
    #[inline(always)]
    fn check(&self, record: &mut Record, standings: &mut Standings) -> (Room, By) {
        let (at, mut worst, mut by) = (record.at, Room::Enough, By::Share);
        standings.clear();
        for quota in self.quotas.iter().take(MAX_QUOTAS) {
            if !quota.window.is_shared() {
                let standing = self.check_without_window(record, quota);
                if quota.mode == Mode::Enforced && standing.exhausted {
                    worst = Room::None;
                }
                standings.push(standing);
                continue;
            }
            // The record was opened with the quotas, so it has a count for each.
            let Some(count) = record.count(quota.window) else { continue };
            let limit = quota.limit.get();
            let room = match &self.shared {
                Some(shared) if quota.mode == Mode::Enforced => {
                    let (room, decided_by) = shared.room(count, self.cost, limit, at);
                    by = if by == By::Beyond { by } else { decided_by };
                    room
                }
                _ if count.used.checked_add(self.cost).is_none_or(|used| used > limit) => Room::None,
                _ => Room::Enough,
            };
            if quota.mode == Mode::Enforced {
                worst = worst.max(room);
            }
            standings.push(Standing { exhausted: room == Room::None, ..Standing::of_window(count) });
        }
        (worst, by)
    }

    /// Where the counter stands on a quota that has no windows: a rate, or requests in flight.
    #[cold]
    fn check_without_window(&self, record: &mut Record, quota: &Quota) -> Standing {
        record.clamp(quota);
        let at = record.at;
        let standing = record.count(quota.window).map(|count| Standing::of(count, quota, at));
        let standing = standing.unwrap_or_default();
        Standing { exhausted: standing.left(quota) < quota.units(self.cost), ..standing }
    }

    /// Charges such a quota; in shadow mode only with what an enforced one would take.
    #[cold]
    fn consume_without_window(&self, record: &mut Record, quota: &Quota, standing: &mut Standing) {
        let at = record.at;
        let Some(count) = record.count(quota.window).filter(|_| !standing.exhausted) else { return };
        match quota.rate() {
            Some(rate) => count.flow.charge(self.cost, rate, at),
            None if self.cost > 0 => count.begin_request(),
            // Nobody begins who only looks.
            None => {}
        }
        *standing = Standing::of(count, quota, at);
    }

    #[inline(always)]
    fn consume(&self, record: &mut Record, standings: &mut Standings) {
        if let Some(shared) = &self.shared {
            let (at, mut is_noted) = (record.at, record.name == Some(shared.name.0));
            for (place, quota) in self.quotas.iter().enumerate() {
                if is_first_enforced(self.quotas, place)
                    && let Some(count) = record.count(quota.window)
                {
                    count.charge_share(self.cost, at);
                    is_noted &= count.held.limit > 0;
                }
            }
            if !is_noted {
                // Of one that has never asked, whose use a tick has to state.
                state(record, shared.name, self.quotas, |_, _, _| None);
            }
        }
        for (quota, standing) in self.quotas.iter().zip(standings) {
            if !quota.window.is_shared() {
                self.consume_without_window(record, quota, standing);
                continue;
            }
            standing.used = standing.used.saturating_add(self.cost);
            // Quotas with windows of the same length share one count, which changes once.
            if let Some(count) = record.count(quota.window) {
                count.used = standing.used;
            }
        }
    }
}

impl Shared<'_> {
    /// Takes up the answers to what the request has stated: it waits for them no longer. Whether there is anything to take up.
    fn take_up(&self, record: &mut Record) -> bool {
        let Some((_, stated)) = self.waited else { return false };
        take_up(record, stated, self.answers, self.sharing);
        true
    }

    /// Whether the gateway's share has room for a request, and what says so.
    fn room(&self, count: &Count, cost: u32, limit: u32, at: Timestamp) -> (Room, By) {
        // One that has asked about another quota alone does not take what others wait for here.
        let asked = self.waited.map(|(_, stated)| stated).unwrap_or_default();
        let lacks = match asked.iter().any(|stated| stated.window == count.window) {
            true => count.lacks(cost, limit),
            false => count.lacks_at_first(cost, limit),
        };
        let by = if self.waited.is_some() { By::Ledger } else { By::Share };
        if !lacks {
            return (Room::Enough, by);
        }
        let is_undecided = match self.waited {
            None if count.refuses(cost, limit, at, *self.sharing) => return (Room::None, By::Ledger),
            None => false,
            Some((since, stated)) => {
                match self.verdict(stated, count, (cost, limit), at) {
                    Some(Verdict::Refused) => return (Room::None, By::Ledger),
                    Some(Verdict::Undecided) => true,
                    // Others have taken what was granted, or the answer was void.
                    Some(Verdict::Granted) | None if without(Rule::OnlyAnswersRefuse) => {
                        return (Room::None, By::Ledger);
                    }
                    Some(Verdict::Granted) | None => {
                        self.answers.is_none()
                            || at.duration_since(since).as_millis() >= u128::from(self.sharing.timeout)
                    }
                }
            }
        };
        if !is_undecided && self.lack != Lack::Decided {
            return (Room::Lacking, by);
        }
        let is_allowed = match self.sharing.beyond {
            Beyond::All => true,
            Beyond::Nothing => return (Room::Denied, By::Beyond),
            Beyond::Percent(percent) => {
                let allowance = u64::from(limit) * u64::from(percent) / 100;
                count.may_go_beyond(cost, limit, u32::try_from(allowance).unwrap_or(limit))
            }
        };
        (if is_allowed { Room::Enough } else { Room::None }, By::Beyond)
    }

    /// What the answer about this very count makes of the request; `None` if it has not asked for it.
    fn verdict(&self, stated: &[Stated], count: &Count, of: (u32, u32), at: Timestamp) -> Option<Verdict> {
        let (answers, _) = self.answers?;
        let verdict =
            |(stated, answer): (&Stated, &Answer)| count.verdict(stated, answer, of, at, *self.sharing);
        let mut all = stated.iter().zip(answers);
        if without(Rule::EachQuotasAnswer) && all.clone().map(verdict).any(|it| it == Verdict::Refused) {
            return Some(Verdict::Refused);
        }
        all.find(|(stated, _)| stated.window == count.window).map(verdict)
    }

    /// Asks for what the request lacks. One that has waited asks for all, because what it lacked not may be taken meanwhile.
    fn ask(&self, record: &mut Record, quotas: &[Quota], cost: u32) -> Statements {
        let asks_for_all = self.waited.is_some() && !without(Rule::AllAgain);
        state(record, self.name, quotas, |count, name, at| {
            let limit = count.held.limit;
            let asks = asks_for_all || count.lacks_at_first(cost, limit);
            asks.then(|| count.ask(cost, name, at, *self.sharing))
        })
    }
}

/// Takes a step on each count that these quotas share in a fleet, which may make a statement. `name` is the counter's. What a tick needs to
/// state the counts is noted.
pub(crate) fn state(
    record: &mut Record,
    name: SharedName,
    quotas: &[Quota],
    mut statement: impl FnMut(&mut Count, Hex128, Timestamp) -> Option<Stated>,
) -> Statements {
    let (at, mut statements) = (record.at, Statements::new());
    record.name = Some(name.0);
    for (_, quota) in quotas.iter().enumerate().filter(|(place, _)| is_first_enforced(quotas, *place)) {
        let of_window =
            quotas.iter().filter(|other| (other.window, other.mode) == (quota.window, quota.mode));
        let limit = of_window.map(|quota| quota.limit.get()).min();
        if let (Some(count), Some(limit)) = (record.count(quota.window), limit) {
            count.held.limit = limit;
            statements.extend(statement(count, name.of(quota.window), at));
        }
    }
    statements
}

/// Takes up the answers to `stated`: those who waited for them wait no longer.
pub(crate) fn take_up(
    record: &mut Record,
    stated: &[Stated],
    answers: Option<(&[Answer], u32)>,
    sharing: &Sharing,
) {
    let (at, generation) = (record.at, record.generation());
    for (place, stated) in stated.iter().enumerate() {
        let Some(count) = record.count(stated.window) else { continue };
        count.leave(stated);
        if let Some((answers, epoch)) = answers
            && let Some(answer) = answers.get(place)
        {
            count.answered(stated, answer, (epoch, generation), at, *sharing);
        }
    }
}

/// What a tick states of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attended {
    /// The statements.
    pub statements: Statements,
    /// Whether the ledger knows all that was used, and nothing else is held: nothing is left to state.
    pub is_settled: bool,
}

/// States what nobody waits for, of all windows of a counter. `epoch` is the store's last one, if it is known.
pub(crate) fn attend(record: &mut Record, epoch: Option<u32>, sharing: &Sharing) -> Step<Attended> {
    let (at, mut attended) = (record.at, Attended { is_settled: true, ..Attended::default() });
    if let Some(name) = record.name.map(SharedName) {
        for count in record.counts().filter(|count| count.held.limit > 0) {
            attended.statements.extend(count.attend(name.of(count.window), epoch, at, *sharing));
            attended.is_settled &= count.is_settled(epoch, *sharing);
        }
    }
    if attended.statements.is_empty() { Step::Keep(attended) } else { Step::Store(attended) }
}

/// Adds to standings what other gateways of a fleet hold.
pub(super) fn add_others(quotas: &[Quota], record: &mut Record, standings: &mut Standings) {
    let enforced = quotas.iter().zip(standings).filter(|(quota, _)| quota.mode == Mode::Enforced);
    for (quota, standing) in enforced {
        if let Some(count) = record.count(quota.window) {
            standing.used = standing.used.saturating_add(count.held.others);
        }
    }
}

/// Whether the quota at `place` is enforced in windows, and the first such of its window: the one that speaks for the window's count in a fleet.
pub(super) fn is_first_enforced(quotas: &[Quota], place: usize) -> bool {
    let is_enforced = |quota: &&Quota| quota.mode == Mode::Enforced && quota.window.is_shared();
    let Some(quota) = quotas.get(place).filter(is_enforced) else { return false };
    let mut before = quotas.iter().take(place).filter(is_enforced);
    before.all(|other| other.window != quota.window)
}

/// Most statements about these quotas.
#[must_use]
pub fn most_statements(quotas: &[Quota]) -> usize {
    (0..quotas.len()).filter(|place| is_first_enforced(quotas, *place)).count()
}

#[cfg(test)]
mod tests;
