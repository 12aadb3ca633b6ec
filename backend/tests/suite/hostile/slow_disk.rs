//! A disk on which each synchronous write takes long.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

/// Time that a synchronous write takes at least.
pub(super) const SYNC: Duration = Duration::from_millis(15);

/// A library that delays the synchronous writes of a process into which it is loaded.
pub(super) struct SlowDisk(TempDir);

impl SlowDisk {
    pub(super) fn new() -> Self {
        // PostgreSQL runs as another user.
        let readable = Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(readable).tempdir().unwrap();
        let compiled = Command::new("cc")
            .args([
                "-shared",
                "-fPIC",
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/hostile/slow_disk.c"),
            ])
            .arg(format!("-DSYNC_NANOSECONDS={}", SYNC.as_nanos()))
            .arg("-o")
            .arg(folder.path().join("slow_disk.so"))
            .arg("-ldl")
            .status()
            .unwrap();
        assert!(compiled.success());
        Self(folder)
    }

    /// Makes the disk of a program slow.
    pub(super) fn slow(&self, program: &mut Command) {
        program.env("LD_PRELOAD", self.0.path().join("slow_disk.so"));
    }
}
