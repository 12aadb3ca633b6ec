//! Opening of the database.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, ConnectOptions, Connection, Executor};

use super::checkpoint::{self, BUSY_TIMEOUT};
use super::location::Location;
#[cfg(feature = "postgres")]
use super::postgres::{pool_of, set_statement_timeout};
use super::reader::{Analytics, Readers};
use super::schema::{self, SchemaProblem};
use super::{Dialect, Store, StoreError};

/// Number of connections that read a SQLite file, except those for analytics. One more connection writes.
const SQLITE_READERS: u32 = 4;
/// Page cache of the SQLite writer, in KiB. It holds the pages that a transaction changes.
const SQLITE_WRITER_CACHE: u32 = 32 * 1024;
/// Page cache of a SQLite reader, in KiB. SQLite empties it when another connection has written.
const SQLITE_READER_CACHE: u32 = 8 * 1024;
/// Size of the memory mapping of the connections for analytics, in bytes. The others do not map the file: after each transaction,
/// SQLite has to map it anew, and the process to find its pages again, which takes longer than a short query.
const SQLITE_MAPPED: u32 = 1 << 30;
/// Maximum number of connections to PostgreSQL, except those for analytics.
#[cfg(feature = "postgres")]
const POSTGRES_CONNECTIONS: u32 = 20;
/// Time limit of the check of a database when it is opened: more than sqlx lets a SQLite connection wait for a lock, which is 5 s.
const CHECK_TIMEOUT: Duration = Duration::from_secs(8);
/// Time limit of a statement in PostgreSQL, except those for analytics. A request whose statement waits for a lock keeps its place for no
/// longer. In SQLite, nothing waits longer than [`BUSY_TIMEOUT`].
#[cfg(feature = "postgres")]
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// What happens to a database without tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Empty {
    Refuse,
    CreateSchema,
}

impl Store {
    /// Opens the database at `sqlite:<file>` or `postgres://…`, which must have the schema.
    ///
    /// # Errors
    /// [`StoreError`] if the URL is not supported, the database is unavailable or its schema is not the one that this program
    /// uses.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::connect(url, Analytics::default(), Empty::Refuse).await
    }

    /// Like [`Self::open`], but creates a missing SQLite file, and the schema in an empty database.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_or_create(url: &str) -> Result<Self, StoreError> {
        Self::open_or_create_with(url, Analytics::default()).await
    }

    /// Like [`Self::open_or_create`], with settings for analytics queries.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_or_create_with(url: &str, analytics: Analytics) -> Result<Self, StoreError> {
        Self::connect(url, analytics, Empty::CreateSchema).await
    }

    async fn connect(url: &str, analytics: Analytics, empty: Empty) -> Result<Self, StoreError> {
        let location = Location::parse(url)?;
        sqlx::any::install_default_drivers();
        let opened = match &location {
            Location::Sqlite(_) => {
                check(url, &location, empty).await?;
                Self::open_sqlite(url, location.click_log(), analytics).await
            }
            #[cfg(feature = "postgres")]
            Location::Postgres(_) => {
                check(url, &location, empty).await?;
                Self::open_postgres(url, location.click_log(), analytics).await
            }
            #[cfg(not(feature = "postgres"))]
            Location::Postgres(_) => Err(StoreError::WithoutPostgres(location.to_string())),
        };
        opened.map_err(|error| match error {
            StoreError::Database(source) => StoreError::Open { database: location.to_string(), source },
            other => other,
        })
    }

    async fn open_sqlite(url: &str, click_log: PathBuf, analytics: Analytics) -> Result<Self, StoreError> {
        let options = AnyConnectOptions::from_str(url)?;
        let pool = |connections, cache: u32| {
            let options = AnyPoolOptions::new().max_connections(connections).acquire_timeout(BUSY_TIMEOUT);
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
        let checkpointer = pool(1, SQLITE_READER_CACHE).connect_lazy_with(options.clone());
        let read = pool(SQLITE_READERS, SQLITE_READER_CACHE).connect_with(options).await?;
        let pragmas = pragmas(SQLITE_READER_CACHE, SQLITE_MAPPED, "FILE");
        let readers = Readers::sqlite(url, analytics, pragmas).await?;
        Ok(Self {
            read,
            write,
            readers,
            analytics,
            dialect: Dialect::Sqlite,
            checkpointer: Some(checkpointer),
            click_log,
        })
    }

    #[cfg(feature = "postgres")]
    async fn open_postgres(url: &str, click_log: PathBuf, analytics: Analytics) -> Result<Self, StoreError> {
        let options = AnyConnectOptions::from_str(url)?;
        let pool = pool_of(POSTGRES_CONNECTIONS).after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute(set_statement_timeout("SESSION", STATEMENT_TIMEOUT)).await?;
                Ok(())
            })
        });
        let pool = pool.connect_with(options).await?;
        let readers = Readers::postgres(url, analytics).await?;
        Ok(Self {
            read: pool.clone(),
            write: pool,
            readers,
            analytics,
            dialect: Dialect::Postgres,
            checkpointer: None,
            click_log,
        })
    }
}

