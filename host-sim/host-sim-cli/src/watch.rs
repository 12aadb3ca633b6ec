//! Files whose changes are waited for.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration, time::SystemTime};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::{sync::mpsc, time};

/// How long files must stay as they are before a change to them counts as complete.
const SETTLE: Duration = Duration::from_millis(100);

/// The modification time and the length of a file; `None` if it does not exist.
type Stamp = Option<(SystemTime, u64)>;

/// Files that are watched from when this is made until it is dropped.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    /// What they were when they were last reported.
    reported: Vec<Stamp>,
    /// Says that something has happened in the files' folders.
    events: mpsc::Receiver<()>,
    /// Sends the events while it lives.
    _watcher: RecommendedWatcher,
}

/// A file that cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be watched: {source}", path = path.display())]
pub struct WatchError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub source: notify::Error,
}

impl Files {
    /// Watches files, and takes them as they are now. Made before they are read, it misses no change.
    ///
    /// Their folders are watched: a file that is replaced by another of its name, or through a symbolic link, has changed, and
    /// one that is removed may come back.
    ///
    /// # Errors
    /// When a file's folder is not there or cannot be watched.
    pub fn new(paths: Vec<PathBuf>) -> Result<Self, WatchError> {
        let (sender, events) = mpsc::channel(1);
        let told = move |event: notify::Result<notify::Event>| {
            // Reading a file is an event as well.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                // An event that waits already stands for this one.
                let _ = sender.try_send(());
            }
        };
        let failed = |path: &PathBuf, source| WatchError { path: path.clone(), source };
        let mut watcher = notify::recommended_watcher(told)
            .map_err(|source| failed(paths.first().unwrap_or(&PathBuf::new()), source))?;
        let mut folders = BTreeSet::new();
        for path in &paths {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.map_or_else(|| PathBuf::from("."), PathBuf::from);
            if folders.insert(folder.clone()) {
                let watched = watcher.watch(&folder, RecursiveMode::NonRecursive);
                watched.map_err(|source| failed(path, source))?;
            }
        }
        Ok(Self { reported: stamps(&paths), paths, events, _watcher: watcher })
    }

    /// Waits until a file has changed and all are there and stay as they are for a moment: one that is being written, or that
    /// is removed before it is written anew, is not reported halfway. Dropping the future loses no change.
    pub async fn changed(&mut self) {
        loop {
            let mut seen = stamps(&self.paths);
            while seen != self.reported {
                time::sleep(SETTLE).await;
                let before = std::mem::replace(&mut seen, stamps(&self.paths));
                if seen != before {
                    continue;
                }
                if seen.contains(&None) {
                    break;
                }
                self.reported = seen;
                return;
            }
            // The watcher sends as long as this lives.
            self.events.recv().await;
        }
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
        let (module, config) = (folder.path().join("filter.wasm"), folder.path().join("config"));
        fs::write(&module, "a").unwrap();
        fs::write(&config, "a").unwrap();
        let mut files = Files::new(vec![module.clone(), config.clone()]).unwrap();
        //  what happens, and whether it is reported
        let rows: [(&str, &dyn Fn(), bool); 8] = [
            ("nothing", &|| {}, false),
            ("another file is written", &|| fs::write(folder.path().join("other"), "a").unwrap(), false),
            ("one is read", &|| drop(fs::read(&config).unwrap()), false),
            ("one is written in place", &|| fs::write(&config, "ab").unwrap(), true),
            ("one is replaced by rename", &|| replace(&module, "abc"), true),
            ("one is removed", &|| fs::remove_file(&module).unwrap(), false),
            ("the other is written meanwhile", &|| fs::write(&config, "abcd").unwrap(), false),
            ("the first comes back", &|| fs::write(&module, "abcd").unwrap(), true),
        ];
        for (what, happen, reported) in rows {
            happen();
            let patience = PATIENCE[usize::from(!reported)];
            assert_eq!(time::timeout(patience, files.changed()).await.is_ok(), reported, "{what}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_file_behind_links_changes_with_the_folder_that_they_lead_through() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (version, text) in [("v1", "a"), ("v2", "ab")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("config"), text).unwrap();
        }
        symlink("v1", at("data")).unwrap();
        symlink("data/config", at("config")).unwrap();
        let mut files = Files::new(vec![at("config")]).unwrap();
        symlink("v2", at("data.new")).unwrap();
        fs::rename(at("data.new"), at("data")).unwrap();
        time::timeout(PATIENCE[0], files.changed()).await.unwrap();
    }

    #[test]
    fn a_file_without_a_folder_is_refused_by_its_name() {
        let refused = Files::new(vec![PathBuf::from("/nowhere/config")]).unwrap_err();
        assert!(refused.to_string().starts_with("/nowhere/config cannot be watched: "), "{refused}");
    }
}
