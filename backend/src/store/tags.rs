//! The assignment of tags to links, and the folders that links name.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rustc_hash::FxHashMap;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::labels::{Label, folded};
use super::reader::Queries;
use super::sql::Sql;
use super::{StoreError, Transaction, Workspace, from_json, to_json};
use crate::domain::conflict::Conflict;
use crate::domain::link::Link;
use crate::domain::tag::{Tag, TagSelection};

/// The tags of each selection, in order of creation.
pub(super) async fn resolve_tags<'a>(
    transaction: &mut Transaction,
    workspace: &Workspace,
    selections: impl Iterator<Item = Option<&'a TagSelection>>,
) -> Result<Vec<Result<Vec<Tag>, Conflict>>, StoreError> {
    let selections: Vec<_> = selections.collect();
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for selection in selections.iter().flatten() {
        ids.extend(selection.ids.iter().flat_map(|ids| &ids.values).map(|id| [id.clone()]));
        let wanted = selection.names.as_deref().unwrap_or_default();
        names.extend(folded(wanted).into_iter().map(|name| [name]));
    }
    let mut existing = BTreeMap::new();
    for (wanted, by_id) in [(ids, true), (names, false)] {
        if wanted.is_empty() {
            continue;
        }
        let mut sql = Sql::new("SELECT g.seq, g.id, g.name, g.color FROM ");
        sql.each(to_json("tags", &wanted)?);
        sql.push(" CROSS JOIN tags g WHERE g.workspace_seq = ").bind(workspace.seq).push(" AND ");
        if by_id {
            sql.push("g.id")
        } else {
            sql.folded("g.name")
        };
        // Keeps the tags until the links that carry them are written. A tag is deleted by an update.
        sql.push(" = value->>0").lock(" FOR SHARE OF g");
        for row in sql.all(&mut **transaction).await? {
            existing.insert(row.try_get::<i64, _>("seq")?, Tag::read(&row)?);
        }
    }
    let tags: Vec<Tag> = existing.into_values().collect();
    let positions = || tags.iter().enumerate();
    let by_id: HashMap<_, _> = positions().map(|(position, tag)| (tag.id.as_str(), position)).collect();
    let by_name: HashMap<_, _> =
        positions().map(|(position, tag)| (tag.name.to_ascii_lowercase(), position)).collect();
    let select = |selection: Option<&TagSelection>| {
        let Some(TagSelection { ids, names }) = selection else { return Ok(Vec::new()) };
        let with_ids = ids.as_ref().map(|ids| found(ids.field, &ids.values, |id| by_id.get(id)));
        let with_names = names.as_ref();
        let with_names =
            with_names.map(|names| found("tagNames", names, |name| by_name.get(&name.to_ascii_lowercase())));
        let positions = match (with_ids.transpose()?, with_names.transpose()?) {
            (Some(with_ids), Some(with_names)) if with_ids != with_names => {
                return Err(Conflict::OtherTags(ids.as_ref().map_or("tagIds", |ids| ids.field)));
            }
            (with_ids, with_names) => with_ids.or(with_names).unwrap_or_default(),
        };
        Ok(positions.into_iter().filter_map(|position| tags.get(position)).cloned().collect())
    };
    Ok(selections.into_iter().map(select).collect())
}

/// The positions of the tags that a field names.
fn found<'a>(
    field: &'static str,
    values: &[String],
    position: impl Fn(&str) -> Option<&'a usize>,
) -> Result<BTreeSet<usize>, Conflict> {
    let (mut found, mut unknown) = (BTreeSet::new(), Vec::new());
    for value in values {
        match position(value) {
            Some(position) => _ = found.insert(*position),
            None => unknown.push(value.clone()),
        }
    }
    if unknown.is_empty() { Ok(found) } else { Err(Conflict::Unknown { field, values: unknown }) }
}

/// The tags of links, in one row: who has which tag, and each tag once. To read a row for each tag of each link takes longer than to
/// find them.
pub(super) struct TagsOfLinks(AnyRow);

