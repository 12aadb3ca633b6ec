//! A disk on which each synchronous write takes long.

use std::process::Command;
use std::time::Duration;

use crate::preload::Library;

/// Time that a synchronous write takes at least.
pub(super) const SYNC: Duration = Duration::from_millis(15);

/// A library that delays the synchronous writes of a process into which it is loaded.
pub(super) struct SlowDisk(Library);

impl SlowDisk {
    pub(super) fn new() -> Self {
        let sync = format!("SYNC_NANOSECONDS={}", SYNC.as_nanos());
        Self(Library::compile("hostile/slow_disk.c", &[&sync]))
    }

    /// Makes the disk of a program slow.
    pub(super) fn slow(&self, program: &mut Command) {
        self.0.load(program);
    }
}
