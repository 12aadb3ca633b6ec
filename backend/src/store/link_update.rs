//! Updates of links.

use std::collections::HashMap;

use jiff::Timestamp;

use super::domains::Owners;
use super::link_conflict::{LinkConflict, external_id_is_taken};
use super::link_creation::{COLUMNS, Draft, NewLink, VALUES, row};
use super::link_size::{self, MAX_LINK_BYTES};
use super::links::{LINKS, LinkSelector};
use super::outbox::enqueue;
use super::sql::Sql;
use super::tags::{add_tags, known_folders, resolve_tags};
use super::{Dialect, Store, StoreError, Transaction, Workspace, kept_keys, to_json};
use crate::apart;
use crate::domain::destination::TooLong;
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
    ) -> Result<Option<Changed>, StoreError> {
        let Some(link) = self.link(workspace, selector).await? else { return Ok(None) };
        // No transaction begins that would work on an input that is too large. The link may change until then, which is why it is checked
        // again.
        let input = &apart::run(move || updated(&link, &input, None).map(|_| input)).await?;
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
            enqueue(transaction, self.dialect, workspace.seq, &changed.after, event).await?;
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
        let found = self.find_link(self.oldest_link_to(workspace, &url)).await?;
        let (new, drafts) = self.fitting_upsert(workspace, found, new, now).await?;
        // Two concurrent calls must not both find no link and both create one.
        let mut transaction = self.begin_alone(workspace).await?;
        let sql = self.oldest_link_to(workspace, &url);
        let changed = match self.load_locked(&mut transaction, sql).await?.pop() {
            Some(link) => self.change_one(&mut transaction, workspace, link, &new.input, public, now).await?,
            None => {
                let links = std::slice::from_ref(&new);
                let created = self.create(&mut transaction, workspace, links, drafts, now).await?.pop();
                // One draft has one result.
                Changed { before: None, after: created.unwrap_or(Err(LinkConflict::Key))? }
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

    /// Refuses an upsert that has found this link before a transaction begins, if it is too large. Returns also the draft of a new link, in case the link is gone when the
    /// transaction begins.
    async fn fitting_upsert(
        &self,
        workspace: &Workspace,
        found: Option<Link>,
        new: NewLink,
        now: Timestamp,
    ) -> Result<(NewLink, Vec<Draft>), StoreError> {
        let (store, workspace) = (self.clone(), workspace.clone());
        let check = move || {
            let drafts = store.draft(&workspace, std::slice::from_ref(&new), now)?;
            match found {
                Some(link) => drop(updated(&link, &new.input, None)?),
                None => drafts.iter().find_map(Draft::too_large).map_or(Ok(()), Err)?,
            }
            Ok((new, drafts))
        };
        apart::run(check).await
    }

    /// Updates links alike, without telling webhooks. The result leaves out those that the workspace does not have, and is in
    /// the order of `selectors`. If one of them conflicts, none is updated.
    pub(crate) async fn update_links(
        &self,
        workspace: &Workspace,
        selectors: &[LinkSelector],
        input: &LinkInput,
        now: Timestamp,
    ) -> Result<Vec<Changed>, StoreError> {
        let (links, changes) = (self.selected_links(workspace, selectors).await?, input.clone());
        // No transaction begins that would work on an input that is too large.
        let check = move || {
            let id = |link: Link| updated(&link, &changes, None).map(|_| link.id);
            links.into_iter().map(id).collect::<Result<Vec<_>, _>>()
        };
        let ids = apart::run(check).await?;
        let mut transaction = self.begin().await?;
        let tags = self.check(&mut transaction, workspace, input).await?;
        let mut changed = Vec::with_capacity(ids.len());
        for link in self.lock_links(&mut transaction, workspace, ids.iter()).await? {
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
        let owners = Owners::of(transaction, self.dialect, std::iter::once(domain.as_str())).await?;
        match owners.permit(workspace, domain, domain == public.default_domain()) {
            true => Ok(()),
            false => Err(LinkConflict::Domain.into()),
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
        let folders =
            known_folders(transaction, self.dialect, workspace, folder.as_deref().into_iter()).await?;
        if let Some(conflict) = LinkConflict::of_folder(folder.as_ref(), &folders) {
            return Err(conflict.into());
        }
        if input.tags.is_none() {
            return Ok(None);
        }
        let wanted = std::iter::once(input.tags.as_ref());
        let tags = resolve_tags(transaction, workspace, self.dialect, wanted).await?.pop();
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
        if external_id_is_taken(transaction, workspace, &after).await? {
            return Err(LinkConflict::ExternalId.into());
        }
        if self.key_is_taken(transaction, &after).await? {
            return Err(LinkConflict::Key.into());
        }
        let [lost, new] = [&before, &after].map(|link| (link.domain.clone(), link.key.to_lowercase()));
        self.write(transaction, &after).await?;
        if lost != new {
            // Only now: the update has waited for the deletion of a link by another process, which keeps its key.
            let kept = kept_keys::of_others(transaction, self.dialect, workspace, &[new], now).await?;
            if !kept.is_empty() {
                return Err(LinkConflict::Key.into());
            }
            kept_keys::keep(transaction, workspace, lost, now).await?;
        }
        if after.tags != before.tags {
            let mut sql = Sql::new("DELETE FROM link_tags WHERE link_seq = ");
            sql.bind(after.seq);
            sql.execute(&mut **transaction).await?;
            add_tags(transaction, self.dialect, std::iter::once(&after)).await?;
        }
        Ok(Changed { before: Some(before), after })
    }

    async fn write(&self, transaction: &mut Transaction, link: &Link) -> Result<(), StoreError> {
        let details = to_json("link details", &link.details)?;
        let row = row(link, &details)?;
        let mut sql = Sql::new("UPDATE links SET (");
        sql.push(COLUMNS).push(") = (SELECT ").push(VALUES).push(" FROM ");
        sql.each(self.dialect, format!("[{row}]")).push(") WHERE seq = ").bind(link.seq);
        // Another process may have taken the key since the check.
        let written = sql.execute(&mut **transaction).await;
        written.map_err(|error| StoreError::or_taken(error, LinkConflict::Key))?;
        Ok(())
    }

    async fn key_is_taken(&self, transaction: &mut Transaction, link: &Link) -> Result<bool, StoreError> {
        let mut sql = Sql::new("SELECT l.seq FROM links l WHERE l.domain = ");
        sql.bind(link.domain.clone()).push(" AND l.key_folded = ").bind(link.key.to_lowercase());
        sql.push(" AND l.id <> ").bind(link.id.clone());
        Ok(sql.optional(&mut **transaction).await?.is_some())
    }
}

/// The link as `input` changes it, with these tags if there are any.
fn updated(before: &Link, input: &LinkInput, tags: Option<&[Tag]>) -> Result<Link, StoreError> {
    let mut after = before.clone();
    after.url = input.destination(Some(&before.url));
    if let Some(too_long) = TooLong::of(&after.url) {
        return Err(LinkConflict::TooLong(too_long).into());
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
    input.details.clone().apply(&mut after.details);
    if let Some(tags) = tags {
        after.tags = tags.to_vec();
    }
    if link_size::bytes(&after)? > MAX_LINK_BYTES {
        return Err(LinkConflict::TooLarge(link_size::longest_field(&after)).into());
    }
    Ok(after)
}
