//! The spool: a file that stores clicks until they are recorded. It survives the end of the process and an unavailable
//! database.
//!
//! SQLite has one writer at a time, and large transactions record clicks much faster than small ones. Clicks are
//! therefore first appended to a separate file in small batches and recorded later in large ones. PostgreSQL has many
//! writers; each process uses a spool if the operator configures one.

use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous,
};
use sqlx::{Any, Connection, Executor, Row, Transaction};

use super::sql::Sql;
use super::{Dialect, Store, StoreError};
use crate::ids;

/// Time for another process, which is shutting down, to release the spool.
const WAIT: Duration = Duration::from_secs(1);
/// Maximum number of batches that one transaction deletes.
const DELETED_AT_ONCE: i64 = 64;

/// The recorded part of a spool: all batches up to a number, and some clicks after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number of the last recorded batch.
    pub(crate) batch: i64,
    /// Number of recorded clicks after this batch.
    pub(crate) clicks: i64,
}

/// The unrecorded contents of a spool when a process opens it.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// The unrecorded batches with their numbers.
    pub(crate) batches: Vec<(i64, Vec<u8>)>,
    /// Number of their first clicks that are already recorded.
    pub(crate) recorded_clicks: i64,
}

/// Numbered batches of clicks, encoded by [`Batch::encode`](super::Batch::encode). One process uses the spool at a
/// time.
#[derive(Debug)]
pub(crate) struct Spool {
    file: SqliteConnection,
    last: i64,
}

