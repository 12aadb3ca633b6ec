//! Tags and their assignment to links.
//!
//! A deleted tag belongs to workspace 0, so that no request finds it and its name is free. The sweeper then removes it
//! from its links.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use rustc_hash::FxHashMap;
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::ROWS_PER_STEP;
use super::link_conflict::LinkConflict;
use super::names::{NameConflict, Named, folded};
use super::reader::{Answers, Reader};
use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace, from_json, to_json};
use crate::domain::ids;
use crate::domain::link::Link;
use crate::domain::tag::TagSelection;
use crate::domain::tag::{Tag, TagColor};

/// The order of a list of tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TagOrder {
    #[default]
    Name,
    CreatedAt,
}

/// The tags that a list selects, and their order. Empty fields select all tags.
#[derive(Clone, Debug, Default)]
pub(crate) struct TagFilter {
    /// Part of the name.
    pub(crate) search: Option<String>,
    pub(crate) ids: Option<Vec<String>>,
    pub(crate) order: TagOrder,
    pub(crate) descending: bool,
}

const TAGS: &str = "SELECT g.id, g.name, g.color FROM tags g WHERE g.workspace_seq = ";

impl Store {
    /// The tags that `filter` selects: at most `size`, after the first `skip`.
    pub(crate) async fn list_tags(
        &self,
        workspace: &Workspace,
        filter: &TagFilter,
        (skip, size): (i64, i64),
        mut reader: Reader,
    ) -> Result<Vec<Tag>, StoreError> {
        let mut sql = Sql::new(TAGS);
        sql.bind(workspace.seq);
        if let Some(search) = &filter.search {
            sql.push(" AND ").contains(self.dialect, "g.name", search);
        }
        if let Some(ids) = &filter.ids {
            sql.push(" AND g.id IN ").texts(self.dialect, ids);
        }
        let descending = if filter.descending { " DESC" } else { "" };
        sql.push(" ORDER BY ");
        if filter.order == TagOrder::Name {
            sql.folded(self.dialect, "g.name").push(descending).push(", ");
        }
        sql.push("g.seq").push(descending);
        sql.push(" LIMIT ").bind(size).push(" OFFSET ").bind(skip);
        reader.all(sql).await?.iter().map(tag).collect()
    }

    /// The tags with these ids.
    pub(crate) async fn tags_of(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        ids: &[String],
    ) -> Result<Vec<Tag>, StoreError> {
        let mut sql = Sql::new(TAGS);
        sql.bind(workspace.seq).push(" AND g.id IN ").texts(self.dialect, ids);
        reader.all(sql).await?.iter().map(tag).collect()
    }

