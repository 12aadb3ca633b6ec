//! Names that are unique in a workspace, without regard to case: those of tags and folders.

use sqlx::{Any, Transaction};

use super::sql::Sql;
use super::{Store, StoreError, Workspace};

/// The kinds of objects with such names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Tag,
    Folder,
}

/// The reason why an object was not created or renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameConflict {
    #[error("A {} with that name already exists.", .0.noun())]
    Taken(Named),
    #[error("A workspace has at most {} {}s.", .0.max(), .0.noun())]
    TooMany(Named),
}

impl Named {
    /// Maximum number in a workspace. Existing objects beyond it are kept.
    fn max(self) -> u32 {
        match self {
            Self::Tag => 5_000,
            Self::Folder => 1_000,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Folder => "folder",
        }
    }

    /// The rows `n` of a workspace, whose number follows.
    fn from(self) -> &'static str {
        match self {
            Self::Tag => " FROM tags n WHERE n.workspace_seq = ",
            Self::Folder => " FROM folders n WHERE n.workspace_seq = ",
        }
    }
}

/// The form in which names are compared.
pub(super) fn folded(names: &[impl AsRef<str>]) -> Vec<String> {
    names.iter().map(|name| name.as_ref().to_ascii_lowercase()).collect()
}

impl Store {
    /// Begins a transaction that creates an object with this name, like [`Self::begin_alone`].
    pub(super) async fn begin_named(
        &self,
        workspace: &Workspace,
        named: Named,
        name: &str,
    ) -> Result<Result<Transaction<'static, Any>, NameConflict>, StoreError> {
        let mut transaction = self.begin_alone(workspace).await?;
        if self.is_taken(&mut transaction, workspace, named, name, "").await? {
            return Ok(Err(NameConflict::Taken(named)));
        }
        let mut sql = Sql::new("SELECT COUNT(*)");
        sql.push(named.from()).bind(workspace.seq);
        let full = sql.number(&mut *transaction).await? >= i64::from(named.max());
        Ok(if full { Err(NameConflict::TooMany(named)) } else { Ok(transaction) })
    }

    /// Whether an object other than the one with the id `except` has the name.
    pub(super) async fn is_taken(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        named: Named,
        name: &str,
        except: &str,
    ) -> Result<bool, StoreError> {
        let mut sql = Sql::new("SELECT n.seq");
        sql.push(named.from()).bind(workspace.seq);
        sql.push(" AND ").folded(self.dialect, "n.name").push(" = ").bind(name.to_ascii_lowercase());
        sql.push(" AND n.id <> ").bind(except.to_owned()).push(" LIMIT 1");
        Ok(sql.optional(&mut **transaction).await?.is_some())
    }
}
