//! Tags and folders. Their names are unique in a workspace, without regard to case.
//!
//! A deleted one belongs to workspace 0, so that no request finds it and its name is free. The sweeper then removes it from its links.

use jiff::Timestamp;
use serde::Serialize;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::reader::Reader;
use super::sql::Sql;
use super::{Store, StoreError, Transaction, Workspace, instant_of};
use crate::domain::conflict::Conflict;
use crate::domain::folder::Folder;
use crate::domain::tag::Tag;

/// A tag or a folder.
pub(crate) trait Label: Clone + PartialEq + Serialize + Send + Sync + 'static {
    /// What messages call it.
    const NOUN: &'static str;
    /// Maximum number in a workspace. Existing ones beyond it are kept.
    const MAX: u32;
    const TABLE: &'static str;
    /// The columns of [`Self::push_values`].
    const COLUMNS: &'static str;

    /// The id, and the name.
    fn names(&self) -> (&str, &str);
    /// Notes the time of a change.
    fn touch(&mut self, _now: Timestamp) {}
    fn read(row: &AnyRow) -> Result<Self, StoreError>;
    fn push_values(&self, sql: &mut Sql);
}

impl Label for Tag {
    const NOUN: &'static str = "tag";
    const MAX: u32 = 5_000;
    const TABLE: &'static str = "tags";
    const COLUMNS: &'static str = "name, color";

    fn names(&self) -> (&str, &str) {
        (&self.id, &self.name)
    }

    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self { id: row.try_get("id")?, name: row.try_get("name")?, color: row.try_get("color")? })
    }

    fn push_values(&self, sql: &mut Sql) {
        sql.bind(self.name.clone()).push(", ").bind(self.color.clone());
    }
}

impl Label for Folder {
    const NOUN: &'static str = "folder";
    const MAX: u32 = 1_000;
    const TABLE: &'static str = "folders";
    const COLUMNS: &'static str = "name, description, created_at, updated_at";

    fn names(&self) -> (&str, &str) {
        (&self.id, &self.name)
    }

    fn touch(&mut self, now: Timestamp) {
        self.updated_at = now;
    }

    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            description: row.try_get("description")?,
            created_at: instant_of(row, "created_at")?,
            updated_at: instant_of(row, "updated_at")?,
        })
    }

    fn push_values(&self, sql: &mut Sql) {
        let [created, updated] = [self.created_at, self.updated_at].map(Timestamp::as_millisecond);
        sql.bind(self.name.clone()).push(", ").bind(self.description.clone());
        sql.push(", ").bind(created).push(", ").bind(updated);
    }
}

/// The labels that a list selects, and their order. Empty fields select all.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelFilter {
    /// Part of the name.
    pub(crate) search: Option<String>,
    pub(crate) ids: Option<Vec<String>>,
    /// In the order of creation instead of that of names.
    pub(crate) by_age: bool,
    pub(crate) descending: bool,
}

/// The form in which names are compared.
pub(super) fn folded(names: &[impl AsRef<str>]) -> Vec<String> {
    names.iter().map(|name| name.as_ref().to_ascii_lowercase()).collect()
}

/// A query for labels of a workspace.
fn select<L: Label>(workspace: &Workspace) -> Sql {
    let mut sql = Sql::new("SELECT n.id, ");
    sql.push(L::COLUMNS)
        .push(" FROM ")
        .push(L::TABLE)
        .push(" n WHERE n.workspace_seq = ")
        .bind(workspace.seq);
    sql
}

impl Store {
    /// The labels that `filter` selects: at most `size`, after the first `skip`.
    pub(crate) async fn list_labels<L: Label>(
        &self,
        workspace: &Workspace,
        filter: &LabelFilter,
        (skip, size): (i64, i64),
        mut reader: Reader,
    ) -> Result<Vec<L>, StoreError> {
        let mut sql = select::<L>(workspace);
        if let Some(search) = &filter.search {
            sql.push(" AND ").contains("n.name", search);
        }
        if let Some(ids) = &filter.ids {
            sql.push(" AND n.id IN ").texts(ids);
        }
        let descending = if filter.descending { " DESC" } else { "" };
        sql.push(" ORDER BY ");
        if !filter.by_age {
            sql.folded("n.name").push(descending).push(", ");
        }
        sql.push("n.seq").push(descending).push(" LIMIT ").bind(size).push(" OFFSET ").bind(skip);
        reader.all(sql).await?.iter().map(L::read).collect()
    }

