//! Whether a worker calls the ledger, which may be away.

use core::time::Duration;

use crate::time::Timestamp;

/// Failures in a row after which a worker does not call any more: the first may have been one replica's.
const FAILURES: u32 = 2;
/// How long a worker then waits before it calls once: twice as long after each failure, up to the longest, so that a ledger that is back is
/// noticed within a second.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];

/// How the last calls of a worker ended.
#[derive(Debug, Default)]
pub struct Breaker {
    failures: u32,
    /// When the last call failed.
    failed_at: Timestamp,
    /// Whether the call is under way that tries the ledger again.
    is_trying: bool,
}

impl Breaker {
    /// Whether a call may be made. A call that tries the ledger again is the only one until it has ended.
    pub fn admits(&mut self, now: Timestamp) -> bool {
        if self.failures < FAILURES {
            return true;
        }
        // A clock that has stepped back makes nobody wait longer.
        let is_due = now < self.failed_at || now.duration_since(self.failed_at) >= self.pause();
        is_due && !core::mem::replace(&mut self.is_trying, true)
    }

    /// A call ended with an answer of the ledger.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// A call ended without one. If it `is_made_again`, it says nothing yet, because the host picks another replica: only a trial that fails does.
    pub fn failed(&mut self, now: Timestamp, is_made_again: bool) {
        if is_made_again && self.failures < FAILURES {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.failed_at = now;
        self.is_trying = false;
    }

    fn pause(&self) -> Duration {
        let [shortest, longest] = PAUSES;
        let doublings = self.failures.saturating_sub(FAILURES).min(u32::BITS - 1);
        shortest.saturating_mul(1 << doublings.min(16)).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_two_failures_one_call_tries_at_a_time_and_each_failure_doubles_the_pause_up_to_half_a_second() {
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        let mut breaker = Breaker::default();
        assert!(breaker.admits(at(0)) && breaker.admits(at(0)));
        breaker.failed(at(0), false);
        for _ in 0..FAILURES {
            breaker.failed(at(0), true);
            assert!(breaker.admits(at(0)), "one failure, and calls that are made again");
        }
        let mut now = 0;
        for (number, pause) in [100, 200, 400, 500, 500].into_iter().enumerate() {
            breaker.failed(at(now), number > 0);
            assert!(!breaker.admits(at(now + pause - 1)), "{pause} ms");
            assert!(breaker.admits(at(now + pause)) && !breaker.admits(at(now + 10 * pause)), "{pause} ms");
            now += pause;
        }
        breaker.succeeded();
        assert!(breaker.admits(at(now)) && breaker.admits(at(now)));
    }
}
