//! Files that are looked at again and again, until they have changed.

use std::{fs, path::PathBuf, time::SystemTime};

/// When a file was written, and its length; nothing where it is not there.
type Stamp = Option<(SystemTime, u64)>;

/// Files whose changes are of interest.
#[derive(Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    /// What they were when they were taken.
    taken: Vec<Stamp>,
    /// What they were when they were last looked at.
    seen: Vec<Stamp>,
}

impl Files {
    /// Files that are taken as they are now.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        let taken = stamps(&paths);
        Self { paths, seen: taken.clone(), taken }
    }

    /// Whether they have changed since they were taken; then they are to be taken again. A file that has changed since the last
    /// look, or is not there, may still be in the making.
    pub(super) fn have_changed(&mut self) -> bool {
        let before = std::mem::replace(&mut self.seen, stamps(&self.paths));
        let are_done = self.seen == before && self.seen.iter().all(Option::is_some);
        let have_changed = are_done && self.seen != self.taken;
        if have_changed {
            self.taken.clone_from(&self.seen);
        }
        have_changed
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    paths.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_changed_once_it_is_there_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("filter.wasm");
        fs::write(&path, "a").unwrap();
        let mut files = Files::new(vec![path.clone()]);
        //  what is written to it, where "" removes it, and whether it has changed
        let rows = [
            (None, false),
            (Some("ab"), false),
            (Some("abc"), false),
            (None, true),
            (None, false),
            (Some(""), false),
            (None, false),
            (Some("abcd"), false),
            (None, true),
        ];
        for (row, (written, changed)) in rows.into_iter().enumerate() {
            match written {
                Some("") => fs::remove_file(&path).unwrap(),
                Some(text) => fs::write(&path, text).unwrap(),
                None => {}
            }
            assert_eq!(files.have_changed(), changed, "row {row}");
        }
    }
}
