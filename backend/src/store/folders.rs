//! Folders of links.
//!
//! A link contains the id of its folder. A link whose folder is deleted is in no folder, and the sweeper clears the id in
//! its row.

use std::collections::HashSet;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::ROWS_PER_STEP;
use super::names::{NameConflict, Named};
use super::reader::Reader;
use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace, instant_of};
use crate::domain::folder::{Folder, FolderInput};
use crate::domain::ids;

const FOLDERS: &str =
    "SELECT d.id, d.name, d.description, d.created_at, d.updated_at FROM folders d WHERE d.workspace_seq = ";

impl Store {
    /// The folders whose name contains `search`, by name: at most `size`, after the first `skip`.
    pub(crate) async fn list_folders(
        &self,
        workspace: &Workspace,
        search: Option<&str>,
        (skip, size): (i64, i64),
        mut reader: Reader,
    ) -> Result<Vec<Folder>, StoreError> {
        let mut sql = Sql::new(FOLDERS);
        sql.bind(workspace.seq);
        if let Some(search) = search {
            sql.push(" AND ").contains(self.dialect, "d.name", search);
        }
        sql.push(" ORDER BY ").folded(self.dialect, "d.name");
        sql.push(", d.seq LIMIT ").bind(size).push(" OFFSET ").bind(skip);
        reader.all(sql).await?.iter().map(folder).collect()
    }

    /// The folders with these ids.
    pub(crate) async fn folders_of(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        ids: &[String],
    ) -> Result<Vec<Folder>, StoreError> {
        let mut sql = Sql::new(FOLDERS);
        sql.bind(workspace.seq).push(" AND d.id IN ").texts(self.dialect, ids);
        reader.all(sql).await?.iter().map(folder).collect()
    }

    /// Creates a folder.
    pub(crate) async fn create_folder(
        &self,
        workspace: &Workspace,
        name: &str,
        description: Option<&str>,
        now: Timestamp,
    ) -> Result<Result<Folder, NameConflict>, StoreError> {
        let folder = Folder {
            id: ids::sortable("fold_", now),
            name: name.to_owned(),
            description: description.map(str::to_owned),
            created_at: now,
            updated_at: now,
        };
        let mut transaction = match self.begin_named(workspace, Named::Folder, name).await? {
            Ok(transaction) => transaction,
            Err(conflict) => return Ok(Err(conflict)),
        };
        let mut sql = Sql::new(
            "INSERT INTO folders (workspace_seq, id, name, description, created_at, updated_at) VALUES ",
        );
        sql.rows(&[()], |row, ()| {
            row.bind(workspace.seq).bind(folder.id.clone()).bind(folder.name.clone());
            row.bind(folder.description.clone()).bind(now.as_millisecond()).bind(now.as_millisecond());
        });
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Ok(folder))
    }

    /// Changes a folder. None if the workspace has no such folder.
    pub(crate) async fn update_folder(
        &self,
        workspace: &Workspace,
        id: &str,
        input: &FolderInput,
        now: Timestamp,
    ) -> Result<Option<Result<Folder, NameConflict>>, StoreError> {
        let mut transaction = self.begin_alone(workspace).await?;
        let mut sql = Sql::new(FOLDERS);
        sql.bind(workspace.seq).push(" AND d.id = ").bind(id.to_owned());
        let Some(before) = sql.optional(&mut *transaction).await? else { return Ok(None) };
        let before = folder(&before)?;
        let mut after = before.clone();
        if let Some(name) = &input.name {
            if self.is_taken(&mut transaction, workspace, Named::Folder, name, id).await? {
                return Ok(Some(Err(NameConflict::Taken(Named::Folder))));
            }
            after.name.clone_from(name);
        }
        input.description.clone().apply(&mut after.description);
        if after == before {
            return Ok(Some(Ok(before)));
        }
        after.updated_at = now;
        let mut sql = Sql::new("UPDATE folders SET name = ");
        sql.bind(after.name.clone()).push(", description = ").bind(after.description.clone());
        sql.push(", updated_at = ").bind(now.as_millisecond());
        sql.push(" WHERE workspace_seq = ").bind(workspace.seq).push(" AND id = ").bind(id.to_owned());
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Some(Ok(after)))
    }

    /// Deletes a folder. Its links are in no folder at once, and the sweeper updates their rows. False if the workspace
    /// has no such folder.
    pub(crate) async fn delete_folder(&self, workspace: &Workspace, id: &str) -> Result<bool, StoreError> {
        let mut transaction = self.begin_alone(workspace).await?;
        let mut sql = Sql::new("DELETE FROM folders WHERE workspace_seq = ");
        sql.bind(workspace.seq).push(" AND id = ").bind(id.to_owned());
        if sql.execute(&mut *transaction).await? == 0 {
            return Ok(false);
        }
        let mut sql = Sql::new("INSERT INTO deleted_folders (workspace_seq, id) VALUES ");
        sql.rows(&[()], |row, ()| {
            row.bind(workspace.seq).bind(id.to_owned());
        });
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Removes some links from a deleted folder. False if there is no deleted folder with links, or another process works
    /// on it.
    pub(crate) async fn sweep_folders(&self) -> Result<bool, StoreError> {
        let deleted = "SELECT d.workspace_seq, d.id FROM deleted_folders d LIMIT 1";
        let begun = self.begin_with_row(deleted).await?;
        let Some((mut transaction, row)) = begun else { return Ok(false) };
        let (workspace, folder): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
        let mut sql = Sql::new("UPDATE links SET folder_id = NULL WHERE seq IN (SELECT l.seq FROM links l");
        sql.push(" WHERE l.workspace_seq = ").bind(workspace);
        sql.push(" AND l.folder_id = ").bind(folder.clone());
        sql.push(" ORDER BY l.seq LIMIT ").bind(ROWS_PER_STEP);
        // In the order in which requests lock links, so that the two never deadlock.
        sql.lock(self.dialect, " FOR UPDATE").push(")");
        if sql.execute(&mut *transaction).await? < ROWS_PER_STEP.unsigned_abs() {
            let mut sql = Sql::new("DELETE FROM deleted_folders WHERE workspace_seq = ");
            sql.bind(workspace).push(" AND id = ").bind(folder);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }
}

/// The ids among `ids` that are folders of the workspace.
pub(super) async fn known_folders(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace: &Workspace,
    ids: impl Iterator<Item = &str>,
) -> Result<HashSet<String>, StoreError> {
    let ids: HashSet<&str> = ids.collect();
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let mut sql = Sql::new("SELECT d.id FROM folders d WHERE d.workspace_seq = ");
    sql.bind(workspace.seq).push(" AND d.id IN ").texts(dialect, &ids.into_iter().collect::<Vec<_>>());
    // Keeps the folders until the links that name them are written.
    sql.lock(dialect, " FOR KEY SHARE OF d");
    sql.all(&mut **transaction).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

fn folder(row: &AnyRow) -> Result<Folder, StoreError> {
    Ok(Folder {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        description: row.try_get("description")?,
        created_at: instant_of(row, "created_at")?,
        updated_at: instant_of(row, "updated_at")?,
    })
}
