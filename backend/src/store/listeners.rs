//! The webhooks that receive events about links.
//!
//! A scope may name a thousand links or folders, and a transaction may concern thousands of links. `webhook_scopes` has a row
//! for each id of a scope, so that the database finds the webhooks of a link by index.

use rustc_hash::FxHashMap;
use sqlx::{Any, Row, Transaction};

use super::sql::Sql;
use super::{Dialect, StoreError, from_json, to_json};
use crate::webhooks::{Scope, Trigger};

/// The enabled webhooks of a workspace that receive events of one type, by the kind of their scope.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    to_workspace: Vec<i64>,
    to_links: Vec<i64>,
    to_folders: Vec<i64>,
}

/// The links whose listeners are to be found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Links<'a> {
    Id(&'a str),
    Numbers(&'a [i64]),
}

impl Links<'_> {
    fn push(self, sql: &mut Sql, dialect: Dialect) {
        match self {
            Self::Id(id) => sql.push("l.id = ").bind(id.to_owned()),
            Self::Numbers(seqs) => sql.push("l.seq").in_numbers(dialect, seqs),
        };
    }
}

impl Listeners {
    /// Finds the webhooks and keeps them from being deleted until the transaction ends.
    pub(super) async fn find(
        transaction: &mut Transaction<'static, Any>,
        dialect: Dialect,
        workspace_seq: i64,
        trigger: Trigger,
    ) -> Result<Self, StoreError> {
        let mut sql =
            Sql::new("SELECT h.seq, h.triggers, h.link_scope FROM webhooks h WHERE h.workspace_seq = ");
        sql.bind(workspace_seq).push(" AND h.disabled_at IS NULL ORDER BY h.seq");
        sql.lock(dialect, " FOR KEY SHARE");
        let mut found = Self::default();
        for row in sql.all(&mut **transaction).await? {
            let triggers: Vec<Trigger> =
                from_json("webhook triggers", &row.try_get::<String, _>("triggers")?)?;
            if !triggers.contains(&trigger) {
                continue;
            }
            let listeners = match row.try_get::<String, _>("link_scope")?.as_str() {
                "workspace" => &mut found.to_workspace,
                "links" => &mut found.to_links,
                "folders" => &mut found.to_folders,
                other => return Err(StoreError::corrupt("webhook scope", &other)),
            };
            listeners.push(row.try_get("seq")?);
        }
        Ok(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to_workspace.is_empty() && self.to_links.is_empty() && self.to_folders.is_empty()
    }

    /// The webhooks that receive events about the links with these numbers, by number, without links that none receives.
    pub(super) async fn of_links(
        &self,
        transaction: &mut Transaction<'static, Any>,
        dialect: Dialect,
        seqs: &[i64],
    ) -> Result<FxHashMap<i64, Vec<i64>>, StoreError> {
        let mut listening: FxHashMap<i64, Vec<i64>> = FxHashMap::default();
        if !self.to_workspace.is_empty() {
            listening.extend(seqs.iter().map(|seq| (*seq, self.to_workspace.clone())));
        }
        for (link, webhook) in self.scoped(transaction, dialect, Links::Numbers(seqs)).await? {
            listening.entry(link).or_default().push(webhook);
        }
        for webhooks in listening.values_mut() {
            webhooks.sort_unstable();
        }
        Ok(listening)
    }

    /// The webhooks that receive events about the link with this id.
    pub(super) async fn of_link(
        &self,
        transaction: &mut Transaction<'static, Any>,
        dialect: Dialect,
        id: &str,
    ) -> Result<Vec<i64>, StoreError> {
        let scoped = self.scoped(transaction, dialect, Links::Id(id)).await?;
        let scoped = scoped.into_iter().map(|(_, webhook)| webhook);
        let mut webhooks: Vec<i64> = self.to_workspace.iter().copied().chain(scoped).collect();
        webhooks.sort_unstable();
        Ok(webhooks)
    }

    /// Each link with each webhook whose scope names the link or its folder.
    async fn scoped(
        &self,
        transaction: &mut Transaction<'static, Any>,
        dialect: Dialect,
        links: Links<'_>,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        // The links first. A cross join also fixes the order in SQLite.
        const OF_LINKS: &str = "FROM links l CROSS JOIN webhook_scopes s WHERE s.id = l.id";
        // A link whose folder was deleted is in no folder.
        const OF_FOLDERS: &str = "FROM links l CROSS JOIN folders f CROSS JOIN webhook_scopes s
             WHERE f.workspace_seq = l.workspace_seq AND f.id = l.folder_id AND s.id = f.id";
        let mut pairs = Vec::new();
        for (source, listeners) in [(OF_LINKS, &self.to_links), (OF_FOLDERS, &self.to_folders)] {
            if listeners.is_empty() {
                continue;
            }
            // One row with all pairs, because reading many rows takes longer than finding them.
            let mut sql = Sql::new(match dialect {
                Dialect::Sqlite => "SELECT json_group_array(json_array(l.seq, s.webhook_seq)) ",
                Dialect::Postgres => {
                    "SELECT CAST(COALESCE(json_agg(json_build_array(l.seq, s.webhook_seq)), '[]') AS TEXT) "
                }
            });
            sql.push(source).push(" AND ");
            links.push(&mut sql, dialect);
            sql.push(" AND s.webhook_seq").in_numbers(dialect, listeners);
            let found: String = sql.one(&mut **transaction).await?.try_get(0)?;
            pairs.extend(from_json::<Vec<(i64, i64)>>("webhooks of links", &found)?);
        }
        Ok(pairs)
    }
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
