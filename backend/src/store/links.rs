//! Links and their tags.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::sql::Sql;
use super::webhooks::enqueue;
use super::{Dialect, Store, StoreError, Workspace, from_json, instant_of, optional_instant_of, to_json};
use crate::ids;
use crate::links::input::{LinkInput, TagSelection};
use crate::links::{Details, Link, PublicUrl, TAG_COLORS, Tag, UtmParameters};
use crate::webhooks::{Event, Trigger};

/// Attempts to find a random key that is free. With 36^7 keys even a domain with a billion links needs two.
const KEY_ATTEMPTS: usize = 8;

/// Links named in one query; SQLite takes at most 32,766 arguments.
const LINKS_PER_QUERY: usize = 5_000;

/// A link to be made: what the request says, on a domain that may carry it.
#[derive(Clone, Debug)]
pub(crate) struct NewLink {
    pub(crate) input: LinkInput,
    pub(crate) domain: String,
}

/// Why one link was not made or changed, while others may have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkConflict {
    #[error("Duplicate key: This short link already exists.")]
    Key,
    #[error("A link with this externalId already exists in this workspace.")]
    ExternalId,
    #[error("Invalid tagIds detected: {}", .0.join(", "))]
    UnknownTags(Vec<String>),
}

/// How a request names one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkSelector {
    Id(String),
    ExternalId(String),
    Key { domain: String, key: String },
}

/// Which links of a workspace are meant; empty fields do not narrow.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkFilter {
    pub(crate) domain: Option<String>,
    pub(crate) tag_ids: Vec<String>,
    pub(crate) tag_names: Vec<String>,
    /// `Some(None)`: links in no folder.
    pub(crate) folder_id: Option<Option<String>>,
    pub(crate) tenant_id: Option<String>,
    /// Part of the destination, or of the short link without its scheme.
    pub(crate) search: Option<String>,
    pub(crate) link_ids: Vec<String>,
    pub(crate) show_archived: bool,
}

/// The order of a list; always the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkOrder {
    #[default]
    CreatedAt,
    Clicks,
    LastClicked,
}

/// Which part of a list is meant.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    Offset {
        skip: i64,
        order: LinkOrder,
    },
    /// Those made before the link of this id.
    StartingAfter(String),
    /// The nearest of those made after the link of this id.
    EndingBefore(String),
}

/// What a redirect needs to know of a link.
#[derive(Clone, Debug)]
pub(crate) struct RedirectTarget {
    pub(crate) link_id: String,
    pub(crate) url: String,
    pub(crate) details: Details,
}

const LINKS: &str = "SELECT l.seq, l.id, w.id AS workspace_id, l.domain, l.key, l.url, l.external_id, l.tenant_id,
    l.folder_id, l.archived, l.details, l.created_at, l.updated_at, COALESCE(t.clicks, 0) AS clicks, t.last_clicked
    FROM links l JOIN workspaces w ON w.seq = l.workspace_seq LEFT JOIN link_totals t ON t.link_seq = l.seq ";

impl Store {
    /// Makes links in one transaction; the answers are in the order of `links`. With `announce`, webhooks are told.
    pub(crate) async fn create_links(
        &self,
        workspace: &Workspace,
        links: &[NewLink],
        now: Timestamp,
        announce: Option<&PublicUrl>,
    ) -> Result<Vec<Result<Link, LinkConflict>>, StoreError> {
        let mut transaction = self.begin().await?;
        let mut results = vec![None; links.len()];
        let mut drafts = Vec::with_capacity(links.len());
        for (index, new) in links.iter().enumerate() {
            match resolve_tags(&mut transaction, workspace, new.input.tags.as_ref(), now).await? {
                Err(conflict) => results[index] = Some(Err(conflict)),
                Ok(tags) => drafts.push((index, draft(workspace, new, tags, now))),
            }
        }
        for _ in 0..KEY_ATTEMPTS {
            let inserted = insert(&mut transaction, workspace, &drafts).await?;
            let mut taken = Vec::new();
            for (index, mut link) in drafts {
                if let Some(seq) = inserted.get(&link.id) {
                    link.seq = *seq;
                    results[index] = Some(Ok(link));
                } else if external_id_is_taken(&mut transaction, workspace, &link).await? {
                    results[index] = Some(Err(LinkConflict::ExternalId));
                } else if links[index].input.key.is_some() {
                    results[index] = Some(Err(LinkConflict::Key));
                } else {
                    link.key = random_key(&links[index].input);
                    taken.push((index, link));
                }
            }
            drafts = taken;
            if drafts.is_empty() {
                break;
            }
        }
        let results: Vec<_> =
            results.into_iter().map(|result| result.unwrap_or(Err(LinkConflict::Key))).collect();
        let made: Vec<&Link> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
        for link in &made {
            set_tags(&mut transaction, link).await?;
        }
        if let Some(public) = announce {
            for link in made {
                let event = Event::of_link(Trigger::Created, link, public, now);
                enqueue(&mut transaction, workspace.seq, link, &event).await?;
            }
        }
        transaction.commit().await?;
        Ok(results)
    }

