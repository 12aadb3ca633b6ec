//! Webhooks, their outbox, and the log of what was delivered.

use jiff::{SignedDuration, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace, from_json, instant_of, optional_instant_of, to_json};
use crate::ids;
use crate::links::Link;
use crate::webhooks::{Event, Trigger};

/// Which links' events a webhook hears of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of the workspace.
    Workspace,
    /// Those with one of these ids.
    Links(Vec<String>),
    /// Those in one of these folders.
    Folders(Vec<String>),
}

/// A receiver of events.
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
    pub(crate) created_at: Timestamp,
}

impl Webhook {
    /// Whether the link is in scope.
    pub(super) fn listens_to(&self, link: &Link) -> bool {
        match &self.scope {
            Scope::Workspace => true,
            Scope::Links(ids) => ids.contains(&link.id),
            Scope::Folders(folders) => link.folder_id.as_ref().is_some_and(|folder| folders.contains(folder)),
        }
    }
}

/// What a request says of a webhook.
#[derive(Clone, Debug)]
pub(crate) struct NewWebhook {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) secret: Option<String>,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) scope: Scope,
}

/// A delivery whose time has come, taken by this process until its lease ends.
#[derive(Clone, Debug)]
pub(crate) struct DueDelivery {
    pub(crate) seq: i64,
    pub(crate) webhook_seq: i64,
    pub(crate) event_id: String,
    pub(crate) payload: String,
    pub(crate) url: String,
    pub(crate) secret: String,
    /// Attempts made before this one.
    pub(crate) attempts: u32,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The receiver has it.
    Delivered,
    /// To be tried again at this instant.
    Retry(Timestamp),
    /// Given up.
    Failed,
    /// Given up, and the receiver wants no more events.
    Gone,
}

/// One attempt, for the log.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) at: Timestamp,
    pub(crate) http_status: Option<u16>,
    pub(crate) error: Option<String>,
    pub(crate) response_body: String,
}

const WEBHOOKS: &str =
    "SELECT h.seq, h.id, h.name, h.url, h.secret, h.triggers, h.link_scope, h.link_ids, h.folder_ids,
    h.disabled_at, h.created_at FROM webhooks h WHERE h.workspace_seq = ";

