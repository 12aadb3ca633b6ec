//! Webhooks: the receivers of a workspace's events.

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::listeners::store_scope;
use super::sql::Sql;
use super::{Store, StoreError, Workspace, from_json, instant_of, optional_instant_of, to_json};
use crate::ids;
use crate::webhooks::Trigger;

/// The links whose events a webhook receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All links of the workspace.
    Workspace,
    /// The links with these ids.
    Links(Vec<String>),
    /// The links in these folders.
    Folders(Vec<String>),
}

/// A webhook.
#[derive(Clone, Debug)]
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

/// The reason why a webhook was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookConflict {
    /// The workspace already has a webhook with this URL.
    Url,
    /// The workspace has the maximum number of webhooks.
    TooMany,
}

/// A webhook to be created.
#[derive(Clone, Debug)]
pub(crate) struct NewWebhook {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) secret: Option<String>,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) scope: Scope,
}

const WEBHOOKS: &str =
    "SELECT h.seq, h.id, h.name, h.url, h.secret, h.triggers, h.link_scope, h.link_ids, h.folder_ids,
    h.disabled_at, h.old_secret_until, h.created_at FROM webhooks h WHERE h.workspace_seq = ";

impl Store {
    /// Creates a webhook in a workspace that may have `most` webhooks.
    pub(crate) async fn create_webhook(
        &self,
        workspace: &Workspace,
        new: &NewWebhook,
        most: u32,
        now: Timestamp,
    ) -> Result<Result<Webhook, WebhookConflict>, StoreError> {
        let id = ids::sortable("wh_", now);
        let secret = new.secret.clone().unwrap_or_else(ids::webhook_secret);
        let (scope, link_ids, folder_ids) = scope_columns(&new.scope)?;
        let triggers = to_json("webhook triggers", &new.triggers)?;
        let mut transaction = self.begin_alone(workspace).await?;
        let mut sql = Sql::new("SELECT COUNT(*) FROM webhooks h WHERE h.workspace_seq = ");
        sql.bind(workspace.seq);
        let full = sql.number(&mut *transaction).await? >= i64::from(most);
        let mut sql = Sql::new(
            "INSERT INTO webhooks (id, workspace_seq, name, url, secret, triggers, link_scope, link_ids, folder_ids,
             failures, created_at) VALUES ",
        );
        sql.rows(&[()], |row, ()| {
            row.bind(id.clone()).bind(workspace.seq).bind(new.name.clone()).bind(new.url.clone());
            row.bind(secret.clone()).bind(triggers.clone()).bind(scope.to_owned());
            row.bind(link_ids.clone()).bind(folder_ids.clone()).bind(0_i64).bind(now.as_millisecond());
        });
        sql.push(" ON CONFLICT DO NOTHING");
        if sql.execute(&mut *transaction).await? == 0 {
            return Ok(Err(WebhookConflict::Url));
        }
        if full {
            return Ok(Err(WebhookConflict::TooMany));
        }
        let mut sql = Sql::new(WEBHOOKS);
        sql.bind(workspace.seq).push(" AND h.id = ").bind(id);
        let made = webhook(&sql.one(&mut *transaction).await?)?;
        store_scope(&mut transaction, self.dialect, made.seq, &made.scope).await?;
        transaction.commit().await?;
        Ok(Ok(made))
    }

    /// Replaces the secret of a webhook. Until `overlap_ends`, the previous secret also signs deliveries.
    pub(crate) async fn rotate_secret(
        &self,
        webhook: &Webhook,
        secret: &str,
        overlap_ends: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let mut sql = Sql::new(match overlap_ends {
            Some(_) => "UPDATE webhooks SET old_secret = secret, old_secret_until = ",
            None => "UPDATE webhooks SET old_secret = NULL, old_secret_until = ",
        });
        sql.bind(overlap_ends.map(Timestamp::as_millisecond)).push(", secret = ").bind(secret.to_owned());
        sql.push(" WHERE seq = ").bind(webhook.seq);
        sql.execute(&self.write).await?;
        Ok(())
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

    /// Stores an updated webhook. Enabling a webhook resets its failures. False if another webhook of the workspace has
    /// its URL.
    pub(crate) async fn update_webhook(
        &self,
        workspace: &Workspace,
        webhook: &Webhook,
    ) -> Result<bool, StoreError> {
        let (scope, link_ids, folder_ids) = scope_columns(&webhook.scope)?;
        let mut sql = Sql::new("UPDATE webhooks SET name = ");
        sql.bind(webhook.name.clone()).push(", url = ").bind(webhook.url.clone());
        sql.push(", triggers = ").bind(to_json("webhook triggers", &webhook.triggers)?);
        sql.push(", link_scope = ").bind(scope.to_owned());
        sql.push(", link_ids = ").bind(link_ids).push(", folder_ids = ").bind(folder_ids);
        sql.push(", failures = CASE WHEN disabled_at IS NULL THEN failures ELSE 0 END, disabled_at = ");
        sql.bind(webhook.disabled_at.map(Timestamp::as_millisecond));
        sql.push(" WHERE workspace_seq = ").bind(workspace.seq).push(" AND seq = ").bind(webhook.seq);
        let mut transaction = self.begin().await?;
        match sql.execute(&mut *transaction).await {
            // The webhook was deleted meanwhile.
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        store_scope(&mut transaction, self.dialect, webhook.seq, &webhook.scope).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

fn scope_columns(scope: &Scope) -> Result<(&'static str, String, String), StoreError> {
    let none: &[String] = &[];
    let (name, links, folders) = match scope {
        Scope::Workspace => ("workspace", none, none),
        Scope::Links(ids) => ("links", ids.as_slice(), none),
        Scope::Folders(ids) => ("folders", none, ids.as_slice()),
    };
    Ok((name, to_json("webhook scope", &links)?, to_json("webhook scope", &folders)?))
}

fn webhook(row: &AnyRow) -> Result<Webhook, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column);
    let scope = match text("link_scope")?.as_str() {
        "workspace" => Scope::Workspace,
        "links" => Scope::Links(from_json("webhook scope", &text("link_ids")?)?),
        "folders" => Scope::Folders(from_json("webhook scope", &text("folder_ids")?)?),
        other => return Err(StoreError::corrupt("webhook scope", &other)),
    };
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
