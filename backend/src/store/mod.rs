//! The one interface to the database, SQLite or PostgreSQL.
//!
//! Every method that touches a workspace's data takes the workspace, so no query can reach across. Instants are kept as
//! Unix milliseconds. What belongs together is written in one transaction.

mod analytics;
mod click_batch;
mod click_buffer;
mod click_pages;
mod click_rows;
mod clicks;
mod deleted_links;
mod key_order;
mod keys;
mod link_changes;
mod link_size;
mod links;
mod migrations;
mod outbox;
mod packed;
mod reader;
mod spool;
mod sql;
mod tags;
mod top_links;
mod webhooks;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::{Any, AnyPool, Connection, Executor, Row, Transaction};

pub(crate) use analytics::{Column, Condition, Selection, Step};
pub(crate) use click_batch::Batch;
pub(crate) use click_buffer::ClickBuffer;
pub(crate) use click_pages::ClicksAndLinks;
pub use clicks::{Click, ClickDetails};
use key_order::KeyOrder;
pub use keys::{KeyRecord, Limits, Workspace};
pub(crate) use link_changes::{Changed, LinkConflict, NewLink};
#[cfg(feature = "openapi")]
pub(crate) use link_size::MAX_LINK_BYTES;
pub(crate) use links::{LinkFilter, LinkGroup, LinkOrder, LinkSelector, Page, RedirectTarget};
pub(crate) use outbox::{
    Attempt, DeliveryFilter, DeliveryRecord, DeliveryStatus, DueDelivery, Outcome, REPLAYED_AT_ONCE,
};
pub use reader::Analytics;
use reader::Readers;
pub(crate) use spool::Spool;
pub(crate) use top_links::TopLink;
pub(crate) use webhooks::{NewWebhook, Scope, Webhook, WebhookConflict};

/// How long a SQLite writer waits for another process to finish its transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that read a SQLite file at once; its writer has one of its own.
const SQLITE_READERS: u32 = 4;
/// Pages that the writer of a SQLite file keeps, in KiB: what a transaction changes.
const SQLITE_WRITER_CACHE: u32 = 32 * 1024;
/// Pages that a reader of a SQLite file keeps, in KiB. Most are read where the file is mapped.
const SQLITE_READER_CACHE: u32 = 8 * 1024;
/// How much of a SQLite file its readers map, in bytes. The writer maps nothing: it would do so anew whenever the file
/// has grown.
const SQLITE_MAPPED: u32 = 1 << 30;
/// Connections to PostgreSQL.
#[cfg(feature = "postgres")]
const POSTGRES_CONNECTIONS: u32 = 16;

/// The database could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL names no database that the service can use.
    #[error("database {url:?}: expected sqlite:<file> or postgres://<host>/<name>")]
    UnknownDatabase {
        /// The URL, without its user and password.
        url: String,
    },
    /// The URL names a database in PostgreSQL.
    #[cfg(not(feature = "postgres"))]
    #[error("database {url:?}: this build has no PostgreSQL; build it with the feature `postgres`")]
    WithoutPostgres {
        /// The URL, without its user and password.
        url: String,
    },
    /// The schema could not be brought up to date.
    #[error("database schema: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The database failed.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// A row holds something that this version cannot read.
    #[error("stored {what}: {problem}")]
    Corrupt {
        /// What cannot be read.
        what: &'static str,
        /// Why.
        problem: String,
    },
}

impl StoreError {
    /// Whether the database refused what it was given, and would do so again. False where it could not do its work, such
    /// as on a full disk or a lost connection.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::Database(sqlx::Error::Encode(_)) => true,
            Self::Database(sqlx::Error::Database(error)) => error.code().is_some_and(|code| {
                if code.len() == "22000".len() {
                    // PostgreSQL: data exceptions, violated constraints and exceeded limits.
                    return ["22", "23", "54"].iter().any(|class| code.starts_with(class));
                }
                // SQLite has its reason in the lowest byte: TOOBIG, CONSTRAINT, MISMATCH and RANGE.
                code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 18 | 19 | 20 | 25))
            }),
            _ => false,
        }
    }

    fn corrupt(what: &'static str, problem: &impl ToString) -> Self {
        Self::Corrupt { what, problem: problem.to_string() }
    }

    /// Whether a statement took too long and was interrupted.
    pub(crate) fn is_interruption(&self) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        // SQLITE_INTERRUPT, and PostgreSQL's query_canceled.
        error.code().is_some_and(|code| matches!(&*code, "9" | "57014"))
    }
}

/// Where the two databases differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Sqlite,
    Postgres,
}

/// The database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    read: AnyPool,
    /// One connection on SQLite, which has one writer at a time anyway: so writers queue here, fairly.
    write: AnyPool,
    /// For questions about clicks, which may take long.
    readers: Readers,
    analytics: Analytics,
    dialect: Dialect,
    key_order: Arc<KeyOrder>,
    /// Where clicks are safe until they are recorded.
    spool: Option<PathBuf>,
    /// By which a database that several processes share knows the spool.
    spool_id: Arc<OnceLock<String>>,
}

