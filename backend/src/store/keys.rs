//! Workspaces and API keys.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::sql::Sql;
use super::{Store, StoreError, from_json, instant_of, to_json};
use crate::ids;

/// Quotas of a key by class, for example `{"standard": ["5000/minute"]}`. The gateway applies them; this service only
/// stores them.
pub type Limits = BTreeMap<String, Vec<String>>;

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
    /// The plan. The gateway applies its quotas.
    pub plan: String,
    /// Quotas that override the plan's.
    pub limits: Option<Limits>,
}

const WORKSPACE: &str = "SELECT w.seq, w.id, w.name, w.created_at FROM workspaces w ";

impl Store {
    /// Creates a workspace.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn create_workspace(&self, name: &str, now: Timestamp) -> Result<Workspace, StoreError> {
        let id = ids::sortable("ws_", now);
        let mut sql = Sql::new("INSERT INTO workspaces (id, name, created_at) VALUES ");
        sql.rows(&[()], |row, ()| {
            row.bind(id.clone()).bind(name.to_owned()).bind(now.as_millisecond());
        });
        sql.push(" RETURNING seq");
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
        plan: &str,
        limits: Option<&Limits>,
        now: Timestamp,
    ) -> Result<(String, String), StoreError> {
        let (id, key) = (ids::sortable("key_", now), ids::api_key());
        let limits = limits.map(|limits| to_json("limits", limits)).transpose()?;
        let mut sql =
            Sql::new("INSERT INTO api_keys (id, workspace_seq, sha256, plan, limits, created_at) VALUES ");
        sql.rows(&[()], |row, ()| {
            row.bind(id.clone()).bind(workspace.seq).bind(ids::sha256(key.as_bytes()));
            row.bind(plan.to_owned()).bind(limits.clone()).bind(now.as_millisecond());
        });
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

    /// The version of the list of keys. It changes with each change of the keys by any process. A version that is read
    /// before [`Self::keys`] is never newer than the keys.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub(crate) async fn keys_version(&self) -> Result<String, StoreError> {
        Ok(Sql::new("SELECT d.version FROM key_directory d").one(&self.read).await?.try_get(0)?)
    }

    /// All active keys, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        let sql = Sql::new(
            "SELECT k.id, w.id AS workspace, k.sha256, k.plan, k.limits FROM api_keys k
             JOIN workspaces w ON w.seq = k.workspace_seq WHERE k.revoked_at IS NULL ORDER BY k.seq",
        );
        sql.all(&self.read).await?.iter().map(key_record).collect()
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

fn key_record(row: &AnyRow) -> Result<KeyRecord, StoreError> {
    let limits: Option<String> = row.try_get("limits")?;
    Ok(KeyRecord {
        id: row.try_get("id")?,
        workspace: row.try_get("workspace")?,
        sha256: row.try_get("sha256")?,
        plan: row.try_get("plan")?,
        limits: limits.map(|limits| from_json("limits", &limits)).transpose()?,
    })
}