impl Store {
    /// Opens the spool and returns its unrecorded batches. None if the database has no spool or another process uses
    /// it.
    pub(crate) async fn open_spool(&self) -> Result<Option<(Spool, Left)>, StoreError> {
        let Some(path) = &self.spool else { return Ok(None) };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .locking_mode(SqliteLockingMode::Exclusive)
            .journal_mode(SqliteJournalMode::Wal)
            // This survives a crash of the process. A power failure may lose clicks that are not recorded.
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(WAIT);
        let opened = async {
            let mut file = SqliteConnection::connect_with(&options).await?;
            file.execute(
                "CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY, clicks BLOB NOT NULL);
                 CREATE TABLE IF NOT EXISTS identity (id TEXT NOT NULL)",
            )
            .await?;
            // The first writer locks the file until it closes it.
            let name = "INSERT INTO identity (id) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM identity)";
            sqlx::query(name).bind(ids::alphanumeric(25)).execute(&mut file).await?;
            let id: String = sqlx::query_scalar("SELECT id FROM identity").fetch_one(&mut file).await?;
            Ok::<_, sqlx::Error>((file, id))
        };
        let (mut file, id) = match opened.await {
            Ok(opened) => opened,
            Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| is_busy(&code)) => {
                tracing::info!("another process uses the spool; this process records clicks directly");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let recorded = self.progress_of(&id).await?;
        sqlx::query("DELETE FROM batches WHERE number <= ?").bind(recorded.batch).execute(&mut file).await?;
        // A process has one spool, so the id is already set only if the spool is reopened.
        self.spool_id.get_or_init(|| id);
        let batches: Vec<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT number, clicks FROM batches WHERE number > ? ORDER BY number")
                .bind(recorded.batch)
                .fetch_all(&mut file)
                .await?;
        // If the file was removed, the clicks that are recorded ahead are not those of the next batch.
        let next = recorded.batch + i64::from(recorded.clicks > 0);
        let last = batches.last().map_or(next, |(number, _)| *number);
        Ok(Some((Spool { file, last }, Left { batches, recorded_clicks: recorded.clicks })))
    }

    /// The id of a batch, which is unique among all spools.
    pub(crate) fn spooled_batch_id(&self, number: i64) -> String {
        format!("{}/{number}", self.spool_id.get().map_or("", String::as_str))
    }

    /// The recorded part of a spool.
    async fn progress_of(&self, spool: &str) -> Result<Progress, StoreError> {
        let mut sql = match self.dialect {
            Dialect::Sqlite => Sql::new("SELECT recorded, clicks_ahead FROM spool"),
            Dialect::Postgres => {
                let mut sql = Sql::new("INSERT INTO spools (id, recorded) VALUES (");
                sql.bind(spool.to_owned()).push(", 0) ON CONFLICT DO NOTHING");
                sql.execute(&self.write).await?;
                Sql::new("SELECT recorded, clicks_ahead FROM spools WHERE id = ")
            }
        };
        if self.dialect == Dialect::Postgres {
            sql.bind(spool.to_owned());
        }
        let row = sql.one(&self.read).await?;
        Ok(Progress { batch: row.try_get("recorded")?, clicks: row.try_get("clicks_ahead")? })
    }

    /// Marks clicks as recorded, in the transaction that records them. False if they are already marked, because an
    /// earlier commit succeeded without an acknowledgement.
    pub(super) async fn mark_recorded(
        &self,
        transaction: &mut Transaction<'static, Any>,
        reached: Progress,
    ) -> Result<bool, StoreError> {
        let mut sql = match self.dialect {
            Dialect::Sqlite => Sql::new("UPDATE spool SET recorded = "),
            Dialect::Postgres => Sql::new("UPDATE spools SET recorded = "),
        };
        sql.bind(reached.batch).push(", clicks_ahead = ").bind(reached.clicks);
        sql.push(" WHERE (recorded < ").bind(reached.batch);
        sql.push(" OR (recorded = ").bind(reached.batch);
        sql.push(" AND clicks_ahead < ").bind(reached.clicks).push("))");
        if self.dialect == Dialect::Postgres {
            sql.push(" AND id = ").bind(self.spool_id.get().cloned().unwrap_or_default());
        }
        Ok(sql.execute(&mut **transaction).await? == 1)
    }
}

fn is_busy(code: &str) -> bool {
    // SQLITE_BUSY, with or without an extended result code.
    code.parse::<i32>().is_ok_and(|code| code & 0xff == 5)
}

impl Spool {
    /// Appends a batch and deletes some recorded batches. Returns the batch's number, which is the same when a failed
    /// append is repeated.
    pub(crate) async fn append(&mut self, batch: &[u8], recorded: i64) -> Result<i64, StoreError> {
        let number = self.last + 1;
        if let Err(error) = self.write(number, batch, recorded).await {
            // Otherwise the next batch could become part of a transaction that never ends. There may be no transaction
            // to roll back.
            let _none = self.file.execute("ROLLBACK").await;
            return Err(error.into());
        }
        self.last = number;
        Ok(number)
    }

    async fn write(&mut self, number: i64, batch: &[u8], recorded: i64) -> Result<(), sqlx::Error> {
        let mut transaction = self.file.begin().await?;
        let delete = "DELETE FROM batches WHERE number IN
                      (SELECT number FROM batches WHERE number <= ? ORDER BY number LIMIT ?)";
        sqlx::query(delete).bind(recorded).bind(DELETED_AT_ONCE).execute(&mut *transaction).await?;
        let insert = sqlx::query("INSERT OR REPLACE INTO batches (number, clicks) VALUES (?, ?)");
        insert.bind(number).bind(batch).execute(&mut *transaction).await?;
        transaction.commit().await
    }

    /// Deletes all batches up to `recorded` and releases the file.
    pub(crate) async fn close(mut self, recorded: i64) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM batches WHERE number <= ?").bind(recorded).execute(&mut self.file).await?;
        self.file.close().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use tempfile::TempDir;

    use super::super::{Click, ClickBuffer, NewLink};
    use super::*;
    use crate::links::PublicUrl;
    use crate::links::input::LinkInput;

    fn clicks(count: usize) -> ClickBuffer {
        let click = |n: usize| Click::new(format!("link_{}", n % 3), Timestamp::UNIX_EPOCH);
        (0..count).map(click).collect::<Vec<_>>().iter().collect()
    }

