//! The reasons for which a link cannot be stored.

use std::collections::HashSet;

use super::link_size::MAX_LINK_BYTES;
use super::sql::Sql;
use super::{StoreError, Transaction, Workspace};
use crate::domain::destination::TooLong;
use crate::domain::link::Link;

/// The reason why one link of a request was not created or updated. Other links of the request may have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkConflict {
    #[error("Duplicate key: This short link already exists.")]
    Key,
    #[error("A link with this externalId already exists in this workspace.")]
    ExternalId,
    /// The field names tags or a folder that the workspace does not have.
    #[error("Invalid {field} detected: {}", .values.join(", "))]
    Unknown { field: &'static str, values: Vec<String> },
    #[error("Domain does not belong to workspace.")]
    Domain,
    /// The field with ids of tags and `tagNames` name different tags.
    #[error("custom: tagNames: Does not name the same tags as {0}")]
    OtherTags(&'static str),
    #[error("too_big: {field}: Too big: expected string to have <={max} characters", field = .0.field, max = .0.max)]
    TooLong(TooLong),
    /// The link would be too large. The field is its longest.
    #[error("too_big: {0}: Too big: expected the link to have <={MAX_LINK_BYTES} bytes")]
    TooLarge(&'static str),
}

impl LinkConflict {
    /// The conflict of a link whose folder is not among `known`.
    pub(super) fn of_folder(folder: Option<&String>, known: &HashSet<String>) -> Option<Self> {
        let unknown = folder.filter(|folder| !known.contains(*folder))?;
        Some(Self::Unknown { field: "folderId", values: vec![unknown.clone()] })
    }
}

/// Whether another link of the workspace has the link's external id.
pub(super) async fn external_id_is_taken(
    transaction: &mut Transaction,
    workspace: &Workspace,
    link: &Link,
) -> Result<bool, StoreError> {
    let Some(external_id) = &link.external_id else { return Ok(false) };
    let mut sql = Sql::new("SELECT l.seq FROM links l WHERE l.workspace_seq = ");
    sql.bind(workspace.seq).push(" AND l.external_id = ").bind(external_id.clone());
    sql.push(" AND l.id <> ").bind(link.id.clone());
    Ok(sql.optional(&mut **transaction).await?.is_some())
}