    /// The link that `selector` names in the workspace.
    pub(crate) async fn link(
        &self,
        workspace: &Workspace,
        selector: &LinkSelector,
    ) -> Result<Option<Link>, StoreError> {
        let mut connection = self.read.acquire().await?;
        let mut sql = Sql::new(LINKS);
        push_selector(&mut sql, workspace, selector);
        Ok(load(&mut connection, sql).await?.pop())
    }

    /// Deletes a link with its clicks, and tells webhooks. None if the workspace has no such link.
    pub(crate) async fn delete_link(
        &self,
        workspace: &Workspace,
        selector: &LinkSelector,
        now: Timestamp,
        public: &PublicUrl,
    ) -> Result<Option<Link>, StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(LINKS);
        push_selector(&mut sql, workspace, selector);
        let Some(link) = load(&mut transaction, sql).await?.pop() else { return Ok(None) };
        let event = Event::of_link(Trigger::Deleted, &link, public, now);
        enqueue(&mut transaction, workspace.seq, &link, &event).await?;
        let mut sql = Sql::new("DELETE FROM links WHERE seq = ");
        sql.bind(link.seq);
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Some(link))
    }

    /// A page of the links that `filter` lets through, newest first unless the page says otherwise. None if the page
    /// starts at a link that the workspace does not have.
    pub(crate) async fn list_links(
        &self,
        workspace: &Workspace,
        filter: &LinkFilter,
        page: &Page,
        size: i64,
    ) -> Result<Option<Vec<Link>>, StoreError> {
        let mut connection = self.read.acquire().await?;
        let mut sql = Sql::new(LINKS);
        self.push_filter(&mut sql, workspace, filter);
        match page {
            Page::Offset { skip, order } => {
                sql.push(match order {
                    LinkOrder::CreatedAt => " ORDER BY l.seq DESC LIMIT ",
                    LinkOrder::Clicks => " ORDER BY clicks DESC, l.seq DESC LIMIT ",
                    LinkOrder::LastClicked => " ORDER BY COALESCE(t.last_clicked, 0) DESC, l.seq DESC LIMIT ",
                });
                sql.bind(size).push(" OFFSET ").bind(*skip);
            }
            Page::StartingAfter(id) | Page::EndingBefore(id) => {
                let mut cursor = Sql::new("SELECT l.seq FROM links l WHERE l.workspace_seq = ");
                cursor.bind(workspace.seq).push(" AND l.id = ").bind(id.clone());
                let Some(row) = cursor.optional(&mut *connection).await? else { return Ok(None) };
                let seq: i64 = row.try_get(0)?;
                if matches!(page, Page::StartingAfter(_)) {
                    sql.push(" AND l.seq < ").bind(seq).push(" ORDER BY l.seq DESC LIMIT ").bind(size);
                } else {
                    sql.push(" AND l.seq > ").bind(seq).push(" ORDER BY l.seq LIMIT ").bind(size);
                }
            }
        }
        let mut links = load(&mut connection, sql).await?;
        if matches!(page, Page::EndingBefore(_)) {
            links.reverse();
        }
        Ok(Some(links))
    }

    /// How many links `filter` lets through.
    pub(crate) async fn count_links(
        &self,
        workspace: &Workspace,
        filter: &LinkFilter,
    ) -> Result<i64, StoreError> {
        let mut sql = Sql::new("SELECT COUNT(*) FROM links l ");
        self.push_filter(&mut sql, workspace, filter);
        Ok(sql.number(&self.read).await?)
    }

    /// Where the short link `key` on `domain` leads, whosever it is.
    pub(crate) async fn redirect_target(
        &self,
        domain: &str,
        key: &str,
    ) -> Result<Option<RedirectTarget>, StoreError> {
        let mut sql = Sql::new("SELECT l.id, l.url, l.details FROM links l WHERE l.domain = ");
        sql.bind(domain.to_owned()).push(" AND l.key_folded = ").bind(key.to_lowercase());
        let Some(row) = sql.optional(&self.read).await? else { return Ok(None) };
        let details: String = row.try_get("details")?;
        Ok(Some(RedirectTarget {
            link_id: row.try_get("id")?,
            url: row.try_get("url")?,
            details: from_json("link details", &details)?,
        }))
    }

    /// The tags of a workspace.
    pub(crate) async fn tags(&self, workspace: &Workspace) -> Result<Vec<Tag>, StoreError> {
        let mut sql = Sql::new("SELECT g.id, g.name, g.color FROM tags g WHERE g.workspace_seq = ");
        sql.bind(workspace.seq).push(" ORDER BY g.seq");
        sql.all(&self.read).await?.iter().map(tag).collect()
    }

    fn push_filter(&self, sql: &mut Sql, workspace: &Workspace, filter: &LinkFilter) {
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
            Some(None) => _ = sql.push(" AND l.folder_id IS NULL"),
            Some(Some(folder)) => _ = sql.push(" AND l.folder_id = ").bind(folder.clone()),
        }
        if !filter.link_ids.is_empty() {
            sql.push(" AND l.id IN ").list(filter.link_ids.iter().cloned());
        }
        let tagged =
            " AND l.seq IN (SELECT lt.link_seq FROM link_tags lt JOIN tags g ON g.seq = lt.tag_seq WHERE ";
        if !filter.tag_ids.is_empty() {
            sql.push(tagged).push("g.id IN ").list(filter.tag_ids.iter().cloned()).push(")");
        }
        if !filter.tag_names.is_empty() {
            sql.push(tagged).push("g.name IN ").list(filter.tag_names.iter().cloned()).push(")");
        }
        if let Some(search) = &filter.search {
            let like = match self.dialect {
                Dialect::Sqlite => " LIKE ",
                Dialect::Postgres => " ILIKE ",
            };
            let pattern = format!("%{}%", escape_like(search));
            sql.push(" AND (l.url")
                .push(like)
                .bind(pattern.clone())
                .push(" ESCAPE '\\' OR (l.domain || '/' || l.key)");
            sql.push(like).bind(pattern).push(" ESCAPE '\\')");
        }
    }
}

