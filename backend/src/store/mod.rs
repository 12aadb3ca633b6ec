//! The interface to the database, SQLite or PostgreSQL.
//!
//! Every method on a workspace's data takes the workspace, so that no query can access another workspace. Instants are
//! stored as Unix milliseconds. Related changes are written in one transaction.

mod analytics;
mod answers;
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
mod horizon;
mod interner;
mod kept_keys;
mod keys;
mod link_conflict;
mod link_creation;
mod link_size;
mod link_update;
mod links;
mod listeners;
mod location;
mod names;
mod old_events;
mod open;
mod outbox;
mod reader;
mod replays;
mod retention;
mod rollups;
mod schema;
mod serving;
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
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{Any, AnyConnection, AnyPool, Connection, Executor, Row, Transaction};

pub(crate) use analytics::{Column, Condition, Selection, Step};
pub(crate) use answers::{KeptAnswer, Recording, Repeatable};
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
pub use keys::{KeyRecord, Limits, Workspace};
pub(crate) use link_conflict::LinkConflict;
pub(crate) use link_creation::{LinkResults, NewLink, transactions};
pub(crate) use link_size::MAX_LINK_BYTES;
pub(crate) use link_update::Changed;
pub(crate) use links::{LinkFilter, LinkGroup, LinkOrder, LinkSelector, Page, RedirectTarget};
pub(crate) use location::{Location, spool_of, with_suffix};
pub(crate) use names::NameConflict;
pub(crate) use outbox::{Attempt, DueDelivery, DueWebhook, OutboxBacklog, Outcome, WithoutRoom};
pub use reader::Analytics;
pub(crate) use reader::Reader;
use reader::Readers;
pub(crate) use replays::{REPLAYED_AT_ONCE, ReplayedEvents};
pub use schema::SchemaProblem;
pub use serving::Serving;
pub use set_aside::{Replayed, SetAside};
pub(crate) use spool::{Left, Progress, Spool};
use sql::Sql;
pub(crate) use tags::{TagFilter, TagOrder};
pub(crate) use top_links::{Ranking, TopLink};
use turns::{Turn, Turns};
pub(crate) use webhook_update::{ChangedWebhook, WebhookInput};
pub(crate) use webhooks::{NewWebhook, Webhook, WebhookConflict};

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
    /// The file that stores clicks until they are recorded.
    spool: Option<PathBuf>,
    /// The id of the spool in a database that several processes share.
    spool_id: Arc<OnceLock<String>>,
}

impl Store {
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

fn instant(milliseconds: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millisecond(milliseconds).map_err(|error| StoreError::corrupt("instant", &error))
}

fn instant_of(row: &AnyRow, column: &str) -> Result<Timestamp, StoreError> {
    instant(row.try_get(column)?)
}

fn optional_instant_of(row: &AnyRow, column: &str) -> Result<Option<Timestamp>, StoreError> {
    row.try_get::<Option<i64>, _>(column)?.map(instant).transpose()
}

pub(crate) fn to_json<T: serde::Serialize + ?Sized>(
    what: &'static str,
    value: &T,
) -> Result<String, StoreError> {
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
        let store = Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display()))
            .await
            .unwrap();
        let options = Sql::new("PRAGMA compile_options").all(&store.read).await.unwrap();
        let options: Vec<String> = options.iter().map(|row| row.try_get(0).unwrap()).collect();
        let has = |option: &str| options.iter().any(|has| has == option);
        assert!(!has("ENABLE_MEMORY_MANAGEMENT") && has("DEFAULT_MEMSTATUS=0"), "{options:?}");
    }
}
