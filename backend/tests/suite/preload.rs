//! A library that is loaded into a program before its others, and takes the place of some calls to the system.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The compiled library.
pub(crate) struct Library(TempDir);

impl Library {
    /// Compiles a source beside these tests, with definitions.
    pub(crate) fn compile(source: &str, definitions: &[&str]) -> Self {
        // PostgreSQL runs as another user.
        let readable = Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(readable).tempdir().unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(source))
            .args(definitions.iter().map(|definition| format!("-D{definition}")))
            .arg("-o")
            .arg(folder.path().join("library.so"))
            .arg("-ldl")
            .status()
            .unwrap();
        assert!(compiled.success());
        Self(folder)
    }

    /// Has a program load it.
    pub(crate) fn load(&self, program: &mut Command) {
        program.env("LD_PRELOAD", self.0.path().join("library.so"));
    }
}