    #[tokio::test]
    async fn batches_stay_in_the_spool_until_they_are_recorded() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let public = PublicUrl::parse("https://s.test").unwrap();
        //  spooled batches, recorded batches, and batches that the next process finds
        let table = [(0, 0, 0), (3, 0, 3), (2, 4, 1), (0, 1, 0), (1, 0, 1)];
        for (spooled, recorded, expected) in table {
            let store = Store::open_or_create(&url).await.unwrap();
            let (mut spool, left) = store.open_spool().await.unwrap().unwrap();
            let mut numbers: Vec<i64> = left.batches.iter().map(|(number, _)| *number).collect();
            for count in 1..=spooled {
                let clicks = clicks(count);
                numbers.push(spool.append(&clicks.batch().encode().unwrap(), 0).await.unwrap());
            }
            if let Some(last) = numbers[..recorded].last() {
                let reached = Progress { batch: *last, clicks: 0 };
                store.record_batch(&clicks(1).batch(), &public, Some(reached)).await.unwrap();
            }
            // As if the process were killed.
            drop(spool);
            store.close().await;
            let store = Store::open_or_create(&url).await.unwrap();
            let (spool, left) = store.open_spool().await.unwrap().unwrap();
            assert_eq!(left.batches.len(), expected, "{spooled} spooled, {recorded} recorded");
            drop(spool);
            store.close().await;
        }
    }

    #[tokio::test]
    async fn the_parts_of_a_batch_are_recorded_once() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let (public, now) = (PublicUrl::parse("https://s.test").unwrap(), Timestamp::UNIX_EPOCH);
        let mut store = Store::open_or_create(&url).await.unwrap();
        let workspace = store.create_workspace("test", now).await.unwrap();
        let input = LinkInput::create(&json!({"url": "https://example.com"}), "", now).unwrap();
        let links = [NewLink::of(input, &public)];
        let link = store.create_links(&workspace, &links, now, None, None).await.unwrap().remove(0).unwrap();
        let clicks: Vec<Click> = (0..10).map(|_| Click::new(&link.id, now)).collect();
        let (mut spool, _) = store.open_spool().await.unwrap().unwrap();
        for clicks in clicks.chunks(5) {
            spool.append(&clicks.iter().collect::<ClickBuffer>().batch().encode().unwrap(), 0).await.unwrap();
        }
        //  first click, progress, recorded clicks, and the rest that the next process finds
        let table = [
            (0, (0, 7), 7, (2, 7)),
            (7, (0, 8), 8, (2, 8)),
            (8, (2, 0), 10, (0, 0)),
            (0, (1, 3), 10, (0, 0)),
        ];
        for (first, (batch, ahead), recorded, (batches, recorded_clicks)) in table {
            let until = if batch == 2 { clicks.len() } else { ahead };
            let reached = Progress { batch, clicks: ahead as i64 };
            // The second time, the clicks are already marked, as after a commit without an acknowledgement.
            for _ in 0..2 {
                let buffer: ClickBuffer = clicks[..until].iter().collect();
                let all = buffer.batch().without_first(first).unwrap();
                store.record_batch(&all, &public, Some(reached)).await.unwrap();
                let count = Sql::new("SELECT COUNT(*) FROM clicks").number(&store.read).await.unwrap();
                assert_eq!(count, recorded, "{reached:?}");
            }
            // As if the process were killed.
            drop(spool);
            store.close().await;
            store = Store::open_or_create(&url).await.unwrap();
            let (opened, left) = store.open_spool().await.unwrap().unwrap();
            assert_eq!((left.batches.len(), left.recorded_clicks), (batches, recorded_clicks), "{reached:?}");
            spool = opened;
        }
    }

    #[tokio::test]
    async fn one_process_uses_the_spool_at_a_time() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let (first, second) =
            (Store::open_or_create(&url).await.unwrap(), Store::open_or_create(&url).await.unwrap());
        let (spool, _) = first.open_spool().await.unwrap().unwrap();
        assert!(second.open_spool().await.unwrap().is_none());
        spool.close(0).await.unwrap();
        assert!(second.open_spool().await.unwrap().is_some());
    }
}
