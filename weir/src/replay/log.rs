//! Access logs, read together and in the order of their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::io::{self, BufRead};
use std::path::PathBuf;

use jiff::Timestamp;

use super::doubts::Doubt;
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
    #[error("{file}: {1}", file = .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// A line of a file began at a time that is before the one up to which the log is replayed.
    #[error(
        "{file}: line {1} began at {2}, before {3}, up to which the log is replayed already: \
         lines are taken in the order of their time within {window} MB; sort the log by time first, for example with sort(1)",
        file = .0.display(), window = WINDOW >> 20
    )]
    Late(PathBuf, u64, Timestamp, Timestamp),
    /// It has too little that can be replayed.
    #[error("{0}")]
    Skipped(Skipped),
    /// It has none.
    #[error("no request in it: it is empty")]
    Empty,
    /// It does not say who its callers are.
    #[error(transparent)]
    Doubt(#[from] Doubt),
}

/// How many lines are no requests, and the first of them.
#[derive(Debug, Clone, Default)]
pub struct Skipped {
    skipped: u64,
    lines: u64,
    first: Vec<String>,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} lines are not requests", self.skipped, self.lines)?;
        self.first.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl Skipped {
    /// Whether it is none.
    pub(super) fn is_none(&self) -> bool {
        self.skipped == 0
    }

    fn add(&mut self, file: &std::path::Path, line: u64, error: &LineError) {
        self.skipped += 1;
        if self.first.len() < KEPT_SKIPPED {
            self.first.push(format!("{}: line {line}: {error}", file.display()));
        }
    }
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
    pub(super) fields: Fields,
    sources: Vec<Source>,
    held: BinaryHeap<Held>,
    held_bytes: usize,
    /// When the last request that was taken began.
    start: Timestamp,
    pub(super) skipped: Skipped,
    /// Fields of the first request.
    pub(super) names: String,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("skipped", &self.skipped).finish_non_exhaustive()
    }
}

impl Log {
    /// The log of these files, read as far as lines are held back.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn new(
        fields: Fields,
        files: impl IntoIterator<Item = (PathBuf, Box<dyn BufRead>)>,
    ) -> Result<Self, LogError> {
        let source = |(file, reader)| Source { file, reader, lines: 0, last: Timestamp::MIN };
        let mut log = Self {
            fields,
            sources: files.into_iter().map(source).collect(),
            held: BinaryHeap::new(),
            held_bytes: 0,
            start: Timestamp::MIN,
            skipped: Skipped::default(),
            names: String::new(),
        };
        log.fill()?;
        Ok(log)
    }

    /// Reads on until enough lines are held back or the log ends.
    fn fill(&mut self) -> Result<(), LogError> {
        let mut line = Vec::new();
        while self.held_bytes < WINDOW {
            let lagging = self.sources.iter_mut().enumerate().min_by_key(|(_, source)| source.last);
            let Some((place, source)) = lagging else { break };
            line.clear();
            let read = source.reader.read_until(b'\n', &mut line);
            let read = read.map_err(|error| LogError::Read(source.file.clone(), error))?;
            if read == 0 {
                self.sources.remove(place);
                continue;
            }
            source.lines += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            self.skipped.lines += 1;
            match self.fields.read(&line) {
                Ok(entry) if entry.time < self.start => {
                    let (file, line) = (source.file.clone(), source.lines);
                    return Err(LogError::Late(file, line, entry.time, self.start));
                }
                Ok(entry) => {
                    source.last = entry.time;
                    if self.names.is_empty() {
                        self.names = Fields::names_of(&line);
                    }
                    self.held_bytes += line.len() + OVERHEAD;
                    self.held.push(Reverse((entry.time, self.skipped.lines, line.as_slice().into())));
                }
                Err(error) => self.skipped.add(&source.file, source.lines, &error),
            }
        }
        Ok(())
    }

    /// Takes the request that began first.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, LogError> {
        self.fill()?;
        let Some(Reverse((time, _, line))) = self.held.pop() else { return Ok(None) };
        self.held_bytes -= line.len() + OVERHEAD;
        self.start = time;
        // It was read before.
        Ok(self.fields.read(&line).ok())
    }

    /// When the first request began.
    ///
    /// # Errors
    /// When there is none, or most lines are no requests.
    pub fn begins(&self) -> Result<Timestamp, LogError> {
        self.is_mostly_read()?;
        self.held.peek().map(|Reverse((time, ..))| *time).ok_or(LogError::Empty)
    }

    /// Refuses a log of which less than half is requests.
    pub(super) fn is_mostly_read(&self) -> Result<(), LogError> {
        let Skipped { skipped, lines, .. } = self.skipped;
        if skipped > lines / 2 { Err(LogError::Skipped(self.skipped.clone())) } else { Ok(()) }
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
        Log::new(Fields::default(), files.map(file).collect::<Vec<_>>()).unwrap()
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
        while let Some(entry) = log.next().unwrap() {
            paths.push(entry.path);
        }
        assert_eq!(paths, ["/e", "/a", "/d", "/b", "/c"]);
        let skipped = log.skipped.to_string();
        assert!(skipped.starts_with("1 of 6 lines are not requests\n  1: line 3: not an"), "{skipped}");
        assert!(log.is_mostly_read().is_ok());
    }

    #[test]
    fn a_line_that_comes_too_late_is_refused_by_its_number() {
        let mut log = log(&[]);
        log.start = "2026-01-01T00:00:05Z".parse().unwrap();
        let file: Box<dyn BufRead> = Box::new(std::io::Cursor::new([line(5, "/a"), line(4, "/b")].concat()));
        log.sources.push(Source { file: "0".into(), reader: file, lines: 0, last: Timestamp::MIN });
        let error = log.next().unwrap_err().to_string();
        assert!(
            error.starts_with("0: line 2 began at 2026-01-01T00:00:04Z, before 2026-01-01T00:00:05Z"),
            "{error}"
        );
        assert!(error.contains("sort"), "{error}");
    }

    #[test]
    fn a_log_of_which_most_is_not_read_is_refused() {
        let log = log(&[&["x\n", "y\n", &line(5, "/a")].concat()]);
        let error = log.begins().unwrap_err().to_string();
        assert!(
            error.starts_with("2 of 3 lines are not requests\n  0: line 1: not an access log's line"),
            "{error}"
        );
    }
}
