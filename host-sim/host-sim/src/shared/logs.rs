//! What guests wrote to the log, newest last, within a bound.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use serde::Serialize;

use crate::{
    abi::LogLevel, lock::lock, shared::record::Record, sink::Sink, trace::record::shown, vm_name::VmName,
};

/// The log of one host. Clones are the same log.
#[derive(Clone)]
pub struct Logs(Arc<Inner>);

struct Inner {
    level: LogLevel,
    capacity: usize,
    lines: Mutex<Ring>,
    sink: Option<Sink<LogLine>>,
    record: Arc<Record>,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<LogLine>,
    dropped: u64,
    written: u64,
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.lock();
        f.debug_struct("Logs").field("kept", &ring.lines.len()).field("dropped", &ring.dropped).finish()
    }
}

impl Logs {
    pub(crate) fn new(
        level: LogLevel,
        capacity: usize,
        sink: Option<Sink<LogLine>>,
        record: Arc<Record>,
    ) -> Self {
        Self(Arc::new(Inner { level, capacity, lines: Mutex::default(), sink, record }))
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        lock(&self.0.lines)
    }

    /// The least serious level that is kept.
    pub fn level(&self) -> LogLevel {
        self.0.level
    }

    /// Writes a line of a guest's.
    pub(crate) fn write(&self, level: LogLevel, vm: VmName, message: &[u8]) {
        self.add(LogLine {
            level,
            vm,
            by_host: false,
            message: String::from_utf8_lossy(message).into_owned(),
        });
    }

    /// Writes a line of the host's own.
    pub(crate) fn tell(&self, level: LogLevel, vm: VmName, message: String) {
        self.add(LogLine { level, vm, by_host: true, message });
    }

    fn add(&self, line: LogLine) {
        if line.level < self.0.level {
            return;
        }
        if let Some(sink) = &self.0.sink {
            sink.tell(&line);
        }
        self.0.record.line(&line);
        let mut ring = self.lock();
        ring.written += 1;
        if ring.lines.len() == self.0.capacity {
            ring.lines.pop_front();
            ring.dropped += 1;
        }
        if self.0.capacity > 0 {
            ring.lines.push_back(line);
        }
    }

    /// The lines that are still kept, oldest first.
    pub fn lines(&self) -> Vec<LogLine> {
        self.lock().lines.iter().cloned().collect()
    }

    /// Takes the kept lines away, oldest first.
    pub fn take(&self) -> Vec<LogLine> {
        self.lock().lines.drain(..).collect()
    }

    /// How many lines were ever written.
    pub(crate) fn written(&self) -> u64 {
        self.lock().written
    }

    /// The kept lines that were written after the first `mark`.
    pub(crate) fn since(&self, mark: u64) -> Vec<LogLine> {
        let ring = self.lock();
        let new = usize::try_from(ring.written.saturating_sub(mark)).unwrap_or(usize::MAX);
        ring.lines.iter().skip(ring.lines.len().saturating_sub(new)).cloned().collect()
    }

    /// How many lines were written beyond the capacity and are lost.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Whether a kept line contains `text`.
    pub fn contains(&self, text: &str) -> bool {
        self.lock().lines.iter().any(|line| line.message.contains(text))
    }
}

/// One line that a guest, or the host about a guest, wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// How serious it is.
    #[serde(serialize_with = "shown")]
    pub level: LogLevel,
    /// The VM that wrote it.
    #[serde(serialize_with = "shown")]
    pub vm: VmName,
    /// Whether the host wrote it, about the guest.
    #[serde(skip)]
    pub by_host: bool,
    /// The text; bytes that are no UTF-8 are replaced.
    pub message: String,
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}][{}] {}", self.level, self.vm, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_forgets_its_oldest_line_and_counts_it() {
        let logs = Logs::new(LogLevel::Info, 2, None, Arc::default());
        for message in ["a", "b", "c"] {
            logs.write(LogLevel::Info, VmName::Main, message.as_bytes());
        }
        logs.write(LogLevel::Debug, VmName::Main, b"below the level");
        let kept: Vec<_> = logs.lines().into_iter().map(|line| line.message).collect();
        assert_eq!((kept, logs.dropped()), (vec!["b".to_owned(), "c".to_owned()], 1));
    }
}
