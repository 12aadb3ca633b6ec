//! Files whose changes are waited for.

use std::{fs, path::PathBuf, time::Duration, time::SystemTime};

use tokio::time;

/// How often files are looked at. Looking sees what notifications of the system miss: folders that are made anew, and files
/// behind links that lead elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// What tells one content of a file from another: its number, its time of modification and its length; `None` if it does not exist.
type Stamp = Option<(u64, SystemTime, u64)>;

/// Files that are watched from when this is made.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    /// What they were when they were last reported.
    reported: Vec<Stamp>,
}

impl Files {
    /// Takes files as they are now. Made before they are read, it misses no change.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { reported: stamps(&paths), paths }
    }

    /// Waits until a file has changed and all are there and stay as they are for a moment: one that is being written, or that
    /// is removed before it is written anew, is not reported halfway. Dropping the future loses no change.
    pub async fn changed(&mut self) {
        let mut before = self.reported.clone();
        loop {
            time::sleep(LOOK).await;
            let seen = stamps(&self.paths);
            if seen != self.reported && seen == before && !seen.contains(&None) {
                self.reported = seen;
                return;
            }
            before = seen;
        }
    }
}

/// The number of a file in its file system, where there are such.
#[cfg(unix)]
fn number(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn number(_: &fs::Metadata) -> u64 {
    0
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok()?;
        Some((number(&metadata), metadata.modified().ok()?, metadata.len()))
    };
    paths.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// How long a change that is reported may take, and one that is not is waited for.
    const PATIENCE: [Duration; 2] = [Duration::from_secs(10), Duration::from_millis(400)];

    fn replace(path: &Path, text: &str) {
        let beside = path.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, path).unwrap();
    }

    #[tokio::test]
    async fn a_change_is_reported_once_all_files_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        let (module, config) = (inner.join("filter.wasm"), inner.join("config"));
        fs::create_dir(&inner).unwrap();
        fs::write(&module, "a").unwrap();
        fs::write(&config, "a").unwrap();
        let mut files = Files::new(vec![module.clone(), config.clone()]);
        //  what happens, and whether it is reported
        let rows: [(&str, &dyn Fn(), bool); 10] = [
            ("nothing", &|| {}, false),
            ("another file is written", &|| fs::write(inner.join("other"), "a").unwrap(), false),
            ("one is read", &|| drop(fs::read(&config).unwrap()), false),
            ("one is written in place", &|| fs::write(&config, "ab").unwrap(), true),
            ("one is replaced by rename", &|| replace(&module, "abc"), true),
            ("one is removed", &|| fs::remove_file(&module).unwrap(), false),
            ("the other is written meanwhile", &|| fs::write(&config, "abcd").unwrap(), false),
            ("the first comes back", &|| fs::write(&module, "abcd").unwrap(), true),
            ("their folder is removed", &|| fs::remove_dir_all(&inner).unwrap(), false),
            (
                "it is made again",
                &|| {
                    fs::create_dir(&inner).unwrap();
                    [&module, &config].iter().for_each(|file| fs::write(file, "again").unwrap());
                },
                true,
            ),
        ];
        for (what, happen, reported) in rows {
            happen();
            let patience = PATIENCE[usize::from(!reported)];
            assert_eq!(time::timeout(patience, files.changed()).await.is_ok(), reported, "{what}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_file_behind_links_changes_with_what_they_lead_to() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (version, text) in [("v1", "a"), ("v2", "ab"), ("v3", "cd")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("config"), text).unwrap();
        }
        symlink("v1", at("data")).unwrap();
        symlink("data/config", at("config")).unwrap();
        let mut files = Files::new(vec![at("config")]);
        //  the link, and where it is set to
        for (link, file) in [("data", "v2"), ("config", "v3/config")] {
            symlink(file, at("new")).unwrap();
            fs::rename(at("new"), at(link)).unwrap();
            let changed = time::timeout(PATIENCE[0], files.changed()).await;
            assert!(changed.is_ok(), "{link} to {file}");
        }
    }
}
