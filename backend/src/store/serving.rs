//! The lock of the process that serves a SQLite file.
//!
//! Two such processes would deliver each other's events, and each would keep what the other has changed in its caches. Commands beside it
//! do neither, and take no lock.

use std::fs::{File, TryLockError};
use std::path::PathBuf;

use super::location::with_suffix;
use super::{Location, StoreError};

/// The lock. The operating system releases it when the process ends, however that ends.
#[derive(Debug)]
pub struct Serving {
    /// None for PostgreSQL, which several processes may serve.
    _locked: Option<File>,
}

impl Serving {
    /// Locks the database at a URL.
    ///
    /// # Errors
    /// [`StoreError::Served`] if another process has the lock, and [`StoreError::File`] if its file cannot be created.
    pub fn lock(url: &str) -> Result<Self, StoreError> {
        let Location::Sqlite(database) = Location::parse(url)? else { return Ok(Self { _locked: None }) };
        // Not the database itself: closing any other descriptor of that would release SQLite's own locks.
        let path: PathBuf = with_suffix(&database, "-lock");
        let failed = |source| StoreError::File { path: path.clone(), source };
        let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _locked: Some(file) }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Served(database)),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}