/// Checks over one connection that a database can be used, and creates the schema in an empty one if `empty` says so. A pool would
/// repeat a failed attempt for seconds, and would not report its cause.
async fn check(url: &str, location: &Location, empty: Empty) -> Result<(), StoreError> {
    let dialect = match location {
        Location::Sqlite(file) => {
            if empty == Empty::CreateSchema {
                create_file(file)?;
            } else if !file.try_exists().map_err(|source| StoreError::File { path: file.clone(), source })? {
                return Err(StoreError::Schema {
                    database: location.to_string(),
                    problem: SchemaProblem::NoFile,
                });
            }
            Dialect::Sqlite
        }
        Location::Postgres(_) => Dialect::Postgres,
    };
    let problem = async {
        // A slow statement would be logged with the whole text of the schema.
        let options = AnyConnectOptions::from_str(url)?.disable_statement_logging();
        let mut connection = AnyConnection::connect_with(&options).await?;
        let problem = match empty {
            Empty::Refuse => schema::problem(&mut connection, dialect).await?,
            Empty::CreateSchema => schema::create(&mut connection, dialect).await?,
        };
        if problem.is_none() && dialect == Dialect::Sqlite {
            // SQLite opens a file that it cannot write for reading only, and this is the first thing that it then cannot do.
            connection.execute("PRAGMA journal_mode = WAL").await?;
        }
        connection.close().await?;
        Ok(problem)
    };
    // A server that does not answer has no other time limit. SQLite waits for a lock by itself.
    match tokio::time::timeout(CHECK_TIMEOUT, problem).await {
        Ok(Ok(None)) => Ok(()),
        Ok(Ok(Some(problem))) => Err(StoreError::Schema { database: location.to_string(), problem }),
        Ok(Err(source)) => Err(reason(location, source)),
        Err(_elapsed) => Err(StoreError::Silent { database: location.to_string(), limit: CHECK_TIMEOUT }),
    }
}

/// Creates a SQLite file unless it exists.
fn create_file(file: &Path) -> Result<(), StoreError> {
    match File::options().write(true).create_new(true).open(file) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(StoreError::File { path: file.to_owned(), source })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Why a database cannot be opened. SQLite does not say why it cannot open a file, so this asks the operating system.
fn reason(location: &Location, source: sqlx::Error) -> StoreError {
    if let Location::Sqlite(file) = location {
        if let Err(source) = File::options().read(true).write(true).open(file) {
            return StoreError::File { path: file.clone(), source };
        }
        // SQLite creates the write-ahead log beside the file.
        #[cfg(unix)]
        {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or_else(|| Path::new("."));
            if let Err(error) = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
                return StoreError::File { path: folder.to_owned(), source: error.into() };
            }
        }
    }
    StoreError::Open { database: location.to_string(), source }
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
