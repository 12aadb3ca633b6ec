//! Connections to PostgreSQL.

use std::time::Duration;

use sqlx::Connection;
use sqlx::any::AnyPoolOptions;

/// Maximum wait for a connection to PostgreSQL.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection to PostgreSQL that was used within this time is not tested before it is used again.
const UNTESTED: Duration = Duration::from_millis(250);

/// A pool of connections to PostgreSQL. Before it gives one away that has been idle for long, it asks the server whether it is alive.
/// That is a round trip, so that it does not ask each time.
pub(super) fn pool_of(connections: u32) -> AnyPoolOptions {
    let options = AnyPoolOptions::new().max_connections(connections).acquire_timeout(CONNECT_TIMEOUT);
    options.test_before_acquire(false).before_acquire(|connection, state| {
        Box::pin(async move {
            if state.idle_for >= UNTESTED {
                connection.ping().await?;
            }
            Ok(true)
        })
    })
}

/// The statement that sets the time limit of the following statements, of the session or of the transaction (`LOCAL`).
pub(super) fn set_statement_timeout(scope: &'static str, timeout: Duration) -> sqlx::RawSql {
    // 0 would be no limit.
    let milliseconds = timeout.as_millis().max(1);
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("SET {scope} statement_timeout = {milliseconds}")))
}
