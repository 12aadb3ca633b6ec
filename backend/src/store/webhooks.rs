//! Webhooks: the receivers of a workspace's events.
//!
//! An update reads and writes the webhook in one transaction, so that concurrent changes all count.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::sql::{Sql, values};
use super::webhook_scope::{resolve, store_scope};
use super::{Store, StoreError, Transaction, Workspace, from_json, instant_of, optional_instant_of, to_json};
use crate::domain::change::Change;
use crate::domain::conflict::Conflict;
use crate::domain::event::Trigger;
use crate::domain::ids;
use crate::domain::scope::{Scope, ScopeInput, ScopeKind};

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Webhook {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) secret: String,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) scope: Scope,
    pub(crate) disabled_at: Option<Timestamp>,
    /// The end of the overlap in which the previous secret also signs deliveries.
    pub(crate) old_secret_until: Option<Timestamp>,
    pub(crate) created_at: Timestamp,
}

/// A webhook to be created.
#[derive(Clone, Debug)]
pub(crate) struct NewWebhook {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) secret: Option<String>,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) scope: ScopeInput,
}

/// The fields of a webhook in a request. None keeps a field.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookInput {
    pub(crate) name: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) triggers: Option<Vec<Trigger>>,
    pub(crate) scope: ScopeInput,
    pub(crate) disabled: Option<bool>,
}

/// The number of the latest click, from which a webhook begins to hear of clicks.
const LATEST: &str = "(SELECT COALESCE(MAX(c.seq), 0) FROM clicks c)";

const WEBHOOKS: &str = "SELECT h.seq, h.id, h.name, h.url, h.secret, h.triggers, h.link_scope, h.scope_ids,
    h.disabled_at, h.old_secret_until, h.created_at FROM webhooks h WHERE h.workspace_seq = ";

impl Store {
    /// Creates a webhook in a workspace that may have `most` webhooks.
    pub(crate) async fn create_webhook(
        &self,
        workspace: &Workspace,
        new: &NewWebhook,
        most: u32,
        now: Timestamp,
    ) -> Result<Webhook, StoreError> {
        let id = ids::sortable("wh_", now);
        let secret = new.secret.clone().unwrap_or_else(ids::webhook_secret);
        let scope = new.scope.applied_to(&Scope::WORKSPACE)?;
        let ids = [ScopeKind::Links, ScopeKind::Folders].map(|kind| scope.ids_of(kind));
        let scope = resolve(&self.known_ids(workspace, ids[0], ids[1]).await?, &scope, &Scope::WORKSPACE)?;
        let scope_ids = to_json("webhook scope", &scope.ids)?;
        let triggers = to_json("webhook triggers", &new.triggers)?;
        let mut transaction = self.begin_alone(workspace).await?;
        let mut sql = Sql::new("SELECT COUNT(*) FROM webhooks h WHERE h.workspace_seq = ");
        sql.bind(workspace.seq);
        let full = sql.number(&mut *transaction).await? >= i64::from(most);
        let mut sql = Sql::new(
            "INSERT INTO webhooks (id, workspace_seq, name, url, secret, triggers, link_scope, scope_ids,
             created_at) VALUES ",
        );
        let (name, url, now) = (new.name.clone(), new.url.clone(), now.as_millisecond());
        let kind = scope.kind.name().to_owned();
        values!(sql, id.clone(), workspace.seq, name, url, secret, triggers, kind, scope_ids, now);
        sql.push(" ON CONFLICT DO NOTHING");
        if sql.execute(&mut *transaction).await? == 0 {
            return Err(Conflict::Url.into());
        }
        if full {
            return Err(Conflict::TooMany(most, "webhook").into());
        }
        let mut sql = Sql::new(WEBHOOKS);
        sql.bind(workspace.seq).push(" AND h.id = ").bind(id);
        let made = webhook(&sql.one(&mut *transaction).await?)?;
        store_scope(&mut transaction, made.seq, &made.scope).await?;
        if made.triggers.contains(&Trigger::Clicked) {
            let mut sql = Sql::new("UPDATE webhooks SET click_cursor = ");
            sql.push(LATEST).push(" WHERE seq = ").bind(made.seq);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(made)
    }

    /// The webhooks of a workspace, newest first.
    pub(crate) async fn webhooks(&self, workspace: &Workspace) -> Result<Vec<Webhook>, StoreError> {
        let mut sql = Sql::new(WEBHOOKS);
        sql.bind(workspace.seq).push(" ORDER BY h.seq DESC");
        sql.all(&self.read).await?.iter().map(webhook).collect()
    }

    /// One webhook of a workspace.
    pub(crate) async fn webhook(
        &self,
        workspace: &Workspace,
        id: &str,
    ) -> Result<Option<Webhook>, StoreError> {
        let mut sql = Sql::new(WEBHOOKS);
        sql.bind(workspace.seq).push(" AND h.id = ").bind(id.to_owned());
        sql.optional(&self.read).await?.as_ref().map(webhook).transpose()
    }

