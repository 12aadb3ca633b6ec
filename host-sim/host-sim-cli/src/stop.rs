//! The signals that end a command that serves.

use std::io;

/// SIGTERM and SIGINT, caught from when this is made.
#[cfg(unix)]
#[derive(Debug)]
pub struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Stop {
    /// Catches the signals, so that none ends the process unasked.
    ///
    /// # Errors
    /// When the system refuses.
    ///
    /// # Panics
    /// Outside a runtime of tokio with its drivers.
    pub fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next of them.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Ctrl-C, on systems without Unix signals.
#[cfg(not(unix))]
#[derive(Debug)]
pub struct Stop;

#[cfg(not(unix))]
impl Stop {
    /// What waits for it.
    ///
    /// # Errors
    /// Never.
    pub fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for it.
    pub async fn wait(&mut self) {
        // Where the signal cannot be caught, the system ends the process by itself.
        let _ = tokio::signal::ctrl_c().await;
    }
}
