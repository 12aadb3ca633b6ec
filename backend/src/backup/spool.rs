//! The copy of a spool that its service uses.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection, Executor};

use super::{BackupError, failed, sync};
use crate::store::{StoreError, with_suffix};

/// Maximum number of attempts to copy a spool. An attempt fails if the service restarts the spool's write-ahead log
/// during the copy, which is rare, because filling the log takes much longer than a copy.
pub(super) const ATTEMPTS: usize = 100;
/// Size of the header of SQLite's write-ahead log, in bytes. The header changes when the log is restarted.
const WAL_HEADER: u64 = 32;

/// Copies the spool of a running service. Only the service can open the database file, so the copy is of raw files: first
/// the file, then its write-ahead log. The log contains every page that changed since it was started, including the pages
/// that the service wrote to the file during the copy. If the log was restarted in between, the copy is repeated.
pub(super) async fn copy(spool: &Path, copy: &Path) -> Result<(), BackupError> {
    let (log, copied_log) = (with_suffix(spool, "-wal"), with_suffix(copy, "-wal"));
    for _ in 0..ATTEMPTS {
        let header = wal_header(&log)?;
        fs::copy(spool, copy).map_err(failed(spool))?;
        let is_steady = match &header {
            Some(_) => match fs::copy(&log, &copied_log) {
                Ok(_) => wal_header(&copied_log)? == header,
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(failed(&log)(error)),
            },
            None => true,
        };
        if is_steady && wal_header(&log)? == header {
            check(copy).await?;
            return sync(copy);
        }
        if copied_log.exists() {
            fs::remove_file(&copied_log).map_err(failed(&copied_log))?;
        }
    }
    Err(BackupError::Unsteady(spool.to_owned()))
}

/// The header of a write-ahead log. None if the log is empty or missing.
fn wal_header(log: &Path) -> Result<Option<Vec<u8>>, BackupError> {
    let mut header = Vec::new();
    match File::open(log) {
        Ok(file) => _ = file.take(WAL_HEADER).read_to_end(&mut header).map_err(failed(log))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(log)(error)),
    }
    Ok((header.len() as u64 == WAL_HEADER).then_some(header))
}

/// Merges the log of a copy into its file, and checks the integrity of the file.
async fn check(copy: &Path) -> Result<(), BackupError> {
    let checked = async {
        let mut file = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(copy)).await?;
        file.execute("PRAGMA journal_mode = DELETE").await?;
        let found: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut file).await?;
        file.close().await?;
        Ok::<_, sqlx::Error>(found)
    };
    match checked.await.map_err(StoreError::from)?.as_str() {
        "ok" => Ok(()),
        problem => Err(BackupError::Damaged { path: copy.to_owned(), problem: problem.to_owned() }),
    }
}