    /// Updates a webhook. Enabling a webhook resets its failures. None if the workspace has no such webhook.
    pub(crate) async fn update_webhook(
        &self,
        workspace: &Workspace,
        id: &str,
        input: &WebhookInput,
        now: Timestamp,
    ) -> Result<Option<Webhook>, StoreError> {
        let ids = |change: &Change<Vec<String>>| change.clone().set().unwrap_or_default();
        let (link_ids, folder_ids) = (ids(&input.scope.link_ids), ids(&input.scope.folder_ids));
        let known = self.known_ids(workspace, &link_ids, &folder_ids).await?;
        let mut transaction = self.begin().await?;
        let Some(before) = self.lock_webhook(&mut transaction, workspace, id).await? else {
            return Ok(None);
        };
        let scope = input.scope.applied_to(&before.scope)?;
        let scope = resolve(&known, &scope, &before.scope)?;
        let after = Webhook {
            name: input.name.as_ref().unwrap_or(&before.name).clone(),
            url: input.url.as_ref().unwrap_or(&before.url).clone(),
            triggers: input.triggers.as_ref().unwrap_or(&before.triggers).clone(),
            scope,
            disabled_at: match input.disabled {
                Some(true) => before.disabled_at.or(Some(now)),
                Some(false) => None,
                None => before.disabled_at,
            },
            ..before.clone()
        };
        if after != before {
            write(&mut transaction, &before, &after).await?;
            store_scope(&mut transaction, after.seq, &after.scope).await?;
            transaction.commit().await?;
        }
        Ok(Some(after))
    }

    /// Replaces the secret of a webhook. During the overlap, the previous secret also signs deliveries. Without an overlap,
    /// all previous secrets end. None if the workspace has no such webhook.
    pub(crate) async fn rotate_secret(
        &self,
        workspace: &Workspace,
        id: &str,
        secret: &str,
        overlap: Duration,
        now: Timestamp,
    ) -> Result<Option<Webhook>, StoreError> {
        let mut transaction = self.begin().await?;
        let Some(mut webhook) = self.lock_webhook(&mut transaction, workspace, id).await? else {
            return Ok(None);
        };
        let mut sql = Sql::new("UPDATE webhooks SET secret = ");
        sql.bind(secret.to_owned());
        if overlap.is_zero() {
            sql.push(", old_secret = NULL, old_secret_until = NULL");
            webhook.old_secret_until = None;
        } else {
            // There is one previous secret. Receivers that know only that one rely on it until its overlap ends.
            if let Some(ends) = webhook.old_secret_until.filter(|ends| *ends > now) {
                return Err(Conflict::Overlap(ends).into());
            }
            let ends = now.saturating_add(overlap).unwrap_or(Timestamp::MAX);
            sql.push(", old_secret = secret, old_secret_until = ").bind(ends.as_millisecond());
            webhook.old_secret_until = Some(ends);
        }
        sql.push(" WHERE seq = ").bind(webhook.seq);
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        secret.clone_into(&mut webhook.secret);
        Ok(Some(webhook))
    }

    /// The webhook. No other transaction changes or deletes it until this one ends.
    async fn lock_webhook(
        &self,
        transaction: &mut Transaction,
        workspace: &Workspace,
        id: &str,
    ) -> Result<Option<Webhook>, StoreError> {
        let mut sql = Sql::new(WEBHOOKS);
        sql.bind(workspace.seq).push(" AND h.id = ").bind(id.to_owned());
        // Deliveries to the webhook may be written meanwhile.
        sql.lock(" FOR NO KEY UPDATE OF h");
        sql.optional(&mut **transaction).await?.as_ref().map(webhook).transpose()
    }

    /// Deletes a webhook: moves it to workspace 0, so that no request finds it, the outbox leaves its deliveries out, and its URL can be used
    /// again. The sweeper deletes its deliveries. False if the workspace has no such webhook.
    pub(crate) async fn delete_webhook(&self, workspace: &Workspace, id: &str) -> Result<bool, StoreError> {
        // The row remains for a while, but not the secrets.
        let mut sql = Sql::new(
            "UPDATE webhooks SET workspace_seq = 0, url = id, secret = '', old_secret = NULL WHERE workspace_seq = ",
        );
        sql.bind(workspace.seq).push(" AND id = ").bind(id.to_owned());
        Ok(sql.execute(&self.write).await? == 1)
    }
}

async fn write(transaction: &mut Transaction, before: &Webhook, after: &Webhook) -> Result<(), StoreError> {
    let mut sql = Sql::new("UPDATE webhooks SET name = ");
    sql.bind(after.name.clone()).push(", url = ").bind(after.url.clone());
    sql.push(", triggers = ").bind(to_json("webhook triggers", &after.triggers)?);
    sql.push(", link_scope = ").bind(after.scope.kind.name().to_owned());
    sql.push(", scope_ids = ").bind(to_json("webhook scope", &after.scope.ids)?);
    if before.disabled_at.is_some() && after.disabled_at.is_none() {
        sql.push(", failing_since = NULL");
    }
    let hears = |webhook: &Webhook| webhook.triggers.contains(&Trigger::Clicked);
    match (hears(before), hears(after)) {
        (false, true) => sql.push(", click_cursor = ").push(LATEST),
        (true, false) => sql.push(", click_cursor = NULL"),
        (true, true) | (false, false) => &mut sql,
    };
    sql.push(", disabled_at = ").bind(after.disabled_at.map(Timestamp::as_millisecond));
    sql.push(" WHERE seq = ").bind(after.seq);
    let written = sql.execute(&mut **transaction).await;
    written.map_err(|error| StoreError::or_taken(error, Conflict::Url))?;
    Ok(())
}

fn webhook(row: &AnyRow) -> Result<Webhook, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column);
    let kind = ScopeKind::from_name(&text("link_scope")?);
    let kind = kind.ok_or_else(|| StoreError::corrupt("webhook scope", &"unknown kind"))?;
    let scope = Scope { kind, ids: from_json("webhook scope", &text("scope_ids")?)? };
    Ok(Webhook {
        seq: row.try_get("seq")?,
        id: text("id")?,
        name: text("name")?,
        url: text("url")?,
        secret: text("secret")?,
        triggers: from_json("webhook triggers", &text("triggers")?)?,
        scope,
        disabled_at: optional_instant_of(row, "disabled_at")?,
        old_secret_until: optional_instant_of(row, "old_secret_until")?,
        created_at: instant_of(row, "created_at")?,
    })
}
