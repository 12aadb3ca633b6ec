//! Instants as RFC 3339 has them, in UTC. (A date library would make the module a quarter larger.)

use crate::time::Timestamp;
use crate::window::{DAY, HOUR, MINUTE, date};

/// An instant, with milliseconds.
pub(super) fn instant(at: Timestamp) -> String {
    format!("{}.{:03}Z", second(at.seconds()), at.millis() % 1_000)
}

/// A second since the epoch.
pub(super) fn whole_second(seconds: u64) -> String {
    second(seconds) + "Z"
}

fn second(seconds: u64) -> String {
    let ((year, month, day), of_day) = (date(seconds), seconds % u64::from(DAY));
    let (of_hour, of_minute) = (of_day % u64::from(HOUR), of_day % u64::from(MINUTE));
    let (hour, minute) = (of_day / u64::from(HOUR), of_hour / u64::from(MINUTE));
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{of_minute:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_written_as_a_date_library_writes_it() {
        let days = (0..50_000_u64).map(|day| day * 86_400 + day % 86_400);
        for seconds in days.chain([0, 951_782_400, 1_709_208_000, 4_107_542_399]) {
            let expected = jiff::Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap();
            assert_eq!(whole_second(seconds), expected.to_string());
        }
        let at = Timestamp::from_nanos(1_764_410_410_007_999_999);
        assert_eq!(instant(at), "2025-11-29T10:00:10.007Z");
    }
}
