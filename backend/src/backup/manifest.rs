//! The manifest of a backup: `manifest.json`, with the size and the checksum of each file.
//!
//! It is written last. A folder without it is an interrupted backup, or something else, such as a copy of the files of a database in use,
//! which may lack what is still in its write-ahead log.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{BackupError, failed, sync};
use crate::store::Location;

const NAME: &str = "manifest.json";
/// The version of the form of backups that this program writes and reads.
const VERSION: u32 = 1;
/// The copy of a SQLite file.
const SQLITE: &str = "weir.db";
/// The dump of a PostgreSQL database, in `pg_dump`'s custom format.
const POSTGRES: &str = "weir.pgdump";
/// Files that SQLite has beside a database in use. A backup has none.
const IN_USE: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Number of bytes that are read at once. Larger reads are not faster.
const BLOCK: usize = 1 << 16;

/// The kind of database that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    pub(super) fn of(location: &Location) -> Self {
        match location {
            Location::Sqlite(_) => Self::Sqlite,
            Location::Postgres(_) => Self::Postgres,
        }
    }

    /// The file of a backup that contains the database.
    pub(super) fn copy(self) -> &'static str {
        match self {
            Self::Sqlite => SQLITE,
            Self::Postgres => POSTGRES,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// Why a folder cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum NotABackup {
    /// It contains files of a SQLite database in use.
    #[error(
        "{0} belongs to a database in use. A copy of its files may lack recent data. Copy it with `backend backup`"
    )]
    InUse(String),
    /// It has no manifest.
    #[error(
        "it has no {NAME}, which `backend backup` writes last. It was not written by `backend backup`, or not to its end"
    )]
    NoManifest,
    /// The manifest cannot be parsed.
    #[error("{NAME}: {0}")]
    Invalid(#[from] serde_json::Error),
    /// Another version of the program wrote it.
    #[error("the backup has version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// It is a backup of the other kind of database.
    #[error("it is a backup of {found}, and --database is {wanted}")]
    Database {
        /// The kind of the backup.
        found: &'static str,
        /// The kind of `--database`.
        wanted: &'static str,
    },
    /// The manifest does not name the copy of the database.
    #[error("{NAME} does not name {0}")]
    Unnamed(&'static str),
    /// The manifest names a file outside the folder.
    #[error("{NAME}: {0:?} is not the name of a file")]
    Name(String),
    /// A file is missing.
    #[error("{0} is missing")]
    Missing(String),
    /// A file does not have the size and checksum of the manifest.
    #[error(
        "{name} is damaged or was changed: it does not have the {bytes} bytes and the checksum of {NAME}"
    )]
    Changed {
        /// The file.
        name: String,
        /// The size that the backup wrote.
        bytes: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    version: u32,
    database: Kind,
    files: Vec<Entry>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    name: String,
    bytes: u64,
    sha256: String,
}

impl Entry {
    fn of(folder: &Path, name: String) -> io::Result<Self> {
        let mut file = File::open(folder.join(&name))?;
        let (mut hash, mut bytes, mut block) = (Sha256::new(), 0, vec![0; BLOCK]);
        loop {
            let read = file.read(&mut block)?;
            if read == 0 {
                return Ok(Self { name, bytes, sha256: hex::encode(hash.finalize()) });
            }
            hash.update(block.get(..read).unwrap_or_default());
            bytes += read as u64;
        }
    }
}

impl Manifest {
    /// Writes the manifest of the files of a folder, which completes a backup.
    pub(super) fn write(folder: &Path, database: Kind, names: Vec<String>) -> Result<(), BackupError> {
        let entry = |name: String| {
            let path = folder.join(&name);
            Entry::of(folder, name).map_err(failed(&path))
        };
        let files = names.into_iter().map(entry).collect::<Result<_, _>>()?;
        let manifest = Self { version: VERSION, database, files };
        let path = folder.join(NAME);
        let written = serde_json::to_vec_pretty(&manifest).map_err(io::Error::from);
        written.and_then(|json| fs::write(&path, json)).map_err(failed(&path))?;
        sync(&path)?;
        sync(folder)
    }

