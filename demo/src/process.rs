//! A started process: its output is kept, waited for by line, and shown when a test fails; it ends with its owner.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;

use crate::output::Output;

/// Lines shown of a process when a test fails.
const TAIL: usize = 60;
/// Characters shown of each.
const WIDTH: usize = 400;

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
            readers.push(output.follow(stream).with_context(|| format!("cannot read what {name} prints"))?);
        }
        if let Some(stream) = child.stderr.take() {
            readers.push(output.follow(stream).with_context(|| format!("cannot read what {name} prints"))?);
        }
        Ok(Self { name, child, output, readers })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Time that its threads have run so far.
    ///
    /// # Errors
    /// As [`cpu_time`].
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        cpu_time(self.id())
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

/// Time that the threads of a process have run so far: the first number of proc_pid_schedstat(5), in nanoseconds.
///
/// # Errors
/// If the process has ended, or the system has no such file.
pub fn cpu_time(process: u32) -> anyhow::Result<Duration> {
    let mut spent = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let schedstat = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanos = schedstat.split_whitespace().next().context("a thread's schedstat")?;
        spent += Duration::from_nanos(nanos.parse()?);
    }
    Ok(spent)
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
