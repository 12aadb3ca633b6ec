//! The webhooks that receive events about a link.
//!
//! A scope may name a thousand links or folders. `webhook_scopes` has a row for each id of a scope, so that the database finds the webhooks
//! of a link by index.

use sqlx::{Any, Row, Transaction};

use super::sql::Sql;
use super::{Dialect, StoreError, from_json, to_json};
use crate::domain::event::Trigger;
use crate::domain::scope::Scope;

/// The enabled webhooks of a workspace that receive events of one type about a link. They are kept from being deleted until the transaction
/// ends.
pub(super) async fn listeners(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace_seq: i64,
    trigger: Trigger,
    link_id: &str,
) -> Result<Vec<i64>, StoreError> {
    let mut sql = Sql::new("SELECT h.seq, h.triggers FROM webhooks h WHERE h.workspace_seq = ");
    sql.bind(workspace_seq);
    sql.push(
        " AND h.disabled_at IS NULL AND (h.link_scope = 'workspace'
         OR (h.link_scope = 'links' AND EXISTS (SELECT 1 FROM webhook_scopes s WHERE s.webhook_seq = h.seq AND s.id = ",
    );
    // A link whose folder was deleted is in no folder.
    sql.bind(link_id.to_owned()).push(
        ")) OR (h.link_scope = 'folders' AND EXISTS (SELECT 1 FROM links l
         JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id
         JOIN webhook_scopes s ON s.id = f.id WHERE s.webhook_seq = h.seq AND l.id = ",
    );
    sql.bind(link_id.to_owned()).push("))) ORDER BY h.seq").lock(dialect, " FOR KEY SHARE OF h");
    let mut listeners = Vec::new();
    for row in sql.all(&mut **transaction).await? {
        let triggers: Vec<Trigger> = from_json("webhook triggers", &row.try_get::<String, _>("triggers")?)?;
        if triggers.contains(&trigger) {
            listeners.push(row.try_get("seq")?);
        }
    }
    Ok(listeners)
}

/// Stores the ids of a webhook's scope in place of the earlier ones.
pub(super) async fn store_scope(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    webhook_seq: i64,
    scope: &Scope,
) -> Result<(), StoreError> {
    let ids: &[String] = match scope {
        Scope::Workspace => &[],
        Scope::Links(ids) | Scope::Folders(ids) => ids,
    };
    let mut sql = Sql::new("DELETE FROM webhook_scopes WHERE webhook_seq = ");
    sql.bind(webhook_seq).push(" AND id NOT IN ").texts(dialect, ids);
    sql.execute(&mut **transaction).await?;
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<[&String; 1]> = ids.iter().map(|id| [id]).collect();
    let mut sql = Sql::new("INSERT INTO webhook_scopes (id, webhook_seq) SELECT value->>0, CAST(");
    sql.bind(webhook_seq).push(" AS BIGINT) FROM ").each(dialect, to_json("webhook scope", &ids)?);
    sql.in_order(dialect).push(" ON CONFLICT DO NOTHING");
    sql.execute(&mut **transaction).await?;
    Ok(())
}
