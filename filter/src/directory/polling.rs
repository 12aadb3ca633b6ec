//! The instants at which the directory is polled.

use core::time::Duration;

use crate::time::Timestamp;

/// Pause after the first failed poll while there has not been a good answer. It doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// Longest pause after a failed poll once there has been a good answer.
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// When the next poll is due: at once, then every interval, and sooner after a failed poll.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: Duration,
    jitter: u8,
    /// Pause after the next failure; `None` once there has been a good answer.
    backoff: Option<Duration>,
    /// Start and length of the current pause; `None` if a poll is due at once.
    pause: Option<(Timestamp, Duration)>,
}

impl Schedule {
    /// A schedule whose first poll is due at once. `jitter`, a random number, sets this gateway's part of a later retry's pause, so
    /// that gateways do not all retry at the same instant.
    #[must_use]
    pub(super) const fn new(interval: Duration, jitter: u8) -> Self {
        Self { interval, jitter, backoff: Some(FIRST_BACKOFF), pause: None }
    }

    /// Whether a poll is due at `now`. A clock that has stepped back makes it due at once.
    #[must_use]
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.pause.is_none_or(|(start, pause)| now < start || now.duration_since(start) >= pause)
    }

    /// Records a poll. The next one is due after the interval unless this one fails.
    pub(super) fn sent(&mut self, now: Timestamp) {
        self.pause = Some((now, self.interval));
    }

    /// Records a good answer.
    pub(super) fn succeeded(&mut self) {
        self.backoff = None;
    }

    /// Makes the next poll due at once.
    pub(super) fn hasten(&mut self) {
        self.pause = None;
    }

    /// Records a failed poll. Until the first good answer, the pause doubles from [`FIRST_BACKOFF`] up to the interval. Later, the
    /// pause is half of the interval or of [`LONGEST_RETRY`], whichever is shorter, and up to as much again by the jitter.
    pub(super) fn failed(&mut self, now: Timestamp) {
        let pause = match &mut self.backoff {
            Some(backoff) => {
                let pause = (*backoff).min(self.interval);
                *backoff = pause.saturating_mul(2);
                pause
            }
            None => {
                let half = self.interval.min(LONGEST_RETRY) / 2;
                half + half * u32::from(self.jitter) / u32::from(u8::MAX)
            }
        };
        self.pause = Some((now, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000_000 + milliseconds * 1_000_000)
    }

    /// What happens, and when, in milliseconds.
    enum Step {
        /// The poll that is due now, and neither 1 ms before.
        Due(u64),
        Answered,
        Failed(u64),
    }
    use Step::{Answered, Due, Failed};

    #[test]
    fn a_poll_is_due_at_once_then_every_interval_and_sooner_after_a_failure() {
        let never_good =
            [Due(0), Failed(0), Due(500), Failed(600), Due(1600), Failed(1600), Due(3600), Failed(3600)];
        let tables = [
            // interval in seconds, jitter, steps
            (10, 0, vec![Due(0), Answered, Due(10_000), Answered, Due(20_000)]),
            (
                10,
                0,
                never_good
                    .into_iter()
                    .chain([
                        Due(7600),
                        Failed(7600),
                        Due(15_600),
                        Failed(15_600),
                        Due(25_600),
                        Failed(25_600),
                        Due(35_600),
                        Answered,
                        Due(45_600),
                    ])
                    .collect(),
            ),
            (1, 0, vec![Due(0), Failed(0), Due(500), Failed(500), Due(1500), Failed(1500), Due(2500)]),
            // A poll that is still under way after the interval.
            (1, 0, vec![Due(0), Due(1000), Failed(1000), Due(1500)]),
            (
                10,
                255,
                vec![
                    Due(0),
                    Answered,
                    Due(10_000),
                    Failed(15_000),
                    Due(20_000),
                    Failed(20_000),
                    Due(25_000),
                    Answered,
                    Due(35_000),
                ],
            ),
            (10, 0, vec![Due(0), Answered, Due(10_000), Failed(10_000), Due(12_500)]),
            (10, 51, vec![Due(0), Answered, Due(10_000), Failed(10_000), Due(13_000)]),
            (2, 255, vec![Due(0), Answered, Due(2000), Failed(2000), Due(4000)]),
            (2, 0, vec![Due(0), Answered, Due(2000), Failed(2000), Due(3000)]),
        ];
        for (place, (interval, jitter, steps)) in tables.into_iter().enumerate() {
            let mut schedule = Schedule::new(Duration::from_secs(interval), jitter);
            for step in steps {
                match step {
                    Due(now) => {
                        assert!(
                            now == 0 || !schedule.is_due(at(now - 1)),
                            "table {place}: 1 ms before {now}"
                        );
                        assert!(schedule.is_due(at(now)), "table {place}: at {now}");
                        schedule.sent(at(now));
                        assert!(!schedule.is_due(at(now)), "table {place}: twice at {now}");
                    }
                    Answered => schedule.succeeded(),
                    Failed(now) => schedule.failed(at(now)),
                }
            }
        }
    }

    #[test]
    fn a_clock_that_steps_back_makes_a_poll_due() {
        let mut schedule = Schedule::new(Duration::from_secs(10), 0);
        schedule.sent(at(5000));
        assert!(!schedule.is_due(at(5000)) && schedule.is_due(at(4999)));
    }

    #[test]
    fn a_leader_polls_at_once_and_retries_as_after_a_good_answer_if_there_was_one() {
        for (answered, retry) in [(true, 5000), (false, 500)] {
            let mut schedule = Schedule::new(Duration::from_secs(20), 255);
            if answered {
                schedule.succeeded();
            }
            assert!(schedule.is_due(at(0)));
            schedule.failed(at(0));
            assert!(!schedule.is_due(at(retry - 1)) && schedule.is_due(at(retry)), "answered: {answered}");
            schedule.hasten();
            assert!(schedule.is_due(at(1)));
        }
    }
}
