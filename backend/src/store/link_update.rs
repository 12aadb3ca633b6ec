//! Updates of links.

use std::collections::HashMap;

use jiff::Timestamp;
use sqlx::{Any, Transaction};

use super::domains::Owners;
use super::folders::known_folders;
use super::link_conflict::{LinkConflict, external_id_is_taken};
use super::link_creation::{Draft, NewLink};
use super::link_size::{self, MAX_LINK_BYTES};
use super::links::{LINKS, LinkSelector};
use super::outbox::enqueue;
use super::sql::Sql;
use super::tags::{add_tags, resolve_tags};
use super::{Dialect, Store, StoreError, Workspace, kept_keys, to_json};
use crate::apart;
use crate::domain::destination::TooLong;
use crate::domain::destination::UtmParameters;
use crate::domain::event::{Event, Trigger};
use crate::domain::link::Link;
use crate::domain::link_input::LinkInput;
use crate::domain::public_url::PublicUrl;
use crate::domain::tag::Tag;

/// A link that was updated, or created by an upsert.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    /// The link before the update. None if it was created.
    pub(crate) before: Option<Link>,
    pub(crate) after: Link,
}

impl Store {
    /// Updates one link and sends `link.updated` to webhooks. None if the workspace has no such link.
    pub(crate) async fn update_link(
        &self,
        workspace: &Workspace,
        selector: &LinkSelector,
        input: LinkInput,
        now: Timestamp,
        public: &PublicUrl,
    ) -> Result<Option<Result<Changed, LinkConflict>>, StoreError> {
        let Some(link) = self.link(workspace, selector).await? else { return Ok(None) };
        // No transaction begins that would work on an input that is too large. The link may change until then, which is why it is checked
        // again.
        let bytes = input.bytes();
        let check = move || Ok::<_, StoreError>(updated(&link, &input, None)?.map(|_| input));
        let input = &match apart::run_on(bytes, check).await? {
            Ok(input) => input,
            Err(conflict) => return Ok(Some(Err(conflict))),
        };
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(LINKS);
        self.push_selector(&mut sql, workspace, selector);
        let Some(link) = self.load_locked(&mut transaction, sql).await?.pop() else { return Ok(None) };
        if !self.may_move(&mut transaction, workspace, &link, input, public).await? {
            return Ok(Some(Err(LinkConflict::Domain)));
        }
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

    /// Updates the oldest link that has the destination of `new`, and sends `link.updated` to webhooks. Creates a link
    /// without an event if there is none.
    pub(crate) async fn upsert_link(
        &self,
        workspace: &Workspace,
        new: NewLink,
        now: Timestamp,
        public: &PublicUrl,
    ) -> Result<Result<Changed, LinkConflict>, StoreError> {
        let url = new.input.destination(None);
        let found = self.find_link(self.oldest_link_to(workspace, &url)).await?;
        let (new, drafts) = match self.fitting_upsert(workspace, found, new, now).await? {
            Ok(fitting) => fitting,
            Err(conflict) => return Ok(Err(conflict)),
        };
        // Two concurrent calls must not both find no link and both create one.
        let mut transaction = self.begin_alone(workspace).await?;
        let sql = self.oldest_link_to(workspace, &url);
        let result = match self.load_locked(&mut transaction, sql).await?.pop() {
            Some(link) => {
                if !self.may_move(&mut transaction, workspace, &link, &new.input, public).await? {
                    return Ok(Err(LinkConflict::Domain));
                }
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
                let links = std::slice::from_ref(&new);
                match self.create(&mut transaction, workspace, links, drafts, now).await?.pop() {
                    Some(Ok(link)) => Ok(Changed { before: None, after: link }),
                    Some(Err(conflict)) => Err(conflict),
                    // One draft has one result.
                    None => Err(LinkConflict::Key),
                }
            }
        };
        if result.is_ok() {
            transaction.commit().await?;
        }
        Ok(result)
    }

    /// The query for the oldest link of the workspace that has this destination.
    fn oldest_link_to(&self, workspace: &Workspace, url: &str) -> Sql {
        let mut sql = Sql::new(LINKS);
        sql.push("WHERE l.workspace_seq = ").bind(workspace.seq);
        if self.dialect == Dialect::Postgres {
            // The index contains hashes, because an entry of an index has at most 2,704 bytes.
            sql.push(" AND md5(l.url) = md5(").bind(url.to_owned()).push(")");
        }
        sql.push(" AND l.url = ").bind(url.to_owned()).push(" ORDER BY l.seq LIMIT 1");
        sql
    }

    /// Refuses an upsert that has found this link before a transaction begins, if it is too large. Returns also the draft of a new link, in case the link is gone when the
    /// transaction begins.
    async fn fitting_upsert(
        &self,
        workspace: &Workspace,
        found: Option<Link>,
        new: NewLink,
        now: Timestamp,
    ) -> Result<Result<(NewLink, Vec<Draft>), LinkConflict>, StoreError> {
        let (store, workspace, bytes) = (self.clone(), workspace.clone(), new.input.bytes());
        let check = move || {
            let drafts = store.draft(&workspace, std::slice::from_ref(&new), now)?;
            let conflict = match found {
                Some(link) => updated(&link, &new.input, None)?.err(),
                None => drafts.iter().find_map(Draft::too_large),
            };
            Ok(conflict.map_or_else(|| Ok((new, drafts)), Err))
        };
        apart::run_on(bytes, check).await
    }

    /// Updates links alike, without telling webhooks. The result leaves out those that the workspace does not have, and is in
    /// the order of `selectors`. If one of them conflicts, none is updated.
    pub(crate) async fn update_links(
        &self,
        workspace: &Workspace,
        selectors: &[LinkSelector],
        input: &LinkInput,
        now: Timestamp,
    ) -> Result<Result<Vec<Changed>, LinkConflict>, StoreError> {
        let (links, changes) = (self.selected_links(workspace, selectors).await?, input.clone());
        // No transaction begins that would work on an input that is too large.
        let check = move || {
            let mut ids = Vec::with_capacity(links.len());
            for link in links {
                if let Err(conflict) = updated(&link, &changes, None)? {
                    return Ok(Err(conflict));
                }
                ids.push(link.id);
            }
            Ok::<_, StoreError>(Ok(ids))
        };
        let ids = match apart::run(check).await? {
            Ok(ids) => ids,
            Err(conflict) => return Ok(Err(conflict)),
        };
        let mut transaction = self.begin().await?;
        let tags = match self.check(&mut transaction, workspace, input).await? {
            Ok(tags) => tags,
            Err(conflict) => return Ok(Err(conflict)),
        };
        let mut changed = Vec::with_capacity(ids.len());
        for link in self.lock_links(&mut transaction, workspace, ids.iter()).await? {
            match self.change(&mut transaction, workspace, link, input, tags.as_deref(), now).await? {
                Ok(link) => changed.push(link),
                Err(conflict) => return Ok(Err(conflict)),
            }
        }
        transaction.commit().await?;
        let mut slots = HashMap::new();
        for (slot, selector) in selectors.iter().enumerate() {
            slots.entry(selector).or_insert(slot);
        }
        changed.sort_by_cached_key(|changed| {
            let link = &changed.after;
            let id = LinkSelector::Id(link.id.clone());
            let external_id = link.external_id.clone().map(LinkSelector::ExternalId);
            [Some(id), external_id].iter().flatten().filter_map(|selector| slots.get(selector)).min().copied()
        });
        Ok(Ok(changed))
    }

    /// Whether `input` keeps the short link of a link, or the workspace may create links where it moves to. A new key makes a new short
    /// link, too.
    async fn may_move(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        before: &Link,
        input: &LinkInput,
        public: &PublicUrl,
    ) -> Result<bool, StoreError> {
        let domain = input.domain.as_ref().unwrap_or(&before.domain);
        if *domain == before.domain && input.key.as_ref().is_none_or(|key| *key == before.key) {
            return Ok(true);
        }
        let owners = Owners::of(transaction, self.dialect, std::iter::once(domain.as_str())).await?;
        Ok(owners.permit(workspace, domain, domain == public.default_domain()))
    }

    /// Checks the folder and the tags that `input` names. Returns the tags that it gives to links, or None if it names none.
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

    /// Applies `input` to a link, with the tags that it selects, and writes the link if that changes it.
    async fn change(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        before: Link,
        input: &LinkInput,
        tags: Option<&[Tag]>,
        now: Timestamp,
    ) -> Result<Result<Changed, LinkConflict>, StoreError> {
        let mut after = match updated(&before, input, tags)? {
            Ok(after) => after,
            Err(conflict) => return Ok(Err(conflict)),
        };
        if after == before {
            return Ok(Ok(Changed { before: Some(before), after }));
        }
        after.updated_at = now;
        if external_id_is_taken(transaction, workspace, &after).await? {
            return Ok(Err(LinkConflict::ExternalId));
        }
        if self.key_is_taken(transaction, &after).await? {
            return Ok(Err(LinkConflict::Key));
        }
        let [lost, new] = [&before, &after].map(|link| (link.domain.clone(), link.key.to_lowercase()));
        match self.write(transaction, &after).await {
            Ok(()) => {}
            // Another process has taken the key since the check.
            Err(StoreError::Database(sqlx::Error::Database(error))) if error.is_unique_violation() => {
                return Ok(Err(LinkConflict::Key));
            }
            Err(error) => return Err(error),
        }
        if lost != new {
            // Only now: the update has waited for the deletion of a link by another process, which keeps its key.
            let kept = kept_keys::of_others(transaction, self.dialect, workspace, &[new], now).await?;
            if !kept.is_empty() {
                return Ok(Err(LinkConflict::Key));
            }
            kept_keys::keep(transaction, workspace, lost, now).await?;
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
        sql.push(", key = ").bind(link.key.clone()).push(", key_folded = ").bind(link.key.to_lowercase());
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
        sql.bind(link.domain.clone()).push(" AND l.key_folded = ").bind(link.key.to_lowercase());
        sql.push(" AND l.id <> ").bind(link.id.clone());
        Ok(sql.optional(&mut **transaction).await?.is_some())
    }
}

/// The link as `input` changes it, with these tags if there are any.
fn updated(
    before: &Link,
    input: &LinkInput,
    tags: Option<&[Tag]>,
) -> Result<Result<Link, LinkConflict>, StoreError> {
    let mut after = before.clone();
    after.url = input.destination(Some(&before.url));
    if let Some(too_long) = TooLong::of(&after.url, &UtmParameters::of(&after.url)) {
        return Ok(Err(LinkConflict::TooLong(too_long)));
    }
    if let Some(domain) = &input.domain {
        after.domain.clone_from(domain);
    }
    if let Some(key) = &input.key {
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
    if link_size::bytes(&after)? > MAX_LINK_BYTES {
        return Ok(Err(LinkConflict::TooLarge(link_size::longest_field(&after))));
    }
    Ok(Ok(after))
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
