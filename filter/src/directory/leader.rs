//! Which VM of the process polls and writes: a lease in the list's head, as a state machine without a host.
//!
//! An old configuration lives on while its connections drain, and a VM that was held up may still believe that it leads. So the lease has an
//! epoch, which each new leader raises, and each entry of the list carries that of its writer: a writer that finds a higher one stops.

use serde::{Deserialize, Serialize};

/// How long a lease holds, in milliseconds.
pub(super) const TERM: u64 = 1000;

/// Polls in a row whose failure makes a leader give way to another configuration.
const MOST_FAILURES: u32 = 3;

/// Looks without a leader after which a configuration takes the lease although a newer one follows it: that one may have gone, for a roll-back
/// to a configuration that still lives configures nothing.
const LOOKS_OF_RETIRED: u32 = 10;

/// Who leads, and until when. Times are in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    pub(super) epoch: u32,
    /// A random number of the holder.
    pub(super) holder: u64,
    /// Identifies the holder's configuration.
    pub(super) configuration: u64,
    /// The configuration whose polls failed last, and which gives way to others; 0 if there is none.
    pub(super) gave_way: u64,
    pub(super) end: u64,
}

impl Lease {
    /// Whether it has expired. An end that is further ahead than a lease lasts is void: the clock has stepped back.
    fn is_vacant(&self, now: u64) -> bool {
        self.end <= now || self.end > now + TERM
    }
}

/// A configuration in one VM.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidate {
    holder: u64,
    configuration: u64,
    /// Whether it has looked at the lease before. The first time, it takes the lease from another configuration, which is then older. A
    /// canary VM never ticks, and so takes none.
    pub(super) has_looked: bool,
    /// Whether a newer configuration has come.
    pub(super) is_retired: bool,
    vacant: u32,
    /// Polls that failed since the last good answer.
    pub(super) failures: u32,
    /// The epoch in which it leads.
    pub(super) leads: Option<u32>,
}

impl Candidate {
    pub(super) fn new(holder: u64, configuration: u64) -> Self {
        // 0 stands for none.
        Self { holder, configuration: configuration.max(1), ..Self::default() }
    }

    /// The lease with which it leads; `None` if another leads, or may. May be asked again if the lease has changed meanwhile;
    /// [`Candidate::moved`] takes what came of it.
    pub(super) fn consider(&self, lease: &Lease, now: u64) -> Option<Lease> {
        if lease.holder == self.holder && self.leads == Some(lease.epoch) {
            let gave_way = match self.failures {
                MOST_FAILURES.. => self.configuration,
                _ if lease.gave_way == self.configuration => 0,
                _ => lease.gave_way,
            };
            let is_fresh = !lease.is_vacant(now) && lease.end - now > TERM / 2;
            let end = if is_fresh && gave_way == lease.gave_way { lease.end } else { now + TERM };
            return Some(Lease { gave_way, end, ..*lease });
        }
        let takes = match lease.is_vacant(now) {
            true => !self.is_retired || self.vacant >= LOOKS_OF_RETIRED,
            false => {
                let is_other = lease.configuration != self.configuration;
                let has_failed = lease.gave_way == self.configuration;
                let gives_way = lease.gave_way == lease.configuration;
                is_other && !has_failed && (!self.has_looked && !self.is_retired || gives_way)
            }
        };
        takes.then_some(Lease {
            epoch: lease.epoch.wrapping_add(1),
            holder: self.holder,
            configuration: self.configuration,
            gave_way: if lease.gave_way == self.configuration { 0 } else { lease.gave_way },
            end: now + TERM,
        })
    }

    /// Takes what came of a look at this lease: the one with which the candidate leads. Returns whether it leads since now.
    pub(super) fn moved(&mut self, from: &Lease, to: Option<Lease>, now: u64) -> bool {
        self.has_looked = true;
        self.vacant = if from.is_vacant(now) { self.vacant.saturating_add(1) } else { 0 };
        let leads = to.map(|lease| lease.epoch);
        let is_new = leads.is_some() && leads != self.leads;
        self.leads = leads;
        if is_new {
            self.failures = 0;
        }
        is_new
    }

