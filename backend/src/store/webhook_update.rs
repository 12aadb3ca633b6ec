//! Updates of webhooks. Each reads and writes the webhook in one transaction, so that concurrent changes all count.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Any, Transaction};

use super::listeners::store_scope;
use super::sql::Sql;
use super::webhooks::{LATEST, WEBHOOKS, Webhook, WebhookConflict, scope_columns, webhook};
use super::{Store, StoreError, Workspace, to_json};
use crate::domain::change::Change;
use crate::domain::event::Trigger;
use crate::domain::scope::ScopeInput;

/// The fields of a webhook in a request. None keeps a field.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookInput {
    pub(crate) name: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) triggers: Option<Vec<Trigger>>,
    pub(crate) scope: ScopeInput,
    pub(crate) disabled: Option<bool>,
}

/// A webhook before and after an update.
#[derive(Clone, Debug)]
pub(crate) struct ChangedWebhook {
    pub(crate) before: Webhook,
    pub(crate) after: Webhook,
}

impl Store {
    /// Updates a webhook. Enabling a webhook resets its failures. None if the workspace has no such webhook.
    pub(crate) async fn update_webhook(
        &self,
        workspace: &Workspace,
        id: &str,
        input: &WebhookInput,
        now: Timestamp,
    ) -> Result<Option<ChangedWebhook>, StoreError> {
        let ids = |change: &Change<Vec<String>>| change.clone().set().unwrap_or_default();
        let (link_ids, folder_ids) = (ids(&input.scope.link_ids), ids(&input.scope.folder_ids));
        let known = self.known_ids(workspace, &link_ids, &folder_ids).await?;
        let mut transaction = self.begin().await?;
        let Some(before) = self.lock_webhook(&mut transaction, workspace, id).await? else {
            return Ok(None);
        };
        let scope = input.scope.applied_to(&before.scope).map_err(WebhookConflict::from);
        let scope = known.resolve(&scope?, &before.scope)?;
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
            store_scope(&mut transaction, self.dialect, after.seq, &after.scope).await?;
            transaction.commit().await?;
        }
        Ok(Some(ChangedWebhook { before, after }))
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
                return Err(WebhookConflict::Overlap(ends).into());
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
        transaction: &mut Transaction<'static, Any>,
        workspace: &Workspace,
        id: &str,
    ) -> Result<Option<Webhook>, StoreError> {
        let mut sql = Sql::new(WEBHOOKS);
        sql.bind(workspace.seq).push(" AND h.id = ").bind(id.to_owned());
        // Deliveries to the webhook may be written meanwhile.
        sql.lock(self.dialect, " FOR NO KEY UPDATE OF h");
        sql.optional(&mut **transaction).await?.as_ref().map(webhook).transpose()
    }
}

async fn write(
    transaction: &mut Transaction<'static, Any>,
    before: &Webhook,
    after: &Webhook,
) -> Result<(), StoreError> {
    let (scope, link_ids, folder_ids) = scope_columns(&after.scope)?;
    let mut sql = Sql::new("UPDATE webhooks SET name = ");
    sql.bind(after.name.clone()).push(", url = ").bind(after.url.clone());
    sql.push(", triggers = ").bind(to_json("webhook triggers", &after.triggers)?);
    sql.push(", link_scope = ").bind(scope.to_owned());
    sql.push(", link_ids = ").bind(link_ids).push(", folder_ids = ").bind(folder_ids);
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
    written.map_err(|error| StoreError::or_taken(error, WebhookConflict::Url))?;
    Ok(())
}
