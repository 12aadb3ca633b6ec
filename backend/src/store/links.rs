//! Queries for links: one link, lists and counts.

use std::collections::{BTreeSet, HashMap};

use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::names::folded;
use super::reader::{Answers, Reader};
use super::sql::Sql;
use super::tags::TagsOfLinks;
use super::{Dialect, Store, StoreError, Workspace, from_json, instant_of, optional_instant_of, to_json};
use crate::background;
use crate::links::search::LinkSearch;
use crate::links::{Details, Link};

/// Maximum number of links in one query. SQLite permits 32,766 arguments.
const LINKS_PER_QUERY: usize = 5_000;
/// Maximum number of links that the thread of the request reads from the rows.
const FEW: usize = 16;

/// A link in a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LinkSelector {
    Id(String),
    ExternalId(String),
    Key { domain: String, key: String },
}

/// A filter for links. Empty fields do not restrict it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkFilter {
    pub(crate) domain: Option<String>,
    /// The link must have at least one tag of each list.
    pub(crate) tag_ids: Vec<Vec<String>>,
    pub(crate) tag_names: Option<Vec<String>>,
    /// `Some(None)` selects links without a folder.
    pub(crate) folder_id: Option<Option<String>>,
    pub(crate) tenant_id: Option<String>,
    pub(crate) search: Option<LinkSearch>,
    pub(crate) link_ids: Option<Vec<String>>,
    pub(crate) show_archived: bool,
    /// True if the filter names a user. No link matches, because links are created by keys.
    pub(crate) has_user: bool,
    /// Links that have a tag.
    pub(crate) has_tags: bool,
}

/// The property by which links are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkGroup {
    Domain,
    FolderId,
    TagId,
    UserId,
}

/// The order of a list, which is always descending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkOrder {
    #[default]
    CreatedAt,
    Clicks,
    LastClicked,
}

impl LinkOrder {
    fn sql(self) -> &'static str {
        match self {
            Self::CreatedAt => " ORDER BY l.seq DESC",
            Self::Clicks => " ORDER BY COALESCE(t.clicks, 0) DESC, l.seq DESC",
            Self::LastClicked => " ORDER BY COALESCE(t.last_clicked, 0) DESC, l.seq DESC",
        }
    }
}

/// A page of a list.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    Offset {
        skip: i64,
        order: LinkOrder,
    },
    /// The links created before the link with this id.
    StartingAfter(String),
    /// The first links created after the link with this id.
    EndingBefore(String),
}

/// The data of a link that a redirect needs.
#[derive(Clone, Debug)]
pub(crate) struct RedirectTarget {
    pub(crate) link_id: String,
    pub(crate) workspace_seq: i64,
    pub(crate) url: String,
    pub(crate) details: Details,
}

fn redirect_target(row: &AnyRow) -> Result<RedirectTarget, StoreError> {
    let details: String = row.try_get("details")?;
    Ok(RedirectTarget {
        link_id: row.try_get("id")?,
        workspace_seq: row.try_get("workspace_seq")?,
        url: row.try_get("url")?,
        details: from_json("link details", &details)?,
    })
}

pub(super) const LINKS: &str = "SELECT l.seq, l.id, w.id AS workspace_id, l.domain, l.key, l.url, l.external_id, l.tenant_id,
    f.id AS folder_id, l.archived, l.details, l.created_at, l.updated_at, COALESCE(t.clicks, 0) AS clicks, t.last_clicked
    FROM links l JOIN workspaces w ON w.seq = l.workspace_seq LEFT JOIN link_totals t ON t.link_seq = l.seq
    LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id ";

impl Store {
    /// The selected link of the workspace.
    pub(crate) async fn link(
        &self,
        workspace: &Workspace,
        selector: &LinkSelector,
    ) -> Result<Option<Link>, StoreError> {
        let mut sql = Sql::new(LINKS);
        self.push_selector(&mut sql, workspace, selector);
        self.find_link(sql).await
    }

    /// The link that a query finds which starts with [`LINKS`].
    pub(super) async fn find_link(&self, sql: Sql) -> Result<Option<Link>, StoreError> {
        Ok(load(&mut *self.read.acquire().await?, self.dialect, sql).await?.pop())
    }

