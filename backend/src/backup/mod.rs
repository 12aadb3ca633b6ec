//! Backup of a running service, and restore into a new database.
//!
//! A backup is a folder with a copy of the database (`weir.db` for SQLite, `weir.pgdump` for PostgreSQL), of each click log
//! (`clicks-1`, …) and a manifest, which is written last. Only a folder as its manifest describes it is restored.
//!
//! The click logs are copied first. A click that is recorded between the two copies is then in both. It has the same id in both, so that it is not
//! recorded twice. In the other order, the click could be in neither copy.

mod manifest;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use url::Url;

pub use self::manifest::NotABackup;
use self::manifest::{Kind, Manifest};
use crate::store::{Location, Store, StoreError, with_suffix};

/// Maximum wait for a SQLite file that another process has locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a backup was not made or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The target exists. Nothing is overwritten.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The integrity check of a copy failed.
    #[error("{}: the copy is damaged: {problem}", path.display())]
    Damaged {
        /// The copy.
        path: PathBuf,
        /// The first problem that SQLite reports.
        problem: String,
    },
    /// The folder to restore is not a complete backup.
    #[error("{} cannot be restored: {problem}", folder.display())]
    NotABackup {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        problem: NotABackup,
    },
    /// A file that `--click-log` names does not exist. A process creates its click log when it starts.
    #[error("--click-log {}: no such file", .0.display())]
    NoClickLog(PathBuf),
    /// The backup has more click logs than `--click-log` names files.
    #[error("the backup has {found} click logs, but --click-log names {named} files")]
    ClickLogs {
        /// Number of click logs in the backup.
        found: usize,
        /// Number of named files.
        named: usize,
    },
    /// `pg_dump` or `pg_restore` failed.
    #[error("{program}: {message}")]
    Program {
        /// The program.
        program: &'static str,
        /// Its error message.
        message: String,
    },
    /// The database failed or is not supported.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The click logs of a database: the named files, or the default one.
fn click_logs_of(location: &Location, named: &[PathBuf]) -> Vec<PathBuf> {
    if named.is_empty() { vec![location.click_log()] } else { named.to_vec() }
}

/// Copies a database and the click logs of its processes to a new folder. Without `click_logs`, it copies the default one if that exists.
///
/// # Errors
/// [`BackupError`] if the database or a file of `click_logs` does not exist, or a copy fails. The folder is then not created.
pub async fn backup(database: &str, click_logs: &[PathBuf], folder: &Path) -> Result<(), BackupError> {
    let location = Location::parse(database)?;
    // Removes a trailing slash.
    let folder = folder.components().as_path();
    if folder.exists() {
        return Err(BackupError::Exists(folder.to_owned()));
    }
    if let Some(missing) = click_logs.iter().find(|click_log| !click_log.exists()) {
        return Err(BackupError::NoClickLog(missing.clone()));
    }
    Store::expect_schema(database).await?;
    let incomplete = with_suffix(folder, ".incomplete");
    fs::create_dir(&incomplete).map_err(failed(&incomplete))?;
    let copied = copy_to(&location, click_logs, &incomplete).await;
    let done = copied.and_then(|()| fs::rename(&incomplete, folder).map_err(failed(folder)));
    if done.is_err()
        && let Err(error) = fs::remove_dir_all(&incomplete)
    {
        tracing::warn!(%error, folder = %incomplete.display(), "could not delete an incomplete backup");
    }
    done
}

async fn copy_to(location: &Location, click_logs: &[PathBuf], folder: &Path) -> Result<(), BackupError> {
    let click_logs = click_logs_of(location, click_logs);
    let mut names = Vec::new();
    // A database that no service has used has no click log.
    for (number, click_log) in (1..).zip(click_logs.iter().filter(|click_log| click_log.exists())) {
        let name = format!("clicks-{number}");
        copy_click_log(click_log, &folder.join(&name))?;
        names.push(name);
    }
    let kind = Kind::of(location);
    let copy = folder.join(kind.copy());
    match location {
        Location::Sqlite(file) => {
            let options = SqliteConnectOptions::new().filename(file).busy_timeout(BUSY_TIMEOUT);
            let copied = async {
                let mut connection = SqliteConnection::connect_with(&options).await?;
                let copy = copy.to_string_lossy().into_owned();
                sqlx::query("VACUUM INTO ?").bind(copy).execute(&mut connection).await?;
                connection.close().await
            };
            copied.await.map_err(StoreError::from)?;
        }
        Location::Postgres(url) => {
            let arguments = ["--format=custom", "--no-owner", "--no-privileges", "--file"].map(OsStr::new);
            run("pg_dump", url, &[&arguments[..], &[copy.as_os_str()]].concat()).await?;
        }
    }
    sync(&copy)?;
    names.push(kind.copy().to_owned());
    Manifest::write(folder, kind, names)
}

