//! Links made, changed and deleted.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use sqlx::{Any, Row, Transaction};

use super::deleted_links::put_out_of_reach;
use super::domains::domains_of_others;
use super::folders::known_folders;
use super::key_order::SortedKey;
use super::link_size::{self, MAX_LINK_BYTES};
use super::links::{LINKS, LinkSelector, load, push_selectors};
use super::outbox::enqueue;
use super::sql::Sql;
use super::tags::{add_tags, resolve_tags};
use super::{Dialect, Store, StoreError, Workspace, to_json};
use crate::ids;
use crate::links::input::LinkInput;
use crate::links::{Details, Link, PublicUrl, Tag, UtmParameters, key};
use crate::webhooks::{Event, Trigger};

/// Attempts to find a random key that is free. With 36^7 keys even a domain with a billion links needs two.
const KEY_ATTEMPTS: usize = 8;

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
    #[error("custom: key: {}", key::INVALID)]
    InvalidKey,
    #[error("A link with this externalId already exists in this workspace.")]
    ExternalId,
    /// The field names tags or a folder that the workspace does not have.
    #[error("Invalid {field} detected: {}", .values.join(", "))]
    Unknown { field: &'static str, values: Vec<String> },
    #[error("Domain does not belong to workspace.")]
    Domain,
    /// The link would be too large; its longest field is named.
    #[error("too_big: {0}: Too big: expected the link to have <={MAX_LINK_BYTES} bytes")]
    TooLarge(&'static str),
}

impl LinkConflict {
    /// The conflict of a link whose folder is not among `known`.
    fn of_folder(folder: Option<&String>, known: &HashSet<String>) -> Option<Self> {
        let unknown = folder.filter(|folder| !known.contains(*folder))?;
        Some(Self::Unknown { field: "folderId", values: vec![unknown.clone()] })
    }
}

/// A link that is checked and not written yet.
struct Draft {
    /// Index of the request that asks for it.
    index: usize,
    /// Sort key of the link's key.
    sort_key: String,
    link: Link,
}

/// A link that was changed, or made.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    /// As it was; None if it was made.
    pub(crate) before: Option<Link>,
    pub(crate) after: Link,
}

impl Store {
    /// Makes links in one transaction; the answers are in the order of `links`. With `announce`, webhooks are told.
    pub(crate) async fn create_links(
        &self,
        workspace: &Workspace,
        links: &[NewLink],
        now: Timestamp,
        announce: Option<&PublicUrl>,
    ) -> Result<Vec<Result<Link, LinkConflict>>, StoreError> {
        let drafts = self.draft(workspace, links, now);
        let mut transaction = self.begin().await?;
        let results = self.create(&mut transaction, workspace, links, drafts).await?;
        if let Some(public) = announce {
            for link in results.iter().filter_map(|result| result.as_ref().ok()) {
                let event = Event::of_link(Trigger::Created, link, public, now);
                enqueue(&mut transaction, self.dialect, workspace.seq, link, event).await?;
            }
        }
        transaction.commit().await?;
        Ok(results)
    }