    /// Creates a tag. Without `color`, the name determines the colour.
    pub(crate) async fn create_tag(
        &self,
        workspace: &Workspace,
        name: &str,
        color: Option<&str>,
        now: Timestamp,
    ) -> Result<Result<Tag, NameConflict>, StoreError> {
        let shade =
            || TagColor::ALL[name.bytes().map(usize::from).sum::<usize>() % TagColor::ALL.len()].name();
        let color = color.unwrap_or_else(shade).to_owned();
        let tag = Tag { id: ids::sortable("tag_", now), name: name.to_owned(), color };
        let mut transaction = match self.begin_named(workspace, Named::Tag, name).await? {
            Ok(transaction) => transaction,
            Err(conflict) => return Ok(Err(conflict)),
        };
        let mut sql = Sql::new("INSERT INTO tags (workspace_seq, id, name, color) VALUES ");
        sql.rows(&[()], |row, ()| {
            row.bind(workspace.seq).bind(tag.id.clone()).bind(tag.name.clone()).bind(tag.color.clone());
        });
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Ok(tag))
    }

    /// Changes the name and the colour of a tag. None if the workspace has no such tag.
    pub(crate) async fn update_tag(
        &self,
        workspace: &Workspace,
        id: &str,
        name: Option<&str>,
        color: Option<&str>,
    ) -> Result<Option<Result<Tag, NameConflict>>, StoreError> {
        let mut transaction = self.begin_alone(workspace).await?;
        let mut sql = Sql::new(TAGS);
        sql.bind(workspace.seq).push(" AND g.id = ").bind(id.to_owned());
        if sql.optional(&mut *transaction).await?.is_none() {
            return Ok(None);
        }
        if let Some(name) = name
            && self.is_taken(&mut transaction, workspace, Named::Tag, name, id).await?
        {
            return Ok(Some(Err(NameConflict::Taken(Named::Tag))));
        }
        let mut sql = Sql::new("UPDATE tags SET name = COALESCE(");
        sql.bind(name.map(str::to_owned)).push(", name), color = COALESCE(").bind(color.map(str::to_owned));
        sql.push(", color) WHERE workspace_seq = ").bind(workspace.seq);
        sql.push(" AND id = ").bind(id.to_owned()).push(" RETURNING id, name, color");
        let Some(row) = sql.optional(&mut *transaction).await? else { return Ok(None) };
        transaction.commit().await?;
        Ok(Some(Ok(tag(&row)?)))
    }

    /// Deletes a tag. Its links lose it at once, and the sweeper deletes the rows. False if the workspace has no such
    /// tag.
    pub(crate) async fn delete_tag(&self, workspace: &Workspace, id: &str) -> Result<bool, StoreError> {
        let mut sql = Sql::new("UPDATE tags SET workspace_seq = 0, name = id WHERE workspace_seq = ");
        sql.bind(workspace.seq).push(" AND id = ").bind(id.to_owned());
        Ok(sql.execute(&self.write).await? == 1)
    }

    /// Removes a deleted tag from some of its links, and deletes it after the last link. False if there is no deleted
    /// tag, or another process works on it.
    pub(crate) async fn sweep_tags(&self) -> Result<bool, StoreError> {
        let deleted = "SELECT g.seq FROM tags g WHERE g.workspace_seq = 0 LIMIT 1";
        let begun = self.begin_with_row(deleted).await?;
        let Some((mut transaction, row)) = begun else { return Ok(false) };
        let tag: i64 = row.try_get(0)?;
        let mut sql = Sql::new("DELETE FROM link_tags WHERE tag_seq = ");
        sql.bind(tag).push(" AND link_seq IN (SELECT lt.link_seq FROM link_tags lt WHERE lt.tag_seq = ");
        sql.bind(tag).push(" ORDER BY lt.link_seq LIMIT ").bind(ROWS_PER_STEP);
        // In the order in which requests lock links, so that the two never deadlock.
        sql.lock(self.dialect, " FOR UPDATE").push(")");
        if sql.execute(&mut *transaction).await? < ROWS_PER_STEP.unsigned_abs() {
            let mut sql = Sql::new("DELETE FROM tags WHERE seq = ");
            sql.bind(tag);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }
}

