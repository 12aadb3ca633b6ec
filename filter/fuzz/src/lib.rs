//! What the fuzz targets share: a host in memory that gives prepared answers.

use std::fmt;

use filter::count::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData};
use filter::count::swap::{CounterHost, LogLevel};
use filter::decide::host::Host;
use filter::time::Timestamp;

/// A host of one VM.
#[derive(Debug, Default)]
pub struct MemoryHost {
    /// What it shares.
    pub data: VmLocalData,
    /// The time, in nanoseconds since the epoch.
    pub nanoseconds: u64,
    /// The value of every property.
    pub property: Option<Vec<u8>>,
}

impl SharedData for MemoryHost {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.data.get(name)
    }

    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.data.set(name, value, cas)
    }
}

impl CounterHost for MemoryHost {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        Ok(Timestamp::from_nanos(self.nanoseconds))
    }

    fn log(&mut self, _: LogLevel, message: fmt::Arguments<'_>) {
        // Formatting may fail as well as anything.
        drop(message.to_string());
    }
}

impl Host for MemoryHost {
    fn property(&mut self, _: &[u8]) -> Result<Option<Vec<u8>>, HostError> {
        Ok(self.property.clone())
    }

    fn random(&mut self) -> Result<[u8; 16], HostError> {
        Ok([7; 16])
    }
}
