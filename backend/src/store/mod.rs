//! The interface to the database, SQLite or PostgreSQL.
//!
//! Every method on a workspace's data takes the workspace, so that no query can access another workspace. Instants are
//! stored as Unix milliseconds. Related changes are written in one transaction.

mod analytics;
pub(crate) mod checkpoint;
mod click;
mod click_batch;
mod click_buffer;
mod click_pages;
mod click_rows;
mod clicks;
mod deleted_links;
mod deleted_webhooks;
mod delivery_log;
mod domains;
mod error;
mod folders;
mod full_addresses;
mod horizon;
mod interner;
mod key_order;
mod keys;
mod link_conflict;
mod link_creation;
mod link_size;
mod link_update;
mod links;
mod listeners;
mod migrations;
mod names;
mod old_events;
mod outbox;
mod reader;
mod replays;
mod retention;
mod rollups;
mod set_aside;
mod spool;
mod sql;
mod tags;
mod top_links;
mod turns;
mod webhook_scope;
mod webhook_update;
mod webhooks;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::{Any, AnyConnection, AnyPool, Connection, Executor, Row, Transaction};

pub(crate) use analytics::{Column, Condition, Selection, Step};
use checkpoint::Log;
pub(crate) use click::Visitor;
pub use click::{Click, ClickDetails};
pub(crate) use click_batch::Batch;
pub(crate) use click_buffer::{ClickBuffer, ClickRef};
pub(crate) use click_pages::ClicksAndLinks;
pub(crate) use clicks::Recorded;
pub(crate) use delivery_log::{DeliveryFilter, DeliveryRecord, DeliveryStatus};
pub use domains::{AssignedDomain, DomainConflict};
pub use error::StoreError;
use key_order::KeyOrder;
pub use keys::{KeyRecord, Limits, Workspace};
pub(crate) use link_conflict::LinkConflict;
pub(crate) use link_creation::{NewLink, transactions};
#[cfg(feature = "openapi")]
pub(crate) use link_size::MAX_LINK_BYTES;
pub(crate) use link_update::Changed;
pub(crate) use links::{LinkFilter, LinkGroup, LinkOrder, LinkSelector, Page, RedirectTarget};
pub(crate) use names::NameConflict;
pub(crate) use outbox::{Attempt, DueDelivery, DueWebhook, OutboxBacklog, Outcome, WithoutRoom};
pub use reader::Analytics;
pub(crate) use reader::Reader;
use reader::Readers;
pub(crate) use replays::{REPLAYED_AT_ONCE, ReplayedEvents};
pub use set_aside::{Replayed, SetAside};
pub(crate) use spool::{Left, Progress, Spool, sqlite_spool};
use sql::Sql;
pub(crate) use tags::{TagFilter, TagOrder};
pub(crate) use top_links::{Ranking, TopLink};
use turns::{Turn, Turns};
pub(crate) use webhook_update::{ChangedWebhook, WebhookInput};
pub(crate) use webhooks::{NewWebhook, Webhook, WebhookConflict};

/// Maximum wait of a SQLite writer for another process's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of connections that read a SQLite file, and of those for lists. One more connection writes.
const SQLITE_READERS: u32 = 4;
/// Page cache of the SQLite writer, in KiB. It holds the pages that a transaction changes.
const SQLITE_WRITER_CACHE: u32 = 32 * 1024;
/// Page cache of a SQLite reader, in KiB. SQLite empties it when another connection has written.
const SQLITE_READER_CACHE: u32 = 8 * 1024;
/// Size of the memory mapping of the connections for analytics, in bytes. The others do not map the file: after each transaction,
/// SQLite has to map it anew, and the process to find its pages again, which takes longer than a short query.
const SQLITE_MAPPED: u32 = 1 << 30;
/// Maximum number of connections to PostgreSQL, and of those for lists.
#[cfg(feature = "postgres")]
const POSTGRES_CONNECTIONS: u32 = 16;
/// Maximum wait for a connection to PostgreSQL.
#[cfg(feature = "postgres")]
const POSTGRES_PATIENCE: Duration = Duration::from_secs(5);
/// A connection to PostgreSQL that was used within this time is not tested before it is used again.
#[cfg(feature = "postgres")]
const UNTESTED: Duration = Duration::from_millis(250);

