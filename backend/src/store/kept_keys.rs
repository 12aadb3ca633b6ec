//! Keys of deleted links. They stay with their workspace for a while, because codes with them may be printed.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use sqlx::Row;

use super::sql::{Sql, values};
use super::{Store, StoreError, Transaction, Workspace, to_json};

/// Time for which a key stays with its workspace after its link is deleted or renamed. Most printed matter is gone by then.
pub(crate) const KEPT: SignedDuration = SignedDuration::from_hours(24 * 90);
/// Maximum number of keys that one step of the sweeper frees.
const FREED_AT_ONCE: i64 = 500;

const KEEP: &str = " ON CONFLICT (domain, key_folded) DO UPDATE SET workspace_seq = excluded.workspace_seq, until = excluded.until";

/// A domain and a key in lower case.
pub(super) type Name = (String, String);

/// Keeps the keys of links that are being deleted. They must be locked.
pub(super) async fn keep_of(
    transaction: &mut Transaction,
    links: &[i64],
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut sql = Sql::new(
        "INSERT INTO kept_keys (domain, key_folded, workspace_seq, until)
         SELECT l.domain, l.key_folded, l.workspace_seq, CAST(",
    );
    sql.bind(until(now)).push(" AS BIGINT) FROM links l WHERE l.seq").in_numbers(links);
    sql.push(KEEP);
    sql.execute(&mut **transaction).await?;
    Ok(())
}

/// Keeps the key that a link has lost.
pub(super) async fn keep(
    transaction: &mut Transaction,
    workspace: &Workspace,
    (domain, key_folded): Name,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut sql = Sql::new("INSERT INTO kept_keys (domain, key_folded, workspace_seq, until) VALUES ");
    values!(sql, domain, key_folded, workspace.seq, until(now)).push(KEEP);
    sql.execute(&mut **transaction).await?;
    Ok(())
}

/// The names that are kept for other workspaces. On a domain of this workspace, there are none, whoever had the domain before.
pub(super) async fn of_others(
    transaction: &mut Transaction,
    workspace: &Workspace,
    names: &[Name],
    now: Timestamp,
) -> Result<HashSet<Name>, StoreError> {
    let mut sql = Sql::new("SELECT k.domain, k.key_folded FROM ");
    sql.each(to_json("names", &names)?);
    sql.push(" CROSS JOIN kept_keys k WHERE k.domain = value->>0 AND k.key_folded = value->>1 AND k.workspace_seq <> ");
    sql.bind(workspace.seq).push(" AND k.until > ").bind(now.as_millisecond());
    sql.push(" AND NOT EXISTS (SELECT 1 FROM domains n WHERE n.name = k.domain AND n.workspace_seq = ");
    sql.bind(workspace.seq).push(")");
    let rows = sql.all(&mut **transaction).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

impl Store {
    /// Frees some keys whose time is over. False if there are none.
    pub(crate) async fn free_keys(&self, now: Timestamp) -> Result<bool, StoreError> {
        let mut sql = Sql::new(
            "DELETE FROM kept_keys WHERE (domain, key_folded) IN (SELECT k.domain, k.key_folded FROM kept_keys k WHERE k.until <= ",
        );
        sql.bind(now.as_millisecond()).push(" ORDER BY k.until LIMIT ").bind(FREED_AT_ONCE).push(")");
        Ok(sql.execute(&self.write).await? > 0)
    }
}

fn until(now: Timestamp) -> i64 {
    now.saturating_add(KEPT).unwrap_or(Timestamp::MAX).as_millisecond()
}
