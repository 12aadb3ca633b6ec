//! Queries for links that requests name, and how links are read.

use std::collections::{BTreeSet, HashMap};

use sqlx::Row;
use sqlx::any::AnyRow;

use super::reader::Queries;
use super::sql::Sql;
use super::tags::TagsOfLinks;
use super::{Store, StoreError, Transaction, Workspace, from_json, instant_of, optional_instant_of};
use crate::apart;
use crate::domain::link::{Details, Link};

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

/// The data of a link that a redirect needs.
#[derive(Clone, Debug)]
pub(crate) struct RedirectTarget {
    pub(crate) link_id: String,
    pub(crate) url: String,
    pub(crate) details: Details,
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
        Ok(load(&mut *self.read.acquire().await?, sql).await?.pop())
    }

    /// The selected links of the workspace, oldest first. No other transaction changes them until this one ends. Those that the workspace does
    /// not have are left out.
    pub(super) async fn lock_links(
        &self,
        transaction: &mut Transaction,
        workspace: &Workspace,
        selectors: &[LinkSelector],
    ) -> Result<Vec<Link>, StoreError> {
        let mut sql = Sql::new(LINKS);
        push_selection(&mut sql, workspace, selectors);
        self.load_locked(transaction, sql).await
    }

    /// Loads links that no other transaction changes until this one ends.
    pub(super) async fn load_locked(
        &self,
        transaction: &mut Transaction,
        mut sql: Sql,
    ) -> Result<Vec<Link>, StoreError> {
        sql.lock(" FOR UPDATE OF l");
        load(&mut **transaction, sql).await
    }

    /// The target of the short link on `domain` with this key in lower case, in any workspace.
    pub(crate) async fn redirect_target(
        &self,
        domain: &str,
        folded_key: &str,
    ) -> Result<Option<RedirectTarget>, StoreError> {
        let mut sql = Sql::new("SELECT l.id, l.url, l.details FROM links l WHERE l.domain = ");
        sql.bind(domain.to_owned()).push(" AND l.key_folded = ").bind(folded_key.to_owned());
        let Some(row) = sql.optional(&self.read).await? else { return Ok(None) };
        let details = from_json("link details", row.try_get("details")?)?;
        Ok(Some(RedirectTarget { link_id: row.try_get("id")?, url: row.try_get("url")?, details }))
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
}

/// Appends a condition that selects links of the workspace by id and external id, and their order.
pub(super) fn push_selection(sql: &mut Sql, workspace: &Workspace, selectors: &[LinkSelector]) {
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
pub(super) struct LinkRows {
    links: Vec<AnyRow>,
    tags: Option<TagsOfLinks>,
}

/// Runs a query that starts with [`LINKS`], and a query for their tags.
pub(super) async fn find(connection: &mut impl Queries, sql: Sql) -> Result<LinkRows, StoreError> {
    let links = connection.all(sql).await?;
    let seqs = links.iter().map(|row| row.try_get("seq")).collect::<Result<Vec<i64>, _>>()?;
    let tags = TagsOfLinks::find(connection, &seqs).await?;
    Ok(LinkRows { links, tags })
}

impl LinkRows {
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

    /// Like [`Self::into_links`], on another thread if there are many.
    pub(super) async fn into_many_links(self) -> Result<Vec<Link>, StoreError> {
        if self.links.len() <= FEW { self.into_links() } else { apart::run(move || self.into_links()).await }
    }
}

/// Runs a query that starts with [`LINKS`], and reads the links and their tags from the rows.
async fn load(connection: &mut impl Queries, sql: Sql) -> Result<Vec<Link>, StoreError> {
    find(connection, sql).await?.into_links()
}

/// The links with these numbers in any workspace, by number. Deleted links, which have no domain, are left out.
pub(crate) async fn links_of(
    connection: &mut impl Queries,
    seqs: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, Link>, StoreError> {
    let seqs: Vec<i64> = seqs.collect::<BTreeSet<_>>().into_iter().collect();
    let mut links = HashMap::with_capacity(seqs.len());
    for chunk in seqs.chunks(LINKS_PER_QUERY) {
        let mut sql = Sql::new(LINKS);
        sql.push("WHERE l.domain <> '' AND l.seq IN ").list(chunk.iter().copied());
        links.extend(load(connection, sql).await?.into_iter().map(|link| (link.seq, link)));
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