    /// The selected links of the workspace, oldest first. Those that it does not have are left out.
    pub(super) async fn selected_links(
        &self,
        workspace: &Workspace,
        selectors: &[LinkSelector],
    ) -> Result<Vec<Link>, StoreError> {
        let mut sql = Sql::new(LINKS);
        push_selection(&mut sql, workspace, selectors);
        let found = find(&mut *self.read.acquire().await?, self.dialect, sql).await?;
        found.into_many_links().await
    }

    /// The links with these ids. No other transaction changes them until this one ends. Those that do not exist are left out.
    pub(super) async fn lock_links(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        ids: impl Iterator<Item = &String>,
    ) -> Result<Vec<Link>, StoreError> {
        let ids: Vec<_> = ids.cloned().map(LinkSelector::Id).collect();
        let mut sql = Sql::new(LINKS);
        push_selection(&mut sql, workspace, &ids);
        self.load_locked(transaction, sql).await
    }

    /// Loads links that no other transaction changes until this one ends.
    pub(super) async fn load_locked(
        &self,
        transaction: &mut Transaction<'static, Any>,
        mut sql: Sql,
    ) -> Result<Vec<Link>, StoreError> {
        if self.dialect == Dialect::Postgres {
            sql.push(" FOR UPDATE OF l");
        }
        load(&mut **transaction, self.dialect, sql).await
    }

    /// A page of the filtered links, newest first unless the page specifies another order. None if the workspace does
    /// not have the link of the cursor.
    pub(crate) async fn list_links(
        &self,
        workspace: &Workspace,
        filter: &LinkFilter,
        page: &Page,
        size: i64,
        mut reader: Reader,
    ) -> Result<Option<Vec<Link>>, StoreError> {
        let found = self.find_page(&mut reader, workspace, filter, page, size).await?;
        drop(reader);
        let Some(found) = found else { return Ok(None) };
        let mut links = found.into_many_links().await?;
        if matches!(page, Page::EndingBefore(_)) {
            links.reverse();
        }
        Ok(Some(links))
    }

    async fn find_page(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        filter: &LinkFilter,
        page: &Page,
        size: i64,
    ) -> Result<Option<Found>, StoreError> {
        let mut sql = Sql::new(LINKS);
        match page {
            Page::Offset { skip: 0, order: LinkOrder::CreatedAt } => {
                self.push_filter(&mut sql, workspace, filter, reader.rests());
                sql.push(LinkOrder::CreatedAt.sql()).push(" LIMIT ").bind(size);
            }
            // Only the numbers of links are sorted and skipped. A link may have 64 KiB.
            Page::Offset { skip, order } => {
                let mut seqs = Sql::new("");
                self.push_seqs(&mut seqs, workspace, filter, *order, reader.rests());
                seqs.push(" LIMIT ").bind(size).push(" OFFSET ").bind(*skip);
                let seqs = reader.all(seqs).await?;
                let seqs = seqs.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
                sql.push("WHERE l.seq").in_numbers(self.dialect, &seqs).push(order.sql());
            }
            Page::StartingAfter(id) | Page::EndingBefore(id) => {
                let mut cursor = Sql::new("SELECT l.seq FROM links l WHERE l.workspace_seq = ");
                cursor.bind(workspace.seq).push(" AND l.id = ").bind(id.clone());
                let Some(row) = reader.optional(cursor).await? else { return Ok(None) };
                let seq: i64 = row.try_get(0)?;
                self.push_filter(&mut sql, workspace, filter, reader.rests());
                if matches!(page, Page::StartingAfter(_)) {
                    sql.push(" AND l.seq < ").bind(seq).push(" ORDER BY l.seq DESC LIMIT ").bind(size);
                } else {
                    sql.push(" AND l.seq > ").bind(seq).push(" ORDER BY l.seq LIMIT ").bind(size);
                }
            }
        }
        Ok(Some(find(reader, self.dialect, sql).await?))
    }

    /// Appends a query for the numbers of all filtered links, in order.
    fn push_seqs(
        &self,
        sql: &mut Sql,
        workspace: &Workspace,
        filter: &LinkFilter,
        order: LinkOrder,
        rests: bool,
    ) {
        sql.push("SELECT l.seq FROM links l LEFT JOIN link_totals t ON t.link_seq = l.seq ");
        self.push_filter(sql, workspace, filter, rests);
        sql.push(order.sql());
    }

