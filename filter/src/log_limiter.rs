//! A limit on the log lines of errors that every request repeats.

use core::time::Duration;

use arrayvec::ArrayVec;

use crate::time::Timestamp;

/// Most different errors that are logged within an interval.
const MOST_ERRORS: usize = 8;

/// Lets each error be logged once in an interval, which is a second. A second, different error is logged beside the first, so neither hides the other.
#[derive(Debug)]
pub struct LogLimiter<E, const SECONDS: u64 = 1> {
    /// The errors of the last interval, and when they were logged.
    logged: ArrayVec<(E, Timestamp), MOST_ERRORS>,
    left_out: u32,
}

impl<E, const SECONDS: u64> Default for LogLimiter<E, SECONDS> {
    fn default() -> Self {
        Self { logged: ArrayVec::new(), left_out: 0 }
    }
}

impl<E: PartialEq, const SECONDS: u64> LogLimiter<E, SECONDS> {
    /// The end of the line if `error` is to be logged now: how many lines were left out since the last one. While the clock fails (`None`), each
    /// error is logged once.
    pub fn admit(&mut self, error: E, now: Option<Timestamp>) -> Option<String> {
        if let Some(now) = now {
            // A clock that has stepped back ends the interval, too.
            self.logged
                .retain(|(_, at)| *at <= now && now.duration_since(*at) < Duration::from_secs(SECONDS));
        }
        let at = now.unwrap_or(Timestamp::from_seconds(0));
        if self.logged.iter().any(|(other, _)| *other == error) || self.logged.try_push((error, at)).is_err()
        {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        Some(match core::mem::take(&mut self.left_out) {
            0 => String::new(),
            1 => " (1 more error line was left out)".to_owned(),
            more => format!(" ({more} more error lines were left out)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Option<&str> = Some("");
    const ONE: Option<&str> = Some(" (1 more error line was left out)");
    const TWO: Option<&str> = Some(" (2 more error lines were left out)");

    #[test]
    fn each_error_is_logged_once_a_second_with_the_number_of_lines_left_out() {
        let at = |milliseconds: u64| Some(Timestamp::from_nanos(60_000_000_000 + milliseconds * 1_000_000));
        let mut limiter = LogLimiter::<_>::default();
        // the error, the instant, the end of the line if it is logged
        let steps = [
            ('a', at(0), NONE),
            ('a', at(0), None),
            ('a', at(999), None),
            ('b', at(999), TWO),
            ('b', at(999), None),
            ('a', at(1000), ONE),
            ('b', at(1998), None),
            ('b', at(1999), ONE),
            // The clock steps back.
            ('b', at(1500), NONE),
            ('b', at(1500), None),
            // The clock fails.
            ('b', None, None),
            ('c', None, TWO),
            ('c', None, None),
            ('c', at(1600), ONE),
            ('b', at(1600), None),
        ];
        for (place, (error, now, expected)) in steps.into_iter().enumerate() {
            assert_eq!(limiter.admit(error, now).as_deref(), expected, "step {place}: {error} at {now:?}");
        }
    }

    #[test]
    fn at_most_eight_different_errors_are_logged_in_a_second() {
        let mut limiter = LogLimiter::<_>::default();
        for second in 0..3 {
            let now = Some(Timestamp::from_seconds(second));
            let logged = (0..100).filter_map(|error| limiter.admit(error, now));
            let left_out: Vec<_> = logged.collect();
            let first = if second == 0 { "" } else { " (92 more error lines were left out)" };
            assert_eq!((left_out.len(), left_out[0].as_str()), (8, first));
        }
    }
}
