//! Workspaces and API keys.

use std::fmt;

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::sql::{Sql, values};
use super::{Store, StoreError, from_json, instant_of, optional_instant_of, to_json};
use crate::domain::ids;

/// Quotas of a key by class, as the gateway's configuration has them, for example `{"standard": ["5000/minute"]}`. The gateway applies them; this
/// service only stores them.
pub type Limits = serde_json::Map<String, serde_json::Value>;

/// What a key's owner has agreed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The plan. The gateway applies its quotas.
    pub plan: String,
    /// Quotas that override the plan's.
    pub limits: Option<Limits>,
    /// When a billing period begins.
    pub billing_anchor: Option<Timestamp>,
}

impl Terms {
    /// Those of a plan alone.
    #[must_use]
    pub fn of_plan(plan: &str) -> Self {
        Self { plan: plan.to_owned(), ..Self::default() }
    }
}

/// A workspace. It owns all data, and a key gives access to one workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    pub(crate) seq: i64,
    /// `ws_` and a ULID.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The time of creation.
    pub created_at: Timestamp,
}

/// An API key. The store has only its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// `key_` and a ULID.
    pub id: String,
    /// The id of the key's workspace.
    pub workspace: String,
    /// SHA-256 of the key, lower-case hexadecimal.
    pub sha256: String,
    /// What its owner has agreed to.
    pub terms: Terms,
}

/// A change of a key. Its text names the state of the keys after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyChange {
    pub(crate) number: i64,
    /// Random, so that no other history has the same.
    token: String,
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.token)
    }
}

impl KeyChange {
    /// Reads the text of a change; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, token) = text.split_once('-')?;
        Some(Self { number: number.parse().ok()?, token: token.to_owned() })
    }
}

/// A key on a page of the list of keys, or of their changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedKey {
    pub(crate) position: i64,
    pub(crate) is_revoked: bool,
    pub(crate) key: KeyRecord,
}

const LISTED: &str = "SELECT k.id, w.id AS workspace, k.sha256, k.plan, k.limits, k.billing_anchor, ";
const WORKSPACE: &str = "SELECT w.seq, w.id, w.name, w.created_at FROM workspaces w ";

