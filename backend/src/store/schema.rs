//! The schema of the database and its version.

use sqlx::{AnyConnection, Connection, Executor, Row};

use super::Dialect;

/// The version of the schema that this program creates and uses. `schema_version` contains the version of a database.
const VERSION: i64 = 1;
const SQLITE: &str = include_str!("../../schema/sqlite.sql");
const POSTGRES: &str = include_str!("../../schema/postgres.sql");

/// What prevents the use of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    /// There is no file.
    #[error("no such file. `backend migrate` creates it")]
    NoFile,
    /// It contains no tables.
    #[error("the database is empty. `backend migrate` creates the tables")]
    Empty,
    /// It contains tables without a version.
    #[error("the database contains other tables, which `backend migrate` does not change")]
    Foreign,
    /// A newer program has created or updated it.
    #[error(
        "the database has schema version {0}, and this program needs version {VERSION}. `backend migrate` of a newer version has updated it"
    )]
    Newer(i64),
}

/// The state of the schema of a database. None if it is the one that this program uses.
pub(super) async fn problem(
    connection: &mut AnyConnection,
    dialect: Dialect,
) -> Result<Option<SchemaProblem>, sqlx::Error> {
    let tables = match dialect {
        Dialect::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table'",
        Dialect::Postgres => {
            "SELECT CAST(t.tablename AS TEXT) AS name FROM pg_tables t WHERE t.schemaname = current_schema()"
        }
    };
    let tables = connection.fetch_all(tables).await?;
    if tables.is_empty() {
        return Ok(Some(SchemaProblem::Empty));
    }
    let mut names = tables.iter().map(|table| table.try_get::<String, _>("name"));
    if !names.any(|name| name.is_ok_and(|name| name == "schema_version")) {
        return Ok(Some(SchemaProblem::Foreign));
    }
    let row = connection.fetch_one("SELECT version FROM schema_version").await?;
    Ok(match row.try_get("version")? {
        VERSION => None,
        newer => Some(SchemaProblem::Newer(newer)),
    })
}

/// Creates the schema in an empty database, in one transaction. Processes that do so at the same time wait for each other.
pub(super) async fn create(
    connection: &mut AnyConnection,
    dialect: Dialect,
) -> Result<Option<SchemaProblem>, sqlx::Error> {
    let (begin, schema) = match dialect {
        Dialect::Sqlite => ("BEGIN IMMEDIATE", SQLITE),
        Dialect::Postgres => ("BEGIN", POSTGRES),
    };
    let mut transaction = connection.begin_with(begin).await?;
    if dialect == Dialect::Postgres {
        // The number is arbitrary: one that other programs are unlikely to lock in the same database.
        transaction.execute("SELECT 1 FROM pg_advisory_xact_lock(hashtext('weir schema'))").await?;
    }
    let problem = match problem(&mut transaction, dialect).await? {
        Some(SchemaProblem::Empty) => {
            transaction.execute(sqlx::raw_sql(schema)).await?;
            None
        }
        other => other,
    };
    transaction.commit().await?;
    Ok(problem)
}
