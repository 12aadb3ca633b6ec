//! The interface to the database, SQLite or PostgreSQL.
//!
//! Every method on a workspace's data takes the workspace, so that no query can access another workspace. Instants are
//! stored as Unix milliseconds. Related changes are written in one transaction.

mod analytics;
mod backlog;
mod backup;
pub(crate) mod checkpoint;
mod click_pages;
mod clicks;
mod column;
mod cursor;
mod deleted_links;
mod delivery_log;
mod domains;
mod error;
mod kept_keys;
mod keys;
mod labels;
mod link_creation;
mod link_lists;
mod link_update;
mod links;
mod location;
mod open;
mod outbox;
#[cfg(feature = "postgres")]
mod postgres;
mod reader;
mod retention;
mod rollups;
#[cfg(test)]
pub(crate) mod sample;
mod schema;
mod serving;
mod sql;
mod sweep;
mod tags;
mod usage;
mod webhook_scope;
mod webhooks;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{Any, AnyPool, Executor, Row};

pub(crate) use analytics::{Condition, Selection, Step};
pub(crate) use click_pages::{ClicksAndLinks, load_clicks};
pub(crate) use clicks::{Found, RECORDED_AT_ONCE};
pub(crate) use column::Column;
pub(crate) use delivery_log::DeliveryRecord;
pub use domains::AssignedDomain;
pub use error::StoreError;
pub(crate) use keys::{KeyChange, ListedKey};
pub use keys::{KeyRecord, Limits, Terms, Workspace};
pub(crate) use labels::{Label, LabelFilter};
pub(crate) use link_creation::NewLink;
pub(crate) use link_lists::{LinkFilter, LinkGroup, LinkOrder, LinkPage};
pub(crate) use link_update::Changed;
pub(crate) use links::{LinkSelector, RedirectTarget, links_of};
use location::Location;
pub(crate) use location::with_suffix;
pub use reader::Analytics;
pub(crate) use reader::Reader;
use reader::Readers;
pub use schema::SchemaProblem;
pub use serving::Serving;
use sql::Sql;
pub use usage::{SubscriberUsage, UsageOrder};
pub(crate) use usage::{ToldThreshold, USAGE_GROUPS, USAGE_TOTAL, UsageCaller};
pub(crate) use webhooks::{NewWebhook, Webhook, WebhookInput};

use crate::domain::load::PoolState;

/// Maximum number of rows that one transaction deletes or updates in the background.
const ROWS_PER_STEP: i64 = 500;

/// A transaction that writes.
type Transaction = sqlx::Transaction<'static, Any>;

/// The SQL dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Sqlite,
    Postgres,
}

fn pool_state<DB: sqlx::Database>(name: &'static str, pool: &sqlx::Pool<DB>) -> PoolState {
    // The size is read first, so that a connection that is released in between is not counted twice.
    let size = pool.size() as usize;
    let idle = pool.num_idle().min(size);
    PoolState { pool: name, max: pool.options().get_max_connections(), idle, used: size - idle }
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
    /// The connection that checkpoints the log of a SQLite file while others write.
    checkpointer: Option<AnyPool>,
    click_log: PathBuf,
}

impl Store {
    /// Uses another file for the click log. Each process needs a separate one.
    #[must_use]
    pub fn with_click_log(self, file: PathBuf) -> Self {
        Self { click_log: file, ..self }
    }

    /// The file of the click log: clicks that are not in the database yet. By default it is beside a SQLite file, or in the working directory
    /// and named after the PostgreSQL database.
    #[must_use]
    pub fn click_log(&self) -> &Path {
        &self.click_log
    }

    /// Settings for analytics queries.
    pub(crate) fn analytics(&self) -> Analytics {
        self.analytics
    }

    /// Begins a transaction that writes.
    async fn begin(&self) -> Result<Transaction, StoreError> {
        let transaction = match self.dialect {
            // A transaction that reads before it writes would fail if another process wrote in between.
            Dialect::Sqlite => self.write.begin_with("BEGIN IMMEDIATE").await?,
            Dialect::Postgres => self.write.begin().await?,
        };
        Ok(transaction)
    }

    /// Begins a transaction that writes. Such transactions of one workspace run one after another, so that no two of them
    /// both find a name free.
    async fn begin_alone(&self, workspace: &Workspace) -> Result<Transaction, StoreError> {
        let mut transaction = self.begin().await?;
        if self.dialect == Dialect::Postgres {
            let mut sql = Sql::new("SELECT w.seq FROM workspaces w WHERE w.seq = ");
            sql.bind(workspace.seq).push(" FOR NO KEY UPDATE");
            sql.one(&mut *transaction).await?;
        }
        Ok(transaction)
    }

    /// Checks that the database is available.
    ///
    /// # Errors
    /// [`StoreError::Database`] if it is not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.read.execute("SELECT 1").await?;
        Ok(())
    }

    /// The connections of each pool.
    pub(crate) fn pools(&self) -> Vec<PoolState> {
        let mut pools = match self.dialect {
            Dialect::Sqlite => vec![pool_state("read", &self.read), pool_state("write", &self.write)],
            // One pool reads and writes.
            Dialect::Postgres => vec![pool_state("main", &self.write)],
        };
        pools.push(self.readers.state());
        pools
    }

    /// Closes all connections after their current statements.
    pub async fn close(&self) {
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.close().await;
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

fn to_json<T: serde::Serialize + ?Sized>(what: &'static str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::corrupt(what, &error))
}

fn from_json<T: serde::de::DeserializeOwned>(what: &'static str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::corrupt(what, &error))
}

#[cfg(test)]
mod tests {
    use super::sample::Sample;
    use super::*;

    #[tokio::test]
    async fn no_query_takes_a_mutex_that_all_connections_to_sqlite_share() {
        let sample = Sample::new().await;
        let options = Sql::new("PRAGMA compile_options").all(&sample.store.read).await.unwrap();
        let options: Vec<String> = options.iter().map(|row| row.try_get(0).unwrap()).collect();
        let has = |option: &str| options.iter().any(|has| has == option);
        assert!(!has("ENABLE_MEMORY_MANAGEMENT") && has("DEFAULT_MEMSTATUS=0"), "{options:?}");
    }
}
