//! The scopes of webhooks: the links and folders that they name, and the webhooks that receive events about a link.
//!
//! A scope may name a thousand links or folders. `webhook_scopes` has a row for each id of a scope, so that the database finds the webhooks
//! of a link by index.

use std::collections::{HashMap, HashSet};

use indexmap::IndexSet;
use sqlx::Row;

use super::sql::Sql;
use super::{Store, StoreError, Transaction, Workspace, from_json, to_json};
use crate::domain::conflict::Conflict;
use crate::domain::event::Trigger;
use crate::domain::scope::{Scope, ScopeKind};

/// The ids of links by their ids, and by `ext_` and their external ids, and those of folders.
pub(super) type KnownIds = HashMap<String, String>;

impl Store {
    /// Finds links and folders. A webhook may have many, so the caller reads them before its transaction.
    pub(super) async fn known_ids(
        &self,
        workspace: &Workspace,
        link_ids: &[String],
        folder_ids: &[String],
    ) -> Result<KnownIds, StoreError> {
        if link_ids.is_empty() && folder_ids.is_empty() {
            return Ok(KnownIds::new());
        }
        let rows = known(workspace, link_ids, folder_ids).all(&self.read).await?;
        rows.iter().map(|row| Ok((row.try_get("named")?, row.try_get("id")?))).collect()
    }
}

fn known(workspace: &Workspace, link_ids: &[String], folder_ids: &[String]) -> Sql {
    let external: Vec<&str> = link_ids.iter().filter_map(|id| id.strip_prefix("ext_")).collect();
    // With OR, or without the plus sign, SQLite would read all links of the workspace.
    let mut sql = Sql::new("SELECT l.id AS named, l.id FROM links l WHERE +l.workspace_seq = ");
    sql.bind(workspace.seq).push(" AND l.id").in_texts(link_ids);
    sql.push(
        " UNION ALL SELECT 'ext_' || l.external_id AS named, l.id FROM links l WHERE l.workspace_seq = ",
    );
    sql.bind(workspace.seq).push(" AND l.external_id").in_texts(&external);
    sql.push(" UNION ALL SELECT d.id AS named, d.id FROM folders d WHERE d.workspace_seq = ");
    sql.bind(workspace.seq).push(" AND d.id").in_texts(folder_ids);
    sql
}

/// The scope with the ids of links in place of external ids, and each id once. Ids of the scope that the webhook already
/// has may be unknown, because their links and folders may be deleted.
pub(super) fn resolve(known: &KnownIds, scope: &Scope, present: &Scope) -> Result<Scope, Conflict> {
    let present: HashSet<&String> = present.ids_of(scope.kind).iter().collect();
    let (mut ids, mut unknown) = (IndexSet::new(), IndexSet::new());
    for id in &scope.ids {
        match known.get(id).or_else(|| present.get(id).copied()) {
            Some(id) => ids.insert(id.clone()),
            None => unknown.insert(id.clone()),
        };
    }
    if unknown.is_empty() {
        return Ok(Scope { kind: scope.kind, ids: ids.into_iter().collect() });
    }
    let field = if scope.kind == ScopeKind::Links { "linkIds" } else { "folderIds" };
    Err(Conflict::UnknownInScope { field, ids: unknown.into_iter().collect() })
}

/// The enabled webhooks of a workspace that receive events of one type about a link, or about none, whatever their scope is. They are kept from being deleted until the transaction
/// ends.
pub(super) async fn listeners(
    transaction: &mut Transaction,
    workspace_seq: i64,
    trigger: Trigger,
    link_id: Option<&str>,
) -> Result<Vec<i64>, StoreError> {
    let mut sql = Sql::new("SELECT h.seq, h.triggers FROM webhooks h WHERE h.workspace_seq = ");
    sql.bind(workspace_seq).push(" AND h.disabled_at IS NULL");
    if let Some(link_id) = link_id {
        sql.push(
            " AND (h.link_scope = 'workspace' OR (h.link_scope = 'links' AND EXISTS (
             SELECT 1 FROM webhook_scopes s WHERE s.webhook_seq = h.seq AND s.id = ",
        );
        // A link whose folder was deleted is in no folder.
        sql.bind(link_id.to_owned()).push(
            ")) OR (h.link_scope = 'folders' AND EXISTS (SELECT 1 FROM links l
             JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id
             JOIN webhook_scopes s ON s.id = f.id WHERE s.webhook_seq = h.seq AND l.id = ",
        );
        sql.bind(link_id.to_owned()).push(")))");
    }
    sql.push(" ORDER BY h.seq").lock(" FOR KEY SHARE OF h");
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
    transaction: &mut Transaction,
    webhook_seq: i64,
    scope: &Scope,
) -> Result<(), StoreError> {
    let ids = &scope.ids;
    let mut sql = Sql::new("DELETE FROM webhook_scopes WHERE webhook_seq = ");
    sql.bind(webhook_seq).push(" AND id NOT IN ").texts(ids);
    sql.execute(&mut **transaction).await?;
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<[&String; 1]> = ids.iter().map(|id| [id]).collect();
    let mut sql = Sql::new("INSERT INTO webhook_scopes (id, webhook_seq) SELECT value->>0, CAST(");
    sql.bind(webhook_seq).push(" AS BIGINT) FROM ").each(to_json("webhook scope", &ids)?);
    sql.in_order().push(" ON CONFLICT DO NOTHING");
    sql.execute(&mut **transaction).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;

    #[tokio::test]
    async fn links_are_found_by_index() {
        let sample = Sample::new().await;
        let ids = ["link_1", "ext_1"].map(str::to_owned);
        let steps = known(&sample.workspace, &ids, &[]).steps(&sample.store.write).await;
        for condition in ["(id=?)", "(workspace_seq=? AND external_id=?)"] {
            let is_found = |step: &String| step.starts_with("SEARCH l USING") && step.ends_with(condition);
            assert!(steps.iter().any(is_found), "{steps:?}");
        }
    }
}
