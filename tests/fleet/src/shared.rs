//! A gateway process as a worker sees it: the shared data, with Envoy's rules, and the clock.

use std::fmt;

use filter::count::entry::{self, Count};
use filter::count::fingerprint::Fingerprint;
use filter::count::shared_data::{Cas, HostError, SharedData, Swap};
use filter::count::swap::{CounterHost, LogLevel};
use filter::time::Timestamp;
use filter::window::Window;

#[derive(Debug)]
struct Value {
    name: Vec<u8>,
    bytes: Vec<u8>,
    cas: u32,
}

/// The shared data of a process. The header of the tables is its first value.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    values: Vec<Value>,
    /// All writes of the process are numbered one after the other.
    issued: u32,
}

impl Memory {
    /// The count of a window of a counter, as it is stored.
    pub(crate) fn count(&self, counter: Fingerprint, window: Window) -> Option<Count> {
        let mut counts =
            self.values.iter().skip(1).filter_map(|value| entry::stored(&value.bytes, counter, window));
        counts.next()
    }

    /// Something else writes over an entry of the tables, whose counts then begin again: over the one in this place, of those that there are.
    pub(crate) fn evict(&mut self, place: usize) {
        if let Some(entries) = self.values.len().checked_sub(1).filter(|entries| *entries > 0) {
            self.issued += 1;
            let value = &mut self.values[1 + place % entries];
            (value.bytes, value.cas) = (vec![0], self.issued);
        }
    }
}

/// What a worker works with at an instant.
pub(crate) struct Host<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) now: Timestamp,
}

impl SharedData for Host<'_> {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        let value = self.memory.values.iter().find(|value| value.name == name);
        Ok(value.map(|value| (value.bytes.clone(), Cas(value.cas))))
    }

    fn set(&mut self, name: &[u8], bytes: &[u8], Cas(read): Cas) -> Result<Swap, HostError> {
        let Memory { values, issued } = &mut *self.memory;
        match values.iter_mut().find(|value| value.name == name) {
            Some(value) if read != 0 && read != value.cas => return Ok(Swap::Conflict),
            Some(value) => {
                value.bytes.clear();
                value.bytes.extend_from_slice(bytes);
                value.cas = *issued + 1;
            }
            None => {
                values.push(Value { name: name.to_vec(), bytes: bytes.to_vec(), cas: *issued + 1 });
            }
        }
        *issued += 1;
        Ok(Swap::Stored)
    }
}

impl CounterHost for Host<'_> {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        Ok(self.now)
    }

    fn log(&mut self, _: LogLevel, _: fmt::Arguments<'_>) {}
}
