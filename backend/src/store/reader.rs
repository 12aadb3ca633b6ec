//! The connections that questions about clicks are answered over: apart from those for all else, and with an end to each
//! statement. All statements of a question see the database as the first of them does.

use std::str::FromStr;
use std::time::Duration;

use sqlx::any::AnyRow;
#[cfg(feature = "postgres")]
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
#[cfg(feature = "postgres")]
use sqlx::{Any, AnyPool};
use sqlx::{Executor, Row, Sqlite, SqlitePool, Transaction};
use tokio::time::Instant;

use super::sql::Sql;
use super::{PoolState, StoreError};

/// Steps of SQLite's machine after which it is asked whether to go on: some microseconds.
const STEPS: i32 = 10_000;

/// In PostgreSQL, each statement of any other transaction sees what was committed before it.
#[cfg(feature = "postgres")]
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// How questions about clicks are answered.
#[derive(Clone, Copy, Debug)]
pub struct Analytics {
    /// How many at once. One workspace has at most half of them.
    pub readers: u32,
    /// How long a statement may take; then it is interrupted.
    pub timeout: Duration,
}

impl Default for Analytics {
    fn default() -> Self {
        Self { readers: 4, timeout: Duration::from_secs(10) }
    }
}

/// The connections of one database.
#[derive(Clone, Debug)]
pub(super) enum Readers {
    /// Not by way of `Any`, since only SQLite's own connection can be told to interrupt a statement.
    Sqlite(SqlitePool, Duration),
    /// Its server interrupts statements.
    #[cfg(feature = "postgres")]
    Postgres(AnyPool),
}

/// One of them, in a transaction.
#[derive(Debug)]
pub(super) enum Reader {
    Sqlite(Transaction<'static, Sqlite>, Duration),
    #[cfg(feature = "postgres")]
    Postgres(Transaction<'static, Any>),
}

impl Readers {
    /// Those of a SQLite file, each prepared by `pragmas`.
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

    /// The number in the only column of the only row.
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
    async fn a_statement_without_end_is_interrupted_and_its_reader_is_free() {
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