/// The SQL dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Sqlite,
    Postgres,
}

/// The connections of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolState {
    pub(crate) pool: &'static str,
    pub(crate) max: u32,
    pub(crate) idle: usize,
    pub(crate) used: usize,
}

impl PoolState {
    fn of<DB: sqlx::Database>(name: &'static str, pool: &sqlx::Pool<DB>) -> Self {
        // The size is read first, so that a connection that is released in between is not counted twice.
        let size = pool.size() as usize;
        let idle = pool.num_idle().min(size);
        Self { pool: name, max: pool.options().get_max_connections(), idle, used: size - idle }
    }
}

/// The database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    read: AnyPool,
    /// A single connection for SQLite, which has one writer at a time. The pool queues the writers fairly.
    write: AnyPool,
    /// For analytics queries, searches and lists, which may take long.
    readers: Readers,
    analytics: Analytics,
    dialect: Dialect,
    log: Option<Log>,
    /// Where there is one writer.
    turns: Option<Turns>,
    key_order: Arc<KeyOrder>,
    /// The file that stores clicks until they are recorded.
    spool: Option<PathBuf>,
    /// The id of the spool in a database that several processes share.
    spool_id: Arc<OnceLock<String>>,
}

impl Store {
    /// Opens `sqlite:<file>`, which is created if it does not exist, or `postgres://…`, and migrates the schema.
    ///
    /// # Errors
    /// [`StoreError`] if the URL is not supported, the database is unavailable or the migration fails.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, Analytics::default()).await
    }

    /// Like [`Self::open`], with settings for analytics queries.
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
            Err(StoreError::unknown(url))
        }
    }

    async fn open_sqlite(url: &str, analytics: Analytics) -> Result<Self, StoreError> {
        // `mode=rwc` creates a missing file.
        let url = match url.split_once('?') {
            None => format!("{url}?mode=rwc"),
            Some((_, query)) if query.contains("mode=") => url.to_owned(),
            Some(_) => format!("{url}&mode=rwc"),
        };
        let options = AnyConnectOptions::from_str(&url)?;
        let pool = |connections, cache: u32| {
            let options = AnyPoolOptions::new().max_connections(connections);
            // A file needs no connection test. However, a transaction that could be neither committed nor rolled back,
            // for example on a full disk, would block all later transactions.
            let options = options.test_before_acquire(false).before_acquire(|connection, _| {
                Box::pin(async move {
                    if connection.is_in_transaction() {
                        // A rollback may still be pending, and a ping completes it.
                        connection.ping().await?;
                    }
                    Ok(!connection.is_in_transaction())
                })
            });
            options.after_connect(move |connection, _| {
                Box::pin(async move {
                    let pragmas = pragmas(cache, 0, "MEMORY");
                    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(pragmas))).await?;
                    Ok(())
                })
            })
        };
        let write = pool(1, SQLITE_WRITER_CACHE).connect_with(options.clone()).await?;
        migrations::sqlite().run(&write).await?;
        let checkpointer = pool(1, SQLITE_READER_CACHE).connect_lazy_with(options.clone());
        let read = pool(SQLITE_READERS, SQLITE_READER_CACHE).connect_with(options).await?;
        let pragmas = [0, SQLITE_MAPPED].map(|mapped| pragmas(SQLITE_READER_CACHE, mapped, "FILE"));
        let readers = Readers::sqlite(&url, analytics, SQLITE_READERS, pragmas).await?;
        let key_order = Arc::new(KeyOrder::load(&read).await?);
        let spool = sqlite_spool(&url)?;
        let (dialect, spool_id, turns) = (Dialect::Sqlite, Arc::default(), Some(Turns::default()));
        // A database in memory has neither.
        let log = spool.is_some().then_some(Log { checkpointer });
        let store = Self { read, write, readers, analytics, dialect, log, turns, key_order, spool, spool_id };
        store.truncate_addresses().await?;
        Ok(store)
    }

    #[cfg(not(feature = "postgres"))]
    fn open_postgres(url: &str, _: Analytics) -> impl Future<Output = Result<Self, StoreError>> {
        std::future::ready(Err(StoreError::WithoutPostgres { url: without_credentials(url) }))
    }

    #[cfg(feature = "postgres")]
    async fn open_postgres(url: &str, analytics: Analytics) -> Result<Self, StoreError> {
        let options = AnyConnectOptions::from_str(url)?;
        let pool = postgres_pool(POSTGRES_CONNECTIONS).connect_with(options).await?;
        migrations::postgres().run(&pool).await?;
        let readers = Readers::postgres(url, analytics, POSTGRES_CONNECTIONS).await?;
        let key_order = Arc::new(KeyOrder::load(&pool).await?);
        let (dialect, spool_id, turns) = (Dialect::Postgres, Arc::default(), None);
        let (read, write, spool) = (pool.clone(), pool, None);
        let log = None;
        let store = Self { read, write, readers, analytics, dialect, log, turns, key_order, spool, spool_id };
        store.truncate_addresses().await?;
        Ok(store)
    }

    /// Stores clicks in a file until they are recorded, also with databases that have no such file by default. Each
    /// process needs a separate file.
    #[must_use]
    pub fn with_spool(self, file: PathBuf) -> Self {
        Self { spool: Some(file), ..self }
    }

    /// Maximum number of connections for everything except queries that may take long, and for lists.
    pub(crate) fn connections(&self) -> usize {
        self.read.options().get_max_connections() as usize
    }

    /// The pause after a request of a busy workspace, in multiples of the time that the request took. PostgreSQL's processes have no
    /// priorities, so the pause leaves the processors to others.
    pub(crate) fn pause_of_busy(&self) -> u32 {
        match self.dialect {
            Dialect::Sqlite => 1,
            Dialect::Postgres => 3,
        }
    }

    /// Settings for analytics queries.
    pub(crate) fn analytics(&self) -> Analytics {
        self.analytics
    }

    /// Begins a transaction that writes, for a customer.
    async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        if let Some(turns) = &self.turns {
            turns.customer_writes();
        }
        self.begin_writing().await
    }

    /// Begins a transaction that writes, in its turn.
    async fn begin_in(&self, _turn: Option<&Turn>) -> Result<Transaction<'static, Any>, StoreError> {
        self.begin_writing().await
    }

    async fn begin_writing(&self) -> Result<Transaction<'static, Any>, StoreError> {
        let transaction = match self.dialect {
            // A transaction that reads before it writes would fail if another process wrote in between.
            Dialect::Sqlite => self.write.begin_with("BEGIN IMMEDIATE").await?,
            Dialect::Postgres => self.write.begin().await?,
        };
        Ok(transaction)
    }

    /// Waits for the turn of a transaction of the background, or of one of many of a bulk call. None where there are several writers.
    async fn turn(&self) -> Option<Turn> {
        Some(self.turns.as_ref()?.take().await)
    }

    /// Whether customers wait for transactions of the background: there is one writer, and they have used it recently.
    pub(crate) fn customers_wait(&self) -> bool {
        self.turns.as_ref().is_some_and(Turns::customers_write)
    }

    /// Begins a transaction that writes. Such transactions of one workspace run one after another, so that no two of them
    /// both find a name free.
    async fn begin_alone(&self, workspace: &Workspace) -> Result<Transaction<'static, Any>, StoreError> {
        let mut transaction = self.begin().await?;
        if self.dialect == Dialect::Postgres {
            let mut sql = Sql::new("SELECT w.seq FROM workspaces w WHERE w.seq = ");
            sql.bind(workspace.seq).push(" FOR NO KEY UPDATE");
            sql.one(&mut *transaction).await?;
        }
        Ok(transaction)
    }

    /// Begins a transaction that writes, in its turn, and locks the row that a query selects. None if the row is missing or locked by
    /// another process.
    async fn begin_with_row(
        &self,
        turn: Option<&Turn>,
        query: &'static str,
    ) -> Result<Option<(Transaction<'static, Any>, AnyRow)>, StoreError> {
        // Usually there is no such row, and a reader is enough to find that out.
        if Sql::new(query).optional(&self.read).await?.is_none() {
            return Ok(None);
        }
        let mut transaction = self.begin_in(turn).await?;
        let mut sql = Sql::new(query);
        sql.lock(self.dialect, " FOR UPDATE SKIP LOCKED");
        let row = sql.optional(&mut *transaction).await?;
        Ok(row.map(|row| (transaction, row)))
    }

    /// Checks that the database is available.
    ///
    /// # Errors
    /// [`StoreError::Database`] if it is not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.read.execute("SELECT 1").await?;
        Ok(())
    }

    /// Checks that the database answers over a new connection, whatever the state of the others. A server that refuses another
    /// connection, for example because it has too many, still answers over the others.
    pub(crate) async fn probe(&self) -> Result<(), StoreError> {
        let ask = async {
            let mut connection = AnyConnection::connect_with(&self.read.connect_options()).await?;
            connection.execute("SELECT 1").await?;
            connection.close().await
        };
        match ask.await.map_err(StoreError::from) {
            Err(error) if !error.is_answer() => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The connections of each pool.
    pub(crate) fn pools(&self) -> Vec<PoolState> {
        let mut pools = match self.dialect {
            Dialect::Sqlite => vec![PoolState::of("read", &self.read), PoolState::of("write", &self.write)],
            // One pool reads and writes.
            Dialect::Postgres => vec![PoolState::of("main", &self.write)],
        };
        pools.extend(self.readers.states());
        pools
    }

    /// Closes all connections after their current statements.
    pub async fn close(&self) {
        if let Some(log) = &self.log {
            log.checkpointer.close().await;
        }
        self.write.close().await;
        self.read.close().await;
        self.readers.close().await;
    }
}

/// A pool of connections to PostgreSQL. Before it gives one away that has been idle for long, it asks the server whether it is alive.
/// That is a round trip, so that it does not ask each time.
#[cfg(feature = "postgres")]
fn postgres_pool(connections: u32) -> AnyPoolOptions {
    let options = AnyPoolOptions::new().max_connections(connections).acquire_timeout(POSTGRES_PATIENCE);
    options.test_before_acquire(false).before_acquire(|connection, state| {
        Box::pin(async move {
            if state.idle_for >= UNTESTED {
                connection.ping().await?;
            }
            Ok(true)
        })
    })
}

/// The pragmas of a SQLite connection with a page cache of `cache` KiB, a memory mapping of `mapped` bytes and a store for what it sorts
/// and groups: `MEMORY`, or `FILE` for queries whose results may be large. Even then, SQLite writes a file only for what is larger than
/// the cache.
fn pragmas(cache: u32, mapped: u32, temporary: &'static str) -> String {
    let (timeout, limit) = (BUSY_TIMEOUT.as_millis(), checkpoint::TOO_LONG);
    // FULL: committed data survives a power failure. The service makes checkpoints earlier than the writer does by itself, which is
    // after 512 MiB.
    format!(
        "PRAGMA busy_timeout = {timeout}; PRAGMA cache_size = -{cache}; PRAGMA mmap_size = {mapped};
         PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA temp_store = {temporary}; PRAGMA wal_autocheckpoint = 131072; PRAGMA journal_size_limit = {limit};"
    )
}

/// A database URL without user and password, for the log.
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn no_query_takes_a_mutex_that_all_connections_to_sqlite_share() {
        let folder = TempDir::new().unwrap();
        let store =
            Store::open(&format!("sqlite:{}", folder.path().join("test.db").display())).await.unwrap();
        let options = Sql::new("PRAGMA compile_options").all(&store.read).await.unwrap();
        let options: Vec<String> = options.iter().map(|row| row.try_get(0).unwrap()).collect();
        let has = |option: &str| options.iter().any(|has| has == option);
        assert!(!has("ENABLE_MEMORY_MANAGEMENT") && has("DEFAULT_MEMSTATUS=0"), "{options:?}");
    }
}
