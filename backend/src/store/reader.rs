//! The connections for analytics queries. They are separate from all other connections, and their statements have a
//! time limit.

use std::str::FromStr;
use std::time::Duration;

use sqlx::any::AnyRow;
#[cfg(feature = "postgres")]
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
#[cfg(feature = "postgres")]
use sqlx::{Any, AnyPool};
use sqlx::{AnyConnection, Executor, Row, Sqlite, SqlitePool, Transaction};
use tokio::time::Instant;

use super::sql::Sql;
use super::{PoolState, StoreError};

/// Number of SQLite's virtual machine instructions between two checks of the time limit. They take a few microseconds.
const STEPS: i32 = 10_000;

/// In PostgreSQL, each statement of any other transaction sees what was committed before it.
#[cfg(feature = "postgres")]
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Settings for analytics queries.
#[derive(Clone, Copy, Debug)]
pub struct Analytics {
    /// Maximum number of concurrent queries. One workspace uses at most half of them.
    pub readers: u32,
    /// Time limit of a statement. After it, the statement is interrupted.
    pub timeout: Duration,
}

impl Default for Analytics {
    fn default() -> Self {
        Self { readers: 4, timeout: Duration::from_secs(10) }
    }
}

/// The connections to a database.
#[derive(Clone, Debug)]
pub(super) enum Readers {
    /// Not an `Any` connection, because only SQLite's connection type can interrupt a statement.
    Sqlite(SqlitePool, Duration),
    /// The PostgreSQL server interrupts statements.
    #[cfg(feature = "postgres")]
    Postgres(AnyPool),
}

/// One connection.
#[derive(Debug)]
pub(super) enum Reader {
    Sqlite(Transaction<'static, Sqlite>, Duration),
    #[cfg(feature = "postgres")]
    Postgres(Transaction<'static, Any>),
}

impl Readers {
    /// Opens connections to a SQLite file and prepares each with `pragmas`.
    pub(super) async fn sqlite(url: &str, analytics: Analytics, pragmas: String) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::from_str(url)?;
        let pool = SqlitePoolOptions::new()
            .max_connections(analytics.readers)
            .test_before_acquire(false)
            .after_connect(move |connection, _| {
                let pragmas = pragmas.clone();
                Box::pin(async move {
                    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(pragmas))).await?;
                    Ok(())
                })
            });
        Ok(Self::Sqlite(pool.connect_with(options).await?, analytics.timeout))
    }

    #[cfg(feature = "postgres")]
    pub(super) async fn postgres(url: &str, analytics: Analytics) -> Result<Self, StoreError> {
        let options = AnyConnectOptions::from_str(url)?;
        let timeout = analytics.timeout.as_millis();
        let pool =
            AnyPoolOptions::new().max_connections(analytics.readers).after_connect(move |connection, _| {
                let timeout = format!("SET statement_timeout = {timeout}");
                Box::pin(async move {
                    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(timeout))).await?;
                    Ok(())
                })
            });
        Ok(Self::Postgres(pool.connect_with(options).await?))
    }

    pub(super) async fn acquire(&self) -> Result<Reader, StoreError> {
        Ok(match self {
            Self::Sqlite(pool, timeout) => Reader::Sqlite(pool.begin().await?, *timeout),
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => Reader::Postgres(pool.begin_with(SNAPSHOT).await?),
        })
    }

    pub(super) fn state(&self, name: &'static str) -> PoolState {
        match self {
            Self::Sqlite(pool, _) => PoolState::of(name, pool),
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => PoolState::of(name, pool),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(pool, _) => pool.close().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// A connection that answers queries.
pub(super) trait Answers: Send {
    /// All rows of the result.
    fn all(&mut self, sql: Sql) -> impl Future<Output = Result<Vec<AnyRow>, StoreError>> + Send;
}

impl Answers for AnyConnection {
    async fn all(&mut self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        Ok(sql.all(self).await?)
    }
}

impl Answers for Reader {
    fn all(&mut self, sql: Sql) -> impl Future<Output = Result<Vec<AnyRow>, StoreError>> + Send {
        self.all(sql)
    }
}

impl Reader {
    pub(super) async fn all(&mut self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(connection) => Ok(sql.all(&mut **connection).await?),
            Self::Sqlite(connection, timeout) => {
                let end = Instant::now() + *timeout;
                let go_on = move || Instant::now() < end;
                connection.lock_handle().await?.set_progress_handler(STEPS, go_on);
                let rows = sql.for_sqlite()?.fetch_all(&mut **connection).await?;
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

    use super::super::Store;
    use super::*;

    #[tokio::test]
    async fn an_endless_statement_is_interrupted_and_its_connection_is_free() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let analytics = Analytics { readers: 1, timeout: Duration::from_millis(100) };
        let store = Store::open_with(&url, analytics).await.unwrap();
        for _ in 0..3 {
            let endless = Sql::new(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
            );
            let error = store.readers.acquire().await.unwrap().number(endless).await.unwrap_err();
            assert!(error.is_interruption(), "{error}");
            let short = Sql::new("SELECT 7");
            assert_eq!(store.readers.acquire().await.unwrap().number(short).await.unwrap(), 7);
        }
    }
}
