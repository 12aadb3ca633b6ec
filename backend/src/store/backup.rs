//! Copies of a SQLite database.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sqlx::AssertSqlSafe;

use super::location::with_suffix;
use super::{Dialect, Store, StoreError};

impl Store {
    /// Copies a SQLite database to a new file, with everything that was committed before. It may be in use.
    ///
    /// # Errors
    /// [`StoreError::Copied`] if the file exists, and [`StoreError::NotCopied`] for PostgreSQL.
    pub async fn back_up(&self, file: &Path) -> Result<(), StoreError> {
        if self.dialect == Dialect::Postgres {
            return Err(StoreError::NotCopied);
        }
        if file.exists() {
            return Err(StoreError::Copied(file.to_owned()));
        }
        // A command that is killed leaves nothing that looks like a copy.
        let incomplete = with_suffix(file, ".incomplete");
        let failed = |path: &PathBuf| {
            let path = path.clone();
            move |source| StoreError::File { path, source }
        };
        File::create(&incomplete).map_err(failed(&incomplete))?;
        let name = incomplete.to_string_lossy().replace('\'', "''");
        let copied = async {
            sqlx::raw_sql(AssertSqlSafe(format!("VACUUM INTO '{name}'"))).execute(&self.read).await?;
            let synced = File::open(&incomplete).and_then(|copy| copy.sync_all());
            synced.and_then(|()| fs::rename(&incomplete, file)).map_err(failed(&incomplete))
        };
        let copied = copied.await;
        if copied.is_err() {
            fs::remove_file(&incomplete).map_err(failed(&incomplete))?;
        }
        copied
    }
}