    /// Reads the manifest of a folder, and compares the folder's files with it.
    pub(super) fn verified(folder: &Path, database: Kind) -> Result<Self, BackupError> {
        let refused = |problem| BackupError::NotABackup { folder: folder.to_owned(), problem };
        let names: Vec<String> = fs::read_dir(folder)
            .and_then(|entries| {
                entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
            })
            .map_err(failed(folder))?;
        if !names.iter().any(|name| name == NAME) {
            let in_use = names.into_iter().find(|name| IN_USE.iter().any(|suffix| name.ends_with(suffix)));
            return Err(refused(in_use.map_or(NotABackup::NoManifest, NotABackup::InUse)));
        }
        let path = folder.join(NAME);
        let json = fs::read(&path).map_err(failed(&path))?;
        let manifest: Self = serde_json::from_slice(&json).map_err(|error| refused(error.into()))?;
        manifest.check(folder, database).map_err(refused)?;
        Ok(manifest)
    }

    fn check(&self, folder: &Path, database: Kind) -> Result<(), NotABackup> {
        if self.version != VERSION {
            return Err(NotABackup::Version(self.version));
        }
        if self.database != database {
            return Err(NotABackup::Database { found: self.database.name(), wanted: database.name() });
        }
        if !self.files.iter().any(|file| file.name == database.copy()) {
            return Err(NotABackup::Unnamed(database.copy()));
        }
        self.files.iter().try_for_each(|file| {
            let mut components = Path::new(&file.name).components();
            let (Some(Component::Normal(_)), None) = (components.next(), components.next()) else {
                return Err(NotABackup::Name(file.name.clone()));
            };
            let found = Entry::of(folder, file.name.clone());
            let found = found.map_err(|_unreadable| NotABackup::Missing(file.name.clone()))?;
            if found == *file {
                return Ok(());
            }
            Err(NotABackup::Changed { name: file.name.clone(), bytes: file.bytes })
        })
    }

    /// The names of the copies of click logs, in the order in which they were named.
    pub(super) fn click_logs(&self) -> impl Iterator<Item = &str> {
        let names = self.files.iter().map(|file| file.name.as_str());
        names.filter(|name| *name != self.database.copy())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn only_what_is_as_the_manifest_says_is_a_backup() {
        let name = |name: &str| name.to_owned();
        //  change of a backup, and why it is refused
        type Change = fn(&Path);
        let table: [(Change, Option<&str>); 9] = [
            (|_| {}, None),
            (|folder| fs::write(folder.join("notes.txt"), "").unwrap(), None),
            (|folder| fs::remove_file(folder.join(NAME)).unwrap(), Some("it has no manifest.json")),
            (|folder| fs::remove_file(folder.join("clicks-1")).unwrap(), Some("clicks-1 is missing")),
            (|folder| fs::write(folder.join("clicks-1"), "click").unwrap(), Some("clicks-1 is damaged")),
            (|folder| fs::write(folder.join(SQLITE), "dbs").unwrap(), Some("weir.db is damaged")),
            (|folder| fs::write(folder.join(NAME), "{").unwrap(), Some("manifest.json: EOF")),
            (
                |folder| replace(folder, "\"version\": 1", "\"version\": 2"),
                Some("the backup has version 2, and this program reads version 1"),
            ),
            (|folder| replace(folder, "clicks-1", "../clicks-1"), Some("\"../clicks-1\" is not the name")),
        ];
        for (change, expected) in table {
            let folder = TempDir::new().unwrap();
            fs::write(folder.path().join(SQLITE), "db").unwrap();
            fs::write(folder.path().join("clicks-1"), "clicks").unwrap();
            let names = vec![name("clicks-1"), name(SQLITE)];
            Manifest::write(folder.path(), Kind::Sqlite, names).unwrap();
            change(folder.path());
            match (Manifest::verified(folder.path(), Kind::Sqlite), expected) {
                (Ok(manifest), None) => assert!(manifest.click_logs().eq(["clicks-1"])),
                (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (found, _) => panic!("{expected:?}: {found:?}"),
            }
            let other = Manifest::verified(folder.path(), Kind::Postgres).unwrap_err().to_string();
            assert!(expected.is_some() || other.contains("a backup of SQLite"), "{other}");
        }
    }

    fn replace(folder: &Path, from: &str, to: &str) {
        let path = folder.join(NAME);
        let json = fs::read_to_string(&path).unwrap();
        assert!(json.contains(from), "{json}");
        fs::write(path, json.replace(from, to)).unwrap();
    }
}
