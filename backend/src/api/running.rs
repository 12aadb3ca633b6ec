//! The creations that a client may repeat and that run in this process.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The creations with a key that run in this process: the number of the workspace, and the key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<HashSet<(i64, String)>>>);

/// A creation with a key, until it ends.
#[derive(Debug)]
pub(crate) struct Run {
    running: Running,
    of: (i64, String),
}

impl Running {
    /// None if a creation with this key is running.
    pub(crate) fn begin(&self, workspace: i64, key: &str) -> Option<Run> {
        let of = (workspace, key.to_owned());
        let begun = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(of.clone());
        begun.then(|| Run { running: self.clone(), of })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.running.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.of);
    }
}
