//! Keeps a service that does not answer from being called by each request.

use crate::time::Timestamp;

/// The pause after a failed call, in milliseconds. It doubles with each further failure,
const FIRST_PAUSE: u32 = 500;
/// up to this.
const LONGEST_PAUSE: u32 = 8_000;

/// Whether the service may be called. After a failure it is left alone for a pause; then one call tries it.
#[derive(Debug, Default)]
pub struct Breaker {
    /// Milliseconds; 0 while the service answers.
    pause: u32,
    failed: Option<Timestamp>,
    /// Whether the one call is in flight.
    trying: bool,
    /// Answers so far.
    answers: u64,
}

/// When a call was sent, as [`Breaker`] measures it.
#[derive(Clone, Copy, Debug)]
pub struct Sent(u64);

impl Breaker {
    /// Whether a call may be sent at `now`. After a pause, only the first to ask may.
    pub fn permits(&mut self, now: Timestamp) -> Option<Sent> {
        let permitted = match self.failed {
            None => true,
            // A clock that steps back ends the pause, too.
            Some(failed) if failed <= now && now.milliseconds_after(failed) < self.pause => false,
            Some(_) => !core::mem::replace(&mut self.trying, true),
        };
        permitted.then_some(Sent(self.answers))
    }

    /// Whether the service is thought to be down.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.failed.is_some()
    }

    /// Notes that a call failed. It counts only if nothing was answered since the call was sent. Whether this is the first failure.
    pub fn failed(&mut self, Sent(answers): Sent, now: Timestamp) -> bool {
        if answers != self.answers {
            return false;
        }
        let first = self.failed.is_none();
        // Of the calls that were in flight when the first of them failed, the others report nothing new.
        if first || self.trying {
            self.pause = if first { FIRST_PAUSE } else { (2 * self.pause).min(LONGEST_PAUSE) };
            self.failed = Some(now);
        }
        self.trying = false;
        first
    }

    /// Notes that a permitted call was not sent after all.
    pub fn withdrawn(&mut self) {
        self.trying = false;
    }

    /// Notes an answer. Whether it ends an outage.
    pub fn answered(&mut self) -> bool {
        self.answers += 1;
        (self.pause, self.trying) = (0, false);
        self.failed.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from_nanos((1_000_000 + milliseconds) * 1_000_000)
    }

    #[test]
    fn pauses_double_and_one_call_tries_the_service_after_each() {
        let mut breaker = Breaker::default();
        let sent = breaker.permits(at(0)).unwrap();
        assert!(breaker.failed(sent, at(0)));
        let mut now = 0;
        for pause in [500, 1000, 2000, 4000, 8000, 8000] {
            assert!(breaker.permits(at(now + pause - 1)).is_none(), "{pause}");
            now += pause;
            let sent = breaker.permits(at(now)).unwrap();
            assert!(breaker.permits(at(now)).is_none(), "one call at a time");
            assert!(!breaker.failed(sent, at(now)));
        }
        assert!(
            breaker.permits(Timestamp::from_seconds(0)).is_some(),
            "a clock that steps back ends the pause"
        );
        assert!(breaker.answered() && !breaker.answered());
        assert!(breaker.permits(at(now)).is_some());
    }

    #[test]
    fn a_failure_after_an_answer_to_a_later_call_is_not_an_outage() {
        let mut breaker = Breaker::default();
        let [early, late] = [(); 2].map(|()| breaker.permits(at(0)).unwrap());
        breaker.answered();
        assert!(!breaker.failed(early, at(1)) && !breaker.failed(late, at(1)));
        assert!(!breaker.is_open());
        let sent = breaker.permits(at(2)).unwrap();
        assert!(breaker.failed(sent, at(3)) && breaker.is_open());
    }
}