impl Store {
    /// Opens `sqlite:<file>`, which is made if it does not exist, or `postgres://…`, and brings the schema up to date.
    ///
    /// # Errors
    /// [`StoreError`] if the URL is not understood, the database cannot be reached or its schema not be updated.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, Analytics::default()).await
    }

    /// As [`Self::open`], and decides how questions about clicks are answered.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_with(url: &str, analytics: Analytics) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        if url.starts_with("sqlite:") {
            Self::open_sqlite(url, analytics).await
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            Self::open_postgres(url, analytics).await
        } else {
            Err(StoreError::UnknownDatabase { url: without_credentials(url) })
        }
    }

    async fn open_sqlite(url: &str, analytics: Analytics) -> Result<Self, StoreError> {
        // `mode=rwc` makes the file if there is none.
        let url = match url.split_once('?') {
            None => format!("{url}?mode=rwc"),
            Some((_, query)) if query.contains("mode=") => url.to_owned(),
            Some(_) => format!("{url}&mode=rwc"),
        };
        let options = AnyConnectOptions::from_str(&url)?;
        let pool = |connections, cache: u32, mapped: u32| {
            let options = AnyPoolOptions::new().max_connections(connections);
            // A file does not hang up. But where a transaction could be neither committed nor rolled back, as on a disk that
            // is full, no other can begin.
            let options = options.test_before_acquire(false).before_acquire(|connection, _| {
                Box::pin(async move {
                    if connection.is_in_transaction() {
                        // It may be about to be rolled back.
                        connection.ping().await?;
                    }
                    Ok(!connection.is_in_transaction())
                })
            });
            options.after_connect(move |connection, _| {
                Box::pin(async move {
                    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(pragmas(cache, mapped)))).await?;
                    Ok(())
                })
            })
        };
        let write = pool(1, SQLITE_WRITER_CACHE, 0).connect_with(options.clone()).await?;
        migrations::sqlite().run(&write).await?;
        let read = pool(SQLITE_READERS, SQLITE_READER_CACHE, SQLITE_MAPPED).connect_with(options).await?;
        let pragmas = pragmas(SQLITE_READER_CACHE, SQLITE_MAPPED);
        let readers = Readers::sqlite(&url, analytics, pragmas).await?;
        let key_order = Arc::new(KeyOrder::load(&read).await?);
        let spool = spool::path(&url)?;
        let (dialect, spool_id) = (Dialect::Sqlite, Arc::default());
        Ok(Self { read, write, readers, analytics, dialect, key_order, spool, spool_id })
    }

    #[cfg(not(feature = "postgres"))]
    fn open_postgres(url: &str, _: Analytics) -> impl Future<Output = Result<Self, StoreError>> {
        std::future::ready(Err(StoreError::WithoutPostgres { url: without_credentials(url) }))
    }

    #[cfg(feature = "postgres")]
    async fn open_postgres(url: &str, analytics: Analytics) -> Result<Self, StoreError> {
        let options = AnyConnectOptions::from_str(url)?;
        let pool = AnyPoolOptions::new().max_connections(POSTGRES_CONNECTIONS).connect_with(options).await?;
        migrations::postgres().run(&pool).await?;
        let readers = Readers::postgres(url, analytics).await?;
        let key_order = Arc::new(KeyOrder::load(&pool).await?);
        let (dialect, spool_id) = (Dialect::Postgres, Arc::default());
        let (read, write, spool) = (pool.clone(), pool, None);
        Ok(Self { read, write, readers, analytics, dialect, key_order, spool, spool_id })
    }

    /// Keeps clicks in a file until they are recorded, also where that is not done anyway. Each process needs one of its own.
    #[must_use]
    pub fn with_spool(self, file: PathBuf) -> Self {
        Self { spool: Some(file), ..self }
    }

    /// Connections for all but questions about clicks.
    pub(crate) fn connections(&self) -> usize {
        self.read.options().get_max_connections() as usize
    }

    /// How questions about clicks are answered.
    pub(crate) fn analytics(&self) -> Analytics {
        self.analytics
    }

    /// Begins a transaction that writes.
    async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        let transaction = match self.dialect {
            // A transaction that starts by reading and then writes fails when another process wrote in between.
            Dialect::Sqlite => self.write.begin_with("BEGIN IMMEDIATE").await?,
            Dialect::Postgres => self.write.begin().await?,
        };
        Ok(transaction)
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// [`StoreError::Database`] if it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.read.execute("SELECT 1").await?;
        Ok(())
    }

    /// Closes all connections, after what they are doing.
    pub async fn close(&self) {
        self.write.close().await;
        self.read.close().await;
        self.readers.close().await;
    }
}

/// What each connection to a SQLite file is told, with the KiB that it keeps and the bytes that it maps.
fn pragmas(cache: u32, mapped: u32) -> String {
    let timeout = BUSY_TIMEOUT.as_millis();
    // FULL: what is acknowledged survives also the loss of power. A checkpoint after 16 MiB instead of 4 writes pages that
    // are changed again and again less often.
    format!(
        "PRAGMA busy_timeout = {timeout}; PRAGMA cache_size = -{cache}; PRAGMA mmap_size = {mapped};
         PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 4096;"
    )
}

/// A database URL fit for a log.
fn without_credentials(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

fn instant(milliseconds: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millisecond(milliseconds).map_err(|error| StoreError::corrupt("instant", &error))
}

fn instant_of(row: &AnyRow, column: &str) -> Result<Timestamp, StoreError> {
    instant(row.try_get(column)?)
}

fn optional_instant_of(row: &AnyRow, column: &str) -> Result<Option<Timestamp>, StoreError> {
    row.try_get::<Option<i64>, _>(column)?.map(instant).transpose()
}

fn to_json<T: serde::Serialize>(what: &'static str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::corrupt(what, &error))
}

fn from_json<T: serde::de::DeserializeOwned>(what: &'static str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::corrupt(what, &error))
}