impl TagsOfLinks {
    /// None without links.
    pub(super) async fn find(
        connection: &mut impl Queries,
        links: &[i64],
    ) -> Result<Option<Self>, StoreError> {
        if links.is_empty() {
            return Ok(None);
        }
        let mut sql = Sql::by(
            "SELECT (SELECT json_group_array(json_array(lt.tag_seq, lt.link_seq)) FROM link_tags lt WHERE lt.link_seq",
            "SELECT (SELECT CAST(COALESCE(json_agg(json_build_array(lt.tag_seq, lt.link_seq)), '[]') AS TEXT)
             FROM link_tags lt WHERE lt.link_seq",
        );
        sql.in_numbers(links).push_by(
            "), (SELECT json_group_array(json_array(g.seq, g.id, g.name, g.color)) FROM tags g ",
            "), (SELECT CAST(COALESCE(json_agg(json_build_array(g.seq, g.id, g.name, g.color)), '[]') AS TEXT)
             FROM tags g ",
        );
        sql.push(
            "WHERE g.workspace_seq > 0 AND g.seq IN (SELECT lt.tag_seq FROM link_tags lt WHERE lt.link_seq",
        );
        sql.in_numbers(links).push("))");
        Ok(connection.all(sql).await?.pop().map(Self))
    }

    /// The tags of each link, in order of creation, by the number of the link.
    pub(super) fn by_link(&self) -> Result<FxHashMap<i64, Vec<Tag>>, StoreError> {
        let mut assigned: Vec<(i64, i64)> = from_json("tags of links", self.0.try_get(0)?)?;
        let tags: Vec<(i64, String, String, String)> = from_json("tags", self.0.try_get(1)?)?;
        let tags: FxHashMap<i64, Tag> =
            tags.into_iter().map(|(seq, id, name, color)| (seq, Tag { id, name, color })).collect();
        assigned.sort_unstable();
        let mut by_link: FxHashMap<i64, Vec<Tag>> = FxHashMap::default();
        for (tag, link) in assigned {
            // Links keep a deleted tag for a while.
            if let Some(tag) = tags.get(&tag) {
                by_link.entry(link).or_default().push(tag.clone());
            }
        }
        Ok(by_link)
    }
}

/// Stores the tags of links.
pub(super) async fn add_tags<'a>(
    transaction: &mut Transaction,
    links: impl Iterator<Item = &'a Link>,
) -> Result<(), StoreError> {
    let pairs: Vec<(&str, &str)> =
        links.flat_map(|link| link.tags.iter().map(|tag| (link.id.as_str(), tag.id.as_str()))).collect();
    if pairs.is_empty() {
        return Ok(());
    }
    let mut sql = Sql::new("INSERT INTO link_tags (link_seq, tag_seq) SELECT l.seq, g.seq FROM ");
    sql.each(to_json("tags of links", &pairs)?);
    sql.push(" CROSS JOIN links l CROSS JOIN tags g WHERE l.id = value->>0 AND g.id = value->>1");
    sql.execute(&mut **transaction).await?;
    Ok(())
}

/// The ids among `ids` that are folders of the workspace.
pub(super) async fn known_folders(
    transaction: &mut Transaction,
    workspace: &Workspace,
    ids: impl Iterator<Item = &str>,
) -> Result<HashSet<String>, StoreError> {
    let ids: HashSet<&str> = ids.collect();
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let mut sql = Sql::new("SELECT d.id FROM folders d WHERE d.workspace_seq = ");
    sql.bind(workspace.seq).push(" AND d.id IN ").texts(&ids.into_iter().collect::<Vec<_>>());
    // Keeps the folders until the links that name them are written. A folder is deleted by an update.
    sql.lock(" FOR SHARE OF d");
    sql.all(&mut **transaction).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The conflict of a link whose folder is not among `known`.
pub(super) fn unknown_folder(folder: Option<&String>, known: &HashSet<String>) -> Option<Conflict> {
    let unknown = folder.filter(|folder| !known.contains(*folder))?;
    Some(Conflict::Unknown { field: "folderId", values: vec![unknown.clone()] })
}