    /// Number of filtered links.
    pub(crate) async fn count_links(
        &self,
        workspace: &Workspace,
        filter: &LinkFilter,
        mut reader: Reader,
    ) -> Result<i64, StoreError> {
        let mut sql = Sql::new("SELECT COUNT(*) FROM links l ");
        self.push_filter(&mut sql, workspace, filter, reader.rests());
        reader.number(sql).await
    }

    /// Number of filtered links by the values of `by`, in descending order.
    pub(crate) async fn count_links_by(
        &self,
        workspace: &Workspace,
        filter: &LinkFilter,
        by: LinkGroup,
        mut reader: Reader,
    ) -> Result<Vec<(Option<String>, i64)>, StoreError> {
        let (column, from) = match by {
            LinkGroup::Domain => ("l.domain", " AS value, COUNT(*) AS total FROM links l "),
            LinkGroup::FolderId => (
                "f.id",
                " AS value, COUNT(*) AS total FROM links l
                 LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id ",
            ),
            // Links are created by keys, so no link has a user.
            LinkGroup::UserId => ("CAST(NULL AS TEXT)", " AS value, COUNT(*) AS total FROM links l "),
            LinkGroup::TagId => (
                "g.id",
                " AS value, COUNT(*) AS total FROM links l JOIN link_tags k ON k.link_seq = l.seq
                 JOIN tags g ON g.seq = k.tag_seq AND g.workspace_seq > 0 ",
            ),
        };
        let mut sql = Sql::new("SELECT ");
        sql.push(column).push(from);
        self.push_filter(&mut sql, workspace, filter, reader.rests());
        sql.push(" GROUP BY ").push(column).push(" ORDER BY total DESC, value NULLS FIRST");
        reader.all(sql).await?.iter().map(|row| Ok((row.try_get("value")?, row.try_get("total")?))).collect()
    }

    /// The target of the short link on `domain` with this key in lower case, in any workspace.
    pub(crate) async fn redirect_target(
        &self,
        domain: &str,
        folded_key: &str,
    ) -> Result<Option<RedirectTarget>, StoreError> {
        let mut sql =
            Sql::new("SELECT l.id, l.workspace_seq, l.url, l.details FROM links l WHERE l.domain = ");
        sql.bind(domain.to_owned()).push(" AND l.key_folded = ").bind(folded_key.to_owned());
        sql.optional(&self.read).await?.as_ref().map(redirect_target).transpose()
    }

    /// Like [`Self::redirect_target`], for many pairs of domain and lower-case key. Missing links are left out.
    pub(crate) async fn redirect_targets(
        &self,
        names: &[(String, String)],
    ) -> Result<Vec<((String, String), RedirectTarget)>, StoreError> {
        let mut sql = Sql::new(
            "SELECT l.domain, l.key_folded AS folded_key, l.id, l.workspace_seq, l.url, l.details FROM ",
        );
        sql.each(self.dialect, to_json("names", &names)?);
        sql.push(" CROSS JOIN links l WHERE l.domain = value->>0 AND l.key_folded = value->>1");
        let rows = sql.all(&self.read).await?;
        rows.iter()
            .map(|row| Ok(((row.try_get("domain")?, row.try_get("folded_key")?), redirect_target(row)?)))
            .collect()
    }

    /// Appends a condition that selects one link of the workspace.
    pub(super) fn push_selector(&self, sql: &mut Sql, workspace: &Workspace, selector: &LinkSelector) {
        sql.push("WHERE l.workspace_seq = ").bind(workspace.seq);
        match selector {
            LinkSelector::Id(id) => sql.push(" AND l.id = ").bind(id.clone()),
            LinkSelector::ExternalId(id) => sql.push(" AND l.external_id = ").bind(id.clone()),
            LinkSelector::Key { domain, key } => sql
                .push(" AND l.domain = ")
                .bind(domain.clone())
                .push(" AND l.key_folded = ")
                .bind(key.to_lowercase()),
        };
    }