    /// The lease given up, if it is this candidate's.
    pub(super) fn give_up(&self, lease: &Lease) -> Option<Lease> {
        let is_holder = lease.holder == self.holder && self.leads == Some(lease.epoch);
        is_holder.then_some(Lease { end: 0, ..*lease })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 10;
    const B: u64 = 20;

    /// Candidates that look at one lease in turn.
    struct Process {
        lease: Lease,
        now: u64,
        candidates: Vec<Candidate>,
    }

    impl Process {
        fn of(configurations: &[u64]) -> Self {
            let candidates = (1..).zip(configurations).map(|(holder, of)| Candidate::new(holder, *of));
            Self { lease: Lease::default(), now: 1_000_000, candidates: candidates.collect() }
        }

        fn add(&mut self, configuration: u64) -> usize {
            let holder = self.candidates.len() as u64 + 1;
            self.candidates.push(Candidate::new(holder, configuration));
            self.candidates.len() - 1
        }

        /// The candidate looks at the lease. Returns whether it leads then.
        fn look(&mut self, place: usize) -> bool {
            let candidate = &mut self.candidates[place];
            let to = candidate.consider(&self.lease, self.now);
            candidate.moved(&self.lease, to, self.now);
            self.lease = to.unwrap_or(self.lease);
            candidate.leads.is_some()
        }

        /// All look once, 100 ms later. Who leads.
        fn tick(&mut self, alive: &[usize]) -> Vec<usize> {
            self.now += 100;
            alive.iter().copied().filter(|place| self.look(*place)).collect()
        }
    }

    #[test]
    fn one_of_several_leads_and_another_within_a_term_of_its_death() {
        let mut process = Process::of(&[A, A, A]);
        for _ in 0..50 {
            assert_eq!(process.tick(&[0, 1, 2]), [0]);
        }
        assert_eq!(process.lease.epoch, 1);
        let died = process.now;
        while process.tick(&[1, 2]).is_empty() {}
        assert!(process.now - died <= TERM, "{} ms", process.now - died);
        assert_eq!((process.tick(&[1, 2]), process.lease.epoch), (vec![1], 2));
    }

    #[test]
    fn the_newest_configuration_takes_it_at_once_and_the_old_one_does_not_take_it_back() {
        let mut process = Process::of(&[A, A]);
        process.tick(&[0, 1]);
        let new = [process.add(B), process.add(B)];
        for old in 0..2 {
            process.candidates[old].is_retired = true;
        }
        assert!(process.look(new[0]) && !process.look(new[1]) && !process.look(0) && !process.look(1));
        // Then it dies, and another of its configuration follows it.
        for _ in 0..10 {
            process.tick(&[0, 1, new[0], new[1]]);
        }
        let mut led = Vec::new();
        for _ in 0..30 {
            led.extend(process.tick(&[0, 1, new[1]]));
        }
        assert!(!led.is_empty() && led.iter().all(|leader| *leader == new[1]), "{led:?}");
    }

    #[test]
    fn a_roll_back_that_configures_nothing_ends_with_a_leader() {
        let mut process = Process::of(&[A]);
        process.tick(&[0]);
        process.candidates[0].is_retired = true;
        let new = process.add(B);
        process.tick(&[0, new]);
        assert_eq!(process.tick(&[0, new]), [new]);
        // The new configuration goes, and gives it up.
        let lease = process.candidates[new].give_up(&process.lease).unwrap();
        process.lease = lease;
        let since = process.now;
        while process.tick(&[0]).is_empty() {}
        assert!(process.now - since <= 1200, "{} ms", process.now - since);
        for _ in 0..30 {
            assert_eq!(process.tick(&[0]), [0]);
        }
    }

    #[test]
    fn a_configuration_whose_polls_fail_gives_way_to_another_until_that_fails() {
        let mut process = Process::of(&[A]);
        process.tick(&[0]);
        process.candidates[0].is_retired = true;
        let new = process.add(B);
        process.tick(&[0, new]);
        process.candidates[new].failures = 2;
        assert_eq!(process.tick(&[0, new]), [new]);
        process.candidates[new].failures = 3;
        process.tick(&[0, new]);
        for _ in 0..30 {
            assert_eq!(process.tick(&[0, new]), [0], "the old one polls on");
        }
        process.candidates[0].failures = 3;
        process.tick(&[0, new]);
        assert_eq!(process.tick(&[0, new]), [new]);
        // It works again.
        for _ in 0..30 {
            assert_eq!(process.tick(&[0, new]), [new]);
        }
    }

    #[test]
    fn alone_a_configuration_whose_polls_fail_goes_on() {
        let mut process = Process::of(&[A, A]);
        process.tick(&[0, 1]);
        process.candidates[0].failures = 100;
        for _ in 0..30 {
            assert_eq!(process.tick(&[0, 1]), [0]);
        }
        assert_eq!((process.lease.gave_way, process.lease.epoch), (A, 1));
        process.candidates[0].failures = 0;
        process.tick(&[0, 1]);
        assert_eq!(process.lease.gave_way, 0);
    }

    #[test]
    fn two_configurations_that_are_both_new_do_not_take_it_from_each_other_for_ever() {
        let mut process = Process::of(&[A, B, A, B]);
        for _ in 0..50 {
            process.tick(&[0, 1, 2, 3]);
        }
        assert!(process.lease.epoch <= 4, "{}", process.lease.epoch);
    }

    #[test]
    fn a_clock_that_steps_leaves_one_leader() {
        for step in [-3_600_000_i64, -500, 500, 3_600_000] {
            let mut process = Process::of(&[A, A]);
            process.tick(&[0, 1]);
            process.now = process.now.saturating_add_signed(step);
            // The first to look after the step may lead.
            process.tick(&[1, 0]);
            let epoch = process.lease.epoch;
            let leaders: Vec<_> = (0..20).map(|_| process.tick(&[1, 0])).collect();
            assert!(leaders.iter().all(|now| now.len() == 1 && *now == leaders[0]), "{step}: {leaders:?}");
            assert_eq!(process.lease.epoch, epoch, "{step}");
        }
    }

    #[test]
    fn a_vm_that_was_held_up_finds_that_it_leads_no_more() {
        let mut process = Process::of(&[A, A]);
        process.tick(&[0, 1]);
        process.now += 5000;
        assert!(process.look(1));
        assert!(!process.look(0), "its epoch has passed");
        assert_eq!(process.candidates[0].give_up(&process.lease), None);
    }
}
