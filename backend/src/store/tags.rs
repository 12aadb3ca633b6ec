//! Tags, and which links carry them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::link_changes::LinkConflict;
use super::sql::Sql;
use super::{Store, StoreError, Workspace};
use crate::ids;
use crate::links::input::TagSelection;
use crate::links::{Link, TAG_COLORS, Tag};

impl Store {
    /// The tags of a workspace.
    pub(crate) async fn tags(&self, workspace: &Workspace) -> Result<Vec<Tag>, StoreError> {
        let mut sql = Sql::new("SELECT g.id, g.name, g.color FROM tags g WHERE g.workspace_seq = ");
        sql.bind(workspace.seq).push(" ORDER BY g.seq");
        sql.all(&self.read).await?.iter().map(tag).collect()
    }
}

/// The tags that a selection means, in their order of creation.
pub(super) async fn resolve_tags(
    transaction: &mut Transaction<'static, Any>,
    workspace: &Workspace,
    selection: Option<&TagSelection>,
    now: Timestamp,
) -> Result<Result<Vec<Tag>, LinkConflict>, StoreError> {
    let (column, wanted) = match selection {
        None => return Ok(Ok(Vec::new())),
        Some(TagSelection::Ids(ids)) => (" AND g.id IN ", ids),
        Some(TagSelection::Names(names)) => {
            make_missing_tags(transaction, workspace, names, now).await?;
            (" AND g.name IN ", names)
        }
    };
    let mut sql = Sql::new("SELECT g.id, g.name, g.color FROM tags g WHERE g.workspace_seq = ");
    sql.bind(workspace.seq).push(column).list(wanted.iter().cloned()).push(" ORDER BY g.seq");
    let tags = sql.all(&mut **transaction).await?.iter().map(tag).collect::<Result<Vec<_>, _>>()?;
    if let Some(TagSelection::Ids(ids)) = selection {
        let known: BTreeSet<&str> = tags.iter().map(|tag| tag.id.as_str()).collect();
        let unknown: Vec<String> = ids.iter().filter(|id| !known.contains(id.as_str())).cloned().collect();
        if !unknown.is_empty() {
            return Ok(Err(LinkConflict::UnknownTags(unknown)));
        }
    }
    Ok(Ok(tags))
}

async fn make_missing_tags(
    transaction: &mut Transaction<'static, Any>,
    workspace: &Workspace,
    names: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    // Sorted, so that two transactions that make the same tags wait for each other instead of deadlocking.
    let names: Vec<&String> = names.iter().collect::<BTreeSet<_>>().into_iter().collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut sql = Sql::new("INSERT INTO tags (id, workspace_seq, name, color) VALUES ");
    sql.rows(&names, |row, name| {
        // The colour follows from the name, so that it is the same wherever the tag is made.
        let shade = name.bytes().map(usize::from).sum::<usize>() % TAG_COLORS.len();
        row.bind(ids::sortable("tag_", now))
            .bind(workspace.seq)
            .bind((*name).clone())
            .bind(TAG_COLORS[shade].to_owned());
    });
    sql.push(" ON CONFLICT DO NOTHING");
    sql.execute(&mut **transaction).await?;
    Ok(())
}

/// Puts the tags that a link carries on its stored self.
pub(super) async fn add_tags(
    transaction: &mut Transaction<'static, Any>,
    link: &Link,
) -> Result<(), StoreError> {
    if link.tags.is_empty() {
        return Ok(());
    }
    let mut sql = Sql::new("INSERT INTO link_tags (link_seq, tag_seq) SELECT ");
    sql.bind(link.seq)
        .push(", g.seq FROM tags g WHERE g.id IN ")
        .list(link.tags.iter().map(|tag| tag.id.clone()));
    sql.execute(&mut **transaction).await?;
    Ok(())
}

pub(super) fn tag(row: &AnyRow) -> Result<Tag, StoreError> {
    Ok(Tag { id: row.try_get("id")?, name: row.try_get("name")?, color: row.try_get("color")? })
}
