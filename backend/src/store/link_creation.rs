//! Creation of links.

use std::collections::HashSet;

use jiff::Timestamp;
use sqlx::Row;

use super::domains::Owners;
use super::outbox::enqueue;
use super::sql::Sql;
use super::tags::{add_tags, known_folders, resolve_tags, unknown_folder};
use super::{Store, StoreError, Transaction, Workspace, kept_keys, to_json};
use crate::domain::conflict::Conflict;
use crate::domain::destination;
use crate::domain::event::{Event, Trigger};
use crate::domain::ids;
use crate::domain::link::LinkInput;
use crate::domain::link::{Link, MAX_LINK_BYTES};
use crate::domain::public_url::PublicUrl;

/// Attempts to find a random key that is free. With 36^7 keys even a domain with a billion links needs two.
const KEY_ATTEMPTS: usize = 8;

/// A link to be created: the fields of the request, and its domain.
#[derive(Clone, Debug)]
pub(crate) struct NewLink {
    pub(crate) input: LinkInput,
    pub(crate) domain: String,
    /// The domain is the default domain.
    on_default: bool,
}

impl NewLink {
    /// A link on the domain of `input`, or on the default domain.
    pub(crate) fn of(input: LinkInput, public: &PublicUrl) -> Self {
        let default = public.default_domain();
        let domain = input.domain.clone().unwrap_or_else(|| default.to_owned());
        Self { on_default: domain == default, input, domain }
    }
}

/// A link that is checked but not written yet.
pub(super) struct Draft {
    /// Index of the request that asks for it.
    index: usize,
    link: Link,
    /// The conflict of a link that is too large. Like the row, it is known before the transaction begins.
    pub(super) too_large: Option<Conflict>,
    /// The values of the link's row as a JSON list.
    row: String,
}

impl Draft {
    fn new(index: usize, link: Link) -> Result<Self, StoreError> {
        let details = to_json("link details", &link.details)?;
        let row = row(&link, &details)?;
        Ok(Self { index, too_large: too_large(&link, &details), link, row })
    }

    /// The domain of the link, and its key in lower case.
    fn name(&self) -> kept_keys::Name {
        (self.link.domain.clone(), self.link.key.to_lowercase())
    }
}

/// The conflict of a link with these details as JSON that is too large, or has a destination that is too long.
pub(super) fn too_large(link: &Link, details: &str) -> Option<Conflict> {
    let texts = [&link.external_id, &link.tenant_id, &link.folder_id].into_iter().flatten().map(String::len);
    let bytes = link.domain.len() + link.key.len() + link.url.len() + texts.sum::<usize>() + details.len();
    destination::too_long(&link.url).or((bytes > MAX_LINK_BYTES).then_some(Conflict::TooLarge))
}

