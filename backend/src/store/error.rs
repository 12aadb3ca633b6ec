//! What can go wrong in the database.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use super::schema::SchemaProblem;
use crate::domain::conflict::Conflict;

/// An error of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL, as far as it has no password, is not that of a supported database.
    #[error("database {0:?}: expected sqlite:<file> or postgres://<host>/<name>")]
    UnknownDatabase(String),
    /// The URL is that of a PostgreSQL database, which this build does not support.
    #[cfg(not(feature = "postgres"))]
    #[error("{0}: this build does not support PostgreSQL; build it with the feature `postgres`")]
    WithoutPostgres(String),
    /// A database file cannot be opened or created.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A database cannot be opened.
    #[error("{database}: {source}")]
    Open {
        /// The path or address.
        database: String,
        /// The cause.
        source: sqlx::Error,
    },
    /// A database does not answer when it is opened.
    #[error("{database}: no answer within {} s", limit.as_secs())]
    Silent {
        /// The path or address.
        database: String,
        /// The time limit.
        limit: Duration,
    },
    /// A database does not have the schema that this program uses.
    #[error("{database}: {problem}")]
    Schema {
        /// The path or address.
        database: String,
        /// The difference.
        problem: SchemaProblem,
    },
    /// Another process serves a SQLite file.
    #[error(
        "{}: another `backend serve` uses this file. Only one process can serve a SQLite file, and several a PostgreSQL database",
        .0.display()
    )]
    Served(PathBuf),
    /// The file for a copy exists. Nothing is overwritten.
    #[error("{} already exists", .0.display())]
    Copied(PathBuf),
    /// Only SQLite files are copied.
    #[error("a PostgreSQL database is not copied to a file by this program. Use pg_dump")]
    NotCopied,
    /// The database returned an error.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// An analytics query exceeded its time limit before its last statement.
    #[error("the time limit of the query has passed")]
    TimeLimit,
    /// A query needs expired clicks, which are deleted.
    #[error("clicks from before {kept_from} are deleted")]
    Expired {
        /// The first instant whose clicks are kept.
        kept_from: Timestamp,
    },
    /// What was asked for conflicts with what is stored.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The database contains a value that this version cannot read.
    #[error("stored {what}: {problem}")]
    Corrupt {
        /// The kind of value.
        what: &'static str,
        /// The problem.
        problem: String,
    },
}

impl StoreError {
    /// The error of a statement, or `conflict` if another row has what must be unique.
    pub(super) fn or_taken(error: sqlx::Error, conflict: impl Into<Self>) -> Self {
        match error {
            sqlx::Error::Database(error) if error.is_unique_violation() => conflict.into(),
            error => error.into(),
        }
    }

    /// Whether the database answered with one of these codes: those of PostgreSQL begin so, and those of SQLite are primary result codes.
    fn has_code(&self, postgres: &[&str], sqlite: &[u32]) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().is_some_and(|code| match code.len() {
            5 => postgres.iter().any(|class| code.starts_with(class)),
            _ => code.parse::<u32>().is_ok_and(|code| sqlite.contains(&(code & 0xff))),
        })
    }

    /// Whether the database refuses the data and would refuse it again. False if the database could not work, for example
    /// because of a full disk or a lost connection.
    pub(crate) fn is_refusal(&self) -> bool {
        // Data exceptions, constraint violations and exceeded limits; TOOBIG, CONSTRAINT, MISMATCH and RANGE.
        matches!(self, Self::Corrupt { .. } | Self::Database(sqlx::Error::Encode(_)))
            || self.has_code(&["22", "23", "54"], &[18, 19, 20, 25])
    }

    pub(super) fn corrupt(what: &'static str, problem: &impl ToString) -> Self {
        Self::Corrupt { what, problem: problem.to_string() }
    }

    /// Whether the database could not be reached, or another transaction kept it for too long.
    pub(crate) fn is_unavailability(&self) -> bool {
        let is_lost = matches!(
            self,
            Self::Database(
                sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                // A connection that ends while it is opened.
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed,
            )
        );
        // Connection exceptions, too many connections, and a server that shuts down, has crashed or starts; BUSY, after the time limit for
        // locks.
        is_lost || self.has_code(&["08", "53300", "57P"], &[5])
    }

    /// Whether the database has no space left, or not enough of another resource, or is read-only. It answers other requests.
    pub(crate) fn is_exhaustion(&self) -> bool {
        // Insufficient resources, such as a full disk, and a read-only transaction; FULL.
        self.has_code(&["53", "25006"], &[13])
    }

    /// Whether a query exceeded its time limit and was interrupted.
    pub(crate) fn is_interruption(&self) -> bool {
        // Query canceled; INTERRUPT.
        matches!(self, Self::TimeLimit) || self.has_code(&["57014"], &[9])
    }
}
