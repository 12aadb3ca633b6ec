//! Access logs, read together and in the order of their time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io::BufRead;
use std::path::PathBuf;

use jiff::Timestamp;

use super::line::{Entry, Fields, LineError};

/// Bytes of the lines that are held back, so that those which come later in the log can be taken before them.
const WINDOW: usize = 300 << 20;

/// Bytes that a line takes beside its own, roughly.
const OVERHEAD: usize = 64;

/// Lines that were skipped, of which the first few are kept.
const KEPT_SKIPPED: usize = 5;

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// Its file.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line is older than what was replayed already.
    #[error(
        "{}: line {line} began at {time}, before {start}, up to which the log is replayed already: \
         lines are taken in the order of their time within {} MB; sort the log by time first, for example with sort(1)",
        file.display(),
        WINDOW >> 20
    )]
    Late {
        /// The file.
        file: PathBuf,
        /// Which line, counted from 1.
        line: u64,
        /// When its request began.
        time: Timestamp,
        /// When the last replayed request began.
        start: Timestamp,
    },
    /// It has too little that can be replayed.
    #[error("{skipped} of {lines} lines are not requests{}", first.iter().map(|skipped| format!("\n  {skipped}")).collect::<String>())]
    Skipped {
        /// How many lines are no requests.
        skipped: u64,
        /// How many there are.
        lines: u64,
        /// The first of them.
        first: Vec<Skipped>,
    },
    /// It has none.
    #[error("no request in it: it is empty")]
    Empty,
}

/// A line that is not a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: line {line}: {error}", file.display())]
pub struct Skipped {
    /// The file.
    pub file: PathBuf,
    /// Which line, counted from 1.
    pub line: u64,
    /// Why.
    pub error: LineError,
}

/// A file of a log.
struct Source {
    file: PathBuf,
    reader: Box<dyn BufRead>,
    lines: u64,
    /// When the last request that was read began. The file that lags behind is read on.
    last: Timestamp,
}

/// A line that waits for its turn: by its time, then in the order in which it was read.
type Held = Reverse<(Timestamp, u64, Box<[u8]>)>;

/// Logs that are read together.
pub struct Log {
    fields: Fields,
    sources: Vec<Source>,
    held: BinaryHeap<Held>,
    held_bytes: usize,
    /// When the last request that was taken began.
    start: Timestamp,
    lines: u64,
    skipped: u64,
    first_skipped: Vec<Skipped>,
    /// Fields of the first request.
    names: BTreeSet<String>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("lines", &self.lines).finish_non_exhaustive()
    }
}

impl Log {
    /// The log of these files.
    pub fn new(fields: Fields, files: impl IntoIterator<Item = (PathBuf, Box<dyn BufRead>)>) -> Self {
        let source = |(file, reader)| Source { file, reader, lines: 0, last: Timestamp::MIN };
        Self {
            fields,
            sources: files.into_iter().map(source).collect(),
            held: BinaryHeap::new(),
            held_bytes: 0,
            start: Timestamp::MIN,
            lines: 0,
            skipped: 0,
            first_skipped: Vec::new(),
            names: BTreeSet::new(),
        }
    }

    /// Reads on until enough lines are held back or the log ends. `seen` is called with each request, and with the bytes of each line.
    ///
    /// # Errors
    /// When a file cannot be read, or a line is too late.
    pub fn fill(&mut self, mut seen: impl FnMut(Option<&Entry>, usize)) -> Result<(), LogError> {
        let mut line = Vec::new();
        while self.held_bytes < WINDOW {
            let lagging = self.sources.iter_mut().enumerate().min_by_key(|(_, source)| source.last);
            let Some((place, source)) = lagging else { break };
            line.clear();
            let read = source.reader.read_until(b'\n', &mut line);
            let read = read.map_err(|error| LogError::Read { file: source.file.clone(), source: error })?;
            if read == 0 {
                self.sources.remove(place);
                continue;
            }
            source.lines += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            self.lines += 1;
            match self.fields.read(&line) {
                Ok(entry) => {
                    if entry.time < self.start {
                        let (file, line) = (source.file.clone(), source.lines);
                        return Err(LogError::Late { file, line, time: entry.time, start: self.start });
                    }
                    source.last = entry.time;
                    if self.names.is_empty() {
                        self.names.extend(Fields::names_of(&line));
                    }
                    self.held_bytes += line.len() + OVERHEAD;
                    self.held.push(Reverse((entry.time, self.lines, line.as_slice().into())));
                    seen(Some(&entry), read);
                }
                Err(error) => {
                    self.skipped += 1;
                    if self.first_skipped.len() < KEPT_SKIPPED {
                        let (file, line) = (source.file.clone(), source.lines);
                        self.first_skipped.push(Skipped { file, line, error });
                    }
                    seen(None, read);
                }
            }
        }
        Ok(())
    }