impl Store {
    /// Creates a workspace.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn create_workspace(&self, name: &str, now: Timestamp) -> Result<Workspace, StoreError> {
        let id = ids::sortable("ws_", now);
        let mut sql = Sql::new("INSERT INTO workspaces (id, name, created_at) VALUES ");
        values!(sql, id.clone(), name.to_owned(), now.as_millisecond()).push(" RETURNING seq");
        let seq = sql.number(&self.write).await?;
        Ok(Workspace { seq, id, name: name.to_owned(), created_at: now })
    }

    /// The workspace with this id.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn workspace(&self, id: &str) -> Result<Option<Workspace>, StoreError> {
        let mut sql = Sql::new(WORKSPACE);
        // Deleted links belong to a workspace with an empty id, which no request may access.
        sql.push("WHERE w.seq > 0 AND w.id = ").bind(id.to_owned());
        sql.optional(&self.read).await?.as_ref().map(workspace).transpose()
    }

    /// Creates a key and returns its id and the key. The key is not stored and cannot be shown again.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn create_key(
        &self,
        workspace: &Workspace,
        terms: &Terms,
        now: Timestamp,
    ) -> Result<(String, String), StoreError> {
        let (id, key) = (ids::sortable("key_", now), ids::api_key());
        let limits = terms.limits.as_ref().map(|limits| to_json("limits", limits)).transpose()?;
        let anchor = terms.billing_anchor.map(Timestamp::as_millisecond);
        let mut sql = Sql::new(
            "INSERT INTO api_keys (id, workspace_seq, sha256, plan, limits, billing_anchor, created_at) VALUES ",
        );
        let (hash, plan) = (ids::sha256(key.as_bytes()), terms.plan.clone());
        values!(sql, id.clone(), workspace.seq, hash, plan, limits, anchor, now.as_millisecond());
        sql.execute(&self.write).await?;
        Ok((id, key))
    }

    /// Revokes a key by id. False if no active key has the id.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn revoke_key(&self, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        let mut sql = Sql::new("UPDATE api_keys SET revoked_at = ");
        sql.bind(now.as_millisecond());
        sql.push(" WHERE revoked_at IS NULL AND id = ").bind(id.to_owned());
        Ok(sql.execute(&self.write).await? == 1)
    }

    /// The last change of a key by any process. One that is read before keys are is never newer than they are.
    pub(crate) async fn last_key_change(&self) -> Result<KeyChange, StoreError> {
        let sql = Sql::new("SELECT c.change, c.token FROM key_changes c ORDER BY c.change DESC LIMIT 1");
        let row = sql.one(&self.read).await?;
        Ok(KeyChange { number: row.try_get(0)?, token: row.try_get(1)? })
    }

    /// Whether the changes of keys since this one are known.
    pub(crate) async fn knows_key_change(&self, change: &KeyChange) -> Result<bool, StoreError> {
        let mut sql = Sql::new("SELECT COUNT(*) FROM key_changes c WHERE c.change = ");
        sql.bind(change.number).push(" AND c.token = ").bind(change.token.clone());
        Ok(sql.number(&self.read).await? == 1)
    }

    /// Active keys after this position in the list, oldest first, each with its position.
    pub(crate) async fn keys_after(&self, position: i64, limit: i64) -> Result<Vec<ListedKey>, StoreError> {
        let mut sql = Sql::new(LISTED);
        sql.push("k.seq AS position, CAST(0 AS BIGINT) AS is_revoked FROM api_keys k JOIN workspaces w ON w.seq = k.workspace_seq ");
        sql.push("WHERE k.revoked_at IS NULL AND k.seq > ").bind(position);
        sql.push(" ORDER BY k.seq LIMIT ").bind(limit);
        sql.all(&self.read).await?.iter().map(listed_key).collect()
    }

    /// Keys that were changed after the change of this number, in the order of the changes, whose numbers are the positions.
    pub(crate) async fn keys_changed_after(
        &self,
        number: i64,
        limit: i64,
    ) -> Result<Vec<ListedKey>, StoreError> {
        let mut sql = Sql::new(LISTED);
        sql.push("k.change AS position, CASE WHEN k.revoked_at IS NULL THEN CAST(0 AS BIGINT) ELSE CAST(1 AS BIGINT) END AS is_revoked FROM api_keys k ");
        sql.push("JOIN workspaces w ON w.seq = k.workspace_seq WHERE k.change > ").bind(number);
        sql.push(" ORDER BY k.change LIMIT ").bind(limit);
        sql.all(&self.read).await?.iter().map(listed_key).collect()
    }

    /// All active keys, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        Ok(self.keys_after(0, i64::MAX).await?.into_iter().map(|listed| listed.key).collect())
    }

    /// The workspace of an API key.
    pub(crate) async fn workspace_of_key(&self, key: &[u8]) -> Result<Option<Workspace>, StoreError> {
        let mut sql = Sql::new(WORKSPACE);
        sql.push("JOIN api_keys k ON k.workspace_seq = w.seq WHERE k.revoked_at IS NULL AND k.sha256 = ");
        sql.bind(ids::sha256(key));
        sql.optional(&self.read).await?.as_ref().map(workspace).transpose()
    }
}

fn workspace(row: &AnyRow) -> Result<Workspace, StoreError> {
    Ok(Workspace {
        seq: row.try_get("seq")?,
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        created_at: instant_of(row, "created_at")?,
    })
}

fn listed_key(row: &AnyRow) -> Result<ListedKey, StoreError> {
    let is_revoked: i64 = row.try_get("is_revoked")?;
    Ok(ListedKey { position: row.try_get("position")?, is_revoked: is_revoked != 0, key: key_record(row)? })
}

fn key_record(row: &AnyRow) -> Result<KeyRecord, StoreError> {
    let limits: Option<String> = row.try_get("limits")?;
    Ok(KeyRecord {
        id: row.try_get("id")?,
        workspace: row.try_get("workspace")?,
        sha256: row.try_get("sha256")?,
        terms: Terms {
            plan: row.try_get("plan")?,
            limits: limits.map(|limits| from_json("limits", &limits)).transpose()?,
            billing_anchor: optional_instant_of(row, "billing_anchor")?,
        },
    })
}