impl Store {
    /// Makes a webhook. None if the workspace has one with this URL.
    pub(crate) async fn create_webhook(
        &self,
        workspace: &Workspace,
        new: &NewWebhook,
        now: Timestamp,
    ) -> Result<Option<Webhook>, StoreError> {
        let id = ids::sortable("wh_", now);
        let secret = new.secret.clone().unwrap_or_else(ids::webhook_secret);
        let (scope, link_ids, folder_ids) = scope_columns(&new.scope)?;
        let triggers = to_json("webhook triggers", &new.triggers)?;
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
        if sql.execute(&self.write).await? == 0 {
            return Ok(None);
        }
        self.webhook(workspace, &id).await
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

    /// Deletes a webhook with its deliveries. False if the workspace has none of this id.
    pub(crate) async fn delete_webhook(&self, workspace: &Workspace, id: &str) -> Result<bool, StoreError> {
        let mut sql = Sql::new("DELETE FROM webhooks WHERE workspace_seq = ");
        sql.bind(workspace.seq).push(" AND id = ").bind(id.to_owned());
        Ok(sql.execute(&self.write).await? == 1)
    }

    /// Takes up to `limit` deliveries that are due. Nobody else gets them before `lease` has passed: then they are due
    /// again, since whoever took them must have died.
    pub(crate) async fn take_due_deliveries(
        &self,
        limit: i64,
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        let leased_until = now.saturating_add(lease).unwrap_or(Timestamp::MAX);
        let mut sql = Sql::new("UPDATE webhook_deliveries SET due_at = ");
        sql.bind(leased_until.as_millisecond());
        sql.push(
            " WHERE seq IN (SELECT d.seq FROM webhook_deliveries d JOIN webhooks h ON h.seq = d.webhook_seq
             WHERE h.disabled_at IS NULL AND d.due_at <= ",
        );
        sql.bind(now.as_millisecond()).push(" ORDER BY d.due_at, d.seq LIMIT ").bind(limit);
        if self.dialect == Dialect::Postgres {
            sql.push(" FOR UPDATE OF d SKIP LOCKED");
        }
        sql.push(") RETURNING seq");
        let taken = sql.all(&self.write).await?;
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let seqs = taken.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        let mut sql = Sql::new(
            "SELECT d.seq, d.webhook_seq, e.id AS event_id, e.payload, h.url, h.secret, d.attempts
             FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq
             JOIN webhooks h ON h.seq = d.webhook_seq WHERE d.seq IN ",
        );
        sql.list(seqs).push(" ORDER BY d.seq");
        sql.all(&self.write).await?.iter().map(due_delivery).collect()
    }

    /// Makes deliveries that a process took before it died due at once. Only for a database of one process.
    pub(crate) async fn release_deliveries(&self, now: Timestamp) -> Result<(), StoreError> {
        if self.dialect == Dialect::Sqlite {
            let mut sql = Sql::new("UPDATE webhook_deliveries SET due_at = ");
            sql.bind(now.as_millisecond())
                .push(" WHERE attempts = 0 AND due_at > ")
                .bind(now.as_millisecond());
            sql.execute(&self.write).await?;
        }
        Ok(())
    }

    /// Writes down how an attempt ended. A webhook that failed `disable_after` events in a row, or is gone, is disabled.
    pub(crate) async fn finish_attempt(
        &self,
        delivery: &DueDelivery,
        attempt: &Attempt,
        outcome: &Outcome,
        disable_after: u32,
    ) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(
            "INSERT INTO webhook_attempts (delivery_seq, at, http_status, error, response_body) SELECT d.seq, ",
        );
        sql.bind(attempt.at.as_millisecond()).push(", ").bind(attempt.http_status.map(i64::from)).push(", ");
        sql.bind(attempt.error.clone()).push(", ").bind(attempt.response_body.clone());
        sql.push(" FROM webhook_deliveries d WHERE d.seq = ").bind(delivery.seq);
        sql.execute(&mut *transaction).await?;

        let (due_at, delivered_at) = match outcome {
            Outcome::Delivered => (None, Some(attempt.at.as_millisecond())),
            Outcome::Retry(at) => (Some(at.as_millisecond()), None),
            Outcome::Failed | Outcome::Gone => (None, None),
        };
        let mut sql = Sql::new("UPDATE webhook_deliveries SET attempts = attempts + 1, due_at = ");
        sql.bind(due_at)
            .push(", delivered_at = ")
            .bind(delivered_at)
            .push(" WHERE seq = ")
            .bind(delivery.seq);
        sql.execute(&mut *transaction).await?;

        let at = attempt.at.as_millisecond();
        let webhook = match outcome {
            Outcome::Retry(_) => None,
            Outcome::Delivered => {
                Some(Sql::new("UPDATE webhooks SET failures = 0 WHERE failures <> 0 AND seq = "))
            }
            Outcome::Failed => {
                let mut sql = Sql::new(
                    "UPDATE webhooks SET failures = failures + 1, disabled_at = CASE WHEN failures + 1 >= ",
                );
                sql.bind(i64::from(disable_after))
                    .push(" THEN ")
                    .bind(at)
                    .push(" ELSE disabled_at END WHERE seq = ");
                Some(sql)
            }
            Outcome::Gone => {
                let mut sql = Sql::new("UPDATE webhooks SET disabled_at = ");
                sql.bind(at).push(" WHERE seq = ");
                Some(sql)
            }
        };
        if let Some(mut sql) = webhook {
            sql.bind(delivery.webhook_seq);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

/// The enabled webhooks of a workspace that hear of `trigger`.
pub(super) async fn listeners(
    transaction: &mut Transaction<'static, Any>,
    workspace_seq: i64,
    trigger: Trigger,
) -> Result<Vec<Webhook>, StoreError> {
    let mut sql = Sql::new(WEBHOOKS);
    sql.bind(workspace_seq).push(" AND h.disabled_at IS NULL ORDER BY h.seq");
    let webhooks = sql.all(&mut **transaction).await?.iter().map(webhook).collect::<Result<Vec<_>, _>>()?;
    Ok(webhooks.into_iter().filter(|webhook| webhook.triggers.contains(&trigger)).collect())
}

/// Writes an event about `link` for every webhook that hears of it.
pub(super) async fn enqueue(
    transaction: &mut Transaction<'static, Any>,
    workspace_seq: i64,
    link: &Link,
    event: &Event,
) -> Result<(), StoreError> {
    let webhooks = listeners(transaction, workspace_seq, event.trigger).await?;
    let listening: Vec<i64> =
        webhooks.iter().filter(|webhook| webhook.listens_to(link)).map(|webhook| webhook.seq).collect();
    enqueue_to(transaction, workspace_seq, &listening, event).await
}

/// Writes an event and one delivery per receiver; nothing if there is no receiver.
pub(super) async fn enqueue_to(
    transaction: &mut Transaction<'static, Any>,
    workspace_seq: i64,
    webhooks: &[i64],
    event: &Event,
) -> Result<(), StoreError> {
    if webhooks.is_empty() {
        return Ok(());
    }
    let payload = to_json("webhook payload", &event.payload())?;
    let mut sql =
        Sql::new("INSERT INTO webhook_events (id, workspace_seq, event, payload, created_at) VALUES ");
    sql.rows(&[()], |row, ()| {
        row.bind(event.id.clone())
            .bind(workspace_seq)
            .bind(event.trigger.name().to_owned())
            .bind(payload.clone());
        row.bind(event.created_at.as_millisecond());
    });
    sql.push(" RETURNING seq");
    let event_seq = sql.number(&mut **transaction).await?;
    let mut sql =
        Sql::new("INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at) VALUES ");
    sql.rows(webhooks, |row, webhook| {
        row.bind(event_seq).bind(*webhook).bind(0_i64).bind(event.created_at.as_millisecond());
    });
    sql.execute(&mut **transaction).await?;
    Ok(())
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
        created_at: instant_of(row, "created_at")?,
    })
}

fn due_delivery(row: &AnyRow) -> Result<DueDelivery, StoreError> {
    let attempts: i64 = row.try_get("attempts")?;
    Ok(DueDelivery {
        seq: row.try_get("seq")?,
        webhook_seq: row.try_get("webhook_seq")?,
        event_id: row.try_get("event_id")?,
        payload: row.try_get("payload")?,
        url: row.try_get("url")?,
        secret: row.try_get("secret")?,
        attempts: u32::try_from(attempts).map_err(|error| StoreError::corrupt("webhook attempts", &error))?,
    })
}
