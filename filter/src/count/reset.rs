//! Resetting a quota: its count begins again with nothing used.
//!
//! A reset keeps the window and changes the count's generation, so it takes the charges of requests that are in flight out of the count: none of
//! them is settled or given back a second time ([`super::settle`]).

use core::slice;

use super::entry::{EntryError, OpenRecord};
use super::fingerprint::Fingerprint;
use crate::quota::Quota;
use crate::time::Timestamp;

/// Resets the count of the window of `quota`. `next` receives the value to store in place of `entry`.
///
/// Returns the units that were used, and whether the value is to be stored. A count without use is left alone: no request in flight is charged
/// to it.
///
/// # Errors
/// If `entry` is malformed.
pub(super) fn reset(
    entry: &[u8],
    fingerprint: Fingerprint,
    quota: &Quota,
    now: Timestamp,
    next: &mut Vec<u8>,
) -> Result<(u32, bool), EntryError> {
    let mut record = match OpenRecord::open(entry, fingerprint, slice::from_ref(quota), now, next) {
        Ok(record) => record,
        // A counter without a record, or a record without this window, has used nothing.
        Err(EntryError::Full | EntryError::TooManyWindows) => return Ok((0, false)),
        Err(error @ EntryError::Malformed) => return Err(error),
    };
    let found = record.find(quota.window);
    match found.and_then(|place| Some((place, record.count(place)?.used))) {
        Some((place, used @ 1..)) => {
            record.begin_again(place);
            Ok((used, true))
        }
        Some((_, 0)) | None => Ok((0, false)),
    }
}
