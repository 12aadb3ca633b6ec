//! Tags, and which links carry them.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::link_changes::LinkConflict;
use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace, to_json};
use crate::ids;
use crate::links::input::TagSelection;
use crate::links::{Link, TAG_COLORS, Tag};

/// Where the tags of these ids or names are in a list.
type Places<'a> = HashMap<&'a str, usize>;

impl Store {
    /// The tags of a workspace.
    pub(crate) async fn tags(&self, workspace: &Workspace) -> Result<Vec<Tag>, StoreError> {
        let mut sql = Sql::new("SELECT g.id, g.name, g.color FROM tags g WHERE g.workspace_seq = ");
        sql.bind(workspace.seq).push(" ORDER BY g.seq");
        sql.all(&self.read).await?.iter().map(tag).collect()
    }
}

/// The tags that each of several selections means, in the order in which the tags were made. Those that are named and do
/// not exist are made.
pub(super) async fn resolve_tags<'a>(
    transaction: &mut Transaction<'static, Any>,
    workspace: &Workspace,
    dialect: Dialect,
    selections: impl Iterator<Item = Option<&'a TagSelection>>,
    now: Timestamp,
) -> Result<Vec<Result<Vec<Tag>, LinkConflict>>, StoreError> {
    let selections: Vec<_> = selections.collect();
    // Sorted, so that two transactions that make the same tags wait for each other instead of deadlocking.
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for selection in selections.iter().flatten() {
        match selection {
            TagSelection::Ids(wanted) => ids.extend(wanted.iter().map(String::as_str)),
            TagSelection::Names(wanted) => names.extend(wanted.iter().map(String::as_str)),
        }
    }
    let (ids, names): (Vec<&str>, Vec<&str>) = (ids.into_iter().collect(), names.into_iter().collect());
    make_missing_tags(transaction, workspace, dialect, &names, now).await?;
    let mut tags = Vec::new();
    if !ids.is_empty() || !names.is_empty() {
        let mut sql = Sql::new("SELECT g.id, g.name, g.color FROM tags g WHERE g.workspace_seq = ");
        sql.bind(workspace.seq).push(" AND (g.id IN ").texts(dialect, &ids);
        sql.push(" OR g.name IN ").texts(dialect, &names).push(") ORDER BY g.seq");
        tags = sql.all(&mut **transaction).await?.iter().map(tag).collect::<Result<Vec<_>, _>>()?;
    }
    let by_id: Places<'_> = tags.iter().enumerate().map(|(place, tag)| (tag.id.as_str(), place)).collect();
    let by_name: Places<'_> =
        tags.iter().enumerate().map(|(place, tag)| (tag.name.as_str(), place)).collect();
    let pick =
        |places: BTreeSet<usize>| places.into_iter().filter_map(|place| tags.get(place)).cloned().collect();
    let select = |selection: Option<&TagSelection>| match selection {
        None => Ok(Vec::new()),
        Some(TagSelection::Names(names)) => {
            Ok(pick(names.iter().filter_map(|name| by_name.get(name.as_str())).copied().collect()))
        }
        Some(TagSelection::Ids(ids)) => {
            let unknown: Vec<String> =
                ids.iter().filter(|id| !by_id.contains_key(id.as_str())).cloned().collect();
            if !unknown.is_empty() {
                return Err(LinkConflict::UnknownTags(unknown));
            }
            Ok(pick(ids.iter().filter_map(|id| by_id.get(id.as_str())).copied().collect()))
        }
    };
    Ok(selections.into_iter().map(select).collect())
}

/// Makes those of `names` that the workspace does not have.
async fn make_missing_tags(
    transaction: &mut Transaction<'static, Any>,
    workspace: &Workspace,
    dialect: Dialect,
    names: &[&str],
    now: Timestamp,
) -> Result<(), StoreError> {
    if names.is_empty() {
        return Ok(());
    }
    let rows = names.iter().map(|name| {
        // The colour follows from the name, so that it is the same wherever the tag is made.
        let shade = name.bytes().map(usize::from).sum::<usize>() % TAG_COLORS.len();
        (ids::sortable("tag_", now), name, TAG_COLORS[shade])
    });
    let mut sql = Sql::new("INSERT INTO tags (workspace_seq, id, name, color) SELECT CAST(");
    sql.bind(workspace.seq).push(" AS BIGINT), value->>0, value->>1, value->>2 FROM ");
    sql.each(dialect, to_json("tags", &rows.collect::<Vec<_>>())?);
    sql.in_order(dialect).push(" ON CONFLICT DO NOTHING");
    sql.execute(&mut **transaction).await?;
    Ok(())
}

/// Puts the tags that links carry on their stored selves.
pub(super) async fn add_tags<'a>(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    links: impl Iterator<Item = &'a Link>,
) -> Result<(), StoreError> {
    let pairs: Vec<(&str, &str)> =
        links.flat_map(|link| link.tags.iter().map(|tag| (link.id.as_str(), tag.id.as_str()))).collect();
    if pairs.is_empty() {
        return Ok(());
    }
    let mut sql = Sql::new("INSERT INTO link_tags (link_seq, tag_seq) SELECT l.seq, g.seq FROM ");
    sql.each(dialect, to_json("tags of links", &pairs)?);
    sql.push(" CROSS JOIN links l CROSS JOIN tags g WHERE l.id = value->>0 AND g.id = value->>1");
    sql.execute(&mut **transaction).await?;
    Ok(())
}

pub(super) fn tag(row: &AnyRow) -> Result<Tag, StoreError> {
    Ok(Tag { id: row.try_get("id")?, name: row.try_get("name")?, color: row.try_get("color")? })
}