fn escape_like(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}

fn push_selector(sql: &mut Sql, workspace: &Workspace, selector: &LinkSelector) {
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

fn draft(workspace: &Workspace, new: &NewLink, tags: Vec<Tag>, now: Timestamp) -> Link {
    let input = &new.input;
    let mut details = Details::default();
    input.apply_details(&mut details);
    Link {
        seq: 0,
        id: ids::sortable("link_", now),
        workspace_id: workspace.id.clone(),
        domain: new.domain.clone(),
        key: input.key.clone().unwrap_or_else(|| random_key(input)),
        url: input.destination(None),
        external_id: input.external_id.clone().set(),
        tenant_id: input.tenant_id.clone().set(),
        folder_id: input.folder_id.clone().set(),
        archived: input.archived.unwrap_or(false),
        details,
        tags,
        clicks: 0,
        last_clicked: None,
        created_at: now,
        updated_at: now,
    }
}

fn random_key(input: &LinkInput) -> String {
    let random = ids::short_key(input.key_length.unwrap_or(ids::DEFAULT_KEY_LENGTH));
    match &input.prefix {
        Some(prefix) => format!("{prefix}/{random}"),
        None => random,
    }
}

/// Inserts those that are in nobody's way, and returns their numbers by id.
async fn insert(
    transaction: &mut Transaction<'static, Any>,
    workspace: &Workspace,
    drafts: &[(usize, Link)],
) -> Result<HashMap<String, i64>, StoreError> {
    if drafts.is_empty() {
        return Ok(HashMap::new());
    }
    let mut details = Vec::with_capacity(drafts.len());
    for (_, link) in drafts {
        details.push((link, to_json("link details", &link.details)?));
    }
    let mut sql = Sql::new(
        "INSERT INTO links (id, workspace_seq, domain, key, key_folded, url, utm_source, utm_medium, utm_campaign,
         utm_term, utm_content, external_id, tenant_id, folder_id, archived, details, created_at, updated_at) VALUES ",
    );
    sql.rows(&details, |row, (link, details)| {
        row.bind(link.id.clone()).bind(workspace.seq).bind(link.domain.clone());
        row.bind(link.key.clone()).bind(link.key.to_lowercase()).bind(link.url.clone());
        let utm = UtmParameters::of(&link.url);
        row.bind(utm.source).bind(utm.medium).bind(utm.campaign).bind(utm.term).bind(utm.content);
        row.bind(link.external_id.clone()).bind(link.tenant_id.clone()).bind(link.folder_id.clone());
        row.bind(i64::from(link.archived)).bind(details.clone());
        row.bind(link.created_at.as_millisecond()).bind(link.updated_at.as_millisecond());
    });
    sql.push(" ON CONFLICT DO NOTHING RETURNING id, seq");
    let rows = sql.all(&mut **transaction).await?;
    rows.iter().map(|row| Ok((row.try_get("id")?, row.try_get("seq")?))).collect()
}

