//! Checkpoints of SQLite's write-ahead log, beside the writer.
//!
//! SQLite resets the log when a checkpoint has copied all of it into the database file and no query reads from it. While there are
//! long queries at all times, that moment does not come by itself: the log grows without end, and everything becomes slower
//! ("checkpoint starvation", <https://www.sqlite.org/wal.html#avoiding_excessively_large_wal_files>).

use std::time::Duration;

use sqlx::{AnyPool, AssertSqlSafe, Executor, Row};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Store, StoreError};

/// Maximum wait of a SQLite writer for another process's transaction.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Asks for the length of the log.
const LOOK: &str = "PRAGMA wal_checkpoint(NOOP)";
/// Copies what no query reads from the log into the database file, without making anybody wait.
const PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// Pause between two looks at the log.
const EVERY: Duration = Duration::from_millis(250);
/// From this size on, in bytes, the log is checkpointed. Rare checkpoints write a page that changes often less often.
const LONG: u64 = 16 * 1024 * 1024;
/// From this size on, in bytes, new queries wait until the running ones have ended and the log is reset. SQLite then truncates a file that is
/// longer. It overwrites a shorter one, which is faster than truncating and extending it.
pub(super) const TOO_LONG: u64 = 10 * LONG;
/// Size of a page of the database in the log, in bytes: that of a page by default, and its header.
const FRAME: u64 = 4_096 + 24;
/// Maximum number of checkpoints before the writer has to wait.
const BEFORE: usize = 8;
/// Maximum size of the part of the log that is not checkpointed when the writer has to wait, in bytes.
const REST: u64 = 1024 * 1024;
/// How long the last checkpoint before a reset may take, and how long the writer then waits for queries that read from the log.
const WAIT: Duration = Duration::from_millis(10);

/// How much is in the log, and how much of that is checkpointed, in bytes.
#[derive(Clone, Copy, Debug)]
struct Length {
    all: u64,
    checkpointed: u64,
}

impl Length {
    fn rest(self) -> u64 {
        self.all.saturating_sub(self.checkpointed)
    }
}

/// Makes a checkpoint, or none with [`LOOK`], on the connection for checkpoints.
async fn checkpoint(on: &AnyPool, pragma: &'static str) -> Result<Length, StoreError> {
    let row = on.fetch_one(pragma).await?;
    let frames = |column| -> Result<u64, StoreError> {
        // -1 before the first transaction.
        Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0) * FRAME)
    };
    Ok(Length { all: frames("log")?, checkpointed: frames("checkpointed")? })
}

/// Runs until `stop` is true or its sender is dropped. Returns at once for a database without such a log.
pub(crate) async fn run(store: Store, mut stop: watch::Receiver<bool>) {
    let Some(log) = store.checkpointer.clone() else { return };
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
    /// Checkpoints the log if it is long, and resets it if it is too long and no query reads from it.
    async fn bound_log(&self, log: &AnyPool) -> Result<(), StoreError> {
        let length = checkpoint(log, LOOK).await?;
        if length.all <= LONG || length.rest() == 0 || checkpoint(log, PASSIVE).await?.all <= TOO_LONG {
            return Ok(());
        }
        let _paused = self.readers.pause().await;
        // A checkpoint that reaches the end of the log also waits until the database file is on the disk, and leaves little to do for
        // the next one. The writer waits for that one.
        let mut rest = u64::MAX;
        for _ in 0..BEFORE {
            let began = Instant::now();
            rest = checkpoint(log, PASSIVE).await?.rest();
            if rest == 0 && began.elapsed() <= WAIT {
                break;
            }
        }
        // More is left while other queries read from the log.
        if rest <= REST { self.reset_log().await } else { Ok(()) }
    }

    /// Keeps the writer for a last checkpoint. The next transaction then resets the log.
    async fn reset_log(&self) -> Result<(), StoreError> {
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
    use super::super::sample::Sample;
    use super::super::sql::Sql;
    use super::*;

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
    async fn the_log_is_reset_though_there_are_queries_and_transactions_at_all_times() {
        let sample = Sample::new().await;
        sample
            .store
            .write
            .execute("CREATE TABLE written (data); INSERT INTO written VALUES (1)")
            .await
            .unwrap();
        let log = sample.store.checkpointer.clone().unwrap();
        let query = async || {
            let mut reader = sample.store.reader().await.unwrap();
            reader.number(Sql::new("SELECT COUNT(*) FROM written")).await.unwrap();
            reader
        };
        for round in 0..2 {
            let first = query().await;
            write(&sample.store, TOO_LONG + LONG).await;
            assert!(checkpoint(&log, LOOK).await.unwrap().all > TOO_LONG, "round {round}");
            let queries = async {
                let mut running = first;
                loop {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    drop(running);
                    running = query().await;
                }
            };
            let transactions = async {
                loop {
                    sample.store.write.execute("UPDATE written SET data = 1").await.unwrap();
                }
            };
            let looks = async {
                // One may find that a query reads from the log.
                for _ in 0..20 {
                    sample.store.bound_log(&log).await.unwrap();
                }
            };
            tokio::select! {
                () = looks => {}
                () = queries => {}
                () = transactions => {}
            }
            // The first transaction after the checkpoint resets the log.
            write(&sample.store, 1).await;
            let Length { all, .. } = checkpoint(&log, LOOK).await.unwrap();
            assert!(all <= 4 * 1024 * 1024, "round {round}: {all} bytes");
        }
    }
}
