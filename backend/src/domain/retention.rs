//! The retention of clicks.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

const HOUR: i64 = 3_600_000;

/// The time for which clicks are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention(Option<SignedDuration>);

impl Retention {
    /// None keeps clicks forever.
    pub(crate) fn new(retention: Option<Duration>) -> Self {
        Self(retention.map(|retention| SignedDuration::try_from(retention).unwrap_or(SignedDuration::MAX)))
    }

    /// The first instant whose clicks are kept: the start of the UTC hour in which the retention began. The rollups
    /// therefore have all earlier hours completely, and the earliest start in error messages stays valid for some time.
    pub(crate) fn kept_from(self, now: Timestamp) -> Timestamp {
        let Some(began) = self.0.and_then(|retention| now.checked_sub(retention).ok()) else {
            return Timestamp::UNIX_EPOCH;
        };
        let began = began.as_millisecond();
        Timestamp::from_millisecond(began - began.rem_euclid(HOUR))
            .unwrap_or(Timestamp::MIN)
            .max(Timestamp::UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clicks_are_kept_from_the_start_of_the_hour_in_which_the_retention_began() {
        const DAY: u64 = 86_400;
        let table = [
            (Some(DAY), "2026-03-15T12:34:56.789Z", "2026-03-14T12:00:00Z"),
            (Some(DAY), "2026-03-15T12:00:00Z", "2026-03-14T12:00:00Z"),
            (Some(DAY), "2026-03-15T11:59:59.999Z", "2026-03-14T11:00:00Z"),
            (Some(100 * 365 * DAY), "2026-03-15T12:34:56.789Z", "1970-01-01T00:00:00Z"),
            (Some(u64::MAX), "2026-03-15T12:34:56.789Z", "1970-01-01T00:00:00Z"),
            (None, "2026-03-15T12:34:56.789Z", "1970-01-01T00:00:00Z"),
        ];
        for (seconds, now, expected) in table {
            let retention = Retention::new(seconds.map(Duration::from_secs));
            assert_eq!(retention.kept_from(now.parse().unwrap()).to_string(), expected, "{seconds:?} {now}");
        }
    }
}
