//! Checkpoints of SQLite's write-ahead log, beside the writer.
//!
//! SQLite resets the log when a checkpoint has copied all of it into the database file and no query reads from it. While there are
//! long queries at all times, that moment does not come by itself: the log grows without end, and everything becomes slower
//! ("checkpoint starvation", <https://www.sqlite.org/wal.html#avoiding_excessively_large_wal_files>).

use std::path::PathBuf;
use std::time::Duration;

use sqlx::{AnyPool, AssertSqlSafe, Executor};
use tokio::sync::watch;

use super::{BUSY_TIMEOUT, Store, StoreError};

/// Pause between two looks at the log.
const EVERY: Duration = Duration::from_millis(250);
/// From this size on, in bytes, the log is checkpointed. Rare checkpoints write a page that changes often less often.
pub(super) const LONG: u64 = 16 * 1024 * 1024;
/// From this size on, in bytes, queries of the lowest priority wait until the log can be reset.
const TOO_LONG: u64 = 4 * LONG;
/// How long the writer waits for queries that read from the log, so that it can be reset.
const WAIT: Duration = Duration::from_millis(50);

/// The write-ahead log of a SQLite file.
#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) file: PathBuf,
    /// The connection that checkpoints the log while others write.
    pub(super) checkpointer: AnyPool,
}

impl Log {
    /// Its size in bytes. There is none before the first transaction.
    fn size(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |file| file.len())
    }
}

/// Runs until `stop` is true or its sender is dropped. Returns at once for a database without such a log.
pub(crate) async fn run(store: Store, mut stop: watch::Receiver<bool>) {
    let Some(log) = store.log.clone() else { return };
    while !*stop.borrow() {
        if let Err(error) = store.bound_log(&log).await {
            tracing::error!(%error, "a checkpoint of the write-ahead log failed");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            // This branch is also taken when the sender is dropped.
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

impl Store {
    /// Checkpoints the log if it is long. When SQLite resets it, it truncates the file to [`LONG`].
    async fn bound_log(&self, log: &Log) -> Result<(), StoreError> {
        if log.size() <= LONG {
            return Ok(());
        }
        log.checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").await?;
        if log.size() <= TOO_LONG {
            return Ok(());
        }
        let _paused = self.readers.pause_lowest().await;
        // Most of what was written in the meantime is copied before others have to wait.
        log.checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").await?;
        let mut writer = self.write.acquire().await?;
        let wait_for = |time: Duration| format!("PRAGMA busy_timeout = {}", time.as_millis());
        let restart =
            format!("{}; PRAGMA wal_checkpoint(RESTART); {}", wait_for(WAIT), wait_for(BUSY_TIMEOUT));
        writer.execute(sqlx::raw_sql(AssertSqlSafe(restart))).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::sql::Sql;
    use super::*;
    use crate::background::Priority;

    /// Writes about this many bytes.
    async fn write(store: &Store, bytes: u64) {
        const ONE: u64 = 1024 * 1024;
        for _ in 0..bytes.div_ceil(ONE) {
            let mut sql = Sql::new("UPDATE written SET data = randomblob(");
            sql.bind(i64::try_from(ONE).unwrap()).push(")");
            sql.execute(&store.write).await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_log_is_reset_though_there_are_queries_at_all_times() {
        let folder = TempDir::new().unwrap();
        let store =
            Store::open(&format!("sqlite:{}", folder.path().join("test.db").display())).await.unwrap();
        store.write.execute("CREATE TABLE written (data); INSERT INTO written VALUES (1)").await.unwrap();
        let log = store.log.clone().unwrap();
        let query = async || {
            let mut reader = store.reader(Priority::Lowest).await.unwrap();
            reader.number(Sql::new("SELECT COUNT(*) FROM written")).await.unwrap();
            reader
        };
        let mut running = query().await;
        for round in 0..3 {
            write(&store, TOO_LONG + LONG).await;
            assert!(log.size() > TOO_LONG, "round {round}");
            let (bounded, next) = tokio::join!(store.bound_log(&log), async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(running);
                query().await
            });
            bounded.unwrap();
            running = next;
            // The first transaction after the checkpoint resets the log.
            write(&store, 1).await;
            assert!(log.size() <= LONG + 4 * 1024 * 1024, "round {round}: {} bytes", log.size());
        }
    }
}