    /// Changes one link, and tells webhooks. None if the workspace has no such link.
    pub(crate) async fn update_link(
        &self,
        workspace: &Workspace,
        selector: &LinkSelector,
        input: &LinkInput,
        now: Timestamp,
        public: &PublicUrl,
    ) -> Result<Option<Result<Changed, LinkConflict>>, StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(LINKS);
        self.push_selector(&mut sql, workspace, selector);
        let Some(link) = self.load_to_change(&mut transaction, sql).await?.pop() else { return Ok(None) };
        let tags = match self.check(&mut transaction, workspace, input).await? {
            Ok(tags) => tags,
            Err(conflict) => return Ok(Some(Err(conflict))),
        };
        let changed = self.change(&mut transaction, workspace, link, input, tags.as_deref(), now).await?;
        if let Ok(changed) = &changed {
            announce_update(&mut transaction, self.dialect, workspace, changed, public, now).await?;
            transaction.commit().await?;
        }
        Ok(Some(changed))
    }

    /// Changes the link whose destination is that of `new`, and tells webhooks, or makes one, which it does not. With
    /// several such links, the oldest.
    pub(crate) async fn upsert_link(
        &self,
        workspace: &Workspace,
        new: &NewLink,
        now: Timestamp,
        public: &PublicUrl,
    ) -> Result<Result<Changed, LinkConflict>, StoreError> {
        // Two concurrent calls must not both find no link and both create one.
        let mut transaction = self.begin_alone(workspace).await?;
        let mut sql = Sql::new(LINKS);
        sql.push("WHERE l.workspace_seq = ").bind(workspace.seq);
        let url = new.input.destination(None);
        if self.dialect == Dialect::Postgres {
            // The index contains hashes, because an entry of an index has at most 2,704 bytes.
            sql.push(" AND md5(l.url) = md5(").bind(url.clone()).push(")");
        }
        sql.push(" AND l.url = ").bind(url).push(" ORDER BY l.seq LIMIT 1");
        let result = match self.load_to_change(&mut transaction, sql).await?.pop() {
            Some(link) => {
                let tags = match self.check(&mut transaction, workspace, &new.input).await? {
                    Ok(tags) => tags,
                    Err(conflict) => return Ok(Err(conflict)),
                };
                let changed =
                    self.change(&mut transaction, workspace, link, &new.input, tags.as_deref(), now).await?;
                if let Ok(changed) = &changed {
                    announce_update(&mut transaction, self.dialect, workspace, changed, public, now).await?;
                }
                changed
            }
            None => {
                let links = std::slice::from_ref(new);
                let drafts = self.draft(workspace, links, now);
                match self.create(&mut transaction, workspace, links, drafts).await?.pop() {
                    Some(Ok(link)) => Ok(Changed { before: None, after: link }),
                    Some(Err(conflict)) => Err(conflict),
                    None => Err(LinkConflict::Key),
                }
            }
        };
        if result.is_ok() {
            transaction.commit().await?;
        }
        Ok(result)
    }

    /// Changes links alike in one transaction, without telling webhooks. Those that the workspace does not have are left
    /// out; the others are in the order of `selectors`.
    pub(crate) async fn update_links(
        &self,
        workspace: &Workspace,
        selectors: &[LinkSelector],
        input: &LinkInput,
        now: Timestamp,
    ) -> Result<Result<Vec<Changed>, LinkConflict>, StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(LINKS);
        push_selectors(&mut sql, workspace, selectors);
        sql.push(" ORDER BY l.seq");
        let links = self.load_to_change(&mut transaction, sql).await?;
        let tags = match self.check(&mut transaction, workspace, input).await? {
            Ok(tags) => tags,
            Err(conflict) => return Ok(Err(conflict)),
        };
        let mut changed = Vec::with_capacity(links.len());
        for link in links {
            match self.change(&mut transaction, workspace, link, input, tags.as_deref(), now).await? {
                Ok(link) => changed.push(link),
                Err(conflict) => return Ok(Err(conflict)),
            }
        }
        transaction.commit().await?;
        let mut places = HashMap::new();
        for (place, selector) in selectors.iter().enumerate() {
            places.entry(selector).or_insert(place);
        }
        changed.sort_by_cached_key(|changed| {
            let link = &changed.after;
            let id = LinkSelector::Id(link.id.clone());
            let external_id = link.external_id.clone().map(LinkSelector::ExternalId);
            [Some(id), external_id]
                .iter()
                .flatten()
                .filter_map(|selector| places.get(selector))
                .min()
                .copied()
        });
        Ok(Ok(changed))
    }

    /// Deletes links, without telling webhooks; the rows of their clicks go later. Those that the workspace does not have are left out.
    pub(crate) async fn delete_links(
        &self,
        workspace: &Workspace,
        selectors: &[LinkSelector],
    ) -> Result<Vec<Link>, StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(LINKS);
        push_selectors(&mut sql, workspace, selectors);
        sql.push(" ORDER BY l.seq");
        let links = self.load_to_change(&mut transaction, sql).await?;
        let seqs: Vec<i64> = links.iter().map(|link| link.seq).collect();
        put_out_of_reach(&mut transaction, self.dialect, &seqs).await?;
        transaction.commit().await?;
        Ok(links)
    }

    /// Loads links that nobody else may change until the transaction ends.
    async fn load_to_change(
        &self,
        transaction: &mut Transaction<'static, Any>,
        mut sql: Sql,
    ) -> Result<Vec<Link>, StoreError> {
        if self.dialect == Dialect::Postgres {
            sql.push(" FOR UPDATE OF l");
        }
        load(transaction, sql).await
    }

    /// Deletes a link and notifies webhooks. The rows of its clicks are deleted in the background. None if the workspace does
    /// not have the link.
    pub(crate) async fn delete_link(
        &self,
        workspace: &Workspace,
        selector: &LinkSelector,
        now: Timestamp,
        public: &PublicUrl,
    ) -> Result<Option<Link>, StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(LINKS);
        self.push_selector(&mut sql, workspace, selector);
        let Some(link) = self.load_to_change(&mut transaction, sql).await?.pop() else { return Ok(None) };
        let event = Event::of_link(Trigger::Deleted, &link, public, now);
        enqueue(&mut transaction, self.dialect, workspace.seq, &link, event).await?;
        put_out_of_reach(&mut transaction, self.dialect, &[link.seq]).await?;
        transaction.commit().await?;
        Ok(Some(link))
    }

    /// Links as they are to be made, but for their tags.
    fn draft(&self, workspace: &Workspace, links: &[NewLink], now: Timestamp) -> Vec<Draft> {
        let draft = |(index, new): (usize, &NewLink)| {
            let input = &new.input;
            let SortedKey { key, sort_key } = match (&input.key, input.key_length) {
                (Some(key), _) => SortedKey { sort_key: self.key_order.sort_key(key), key: key.clone() },
                (None, None | Some(ids::KEY_LENGTH)) => self.key_order.generate(input.prefix.as_deref()),
                (None, Some(_)) => self.random_key(input),
            };
            let mut details = Details::default();
            input.apply_details(&mut details);
            let link = Link {
                seq: 0,
                id: ids::sortable("link_", now),
                workspace_id: workspace.id.clone(),
                domain: new.domain.clone(),
                key,
                url: input.destination(None),
                external_id: input.external_id.clone().set(),
                tenant_id: input.tenant_id.clone().set(),
                folder_id: input.folder_id.clone().set(),
                archived: input.archived.unwrap_or(false),
                details,
                tags: Vec::new(),
                clicks: 0,
                last_clicked: None,
                created_at: now,
                updated_at: now,
            };
            Draft { index, sort_key, link }
        };
        links.iter().enumerate().map(draft).collect()
    }

    fn random_key(&self, input: &LinkInput) -> SortedKey {
        let random = ids::short_key(input.key_length.unwrap_or(ids::KEY_LENGTH));
        let key = match &input.prefix {
            Some(prefix) => format!("{prefix}/{random}"),
            None => random,
        };
        SortedKey { sort_key: self.key_order.sort_key(&key), key }
    }

    /// Makes links of their drafts; the answers are in the order of `links`.
    async fn create(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        links: &[NewLink],
        drafts: Vec<Draft>,
    ) -> Result<Vec<Result<Link, LinkConflict>>, StoreError> {
        let mut results = vec![None; links.len()];
        let domains = drafts.iter().map(|draft| draft.link.domain.as_str());
        let domains_of_others = domains_of_others(transaction, self.dialect, workspace, domains).await?;
        let folders = drafts.iter().filter_map(|draft| draft.link.folder_id.as_deref());
        let folders = known_folders(transaction, self.dialect, workspace, folders).await?;
        let tags = drafts.iter().map(|draft| links[draft.index].input.tags.as_ref());
        let tags = resolve_tags(transaction, workspace, self.dialect, tags).await?;
        let mut fitting = Vec::with_capacity(drafts.len());
        for (mut draft, tags) in drafts.into_iter().zip(tags) {
            let tags = if link_size::bytes(&draft.link)? > MAX_LINK_BYTES {
                Err(LinkConflict::TooLarge(link_size::longest_field(&draft.link)))
            } else if domains_of_others.contains(&draft.link.domain) {
                Err(LinkConflict::Domain)
            } else if let Some(conflict) = LinkConflict::of_folder(draft.link.folder_id.as_ref(), &folders) {
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
            let inserted = self.insert(transaction, workspace, &drafts).await?;
            let mut taken = Vec::new();
            for mut draft in drafts {
                let input = &links[draft.index].input;
                if inserted.contains(&draft.link.id) {
                    results[draft.index] = Some(Ok(draft.link));
                } else if external_id_is_taken(transaction, workspace, &draft.link).await? {
                    results[draft.index] = Some(Err(LinkConflict::ExternalId));
                } else if input.key.is_some() {
                    results[draft.index] = Some(Err(LinkConflict::Key));
                } else {
                    // A random key instead of the next key in order, which the next link may have as well.
                    let SortedKey { key, sort_key } = self.random_key(input);
                    draft.link.key = key;
                    draft.sort_key = sort_key;
                    taken.push(draft);
                }
            }
            drafts = taken;
            if drafts.is_empty() {
                break;
            }
        }
        let results: Vec<_> =
            results.into_iter().map(|result| result.unwrap_or(Err(LinkConflict::Key))).collect();
        add_tags(transaction, self.dialect, results.iter().filter_map(|result| result.as_ref().ok())).await?;
        Ok(results)
    }

    /// Inserts those that are in nobody's way, in their order, and returns the ids of those that are.
    async fn insert(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        drafts: &[Draft],
    ) -> Result<HashSet<String>, StoreError> {
        if drafts.is_empty() {
            return Ok(HashSet::new());
        }
        let mut rows = Vec::with_capacity(drafts.len());
        for Draft { link, sort_key, .. } in drafts {
            let utm = UtmParameters::of(&link.url);
            rows.push((
                &link.id,
                &link.domain,
                &link.key,
                sort_key,
                &link.url,
                utm.source,
                utm.medium,
                utm.campaign,
                utm.term,
                utm.content,
                &link.external_id,
                &link.tenant_id,
                &link.folder_id,
                i64::from(link.archived),
                to_json("link details", &link.details)?,
                link.created_at.as_millisecond(),
            ));
        }
        let mut sql = Sql::new(
            "INSERT INTO links (workspace_seq, id, domain, key, key_place, url, utm_source, utm_medium, utm_campaign,
             utm_term, utm_content, external_id, tenant_id, folder_id, archived, details, created_at, updated_at)
             SELECT CAST(",
        );
        sql.bind(workspace.seq).push(
            " AS BIGINT), value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, value->>8,
             value->>9, value->>10, value->>11, value->>12, CAST(value->>13 AS BIGINT), value->>14,
             CAST(value->>15 AS BIGINT), CAST(value->>15 AS BIGINT) FROM ",
        );
        sql.each(self.dialect, to_json("links", &rows)?);
        sql.in_order(self.dialect).push(" ON CONFLICT DO NOTHING");
        let inserted = sql.execute(&mut **transaction).await?;
        let ids = || drafts.iter().map(|draft| draft.link.id.as_str());
        if usize::try_from(inserted) == Ok(drafts.len()) {
            return Ok(ids().map(str::to_owned).collect());
        }
        let mut sql = Sql::new("SELECT l.id FROM links l WHERE l.id IN ");
        sql.texts(self.dialect, &ids().collect::<Vec<_>>());
        let rows = sql.all(&mut **transaction).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Checks the folder and the tags that `input` names, and returns the tags that it puts on links. None if it says
    /// nothing of tags.
    async fn check(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        input: &LinkInput,
    ) -> Result<Result<Option<Vec<Tag>>, LinkConflict>, StoreError> {
        let folder = input.folder_id.clone().set();
        let folders =
            known_folders(transaction, self.dialect, workspace, folder.as_deref().into_iter()).await?;
        if let Some(conflict) = LinkConflict::of_folder(folder.as_ref(), &folders) {
            return Ok(Err(conflict));
        }
        if input.tags.is_none() {
            return Ok(Ok(None));
        }
        let wanted = std::iter::once(input.tags.as_ref());
        let tags = resolve_tags(transaction, workspace, self.dialect, wanted).await?.pop();
        Ok(tags.transpose())
    }

    /// Applies `input` to a link, with the tags that it selects, and writes the link unless nothing about it changes.
    async fn change(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        before: Link,
        input: &LinkInput,
        tags: Option<&[Tag]>,
        now: Timestamp,
    ) -> Result<Result<Changed, LinkConflict>, StoreError> {
        let mut after = before.clone();
        after.url = input.destination(Some(&before.url));
        if let Some(domain) = &input.domain {
            after.domain.clone_from(domain);
        }
        if let Some(key) = &input.key {
            if *key != before.key && !key::is_valid(key) {
                return Ok(Err(LinkConflict::InvalidKey));
            }
            after.key.clone_from(key);
        }
        if let Some(archived) = input.archived {
            after.archived = archived;
        }
        input.external_id.clone().apply(&mut after.external_id);
        input.tenant_id.clone().apply(&mut after.tenant_id);
        input.folder_id.clone().apply(&mut after.folder_id);
        input.apply_details(&mut after.details);
        if let Some(tags) = tags {
            after.tags = tags.to_vec();
        }
        if after == before {
            return Ok(Ok(Changed { before: Some(before), after }));
        }
        // A link from an earlier version that exceeds the maximum may be updated if it does not grow.
        let bytes = link_size::bytes(&after)?;
        if bytes > MAX_LINK_BYTES && bytes > link_size::bytes(&before)? {
            return Ok(Err(LinkConflict::TooLarge(link_size::longest_field(&after))));
        }
        after.updated_at = now;
        if after.domain != before.domain {
            let domain = std::iter::once(after.domain.as_str());
            if !domains_of_others(transaction, self.dialect, workspace, domain).await?.is_empty() {
                return Ok(Err(LinkConflict::Domain));
            }
        }
        if external_id_is_taken(transaction, workspace, &after).await? {
            return Ok(Err(LinkConflict::ExternalId));
        }
        if self.key_is_taken(transaction, &after).await? {
            return Ok(Err(LinkConflict::Key));
        }
        match self.write(transaction, &after).await {
            Ok(()) => {}
            // Another process has taken the key since the check.
            Err(StoreError::Database(sqlx::Error::Database(error))) if error.is_unique_violation() => {
                return Ok(Err(LinkConflict::Key));
            }
            Err(error) => return Err(error),
        }
        if after.tags != before.tags {
            let mut sql = Sql::new("DELETE FROM link_tags WHERE link_seq = ");
            sql.bind(after.seq);
            sql.execute(&mut **transaction).await?;
            add_tags(transaction, self.dialect, std::iter::once(&after)).await?;
        }
        Ok(Ok(Changed { before: Some(before), after }))
    }

    async fn write(
        &self,
        transaction: &mut Transaction<'static, Any>,
        link: &Link,
    ) -> Result<(), StoreError> {
        let utm = UtmParameters::of(&link.url);
        let mut sql = Sql::new("UPDATE links SET domain = ");
        sql.bind(link.domain.clone());
        sql.push(", key = ")
            .bind(link.key.clone())
            .push(", key_place = ")
            .bind(self.key_order.sort_key(&link.key));
        sql.push(", url = ").bind(link.url.clone());
        sql.push(", utm_source = ").bind(utm.source).push(", utm_medium = ").bind(utm.medium);
        sql.push(", utm_campaign = ").bind(utm.campaign).push(", utm_term = ").bind(utm.term);
        sql.push(", utm_content = ").bind(utm.content);
        sql.push(", external_id = ")
            .bind(link.external_id.clone())
            .push(", tenant_id = ")
            .bind(link.tenant_id.clone());
        sql.push(", folder_id = ")
            .bind(link.folder_id.clone())
            .push(", archived = ")
            .bind(i64::from(link.archived));
        sql.push(", details = ").bind(to_json("link details", &link.details)?);
        sql.push(", updated_at = ")
            .bind(link.updated_at.as_millisecond())
            .push(" WHERE seq = ")
            .bind(link.seq);
        sql.execute(&mut **transaction).await?;
        Ok(())
    }

    async fn key_is_taken(
        &self,
        transaction: &mut Transaction<'static, Any>,
        link: &Link,
    ) -> Result<bool, StoreError> {
        let mut sql = Sql::new("SELECT l.seq FROM links l WHERE l.domain = ");
        sql.bind(link.domain.clone()).push(" AND l.key_place = ").bind(self.key_order.sort_key(&link.key));
        sql.push(" AND l.id <> ").bind(link.id.clone());
        Ok(sql.optional(&mut **transaction).await?.is_some())
    }
}

async fn announce_update(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace: &Workspace,
    changed: &Changed,
    public: &PublicUrl,
    now: Timestamp,
) -> Result<(), StoreError> {
    if changed.before.as_ref() == Some(&changed.after) {
        return Ok(());
    }
    let event = Event::of_link(Trigger::Updated, &changed.after, public, now);
    enqueue(transaction, dialect, workspace.seq, &changed.after, event).await
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