/// Restores a backup to a database that does not exist (SQLite) or is empty (PostgreSQL). Without `click_logs`, it restores the default one.
///
/// # Errors
/// [`BackupError`] if the folder is not a complete backup, or the restore fails. The database then still does not exist or is still empty.
pub async fn restore(database: &str, click_logs: &[PathBuf], folder: &Path) -> Result<(), BackupError> {
    let location = Location::parse(database)?;
    let manifest = Manifest::verified(folder, Kind::of(&location))?;
    let copies: Vec<PathBuf> = manifest.click_logs().map(|name| folder.join(name)).collect();
    let click_logs = click_logs_of(&location, click_logs);
    // A process without a copy starts with an empty click log.
    if copies.len() > click_logs.len() {
        return Err(BackupError::ClickLogs { found: copies.len(), named: click_logs.len() });
    }
    let file = match &location {
        Location::Sqlite(file) => Some(file),
        Location::Postgres(_) => None,
    };
    // SQLite would apply the log of an earlier file to the restored one.
    let with_logs = |file: &PathBuf| ["", "-wal", "-journal"].map(|suffix| with_suffix(file, suffix));
    let files = file.into_iter().flat_map(with_logs).chain(click_logs.iter().cloned());
    if let Some(path) = files.into_iter().find(|path| path.exists()) {
        return Err(BackupError::Exists(path));
    }
    let restored = restore_to(&location, &copies, &click_logs, folder).await;
    if restored.is_err() {
        for click_log in click_logs.iter().filter(|click_log| click_log.exists()) {
            fs::remove_file(click_log).map_err(failed(click_log))?;
        }
    }
    restored
}

async fn restore_to(
    location: &Location,
    copies: &[PathBuf],
    click_logs: &[PathBuf],
    folder: &Path,
) -> Result<(), BackupError> {
    for (copy, click_log) in copies.iter().zip(click_logs) {
        put(copy, click_log)?;
    }
    let copy = folder.join(Kind::of(location).copy());
    match location {
        // The database comes last, so that no service finds it without its click log.
        Location::Sqlite(file) => put(&copy, file),
        Location::Postgres(url) => {
            let arguments = ["--single-transaction", "--no-owner", "--no-privileges"].map(OsStr::new);
            run("pg_restore", url, &[&arguments[..], &[copy.as_os_str()]].concat()).await
        }
    }
}

/// Copies a file atomically: a failed copy leaves no file.
fn put(copy: &Path, file: &Path) -> Result<(), BackupError> {
    let incomplete = with_suffix(file, ".incomplete");
    fs::copy(copy, &incomplete).map_err(failed(copy))?;
    let done = sync(&incomplete).and_then(|()| fs::rename(&incomplete, file).map_err(failed(file)));
    if done.is_err() {
        fs::remove_file(&incomplete).map_err(failed(&incomplete))?;
    }
    done
}

/// Copies a click log in use. The service replaces the file to remove clicks from it, and a copy reads one file to its end. Its last click may be
/// incomplete.
fn copy_click_log(click_log: &Path, copy: &Path) -> Result<(), BackupError> {
    fs::copy(click_log, copy).map_err(failed(click_log))?;
    sync(copy)
}

fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(failed(path))
}

/// Runs one of PostgreSQL's programs on a database.
async fn run(program: &'static str, database: &Url, arguments: &[&OsStr]) -> Result<(), BackupError> {
    let mut database = database.clone();
    let mut command = Command::new(program);
    // Other users of the machine see the arguments of processes.
    if let Some(password) = database.password() {
        let password = percent_encoding::percent_decode_str(password).decode_utf8_lossy().into_owned();
        command.env("PGPASSWORD", password);
        // This fails only for a URL without a host.
        let _has_host = database.set_password(None);
    }
    command.args(arguments).arg("--dbname").arg(database.as_str());
    let failed = |message: String| BackupError::Program { program, message };
    let ran = tokio::task::spawn_blocking(move || command.output()).await;
    let output =
        ran.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File { path: path.clone(), source }
}
