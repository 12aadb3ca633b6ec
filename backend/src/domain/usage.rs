//! Usage: what gateways report of the requests that they admitted and refused.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::when::as_rfc3339;

/// Time for which the number of a batch is known, so that the batch is counted once. A threshold is known for this time after its window
/// has ended.
pub(crate) const KNOWN_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// The events of one request of a gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) reports: Vec<Report>,
    pub(crate) thresholds: Vec<Threshold>,
}

/// The batch of an event, as the gateway numbers it. A batch is sent again unchanged until it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin {
    /// The gateway's process.
    pub(crate) source: String,
    pub(crate) vm: String,
    pub(crate) number: i64,
}

/// What is summed apart. An empty text is none; strangers have no subscriber.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Account {
    /// The subscriber's id.
    pub subscriber: String,
    /// The id of its organisation.
    pub organisation: String,
    /// The first digits of the SHA-256 of the key.
    pub key: String,
    /// The class of the requests.
    pub class: String,
    /// The plan by which they were counted.
    pub plan: String,
}

/// Sums of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Admitted requests.
    pub requests: i64,
    /// Units that they cost.
    pub units: i64,
    /// Refused requests.
    pub refused: i64,
}

impl std::ops::AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.units += other.units;
        self.refused += other.refused;
    }
}

/// What an account used in an interval.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) origin: Origin,
    pub(crate) account: Account,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) sums: Sums,
    pub(crate) tightest: Option<Tightest>,
}

/// The quota of which the smallest share was left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tightest {
    /// Its name.
    pub quota: String,
    /// Units of a window.
    pub limit: i64,
    /// Units that are used.
    pub used: i64,
    /// When the window ends.
    pub until: Timestamp,
}

impl Tightest {
    /// What is used, in thousandths of the limit.
    #[must_use]
    pub fn share(&self) -> i64 {
        self.used.saturating_mul(1000) / self.limit.max(1)
    }

    /// What is used, in percent with one digit.
    #[must_use]
    pub fn percent(&self) -> String {
        format!("{}.{}", self.share() / 10, self.share() % 10)
    }
}

/// A share of a quota that was reached, once for each window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Threshold {
    #[serde(skip)]
    pub(crate) id: String,
    #[serde(skip)]
    pub(crate) at: Timestamp,
    pub(crate) subscriber: String,
    pub(crate) class: String,
    pub(crate) quota: String,
    /// In percent.
    pub(crate) share: i64,
    pub(crate) limit: i64,
    pub(crate) used: i64,
    /// The window.
    #[serde(serialize_with = "as_rfc3339")]
    pub(crate) from: Timestamp,
    #[serde(serialize_with = "as_rfc3339")]
    pub(crate) to: Timestamp,
}

/// The start of the first hour whose minutes are kept, so that the last 24 hours are known to the minute.
pub(crate) fn minutes_from(now: Timestamp) -> i64 {
    let now = now.as_millisecond();
    now - now.rem_euclid(HOUR) - 24 * HOUR
}

/// A range of time as its sums are kept: `[0]` and `[2]` by the minute, and `[1]` by the hour. Ends are exclusive. Minutes, and before `kept`
/// hours, of which only a part is in the range are in it as a whole.
pub(crate) fn pieces(from: i64, to: i64, kept: i64) -> [(i64, i64); 3] {
    let step = |at: i64| if at < kept { HOUR } else { MINUTE };
    let down = |at: i64, step: i64| at - at.rem_euclid(step);
    let (from, to) = (down(from, step(from)), down(to + step(to) - 1, step(to)));
    let (first, last) = (down(from + HOUR - 1, HOUR), down(to, HOUR));
    if first > last {
        return [(from, to), (to, to), (to, to)];
    }
    [(from, first), (first, last), (last, to)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_by_the_hour_and_its_ends_by_the_minute_as_far_as_minutes_are_kept() {
        const KEPT: i64 = 10 * HOUR;
        let at = |hour: i64, minute: i64| hour * HOUR + minute * MINUTE;
        let (none, ten) = ((at(12, 0), at(12, 0)), (at(10, 0), at(10, 0)));
        //  from, to, minutes, hours, minutes
        let table = [
            (
                at(10, 30),
                at(12, 10),
                (at(10, 30), at(11, 0)),
                (at(11, 0), at(12, 0)),
                (at(12, 0), at(12, 10)),
            ),
            (at(10, 0), at(12, 0), ten, (at(10, 0), at(12, 0)), none),
            (
                at(11, 10),
                at(11, 20),
                (at(11, 10), at(11, 20)),
                (at(11, 20), at(11, 20)),
                (at(11, 20), at(11, 20)),
            ),
            (at(11, 10) + 1, at(12, 0) - 1, (at(11, 10), at(12, 0)), none, none),
            (at(9, 59), at(12, 0), (at(9, 0), at(9, 0)), (at(9, 0), at(12, 0)), none),
            (at(3, 10), at(3, 20), (at(3, 0), at(3, 0)), (at(3, 0), at(4, 0)), (at(4, 0), at(4, 0))),
            (at(10, 0), at(10, 0), ten, ten, ten),
        ];
        for (from, to, before, hours, after) in table {
            assert_eq!(pieces(from, to, KEPT), [before, hours, after], "{from} to {to}");
        }
    }
}
