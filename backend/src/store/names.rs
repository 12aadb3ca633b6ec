//! Names that are unique in a workspace, in upper or lower case.

use sqlx::{Any, Transaction};

use super::sql::Sql;
use super::{Dialect, StoreError, Workspace};

/// What has such a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tag,
    Folder,
}

/// Why a name cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameConflict {
    /// Another of the kind has it.
    Taken,
    /// The workspace has the maximum number of the kind.
    TooMany,
}

impl Kind {
    /// The rows `n` of the kind in a workspace, whose number follows.
    fn from(self) -> &'static str {
        match self {
            Self::Tag => " FROM tags n WHERE n.workspace_seq = ",
            Self::Folder => " FROM folders n WHERE n.workspace_seq = ",
        }
    }
}

/// Names as they are compared.
pub(super) fn folded(names: &[impl AsRef<str>]) -> Vec<String> {
    names.iter().map(|name| name.as_ref().to_ascii_lowercase()).collect()
}

/// Whether another of the kind than the one with the id `except` has the name.
pub(super) async fn is_taken(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
    except: &str,
) -> Result<bool, StoreError> {
    let mut sql = Sql::new("SELECT n.seq");
    sql.push(kind.from()).bind(workspace.seq);
    sql.push(" AND ").folded(dialect, "n.name").push(" = ").bind(name.to_ascii_lowercase());
    sql.push(" AND n.id <> ").bind(except.to_owned()).push(" LIMIT 1");
    Ok(sql.optional(&mut **transaction).await?.is_some())
}

/// Checks that the workspace may have one more of the kind, of which it has at most `most`, with this name. The
/// transaction has to be one of [`super::Store::begin_alone`].
pub(super) async fn check_new(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
    most: u32,
) -> Result<Result<(), NameConflict>, StoreError> {
    if is_taken(transaction, dialect, workspace, kind, name, "").await? {
        return Ok(Err(NameConflict::Taken));
    }
    let mut sql = Sql::new("SELECT COUNT(*)");
    sql.push(kind.from()).bind(workspace.seq);
    let full = sql.number(&mut **transaction).await? >= i64::from(most);
    Ok(if full { Err(NameConflict::TooMany) } else { Ok(()) })
}
