//! The connections for queries that may take long: analytics, searches and lists. They are separate from all other connections, and the
//! database ends a query after its time limit.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "postgres")]
use sqlx::any::AnyConnectOptions;
use sqlx::any::AnyRow;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
#[cfg(feature = "postgres")]
use sqlx::{Any, AnyPool};
use sqlx::{AnyConnection, Executor, Row, Sqlite, SqlitePool, Transaction};
use tokio::sync::{OwnedRwLockReadGuard, RwLock, RwLockWriteGuard};
use tokio::time::Instant;

#[cfg(feature = "postgres")]
use super::postgres::{pool_of, set_statement_timeout};
use super::sql::Sql;
use super::{Store, StoreError, pool_state};
use crate::domain::load::PoolState;

/// Number of SQLite's virtual machine instructions between two checks of the time limit. They take a few microseconds.
const STEPS: i32 = 10_000;

/// Time after the limit of a statement in which PostgreSQL answers that it was interrupted.
#[cfg(feature = "postgres")]
const GRACE: Duration = Duration::from_secs(5);

/// In PostgreSQL, each statement of any other transaction sees what was committed before it.
#[cfg(feature = "postgres")]
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Settings for analytics queries.
#[derive(Clone, Copy, Debug)]
pub struct Analytics {
    /// Maximum number of concurrent queries. One workspace uses at most half of them.
    pub readers: u32,
    /// Time limit of a query, which may consist of several statements. After it, the running statement is interrupted.
    pub timeout: Duration,
}

impl Default for Analytics {
    fn default() -> Self {
        Self { readers: 4, timeout: Duration::from_secs(10) }
    }
}

/// The connections to a database.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    pool: Pool,
    /// One connection, over which metrics count and operators look at usage. It is none of the customers', who would otherwise wait for it.
    for_metrics: Pool,
    /// Held by each query, and by a checkpoint that lets them wait.
    run: Arc<RwLock<()>>,
    /// Time limit of a query.
    timeout: Duration,
}

#[derive(Clone, Debug)]
enum Pool {
    /// Not an `Any` connection, because only SQLite's connection type can interrupt a statement.
    Sqlite(SqlitePool),
    /// The PostgreSQL server interrupts statements.
    #[cfg(feature = "postgres")]
    Postgres(AnyPool),
}

/// A connection for one query. All its statements see the same state of the database and share one time limit.
#[derive(Debug)]
pub(crate) struct Reader {
    transaction: Snapshot,
    deadline: Instant,
    _runs: OwnedRwLockReadGuard<()>,
}

#[derive(Debug)]
enum Snapshot {
    Sqlite(Transaction<'static, Sqlite>),
    #[cfg(feature = "postgres")]
    Postgres {
        transaction: Transaction<'static, Any>,
        /// The server's current time limit of a statement.
        statement_timeout: Duration,
    },
}

impl Readers {
    /// Opens connections to a SQLite file, and prepares them with pragmas.
    pub(super) async fn sqlite(url: &str, analytics: Analytics, pragmas: String) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::from_str(url)?.with_regexp();
        let pool = |connections| {
            let options = SqlitePoolOptions::new().max_connections(connections).test_before_acquire(false);
            let pragmas = pragmas.clone();
            options.after_connect(move |connection, _| {
                let pragmas = pragmas.clone();
                Box::pin(async move {
                    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(pragmas))).await?;
                    Ok(())
                })
            })
        };
        let for_metrics = Pool::Sqlite(pool(1).connect_lazy_with(options.clone()));
        let pool = Pool::Sqlite(pool(analytics.readers).connect_with(options).await?);
        Ok(Self { pool, for_metrics, run: Arc::default(), timeout: analytics.timeout })
    }

    /// Opens connections to PostgreSQL.
    #[cfg(feature = "postgres")]
    pub(super) async fn postgres(url: &str, analytics: Analytics) -> Result<Self, StoreError> {
        let options = AnyConnectOptions::from_str(url)?;
        let timeout = analytics.timeout;
        let pool = |connections| {
            pool_of(connections).after_connect(move |connection, _| {
                Box::pin(async move {
                    // Otherwise a query would run in several processes, and the number of a workspace's queries would not bound what
                    // they take from other customers.
                    connection.execute("SET max_parallel_workers_per_gather = 0").await?;
                    // Last, because it bounds what follows it.
                    connection.execute(set_statement_timeout("SESSION", timeout)).await?;
                    Ok(())
                })
            })
        };
        let for_metrics = Pool::Postgres(pool(1).connect_lazy_with(options.clone()));
        let pool = Pool::Postgres(pool(analytics.readers).connect_with(options).await?);
        Ok(Self { pool, for_metrics, run: Arc::default(), timeout })
    }

    async fn acquire(&self, pool: &Pool) -> Result<Reader, StoreError> {
        let runs = Arc::clone(&self.run).read_owned().await;
        // The time limit starts when there is a connection.
        let limit = || Instant::now() + self.timeout;
        let (transaction, deadline) = match pool {
            Pool::Sqlite(pool) => {
                let mut transaction = pool.begin().await?;
                let deadline = limit();
                let go_on = move || Instant::now() < deadline;
                transaction.lock_handle().await?.set_progress_handler(STEPS, go_on);
                (Snapshot::Sqlite(transaction), deadline)
            }
            #[cfg(feature = "postgres")]
            Pool::Postgres(pool) => {
                let transaction = answered(self.timeout, pool.begin_with(SNAPSHOT)).await?;
                (Snapshot::Postgres { transaction, statement_timeout: self.timeout }, limit())
            }
        };
        Ok(Reader { transaction, deadline, _runs: runs })
    }

    /// Waits until no query runs. None starts while the result is held.
    pub(super) async fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.run.write().await
    }

    /// The connections for customers.
    pub(super) fn state(&self) -> PoolState {
        match &self.pool {
            Pool::Sqlite(pool) => pool_state("analytics", pool),
            #[cfg(feature = "postgres")]
            Pool::Postgres(pool) => pool_state("analytics", pool),
        }
    }

    pub(super) async fn close(&self) {
        for pool in [&self.for_metrics, &self.pool] {
            match pool {
                Pool::Sqlite(pool) => pool.close().await,
                #[cfg(feature = "postgres")]
                Pool::Postgres(pool) => pool.close().await,
            }
        }
    }
}

