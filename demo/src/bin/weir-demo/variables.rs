//! The variables of a running demo, in a file for other terminals.

use std::fmt::{self, Display, Formatter};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::NamedTempFile;

/// A file of shell variables, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Variables {
    path: PathBuf,
    text: String,
}

impl Variables {
    /// Writes the file. Only its user can read it, because it has keys.
    pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<Self> {
        let write = || {
            let mut file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
            file.write_all(text.as_bytes())?;
            file.persist(path).map_err(|failed| failed.error)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), text: text.to_owned() })
    }
}

impl Display for Variables {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}# In another terminal, this command sets these variables:\n#   source \"{}\"",
            self.text,
            self.path.display()
        )
    }
}

impl Drop for Variables {
    fn drop(&mut self) {
        // A demo that was started later may have replaced the file.
        if std::fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            // The file is worthless without the demo, so a failure to remove it is not reported.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
