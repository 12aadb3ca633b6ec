//! Workspaces and API keys.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::sql::Sql;
use super::{Store, StoreError, from_json, instant_of, to_json};
use crate::ids;

/// Quotas of one key by class, such as `{"standard": ["5000/minute"]}`. The service only keeps them for the gateway.
pub type Limits = BTreeMap<String, Vec<String>>;

/// All data belongs to a workspace; keys only see that of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    pub(crate) seq: i64,
    /// `ws_` and a ULID.
    pub id: String,
    /// For people.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A key as the store knows it: by hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// `key_` and a ULID.
    pub id: String,
    /// The id of the workspace whose data it opens.
    pub workspace: String,
    /// SHA-256 of the key, lower-case hexadecimal.
    pub sha256: String,
    /// The plan whose quotas the gateway applies.
    pub plan: String,
    /// Quotas in place of the plan's.
    pub limits: Option<Limits>,
}

const WORKSPACE: &str = "SELECT w.seq, w.id, w.name, w.created_at FROM workspaces w ";

impl Store {
    /// Makes a workspace.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn create_workspace(&self, name: &str, now: Timestamp) -> Result<Workspace, StoreError> {
        let id = ids::sortable("ws_", now);
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new("INSERT INTO workspaces (id, name, created_at) VALUES ");
        sql.rows(&[()], |row, ()| {
            row.bind(id.clone()).bind(name.to_owned()).bind(now.as_millisecond());
        });
        sql.push(" RETURNING seq");
        let seq = sql.number(&mut *transaction).await?;
        let mut sql = Sql::new("INSERT INTO packed_workspaces (workspace_seq, packed_until) VALUES (");
        sql.bind(seq).push(", 0)");
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Workspace { seq, id, name: name.to_owned(), created_at: now })
    }

    /// The workspace with this id.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn workspace(&self, id: &str) -> Result<Option<Workspace>, StoreError> {
        let mut sql = Sql::new(WORKSPACE);
        // The one that deleted links belong to is nobody's.
        sql.push("WHERE w.seq > 0 AND w.id = ").bind(id.to_owned());
        sql.optional(&self.read).await?.as_ref().map(workspace).transpose()
    }

    /// Makes a key and returns its id and the key itself, which is not kept and cannot be shown again.
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

    /// Revokes a key by its id. False if there is no such key, or it was revoked before.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn revoke_key(&self, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        let mut sql = Sql::new("UPDATE api_keys SET revoked_at = ");
        sql.bind(now.as_millisecond());
        sql.push(" WHERE revoked_at IS NULL AND id = ").bind(id.to_owned());
        Ok(sql.execute(&self.write).await? == 1)
    }

    /// A text that is another one after every change of the keys, whichever process makes it. Asked for before
    /// [`Self::keys`], it is never newer than what that returns.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub(crate) async fn keys_version(&self) -> Result<String, StoreError> {
        Ok(Sql::new("SELECT d.version FROM key_directory d").one(&self.read).await?.try_get(0)?)
    }

    /// All keys that are not revoked, oldest first.
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

    /// The workspace that a key opens.
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
