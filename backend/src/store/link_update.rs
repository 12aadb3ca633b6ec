//! Updates of links.

use std::collections::HashMap;

use jiff::Timestamp;

use super::domains::Owners;
use super::link_creation::{COLUMNS, NewLink, VALUES, drafts, row, too_large};
use super::links::{LINKS, LinkSelector};
use super::outbox::enqueue;
use super::sql::Sql;
use super::tags::{add_tags, known_folders, resolve_tags, unknown_folder};
use super::{Dialect, Store, StoreError, Transaction, Workspace, kept_keys, to_json};
use crate::apart;
use crate::domain::conflict::Conflict;
use crate::domain::event::{Event, Trigger};
use crate::domain::link::Link;
use crate::domain::link::LinkInput;
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
    ) -> Result<Option<Changed>, StoreError> {
        let input = &fitting(input).await?;
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(LINKS);
        self.push_selector(&mut sql, workspace, selector);
        let Some(link) = self.load_locked(&mut transaction, sql).await?.pop() else { return Ok(None) };
        let changed = self.change_one(&mut transaction, workspace, link, input, public, now).await?;
        transaction.commit().await?;
        Ok(Some(changed))
    }

    /// Updates a link that is locked, and sends `link.updated` to webhooks.
    async fn change_one(
        &self,
        transaction: &mut Transaction,
        workspace: &Workspace,
        link: Link,
        input: &LinkInput,
        public: &PublicUrl,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        self.refuse_move(transaction, workspace, &link, input, public).await?;
        let tags = self.check(transaction, workspace, input).await?;
        let changed = self.change(transaction, workspace, link, input, tags.as_deref(), now).await?;
        if changed.before.as_ref() != Some(&changed.after) {
            let event = Event::of_link(Trigger::Updated, &changed.after, public, now);
            enqueue(transaction, workspace.seq, &changed.after, event).await?;
        }
        Ok(changed)
    }

    /// Updates the oldest link that has the destination of `new`, and sends `link.updated` to webhooks. Creates a link
    /// without an event if there is none.
    pub(crate) async fn upsert_link(
        &self,
        workspace: &Workspace,
        new: NewLink,
        now: Timestamp,
        public: &PublicUrl,
    ) -> Result<Changed, StoreError> {
        let url = new.input.destination(None);
        let owner = workspace.clone();
        let draft = move || drafts(&owner, std::slice::from_ref(&new), now).map(|drafts| (new, drafts));
        let (new, drafts) = apart::run(draft).await?;
        // No link can have an input that is too large for a new one.
        if let Some(conflict) = drafts.iter().find_map(|draft| draft.too_large.clone()) {
            return Err(conflict.into());
        }
        // Two concurrent calls must not both find no link and both create one.
        let mut transaction = self.begin_alone(workspace).await?;
        let sql = self.oldest_link_to(workspace, &url);
        let changed = match self.load_locked(&mut transaction, sql).await?.pop() {
            Some(link) => self.change_one(&mut transaction, workspace, link, &new.input, public, now).await?,
            None => {
                let links = std::slice::from_ref(&new);
                let created = self.create(&mut transaction, workspace, links, drafts, now).await?.pop();
                // One draft has one result.
                Changed { before: None, after: created.unwrap_or(Err(Conflict::Key))? }
            }
        };
        transaction.commit().await?;
        Ok(changed)
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

    /// Updates links alike, without telling webhooks. The result leaves out those that the workspace does not have, and is in
    /// the order of `selectors`. If one of them conflicts, none is updated.
    pub(crate) async fn update_links(
        &self,
        workspace: &Workspace,
        selectors: &[LinkSelector],
        input: LinkInput,
        now: Timestamp,
    ) -> Result<Vec<Changed>, StoreError> {
        let input = &fitting(input).await?;
        let mut transaction = self.begin().await?;
        let tags = self.check(&mut transaction, workspace, input).await?;
        let mut changed = Vec::with_capacity(selectors.len());
        for link in self.lock_links(&mut transaction, workspace, selectors).await? {
            changed.push(self.change(&mut transaction, workspace, link, input, tags.as_deref(), now).await?);
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
        Ok(changed)
    }

    /// Refuses an input that moves a link to where the workspace may not create links. A new key makes a new short link, too.
    async fn refuse_move(
        &self,
        transaction: &mut Transaction,
        workspace: &Workspace,
        before: &Link,
        input: &LinkInput,
        public: &PublicUrl,
    ) -> Result<(), StoreError> {
        let domain = input.domain.as_ref().unwrap_or(&before.domain);
        if *domain == before.domain && input.key.as_ref().is_none_or(|key| *key == before.key) {
            return Ok(());
        }
        let owners = Owners::of(transaction, std::iter::once(domain.as_str())).await?;
        match owners.permit(workspace, domain, domain == public.default_domain()) {
            true => Ok(()),
            false => Err(Conflict::Domain.into()),
        }
    }

    /// Checks the folder and the tags that `input` names. Returns the tags that it gives to links, or None if it names none.
    async fn check(
        &self,
        transaction: &mut Transaction,
        workspace: &Workspace,
        input: &LinkInput,
    ) -> Result<Option<Vec<Tag>>, StoreError> {
        let folder = input.folder_id.clone().set();
        let folders = known_folders(transaction, workspace, folder.as_deref().into_iter()).await?;
        if let Some(conflict) = unknown_folder(folder.as_ref(), &folders) {
            return Err(conflict.into());
        }
        if input.tags.is_none() {
            return Ok(None);
        }
        let wanted = std::iter::once(input.tags.as_ref());
        let tags = resolve_tags(transaction, workspace, wanted).await?.pop();
        Ok(tags.transpose()?)
    }

    /// Applies `input` to a link, with the tags that it selects, and writes the link if that changes it.
    async fn change(
        &self,
        transaction: &mut Transaction,
        workspace: &Workspace,
        before: Link,
        input: &LinkInput,
        tags: Option<&[Tag]>,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let mut after = updated(&before, input, tags)?;
        if after == before {
            return Ok(Changed { before: Some(before), after });
        }
        after.updated_at = now;
        let [lost, new] = [&before, &after].map(|link| (link.domain.clone(), link.key.to_lowercase()));
        self.write(transaction, &after).await?;
        if lost != new {
            // Only now: the update has waited for the deletion of a link by another process, which keeps its key.
            let kept = kept_keys::of_others(transaction, workspace, &[new], now).await?;
            if !kept.is_empty() {
                return Err(Conflict::Key.into());
            }
            kept_keys::keep(transaction, workspace, lost, now).await?;
        }
        if after.tags != before.tags {
            let mut sql = Sql::new("DELETE FROM link_tags WHERE link_seq = ");
            sql.bind(after.seq);
            sql.execute(&mut **transaction).await?;
            add_tags(transaction, std::iter::once(&after)).await?;
        }
        Ok(Changed { before: Some(before), after })
    }

    async fn write(&self, transaction: &mut Transaction, link: &Link) -> Result<(), StoreError> {
        let details = to_json("link details", &link.details)?;
        let row = row(link, &details)?;
        let mut sql = Sql::new("UPDATE links SET (");
        sql.push(COLUMNS).push(") = (SELECT ").push(VALUES).push(" FROM ");
        sql.each(format!("[{row}]")).push(") WHERE seq = ").bind(link.seq);
        let written = sql.execute(&mut **transaction).await;
        // Both databases name the columns that must be unique.
        let taken = |error: &sqlx::Error| match error.to_string().contains("external_id") {
            true => Conflict::ExternalId,
            false => Conflict::Key,
        };
        written.map_err(|error| {
            let taken = taken(&error);
            StoreError::or_taken(error, taken)
        })?;
        Ok(())
    }
}

/// The link as `input` changes it, with these tags if there are any.
fn updated(before: &Link, input: &LinkInput, tags: Option<&[Tag]>) -> Result<Link, StoreError> {
    let mut after = before.clone();
    after.url = input.destination(Some(&before.url));
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
    input.details.clone().apply(&mut after.details);
    if let Some(tags) = tags {
        after.tags = tags.to_vec();
    }
    if let Some(conflict) = too_large(&after, &to_json("link details", &after.details)?) {
        return Err(conflict.into());
    }
    Ok(after)
}

/// Refuses an input that would make any link too large, so that no transaction works on it.
async fn fitting(input: LinkInput) -> Result<LinkInput, StoreError> {
    apart::run(move || updated(&Link::default(), &input, None).map(|_| input)).await
}
