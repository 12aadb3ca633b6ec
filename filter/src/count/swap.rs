//! The one compare-and-swap loop: read the value, take a step on it, and store the result unless another worker has stored in between. A
//! counter's step is taken on its record, at the time that is read after the entry.

use core::fmt;

use super::cas_predictor::{CasPredictor, MAX_AGE};
use super::entry::{EntryError, Malformed, Record};
use super::shared_data::{Cas, HostError, SharedData, Swap, compare_and_swap};
use super::table::{Capacity, Counter, Table, entries_for};
use crate::quota::Quota;
use crate::time::Timestamp;

/// Compare-and-swaps before counting counts as failed. Every conflict is another worker's success, so with N workers the average
/// wait is N swaps; 64 in a row mean that something is wrong.
pub const MAX_ATTEMPTS: usize = 64;

/// The levels of `proxy_log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Decisions, one line each.
    Debug = 1,
    /// Start-up.
    Info,
    /// What an operator should know and nothing suffers from.
    Warn,
    /// What goes wrong.
    Error,
}

/// The host as counting needs it: shared data, a clock and a log.
pub trait CounterHost: SharedData {
    /// `proxy_get_current_time_nanoseconds`.
    ///
    /// # Errors
    /// Any status but Ok.
    fn now(&mut self) -> Result<Timestamp, HostError>;

    /// `proxy_log`.
    fn log(&mut self, level: LogLevel, message: fmt::Arguments<'_>);
}

/// Why a request could not be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// A host call failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The counter's entry has no place for the counter.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// Other workers stored first, [`MAX_ATTEMPTS`] times.
    #[error("compare-and-swap lost {MAX_ATTEMPTS} times in a row")]
    Contended,
}

/// The result of a step, and whether the record is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<T> {
    /// The record has not changed.
    Keep(T),
    /// The record is to be stored.
    Store(T),
}

/// The result of a step that is stored, or needs not be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken<T> {
    pub(crate) result: T,
    /// The instant of the step.
    pub(crate) at: Timestamp,
    /// Whether the record is the overflow record of a full strangers' entry.
    pub(crate) overflowed: bool,
}

/// What the loop keeps from request to request.
#[derive(Debug)]
pub(super) struct SwapLoop {
    pub(super) record: Record,
    next: Vec<u8>,
    predictor: CasPredictor,
    /// Malformed entries that were begun again.
    pub(super) repairs: u32,
    /// Live counts whose places others have taken.
    pub(super) dropped: u32,
}

impl SwapLoop {
    pub(super) fn new(capacity: Capacity) -> Self {
        let predictor = CasPredictor::new(entries_for(capacity.known));
        Self { record: Record::default(), next: Vec::new(), predictor, repairs: 0, dropped: 0 }
    }

    /// Takes `step` on the record of `counter`, which is opened with a count for the window of each of `quotas`. A malformed entry is begun
    /// again.
    pub(super) fn take<T>(
        &mut self,
        host: &mut impl CounterHost,
        counter: &Counter,
        quotas: &[Quota],
        mut step: impl FnMut(&mut Record) -> Step<T>,
    ) -> Result<Taken<T>, CountError> {
        let Self { record, next, predictor, repairs, dropped } = self;
        let name = counter.entry.as_bytes();
        // A flood of strangers must not drive known keys' entries out of the predictor's memory.
        let remembers = counter.table == Table::Known;
        if remembers && let Some(predicted) = predictor.predict(counter.entry) {
            let (at, cas) = (host.now()?, predicted.cas);
            // A result that is not stored has to be about what is stored, so it needs a read.
            if at.duration_since(predicted.written) < MAX_AGE
                && let Ok(Ok(())) = record.open(predicted.value, counter, quotas, at)
                && let Step::Store(result) = step(record)
            {
                record.encode(next);
                let swap = host.set(name, next, cas)?;
                predictor.tried(swap);
                if swap == Swap::Stored {
                    *dropped = dropped.saturating_add(record.dropped);
                    predictor.wrote(counter.entry, next, Some(cas), at);
                    return Ok(Taken { result, at, overflowed: false });
                }
            }
        }
        let (mut read, mut repaired) = (None, 0);
        let (taken, is_stored) = swap(host, name, next, |host, stored, next| {
            let (entry, cas) = stored.map_or((&[][..], None), |(entry, cas)| (entry, Some(cas)));
            if remembers && let Some(cas) = cas {
                predictor.read(counter.entry, entry, cas);
            }
            read = cas;
            // The time after the record: a record that another worker has just written is then never from the future.
            let at = host.now()?;
            let opened = match open(record, entry, counter, quotas, at) {
                Ok(opened) => {
                    repaired = 0;
                    opened
                }
                Err(Malformed) => {
                    repaired = 1;
                    open(record, &[], counter, quotas, at).unwrap_or(Ok(false))
                }
            };
            let overflowed = opened?;
            Ok::<_, CountError>(match step(record) {
                Step::Keep(result) => Step::Keep((Taken { result, at, overflowed }, false)),
                Step::Store(result) => {
                    record.encode(next);
                    Step::Store((Taken { result, at, overflowed }, true))
                }
            })
        })?;
        match (is_stored, remembers) {
            (false, _) => predictor.forget(counter.entry),
            (true, true) => predictor.wrote(counter.entry, next, read, taken.at),
            (true, false) => predictor.wrote_unremembered(),
        }
        if is_stored {
            *repairs = repairs.saturating_add(repaired);
            *dropped = dropped.saturating_add(record.dropped);
        }
        Ok(taken)
    }
}

/// Reads the value under `name` and takes `step` on it, which writes what is to be stored into `next`. If another worker has stored in
/// between, all of it is done again.
///
/// # Errors
/// If a host call or the step fails, or other workers stored first, [`MAX_ATTEMPTS`] times.
#[inline]
pub(crate) fn swap<D: SharedData, T, E: From<CountError>>(
    data: &mut D,
    name: &[u8],
    next: &mut Vec<u8>,
    mut step: impl FnMut(&mut D, Option<(&[u8], Cas)>, &mut Vec<u8>) -> Result<Step<T>, E>,
) -> Result<T, E> {
    for _ in 0..MAX_ATTEMPTS {
        let stored = data.get(name).map_err(CountError::from)?;
        let read = stored.as_ref().map(|(value, cas)| (value.as_ref(), *cas));
        let cas = read.map(|(_, cas)| cas);
        match step(data, read, next)? {
            Step::Keep(result) => return Ok(result),
            Step::Store(result) => {
                if compare_and_swap(data, name, cas, next).map_err(CountError::from)? == Swap::Stored {
                    return Ok(result);
                }
            }
        }
    }
    Err(E::from(CountError::Contended))
}

/// Opens the record of `counter`, or the overflow record of a full strangers' entry. Returns which.
fn open(
    record: &mut Record,
    entry: &[u8],
    counter: &Counter,
    quotas: &[Quota],
    at: Timestamp,
) -> Result<Result<bool, EntryError>, Malformed> {
    match record.open(entry, counter, quotas, at)? {
        Err(EntryError::Full) if counter.table == Table::Strangers => {
            let overflow = record.open(entry, &counter.overflow(), quotas, at)?;
            Ok(overflow.map(|()| true))
        }
        opened => Ok(opened.map(|()| false)),
    }
}
