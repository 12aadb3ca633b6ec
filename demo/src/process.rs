//! A started process: its output is kept, waited for by line, and shown when a test fails; it ends with its owner.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};

/// How long a process may take to say what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines shown of a process when a test fails.
const TAIL: usize = 60;
/// Characters shown of each.
const WIDTH: usize = 400;

/// Lines kept; a gateway that stays up for days says more.
const KEPT: usize = 100_000;

#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<String>,
    /// Lines before the first that is kept.
    dropped: usize,
    open_streams: usize,
}

impl Lines {
    fn push(&mut self, line: String) {
        if self.lines.len() == KEPT {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line);
    }
}

/// What a process has printed, on both streams, line by line.
#[derive(Debug, Default)]
pub struct Output {
    lines: Mutex<Lines>,
    more: Condvar,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(self: &Arc<Self>, stream: impl Read + Send + 'static) -> JoinHandle<()> {
        self.lock().open_streams += 1;
        let output = Arc::clone(self);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n') {
                let Ok(line) = line else { break };
                output.lock().push(String::from_utf8_lossy(&line).into_owned());
                output.more.notify_all();
            }
            output.lock().open_streams -= 1;
            output.more.notify_all();
        })
    }

    /// All lines so far, or the last hundred thousand.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.iter().cloned().collect()
    }

    /// Whether any line so far contains `text`.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.lock().lines.iter().any(|line| line.contains(text))
    }

    /// Waits for a line for which `wanted` returns something.
    ///
    /// # Errors
    /// When the process closes its streams first, or says no such thing for a minute.
    pub fn wait_for<T>(&self, wanted: impl Fn(&str) -> Option<T>) -> anyhow::Result<T> {
        let mut seen = 0;
        let mut guard = self.lock();
        loop {
            let unseen = guard.lines.iter().skip(seen - guard.dropped.min(seen));
            if let Some(found) = unseen.into_iter().find_map(|line| wanted(line)) {
                return Ok(found);
            }
            seen = guard.dropped + guard.lines.len();
            if guard.open_streams == 0 {
                bail!("it ended without saying what was waited for");
            }
            let (woken, timeout) =
                self.more.wait_timeout(guard, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            guard = woken;
            if timeout.timed_out() {
                bail!("it did not say what was waited for within {PATIENCE:?}");
            }
        }
    }
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    output: Arc<Output>,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts `command`; `name` is for messages.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &'static str, command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let output = Arc::new(Output::default());
        let mut readers = Vec::new();
        if let Some(stream) = child.stdout.take() {
            readers.push(output.follow(stream));
        }
        if let Some(stream) = child.stderr.take() {
            readers.push(output.follow(stream));
        }
        Ok(Self { name, child, output, readers })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Time that its threads have run so far: the first number of proc_pid_schedstat(5), in nanoseconds.
    ///
    /// # Errors
    /// When the process has ended, or where there is no such file.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let mut spent = Duration::ZERO;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.id()))? {
            let schedstat = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            let nanos = schedstat.split_whitespace().next().context("a thread's schedstat")?;
            spent += Duration::from_nanos(nanos.parse()?);
        }
        Ok(spent)
    }

    /// What it has printed.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Waits for a line; see [`Output::wait_for`].
    ///
    /// # Errors
    /// With the end of its output.
    pub fn wait_for<T>(&self, wanted: impl Fn(&str) -> Option<T>) -> anyhow::Result<T> {
        self.output.wait_for(wanted).with_context(|| format!("{}:\n{}", self.name, self.tail()))
    }

    /// Waits until it has ended by itself, with all its output read.
    ///
    /// # Errors
    /// When its status cannot be had.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = self.child.wait().with_context(|| format!("cannot wait for {}", self.name))?;
        for reader in self.readers.drain(..) {
            // A reader's own panic is no reason to lose the status.
            let _ = reader.join();
        }
        Ok(status)
    }

    fn tail(&self) -> String {
        let lines = self.output.lines();
        let tail = lines[lines.len().saturating_sub(TAIL)..].iter();
        tail.flat_map(|line| line.chars().take(WIDTH).chain(['\n'])).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.wait();
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a failing test shows what its processes said")]
            {
                eprintln!("--- {} ---\n{}", self.name, self.tail());
            }
        }
    }
}