    /// The labels with these ids.
    pub(crate) async fn labels_of<L: Label>(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        ids: &[String],
    ) -> Result<Vec<L>, StoreError> {
        let mut sql = select::<L>(workspace);
        sql.push(" AND n.id IN ").texts(ids);
        reader.all(sql).await?.iter().map(L::read).collect()
    }

    /// Creates a label.
    pub(crate) async fn create_label<L: Label>(
        &self,
        workspace: &Workspace,
        label: L,
    ) -> Result<L, StoreError> {
        let mut transaction = self.begin_alone(workspace).await?;
        self.refuse_taken(&mut transaction, workspace, &label).await?;
        let mut sql = Sql::new("SELECT COUNT(*) FROM ");
        sql.push(L::TABLE).push(" n WHERE n.workspace_seq = ").bind(workspace.seq);
        if sql.number(&mut *transaction).await? >= i64::from(L::MAX) {
            return Err(Conflict::TooMany(L::MAX, L::NOUN).into());
        }
        let mut sql = Sql::new("INSERT INTO ");
        sql.push(L::TABLE)
            .push(" (workspace_seq, id, ")
            .push(L::COLUMNS)
            .push(") VALUES (")
            .bind(workspace.seq);
        sql.push(", ").bind(label.names().0.to_owned()).push(", ");
        label.push_values(&mut sql);
        sql.push(")");
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(label)
    }

    /// Changes a label. None if the workspace has none with this id.
    pub(crate) async fn update_label<L: Label>(
        &self,
        workspace: &Workspace,
        id: &str,
        change: impl FnOnce(&mut L) + Send,
        now: Timestamp,
    ) -> Result<Option<L>, StoreError> {
        let mut transaction = self.begin_alone(workspace).await?;
        let mut sql = select::<L>(workspace);
        sql.push(" AND n.id = ").bind(id.to_owned());
        let Some(before) = sql.optional(&mut *transaction).await? else { return Ok(None) };
        let before = L::read(&before)?;
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(Some(before));
        }
        after.touch(now);
        self.refuse_taken(&mut transaction, workspace, &after).await?;
        let mut sql = Sql::new("UPDATE ");
        sql.push(L::TABLE).push(" SET (").push(L::COLUMNS).push(") = (");
        after.push_values(&mut sql);
        sql.push(") WHERE workspace_seq = ").bind(workspace.seq).push(" AND id = ").bind(id.to_owned());
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Some(after))
    }

    /// Deletes a label. Its links lose it at once, and the sweeper updates their rows. False if the workspace has none with this id.
    pub(crate) async fn delete_label<L: Label>(
        &self,
        workspace: &Workspace,
        id: &str,
    ) -> Result<bool, StoreError> {
        let mut sql = Sql::new("UPDATE ");
        sql.push(L::TABLE)
            .push(" SET workspace_seq = 0, name = id WHERE workspace_seq = ")
            .bind(workspace.seq);
        sql.push(" AND id = ").bind(id.to_owned());
        Ok(sql.execute(&self.write).await? == 1)
    }

    /// Refuses a label whose name another one has.
    async fn refuse_taken<L: Label>(
        &self,
        transaction: &mut Transaction,
        workspace: &Workspace,
        label: &L,
    ) -> Result<(), StoreError> {
        let (mut sql, (id, name)) = (select::<L>(workspace), label.names());
        sql.push(" AND ").folded("n.name").push(" = ").bind(name.to_ascii_lowercase());
        sql.push(" AND n.id <> ").bind(id.to_owned()).push(" LIMIT 1");
        match sql.optional(&mut **transaction).await? {
            Some(_) => Err(Conflict::Name(L::NOUN).into()),
            None => Ok(()),
        }
    }
}