    /// Appends a condition that selects the filtered links. With `rests`, a search rests now and then.
    fn push_filter(&self, sql: &mut Sql, workspace: &Workspace, filter: &LinkFilter, rests: bool) {
        sql.push("WHERE l.workspace_seq = ").bind(workspace.seq);
        if !filter.show_archived {
            sql.push(" AND l.archived = 0");
        }
        if let Some(domain) = &filter.domain {
            sql.push(" AND l.domain = ").bind(domain.clone());
        }
        if let Some(tenant) = &filter.tenant_id {
            sql.push(" AND l.tenant_id = ").bind(tenant.clone());
        }
        match &filter.folder_id {
            None => {}
            Some(None) => {
                sql.push(" AND NOT EXISTS (SELECT 1 FROM folders d WHERE d.workspace_seq = l.workspace_seq");
                sql.push(" AND d.id = l.folder_id)");
            }
            Some(Some(folder)) => {
                sql.push(" AND l.folder_id = (SELECT d.id FROM folders d WHERE d.workspace_seq = ");
                sql.bind(workspace.seq).push(" AND d.id = ").bind(folder.clone()).push(")");
            }
        }
        if filter.has_user {
            sql.push(" AND FALSE");
        }
        if let Some(ids) = &filter.link_ids {
            sql.push(" AND l.seq IN (SELECT k.seq FROM links k WHERE k.id")
                .in_texts(self.dialect, ids)
                .push(")");
        }
        let tagged = " AND l.seq IN (SELECT lt.link_seq FROM link_tags lt JOIN tags g ON g.seq = lt.tag_seq WHERE g.workspace_seq = ";
        if filter.has_tags {
            // Links keep a deleted tag for a while.
            sql.push(" AND EXISTS (SELECT 1 FROM link_tags lt JOIN tags g ON g.seq = lt.tag_seq");
            sql.push(" WHERE lt.link_seq = l.seq AND g.workspace_seq > 0)");
        }
        for ids in &filter.tag_ids {
            sql.push(tagged).bind(workspace.seq);
            sql.push(" AND g.id IN ").texts(self.dialect, ids).push(")");
        }
        if let Some(names) = &filter.tag_names {
            sql.push(tagged).bind(workspace.seq).push(" AND ").folded(self.dialect, "g.name");
            sql.push(" IN ").texts(self.dialect, &folded(names)).push(")");
        }
        if let Some(search) = &filter.search {
            sql.push(" AND ");
            if rests {
                sql.rest_before("l.url");
            }
            sql.push("(l.url").long_contains(self.dialect, &search.text).push(" OR ");
            // As `PublicUrl::short_link` has it, but with readable letters.
            sql.push("(CASE l.domain WHEN ").bind(search.default_domain.clone());
            sql.push(" THEN ").bind(search.default_base.clone());
            sql.push(" ELSE ").bind(search.scheme.clone()).push(" || l.domain END || '/r/' || l.key)");
            sql.long_contains(self.dialect, &search.in_short_link).push(")");
            if rests {
                sql.push(" END");
            }
        }
    }
}

/// Appends a condition that selects links of the workspace by id and external id, and their order.
fn push_selection(sql: &mut Sql, workspace: &Workspace, selectors: &[LinkSelector]) {
    let ids = selectors.iter().filter_map(|selector| match selector {
        LinkSelector::Id(id) => Some(id.clone()),
        LinkSelector::ExternalId(_) | LinkSelector::Key { .. } => None,
    });
    let external_ids = selectors.iter().filter_map(|selector| match selector {
        LinkSelector::ExternalId(id) => Some(id.clone()),
        LinkSelector::Id(_) | LinkSelector::Key { .. } => None,
    });
    sql.push("WHERE l.workspace_seq = ").bind(workspace.seq);
    // Subqueries, because SQLite would read all links of the workspace to find those with some ids.
    sql.push(" AND l.seq IN (SELECT k.seq FROM links k WHERE k.id IN ").list(ids);
    sql.push(" UNION ALL SELECT k.seq FROM links k WHERE k.workspace_seq = ").bind(workspace.seq);
    sql.push(" AND k.external_id IN ").list(external_ids).push(") ORDER BY l.seq");
}

/// The rows of links and of their tags. To turn many large ones into links takes milliseconds. The connection is released before.
struct Found {
    links: Vec<AnyRow>,
    tags: Option<TagsOfLinks>,
}