async fn external_id_is_taken(
    transaction: &mut Transaction<'static, Any>,
    workspace: &Workspace,
    link: &Link,
) -> Result<bool, StoreError> {
    let Some(external_id) = &link.external_id else { return Ok(false) };
    let mut sql = Sql::new("SELECT l.seq FROM links l WHERE l.workspace_seq = ");
    sql.bind(workspace.seq).push(" AND l.external_id = ").bind(external_id.clone());
    sql.push(" AND l.id <> ").bind(link.id.clone());
    Ok(sql.optional(&mut **transaction).await?.is_some())
}

/// The tags that a selection means, in their order of creation.
async fn resolve_tags(
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

/// Makes the stored tags of a link those that it carries.
async fn set_tags(transaction: &mut Transaction<'static, Any>, link: &Link) -> Result<(), StoreError> {
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

/// Runs a query that starts with [`LINKS`] and adds the tags.
pub(super) async fn load(connection: &mut sqlx::AnyConnection, sql: Sql) -> Result<Vec<Link>, StoreError> {
    let rows = sql.all(&mut *connection).await?;
    let mut links = rows.iter().map(link).collect::<Result<Vec<_>, _>>()?;
    if links.is_empty() {
        return Ok(links);
    }
    let mut sql = Sql::new(
        "SELECT lt.link_seq, g.id, g.name, g.color FROM link_tags lt JOIN tags g ON g.seq = lt.tag_seq
         WHERE lt.link_seq IN ",
    );
    sql.list(links.iter().map(|link| link.seq)).push(" ORDER BY g.seq");
    let mut tags: BTreeMap<i64, Vec<Tag>> = BTreeMap::new();
    for row in sql.all(&mut *connection).await? {
        tags.entry(row.try_get("link_seq")?).or_default().push(tag(&row)?);
    }
    for link in &mut links {
        link.tags = tags.remove(&link.seq).unwrap_or_default();
    }
    Ok(links)
}

/// The links of these numbers, whosever they are, by number.
pub(super) async fn load_map(
    connection: &mut sqlx::AnyConnection,
    seqs: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, Link>, StoreError> {
    let seqs: Vec<i64> = seqs.collect::<BTreeSet<_>>().into_iter().collect();
    let mut links = HashMap::with_capacity(seqs.len());
    for chunk in seqs.chunks(LINKS_PER_QUERY) {
        let mut sql = Sql::new(LINKS);
        sql.push("WHERE l.seq IN ").list(chunk.iter().copied());
        links.extend(load(connection, sql).await?.into_iter().map(|link| (link.seq, link)));
    }
    Ok(links)
}

fn tag(row: &AnyRow) -> Result<Tag, StoreError> {
    Ok(Tag { id: row.try_get("id")?, name: row.try_get("name")?, color: row.try_get("color")? })
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