    /// Takes the request that began first.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub fn next(&mut self, seen: impl FnMut(Option<&Entry>, usize)) -> Result<Option<Entry>, LogError> {
        self.fill(seen)?;
        let Some(Reverse((time, _, line))) = self.held.pop() else { return Ok(None) };
        self.held_bytes -= line.len() + OVERHEAD;
        self.start = time;
        // It was read before.
        Ok(self.fields.read(&line).ok())
    }

    /// When the first request began.
    ///
    /// # Errors
    /// When there is none.
    pub fn begins(&self) -> Result<Timestamp, LogError> {
        let first = self.held.peek().map(|Reverse((time, ..))| *time);
        first.ok_or_else(|| if self.lines == 0 { LogError::Empty } else { self.too_little() })
    }

    /// Refuses a log of which less than half is requests.
    ///
    /// # Errors
    /// Then.
    pub fn is_mostly_read(&self) -> Result<(), LogError> {
        if self.skipped > self.lines / 2 { Err(self.too_little()) } else { Ok(()) }
    }

    fn too_little(&self) -> LogError {
        LogError::Skipped { skipped: self.skipped, lines: self.lines, first: self.first_skipped.clone() }
    }

    /// Whether the log is read to its end.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.sources.is_empty()
    }

    /// How many lines are no requests, and the first of them.
    #[must_use]
    pub fn skipped(&self) -> (u64, &[Skipped]) {
        (self.skipped, &self.first_skipped)
    }

    /// The fields of the first request.
    #[must_use]
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(files: &[&str]) -> Log {
        let files = files.iter().enumerate();
        let file = |(index, text): (usize, &&str)| -> (PathBuf, Box<dyn BufRead>) {
            (index.to_string().into(), Box::new(std::io::Cursor::new(text.to_string())))
        };
        Log::new(Fields::default(), files.map(file).collect::<Vec<_>>())
    }

    fn line(second: u32, path: &str) -> String {
        format!("{{\"time\":\"2026-01-01T00:00:{second:02}Z\",\"path\":\"{path}\"}}\n")
    }

    #[test]
    fn lines_are_taken_in_the_order_of_their_time_whichever_file_they_are_in() {
        let one = [line(1, "/a"), line(3, "/c"), line(2, "/b")].concat();
        let other = [line(2, "/d"), line(0, "/e"), "what\n\n".to_owned()].concat();
        let mut log = log(&[&one, &other]);
        let mut paths = Vec::new();
        while let Some(entry) = log.next(|_, _| {}).unwrap() {
            paths.push(entry.path);
        }
        assert_eq!(paths, ["/e", "/a", "/d", "/b", "/c"]);
        let (skipped, first) = log.skipped();
        assert_eq!((skipped, first[0].line), (1, 3));
        assert!(log.is_mostly_read().is_ok());
    }

    #[test]
    fn a_line_that_comes_too_late_is_refused_by_its_number() {
        let mut log = log(&[&[line(5, "/a"), line(4, "/b")].concat()]);
        log.start = "2026-01-01T00:00:05Z".parse().unwrap();
        let error = log.next(|_, _| {}).unwrap_err().to_string();
        assert!(
            error.starts_with("0: line 2 began at 2026-01-01T00:00:04Z, before 2026-01-01T00:00:05Z"),
            "{error}"
        );
        assert!(error.contains("sort"), "{error}");
    }

    #[test]
    fn a_log_of_which_most_is_not_read_is_refused() {
        let mut log = log(&[&["x\n", "y\n", &line(5, "/a")].concat()]);
        log.fill(|_, _| {}).unwrap();
        let error = log.is_mostly_read().unwrap_err().to_string();
        assert!(
            error.starts_with("2 of 3 lines are not requests\n  0: line 1: not an access log's line"),
            "{error}"
        );
    }
}
