//! What a process has printed, line by line. A question is answered with all that was written before it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::bail;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};

/// How long a process may take to say what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines kept; a gateway that stays up for days says more.
const KEPT: usize = 100_000;
/// Bytes that a pipe holds, by pipe(7).
const PIPE: usize = 64 << 10;

/// The end of a pipe that is read. It never blocks.
#[derive(Debug)]
struct Stream {
    pipe: File,
    /// The beginning of a line whose end is not there yet.
    begun: Vec<u8>,
    open: bool,
}

impl Stream {
    /// Reads what is in the pipe: one read takes all that was written before.
    fn read(&mut self) -> Vec<String> {
        let mut bytes = vec![0; PIPE];
        let read = loop {
            match self.pipe.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Vec::new(),
                Err(_) => break 0,
                Ok(read) => break read,
            }
        };
        self.open = read > 0;
        self.begun.extend_from_slice(&bytes[..read]);
        let complete = match self.begun.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => self.begun.drain(..=end).collect(),
            None if self.open => Vec::new(),
            None => std::mem::take(&mut self.begun),
        };
        complete
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line)).into_owned())
            .collect()
    }
}

#[derive(Debug, Default)]
struct Printed {
    streams: Vec<Stream>,
    lines: VecDeque<String>,
    /// Lines before the first that is kept.
    dropped: usize,
}

impl Printed {
    fn read(&mut self) {
        for stream in self.streams.iter_mut().filter(|stream| stream.open) {
            self.lines.extend(stream.read());
        }
        let beyond = self.lines.len().saturating_sub(KEPT);
        self.lines.drain(..beyond);
        self.dropped += beyond;
    }
}

/// What a process has printed, on both streams, line by line.
#[derive(Debug, Default)]
pub struct Output {
    printed: Mutex<Printed>,
    more: Condvar,
}

impl Output {
    /// The lines, with all that was written so far.
    fn read(&self) -> MutexGuard<'_, Printed> {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        printed.read();
        printed
    }

    /// Reads a stream of the process, in a thread that ends with the stream.
    pub(crate) fn follow(self: &Arc<Self>, pipe: impl Into<OwnedFd>) -> std::io::Result<JoinHandle<()>> {
        let pipe = pipe.into();
        ioctl_fionbio(&pipe, true)?;
        let watched = pipe.try_clone()?;
        let index = {
            let mut printed = self.read();
            printed.streams.push(Stream { pipe: pipe.into(), begun: Vec::new(), open: true });
            printed.streams.len() - 1
        };
        let output = Arc::clone(self);
        Ok(std::thread::spawn(move || {
            let is_open = || output.read().streams[index].open;
            while is_open() {
                output.more.notify_all();
                match poll(&mut [PollFd::from_borrowed_fd(watched.as_fd(), PollFlags::IN)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => break,
                }
            }
            output.more.notify_all();
        }))
    }

    /// All lines so far, or the last hundred thousand.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.read().lines.iter().cloned().collect()
    }

    /// Whether any line so far contains `text`.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.read().lines.iter().any(|line| line.contains(text))
    }

    /// Waits for a line for which `wanted` returns something.
    ///
    /// # Errors
    /// When the process closes its streams first, or says no such thing for a minute.
    pub fn wait_for<T>(&self, wanted: impl Fn(&str) -> Option<T>) -> anyhow::Result<T> {
        let mut seen = 0;
        let mut printed = self.read();
        loop {
            let unseen = printed.lines.iter().skip(seen - printed.dropped.min(seen));
            if let Some(found) = unseen.into_iter().find_map(|line| wanted(line)) {
                return Ok(found);
            }
            seen = printed.dropped + printed.lines.len();
            if !printed.streams.iter().any(|stream| stream.open) {
                bail!("it ended without saying what was waited for");
            }
            let (woken, timeout) =
                self.more.wait_timeout(printed, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            printed = woken;
            if timeout.timed_out() {
                bail!("it did not say what was waited for within {PATIENCE:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_was_written_before_the_question_is_in_the_answer() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let output = Arc::new(Output::default());
        let thread = output.follow(reader).unwrap();
        for count in 1..=1_000 {
            writeln!(writer, "line {count}").unwrap();
            assert_eq!(output.lines().last(), Some(&format!("line {count}")));
        }
        write!(writer, "a line without an end").unwrap();
        assert_eq!(output.lines().len(), 1_000);
        drop(writer);
        thread.join().unwrap();
        assert_eq!(output.lines().last().unwrap(), "a line without an end");
        assert!(output.wait_for(|line| line.contains("nothing").then_some(())).is_err());
    }
}