impl Store {
    /// A connection for a query that may take long: an analytics query, a search, or a list. Its time limit starts when there is a
    /// connection.
    pub(crate) async fn reader(&self) -> Result<Reader, StoreError> {
        self.readers.acquire(&self.readers.pool).await
    }

    /// As [`Self::reader`], for metrics and the pages of operators.
    pub(crate) async fn reader_for_metrics(&self) -> Result<Reader, StoreError> {
        self.readers.acquire(&self.readers.for_metrics).await
    }
}

/// Waits for a statement that the server ends within `limit`, and not much longer, because the connection may be broken.
#[cfg(feature = "postgres")]
async fn answered<T>(
    limit: Duration,
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    let answer = tokio::time::timeout(limit + GRACE, statement).await;
    Ok(answer.map_err(|_elapsed| StoreError::TimeLimit)??)
}

/// A connection that answers queries.
pub(crate) trait Queries: Send {
    /// All rows of the result.
    fn all(&mut self, sql: Sql) -> impl Future<Output = Result<Vec<AnyRow>, StoreError>> + Send;
}

impl Queries for AnyConnection {
    async fn all(&mut self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        Ok(sql.all(self).await?)
    }
}

impl Queries for Reader {
    fn all(&mut self, sql: Sql) -> impl Future<Output = Result<Vec<AnyRow>, StoreError>> + Send {
        self.all(sql)
    }
}

impl Reader {
    pub(super) async fn all(&mut self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StoreError::TimeLimit);
        }
        match &mut self.transaction {
            #[cfg(feature = "postgres")]
            Snapshot::Postgres { transaction, statement_timeout, .. } => {
                // A change of the limit costs a round trip. Until it is changed, the limit exceeds the time left by at most a
                // ninth.
                if left < *statement_timeout * 9 / 10 {
                    answered(left, transaction.execute(set_statement_timeout("LOCAL", left))).await?;
                    *statement_timeout = left;
                }
                answered(left, sql.all(&mut **transaction)).await
            }
            Snapshot::Sqlite(transaction) => {
                let rows = sql.for_sqlite()?.fetch_all(&mut **transaction).await?;
                rows.iter().map(|row| Ok(AnyRow::try_from(row)?)).collect()
            }
        }
    }

    pub(super) async fn optional(&mut self, sql: Sql) -> Result<Option<AnyRow>, StoreError> {
        Ok(self.all(sql).await?.into_iter().next())
    }

    pub(super) async fn one(&mut self, sql: Sql) -> Result<AnyRow, StoreError> {
        self.optional(sql).await?.ok_or_else(|| sqlx::Error::RowNotFound.into())
    }

    /// The number in the only column and row of the result.
    pub(super) async fn number(&mut self, sql: Sql) -> Result<i64, StoreError> {
        Ok(self.one(sql).await?.try_get(0)?)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Number of temporary files of SQLite that this process has open. They have no name in a folder.
    #[cfg(target_os = "linux")]
    fn temporary_files() -> usize {
        let files = std::fs::read_dir("/proc/self/fd").unwrap();
        let is_temporary = |file: &std::path::PathBuf| file.to_string_lossy().contains("/etilqs_");
        files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok()).filter(is_temporary).count()
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_large_sort_uses_a_file_and_a_small_one_memory() {
        //  rows of 1 KiB, whether they are sorted in a file
        for (rows, expected) in [(1_000, false), (32_000, true)] {
            let folder = TempDir::new().unwrap();
            let url = format!("sqlite:{}", folder.path().join("test.db").display());
            let store = Store::open_or_create(&url).await.unwrap();
            let mut transaction = match store.reader().await.unwrap().transaction {
                Snapshot::Sqlite(transaction) => transaction,
                #[cfg(feature = "postgres")]
                Snapshot::Postgres { .. } => panic!("not SQLite"),
            };
            let sorted = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
                SELECT randomblob(1024) AS bytes FROM n ORDER BY bytes";
            let mut sorted = sqlx::query(sorted).bind(rows).fetch(&mut *transaction);
            assert!(futures_util::StreamExt::next(&mut sorted).await.unwrap().is_ok());
            assert_eq!(temporary_files() > 0, expected, "{rows} rows");
            drop(sorted);
            drop(transaction);
            store.close().await;
        }
    }
}