/// Whether another link of the workspace has the link's external id.
async fn external_id_is_taken(
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

/// The columns of a link that an update may change.
pub(super) const COLUMNS: &str =
    "domain, key, key_folded, url, external_id, tenant_id, folder_id, archived, details, updated_at";
/// Their values in [`row`].
pub(super) const VALUES: &str = "value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7,
    CAST(value->>8 AS BIGINT), value->>9, CAST(value->>10 AS BIGINT)";

/// The values of a link's row as a JSON list.
pub(super) fn row(link: &Link, details: &str) -> Result<String, StoreError> {
    let values = (
        &link.id,
        &link.domain,
        &link.key,
        link.key.to_lowercase(),
        &link.url,
        &link.external_id,
        &link.tenant_id,
        &link.folder_id,
        i64::from(link.archived),
        details,
        link.updated_at.as_millisecond(),
    );
    to_json("links", &values)
}

/// A random key of the length and with the prefix that a request asks for.
fn random_key(input: &LinkInput) -> String {
    let random = ids::short_key(input.key_length.unwrap_or(ids::KEY_LENGTH));
    match &input.prefix {
        Some(prefix) => format!("{prefix}/{random}"),
        None => random,
    }
}

/// The links to be created, without their tags.
pub(super) fn drafts(
    workspace: &Workspace,
    links: &[NewLink],
    now: Timestamp,
) -> Result<Vec<Draft>, StoreError> {
    let draft = |(index, NewLink { input, domain, .. }): (usize, &NewLink)| {
        let mut link = Link {
            id: ids::sortable("link_", now),
            workspace_id: workspace.id.clone(),
            domain: domain.clone(),
            key: input.key.clone().unwrap_or_else(|| random_key(input)),
            url: input.destination(None),
            external_id: input.external_id.clone().set(),
            tenant_id: input.tenant_id.clone().set(),
            folder_id: input.folder_id.clone().set(),
            archived: input.archived.unwrap_or(false),
            created_at: now,
            updated_at: now,
            ..Link::default()
        };
        input.details.clone().apply(&mut link.details);
        Draft::new(index, link)
    };
    links.iter().enumerate().map(draft).collect()
}

impl Store {
    /// Creates links in one transaction. The results are in the order of `links`. With `announce`, webhooks hear of them.
    pub(crate) async fn create_links(
        &self,
        workspace: &Workspace,
        links: &[NewLink],
        now: Timestamp,
        announce: Option<&PublicUrl>,
    ) -> Result<Vec<Result<Link, Conflict>>, StoreError> {
        let drafts = drafts(workspace, links, now)?;
        // Numbers of links are then in the order of the commits, so that a client that asks for links after the last one misses none.
        let mut transaction = self.begin_alone(workspace).await?;
        let results = self.create(&mut transaction, workspace, links, drafts, now).await?;
        if let Some(public) = announce {
            for link in results.iter().filter_map(|result| result.as_ref().ok()) {
                let event = Event::of_link(Trigger::Created, link, public, now);
                enqueue(&mut transaction, workspace.seq, link, event).await?;
            }
        }
        transaction.commit().await?;
        Ok(results)
    }

    /// Creates the links of `drafts`. The results are in the order of `links`.
    pub(super) async fn create(
        &self,
        transaction: &mut Transaction,
        workspace: &Workspace,
        links: &[NewLink],
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Result<Link, Conflict>>, StoreError> {
        let mut results = vec![None; links.len()];
        let domains = drafts.iter().map(|draft| draft.link.domain.as_str());
        let owners = Owners::of(transaction, domains).await?;
        let folders = drafts.iter().filter_map(|draft| draft.link.folder_id.as_deref());
        let folders = known_folders(transaction, workspace, folders).await?;
        let tags = drafts.iter().map(|draft| links[draft.index].input.tags.as_ref());
        let tags = resolve_tags(transaction, workspace, tags).await?;
        let mut fitting = Vec::with_capacity(drafts.len());
        for (mut draft, tags) in drafts.into_iter().zip(tags) {
            let tags = if let Some(conflict) = draft.too_large.take() {
                Err(conflict)
            } else if !owners.permit(workspace, &draft.link.domain, links[draft.index].on_default) {
                Err(Conflict::Domain)
            } else if let Some(conflict) = unknown_folder(draft.link.folder_id.as_ref(), &folders) {
                Err(conflict)
            } else {
                tags
            };
            match tags {
                Ok(tags) => {
                    draft.link.tags = tags;
                    fitting.push(draft);
                }
                Err(conflict) => results[draft.index] = Some(Err(conflict)),
            }
        }
        let mut drafts = fitting;
        for _ in 0..KEY_ATTEMPTS {
            if drafts.is_empty() {
                break;
            }
            let inserted = self.insert(transaction, workspace, &drafts, now).await?;
            let mut taken = Vec::new();
            for Draft { index, mut link, .. } in drafts {
                let input = &links[index].input;
                if inserted.contains(&link.id) {
                    results[index] = Some(Ok(link));
                } else if external_id_is_taken(transaction, workspace, &link).await? {
                    results[index] = Some(Err(Conflict::ExternalId));
                } else if input.key.is_some() {
                    results[index] = Some(Err(Conflict::Key));
                } else {
                    link.key = random_key(input);
                    taken.push(Draft::new(index, link)?);
                }
            }
            drafts = taken;
        }
        let results: Vec<_> =
            results.into_iter().map(|result| result.unwrap_or(Err(Conflict::Key))).collect();
        add_tags(transaction, results.iter().filter_map(|result| result.as_ref().ok())).await?;
        Ok(results)
    }

    /// Inserts the drafts that conflict neither with another link nor with a key that is kept for others, in their order, and returns the ids
    /// of these.
    async fn insert(
        &self,
        transaction: &mut Transaction,
        workspace: &Workspace,
        drafts: &[Draft],
        now: Timestamp,
    ) -> Result<HashSet<String>, StoreError> {
        let rows: Vec<&str> = drafts.iter().map(|draft| draft.row.as_str()).collect();
        let mut sql = Sql::new("INSERT INTO links (workspace_seq, id, created_at, ");
        sql.push(COLUMNS).push(") SELECT CAST(").bind(workspace.seq);
        sql.push(" AS BIGINT), value->>0, CAST(value->>10 AS BIGINT), ").push(VALUES).push(" FROM ");
        sql.each(format!("[{}]", rows.join(",")));
        sql.in_order().push(" ON CONFLICT DO NOTHING");
        let inserted = sql.execute(&mut **transaction).await?;
        // Only now: the insertion has waited for the deletion of a link by another process, which keeps its key.
        let names: Vec<_> = drafts.iter().map(Draft::name).collect();
        let kept = kept_keys::of_others(transaction, workspace, &names, now).await?;
        let ids: Vec<&str> = drafts.iter().map(|draft| draft.link.id.as_str()).collect();
        if kept.is_empty() && usize::try_from(inserted) == Ok(drafts.len()) {
            return Ok(ids.into_iter().map(str::to_owned).collect());
        }
        if !kept.is_empty() {
            let kept = drafts.iter().filter(|draft| kept.contains(&draft.name()));
            let kept: Vec<&str> = kept.map(|draft| draft.link.id.as_str()).collect();
            let mut sql = Sql::new("DELETE FROM links WHERE id IN ");
            sql.texts(&kept);
            sql.execute(&mut **transaction).await?;
        }
        let mut sql = Sql::new("SELECT l.id FROM links l WHERE l.id IN ");
        sql.texts(&ids);
        let rows = sql.all(&mut **transaction).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