/// The tags of each selection, in order of creation.
pub(super) async fn resolve_tags<'a>(
    transaction: &mut Transaction<'static, Any>,
    workspace: &Workspace,
    dialect: Dialect,
    selections: impl Iterator<Item = Option<&'a TagSelection>>,
) -> Result<Vec<Result<Vec<Tag>, LinkConflict>>, StoreError> {
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
        sql.each(dialect, to_json("tags", &wanted)?);
        sql.push(" CROSS JOIN tags g WHERE g.workspace_seq = ").bind(workspace.seq).push(" AND ");
        if by_id {
            sql.push("g.id")
        } else {
            sql.folded(dialect, "g.name")
        };
        // Keeps the tags until the links that carry them are written. A tag is deleted by an update.
        sql.push(" = value->>0").lock(dialect, " FOR SHARE OF g");
        for row in sql.all(&mut **transaction).await? {
            existing.insert(row.try_get::<i64, _>("seq")?, tag(&row)?);
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
                return Err(LinkConflict::OtherTags(ids.as_ref().map_or("tagIds", |ids| ids.field)));
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
) -> Result<BTreeSet<usize>, LinkConflict> {
    let (mut found, mut unknown) = (BTreeSet::new(), Vec::new());
    for value in values {
        match position(value) {
            Some(position) => _ = found.insert(*position),
            None => unknown.push(value.clone()),
        }
    }
    if unknown.is_empty() { Ok(found) } else { Err(LinkConflict::Unknown { field, values: unknown }) }
}

/// The tags of links, in one row: who has which tag, and each tag once. To read a row for each tag of each link takes longer than to
/// find them.
pub(super) struct TagsOfLinks(AnyRow);

impl TagsOfLinks {
    /// None without links.
    pub(super) async fn find(
        connection: &mut impl Answers,
        dialect: Dialect,
        links: &[i64],
    ) -> Result<Option<Self>, StoreError> {
        if links.is_empty() {
            return Ok(None);
        }
        let (assigned, tags) = match dialect {
            Dialect::Sqlite => (
                "SELECT (SELECT json_group_array(json_array(lt.tag_seq, lt.link_seq)) FROM link_tags lt WHERE lt.link_seq",
                "), (SELECT json_group_array(json_array(g.seq, g.id, g.name, g.color)) FROM tags g ",
            ),
            Dialect::Postgres => (
                "SELECT (SELECT CAST(COALESCE(json_agg(json_build_array(lt.tag_seq, lt.link_seq)), '[]') AS TEXT)
                 FROM link_tags lt WHERE lt.link_seq",
                "), (SELECT CAST(COALESCE(json_agg(json_build_array(g.seq, g.id, g.name, g.color)), '[]') AS TEXT)
                 FROM tags g ",
            ),
        };
        let mut sql = Sql::new(assigned);
        sql.in_numbers(dialect, links).push(tags);
        sql.push(
            "WHERE g.workspace_seq > 0 AND g.seq IN (SELECT lt.tag_seq FROM link_tags lt WHERE lt.link_seq",
        );
        sql.in_numbers(dialect, links).push("))");
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

fn tag(row: &AnyRow) -> Result<Tag, StoreError> {
    Ok(Tag { id: row.try_get("id")?, name: row.try_get("name")?, color: row.try_get("color")? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::super::NewLink;
    use super::*;
    use crate::domain::link_input::LinkInput;
    use crate::domain::public_url::PublicUrl;

    async fn rows(store: &Store, query: &'static str) -> i64 {
        Sql::new(query).number(&store.read).await.unwrap()
    }

    #[tokio::test]
    async fn links_lose_a_deleted_tag_or_folder_in_bounded_steps() {
        const LINKS: i64 = 5 * ROWS_PER_STEP / 2;
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open_or_create(&url).await.unwrap();
        let (now, public) = (Timestamp::UNIX_EPOCH, PublicUrl::parse("https://s.test").unwrap());
        let workspace = store.create_workspace("test", now).await.unwrap();
        let tag = store.create_tag(&workspace, "t", None, now).await.unwrap().unwrap();
        let folder = store.create_folder(&workspace, "f", None, now).await.unwrap().unwrap();
        let body = json!({"url": "https://example.com", "tagIds": [tag.id], "folderId": folder.id});
        let new = NewLink::of(LinkInput::create(&body, "", now).unwrap(), &public);
        let made = store.create_links(&workspace, &vec![new; LINKS as usize], now, None).await.unwrap();
        assert!(made.iter().all(Result::is_ok));
        assert!(!store.sweep_tags().await.unwrap() && !store.sweep_folders().await.unwrap());
        assert!(store.delete_tag(&workspace, &tag.id).await.unwrap());
        assert!(store.delete_folder(&workspace, &folder.id).await.unwrap());

        let tagged = "SELECT COUNT(*) FROM link_tags";
        let filed = "SELECT COUNT(*) FROM links WHERE folder_id IS NOT NULL";
        assert_eq!((rows(&store, tagged).await, rows(&store, filed).await), (LINKS, LINKS), "later");
        for left in [LINKS - ROWS_PER_STEP, LINKS - 2 * ROWS_PER_STEP, 0] {
            assert!(store.sweep_tags().await.unwrap() && store.sweep_folders().await.unwrap());
            assert_eq!((rows(&store, tagged).await, rows(&store, filed).await), (left, left));
        }
        assert!(!store.sweep_tags().await.unwrap() && !store.sweep_folders().await.unwrap());
        for table in ["SELECT COUNT(*) FROM tags", "SELECT COUNT(*) FROM deleted_folders"] {
            assert_eq!(rows(&store, table).await, 0, "{table}");
        }
    }
}
