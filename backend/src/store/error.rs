//! What can go wrong in the database.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use super::schema::SchemaProblem;
use super::{LinkConflict, NameConflict, WebhookConflict};

/// An error of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is not that of a supported database.
    #[error("database {url:?}: expected sqlite:<file> or postgres://<host>/<name>")]
    UnknownDatabase {
        /// The URL as far as it has no password.
        url: String,
    },
    /// The URL is that of a PostgreSQL database, which this build does not support.
    #[cfg(not(feature = "postgres"))]
    #[error("{database}: this build does not support PostgreSQL; build it with the feature `postgres`")]
    WithoutPostgres {
        /// The address.
        database: String,
    },
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
        path.display()
    )]
    Served {
        /// The database.
        path: PathBuf,
    },
    /// The file for a copy exists. Nothing is overwritten.
    #[error("{} already exists", path.display())]
    Copied {
        /// The file.
        path: PathBuf,
    },
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
    Conflict(Conflict),
    /// The database contains a value that this version cannot read.
    #[error("stored {what}: {problem}")]
    Corrupt {
        /// The kind of value.
        what: &'static str,
        /// The problem.
        problem: String,
    },
}

/// A conflict of what was asked for with what is stored.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Conflict(pub(crate) ConflictKind);

/// The kinds of conflicts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConflictKind {
    #[error(transparent)]
    Link(LinkConflict),
    #[error(transparent)]
    Name(NameConflict),
    #[error(transparent)]
    Webhook(WebhookConflict),
}

impl From<LinkConflict> for StoreError {
    fn from(conflict: LinkConflict) -> Self {
        Self::Conflict(Conflict(ConflictKind::Link(conflict)))
    }
}

impl From<NameConflict> for StoreError {
    fn from(conflict: NameConflict) -> Self {
        Self::Conflict(Conflict(ConflictKind::Name(conflict)))
    }
}

impl From<WebhookConflict> for StoreError {
    fn from(conflict: WebhookConflict) -> Self {
        Self::Conflict(Conflict(ConflictKind::Webhook(conflict)))
    }
}

impl StoreError {
    /// The error of a statement, or `conflict` if another row has what must be unique.
    pub(super) fn or_taken(error: sqlx::Error, conflict: impl Into<Self>) -> Self {
        match error {
            sqlx::Error::Database(error) if error.is_unique_violation() => conflict.into(),
            error => error.into(),
        }
    }

    /// Whether the database refuses the data and would refuse it again. False if the database could not work, for example
    /// because of a full disk or a lost connection.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::Database(sqlx::Error::Encode(_)) => true,
            Self::Database(sqlx::Error::Database(error)) => error.code().is_some_and(|code| {
                if code.len() == "22000".len() {
                    // PostgreSQL: data exceptions, constraint violations and exceeded limits.
                    return ["22", "23", "54"].iter().any(|class| code.starts_with(class));
                }
                // SQLite: the lowest byte is the primary result code. These are TOOBIG, CONSTRAINT, MISMATCH and RANGE.
                code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 18 | 19 | 20 | 25))
            }),
            _ => false,
        }
    }

    pub(super) fn corrupt(what: &'static str, problem: &impl ToString) -> Self {
        Self::Corrupt { what, problem: problem.to_string() }
    }

    /// Whether the database could not be reached, or another transaction kept it for too long.
    pub(crate) fn is_unavailability(&self) -> bool {
        match self {
            Self::Database(
                sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                // A connection that ends while it is opened.
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed,
            ) => true,
            Self::Database(sqlx::Error::Database(error)) => error.code().is_some_and(|code| {
                if code.len() == "08000".len() {
                    // PostgreSQL: connection exceptions, too many connections, and a server that shuts down, has crashed or starts.
                    return ["08", "53300", "57P"].iter().any(|class| code.starts_with(class));
                }
                // SQLITE_BUSY, after the time limit for locks.
                code.parse::<u32>().is_ok_and(|code| code & 0xff == 5)
            }),
            _ => false,
        }
    }

    /// Whether the database has no space left, or not enough of another resource, or is read-only. It answers other requests.
    pub(crate) fn is_exhaustion(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Database(error)) => error.code().is_some_and(|code| {
                if code.len() == "53000".len() {
                    // PostgreSQL: insufficient resources, such as a full disk, and a read-only transaction.
                    return code.starts_with("53") || code == "25006";
                }
                // SQLITE_FULL.
                code.parse::<u32>().is_ok_and(|code| code & 0xff == 13)
            }),
            _ => false,
        }
    }

    /// Whether a query exceeded its time limit and was interrupted.
    pub(crate) fn is_interruption(&self) -> bool {
        match self {
            Self::TimeLimit => true,
            // SQLITE_INTERRUPT, and PostgreSQL's query_canceled.
            Self::Database(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| matches!(&*code, "9" | "57014"))
            }
            _ => false,
        }
    }
}
