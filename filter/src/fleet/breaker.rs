//! Whether a worker calls the ledger, which may be away.

use core::time::Duration;

use crate::rules::{Rule, without};
use crate::time::Timestamp;

/// Failures in a row after which a worker does not call any more: the first may have been one replica's.
const FAILURES: u32 = 2;
/// How long a worker then waits before it calls once: twice as long after each failure, up to the longest. With half of the
/// default timeout, which a call has that is made just before the ledger is back, that is half a second.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(375)];

/// How the last calls of a worker ended.
#[derive(Debug, Default)]
pub struct Breaker {
    failures: u32,
    /// When the last call failed, or the last one was made that tries the ledger again. What becomes of that call does not matter: the worker
    /// may never hear of it.
    tried_at: Timestamp,
}

impl Breaker {
    /// Whether calls have failed so often that only some are made.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.failures >= FAILURES
    }

    /// Whether a call may be made.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        if without(Rule::TrialsAreInstants) && self.tried_at == Timestamp::LAST {
            return false;
        }
        // A clock that has stepped back makes nobody wait longer.
        !self.is_open() || now < self.tried_at || now.duration_since(self.tried_at) >= self.pause()
    }

    /// A call is made.
    pub fn called(&mut self, now: Timestamp) {
        if self.is_open() {
            self.tried_at = if without(Rule::TrialsAreInstants) { Timestamp::LAST } else { now };
        }
    }

    /// Whoever a call was made for, at this instant, has left. If the call tried the ledger again, the next one does: clients that leave soon
    /// would otherwise keep the others from the ledger.
    pub fn abandoned(&mut self, called_at: Timestamp) {
        if self.is_open() && self.tried_at == called_at {
            self.tried_at = Timestamp::default();
        }
    }

    /// A call ended with an answer of the ledger.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// A call ended without one. If it `is_made_again`, it says nothing yet, because the host picks another replica, unless it tried the ledger
    /// again.
    pub fn failed(&mut self, now: Timestamp, is_made_again: bool) {
        if is_made_again && !self.is_open() {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.tried_at = now;
    }

    fn pause(&self) -> Duration {
        let [shortest, longest] = PAUSES;
        let doublings = self.failures.saturating_sub(FAILURES).min(16);
        shortest.saturating_mul(1 << doublings).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_two_failures_one_call_in_a_pause_tries_whatever_becomes_of_it_and_each_failure_doubles_the_pause()
     {
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        let mut breaker = Breaker::default();
        assert!(breaker.is_due(at(0)));
        breaker.failed(at(0), false);
        for _ in 0..FAILURES {
            breaker.failed(at(0), true);
            assert!(breaker.is_due(at(0)), "one failure, and calls that are made again");
        }
        let mut now = 0;
        for (number, pause) in [100, 200, 375, 375].into_iter().enumerate() {
            breaker.failed(at(now), number > 0);
            for _ in 0..3 {
                assert!(!breaker.is_due(at(now + pause - 1)), "{pause} ms");
                now += pause;
                assert!(breaker.is_due(at(now)), "{pause} ms");
                // Nobody hears how it ended.
                breaker.called(at(now));
            }
        }
        breaker.abandoned(at(now - 1));
        assert!(!breaker.is_due(at(now)), "another call");
        breaker.abandoned(at(now));
        assert!(breaker.is_due(at(now)), "whoever it was made for has left");
        breaker.succeeded();
        assert!(breaker.is_due(at(now)));
    }
}