/// Runs a query that starts with [`LINKS`], and a query for their tags.
async fn find(connection: &mut impl Answers, dialect: Dialect, sql: Sql) -> Result<Found, StoreError> {
    let links = connection.all(sql).await?;
    let seqs = links.iter().map(|row| row.try_get("seq")).collect::<Result<Vec<i64>, _>>()?;
    let tags = TagsOfLinks::find(connection, dialect, &seqs).await?;
    Ok(Found { links, tags })
}

impl Found {
    fn into_links(self) -> Result<Vec<Link>, StoreError> {
        let mut links = self.links.iter().map(link).collect::<Result<Vec<_>, _>>()?;
        if let Some(tags) = self.tags {
            let mut tags = tags.by_link()?;
            for link in &mut links {
                link.tags = tags.remove(&link.seq).unwrap_or_default();
            }
        }
        Ok(links)
    }

    /// Like [`Self::into_links`], in the background if there are many.
    async fn into_many_links(self) -> Result<Vec<Link>, StoreError> {
        if self.links.len() <= FEW {
            return self.into_links();
        }
        in_background(move || self.into_links()).await
    }
}

/// Works on many links, which may be large, on a thread of the lowest priority.
pub(super) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    background::run(work).await.ok_or(StoreError::Background)?
}

/// Runs a query that starts with [`LINKS`], and reads the links and their tags from the rows.
async fn load(connection: &mut impl Answers, dialect: Dialect, sql: Sql) -> Result<Vec<Link>, StoreError> {
    find(connection, dialect, sql).await?.into_links()
}

/// The links with these numbers in any workspace, by number. Deleted links, which have no domain, are left out.
pub(super) async fn load_map(
    connection: &mut impl Answers,
    dialect: Dialect,
    seqs: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, Link>, StoreError> {
    let seqs: Vec<i64> = seqs.collect::<BTreeSet<_>>().into_iter().collect();
    let mut links = HashMap::with_capacity(seqs.len());
    for chunk in seqs.chunks(LINKS_PER_QUERY) {
        let mut sql = Sql::new(LINKS);
        sql.push("WHERE l.domain <> '' AND l.seq IN ").list(chunk.iter().copied());
        links.extend(load(connection, dialect, sql).await?.into_iter().map(|link| (link.seq, link)));
    }
    Ok(links)
}

fn link(row: &AnyRow) -> Result<Link, StoreError> {
    let details: String = row.try_get("details")?;
    Ok(Link {
        seq: row.try_get("seq")?,
        id: row.try_get("id")?,
        workspace_id: row.try_get("workspace_id")?,
        domain: row.try_get("domain")?,
        key: row.try_get("key")?,
        url: row.try_get("url")?,
        external_id: row.try_get("external_id")?,
        tenant_id: row.try_get("tenant_id")?,
        folder_id: row.try_get("folder_id")?,
        archived: row.try_get::<i64, _>("archived")? != 0,
        details: from_json("link details", &details)?,
        tags: Vec::new(),
        clicks: row.try_get("clicks")?,
        last_clicked: optional_instant_of(row, "last_clicked")?,
        created_at: instant_of(row, "created_at")?,
        updated_at: instant_of(row, "updated_at")?,
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn selected_links_are_found_without_reading_all_links_of_the_workspace() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open_or_create(&url).await.unwrap();
        let workspace = store.create_workspace("test", Timestamp::UNIX_EPOCH).await.unwrap();
        let (id, external) = (LinkSelector::Id("1".to_owned()), LinkSelector::ExternalId("1".to_owned()));
        let filter = LinkFilter { link_ids: Some(vec!["1".to_owned()]), ..LinkFilter::default() };
        let query = || Sql::new("EXPLAIN QUERY PLAN ");
        let (mut selected, mut filtered) = (query(), query());
        push_selection(selected.push(LINKS), &workspace, &[id, external]);
        store.push_filter(filtered.push(LINKS), &workspace, &filter, false);
        filtered.push(" ORDER BY l.seq DESC LIMIT 1");
        for query in [selected, filtered] {
            let plan = query.all(&store.write).await.unwrap();
            let steps: Vec<String> = plan.iter().map(|row| row.try_get("detail").unwrap()).collect();
            let mut reads = steps.iter().filter(|step| step.contains(" l "));
            assert!(reads.clone().count() == 1 && reads.all(|read| read.ends_with(" seq=?)")), "{steps:?}");
        }
    }
}
