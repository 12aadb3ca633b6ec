//! Log lines that would repeat.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How often a line is written while its cause lasts.
const PAUSE: Duration = Duration::from_secs(60);
/// Most different lines in that time. What names them may come from clients.
const MOST: usize = 1_000;

/// The lines that were written in the last minute, by their causes.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<String, Instant>>);

impl Lines {
    /// Whether a line about `cause` is to be written now.
    pub(crate) fn is_due(&self, cause: String, now: Instant) -> bool {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|_, at| now - *at < PAUSE);
        let is_due = written.len() < MOST && !written.contains_key(&cause);
        if is_due {
            written.insert(cause, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_line_in_a_minute() {
        let (lines, start) = (Lines::default(), Instant::now());
        let is_due = |cause: &str, millis| lines.is_due(cause.into(), start + Duration::from_millis(millis));
        //  cause, time, whether a line is written
        for (cause, millis, expected) in [
            ("a", 0, true),
            ("a", 1, false),
            ("b", 30_000, true),
            ("a", 59_999, false),
            ("a", 60_000, true),
            ("b", 60_000, false),
            ("a", 119_999, false),
        ] {
            assert_eq!(is_due(cause, millis), expected, "{cause} {millis}");
        }
    }

    #[test]
    fn causes_without_number_write_and_keep_a_thousand_lines_in_a_minute() {
        let (lines, start) = (Lines::default(), Instant::now());
        for minute in 0..3 {
            let now = start + PAUSE * minute;
            let written = (0..10_000).filter(|cause| lines.is_due(format!("{minute} {cause}"), now)).count();
            assert_eq!(written, MOST);
        }
        assert_eq!(lines.0.lock().unwrap().len(), MOST);
    }
}
