//! The endpoints of webhooks. [`deliveries`] has those of their deliveries, and [`input`] reads the bodies.

pub(crate) mod deliveries;
pub(crate) mod input;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use self::input::{RotateSecret, TestWebhook, WebhookFields};
use crate::api::caller::Caller;
use crate::api::state::{App, Shared};
use crate::domain::click::Click;
use crate::domain::event::{Event, Trigger};
use crate::domain::ids;
use crate::domain::link::Link;
use crate::domain::scope::ScopeKind;
use crate::domain::usage::Threshold;
use crate::domain::when::rfc3339;
use crate::http::error::{ApiError, Code};
use crate::http::json_body::Fields;
use crate::http::path::Name;
use crate::store::Webhook;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/webhooks", routing::get(list).post(create))
        .route("/webhooks/{id}", routing::get(one).patch(update).delete(delete))
        .route("/webhooks/{id}/test", routing::post(test))
        .route("/webhooks/{id}/rotate-secret", routing::post(rotate_secret))
        .merge(deliveries::router())
}

/// A webhook as responses show it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookBody {
    id: String,
    name: String,
    url: String,
    /// Only in responses that create the webhook or rotate its secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// The end of the overlap in which the previous secret also signs deliveries.
    old_secret_until: Option<String>,
    triggers: Vec<Trigger>,
    link_scope: Option<&'static str>,
    link_ids: Vec<String>,
    folder_ids: Vec<String>,
    disabled_at: Option<String>,
    installation_id: Option<String>,
    created_at: String,
}

impl WebhookBody {
    /// A webhook at `now`, without its secret.
    fn of(webhook: Webhook, now: Timestamp) -> Self {
        Self {
            id: webhook.id,
            name: webhook.name,
            url: webhook.url,
            secret: None,
            old_secret_until: webhook.old_secret_until.filter(|until| *until > now).map(rfc3339),
            triggers: webhook.triggers,
            link_scope: Some(webhook.scope.kind.name()),
            link_ids: webhook.scope.ids_of(ScopeKind::Links).to_vec(),
            folder_ids: webhook.scope.ids_of(ScopeKind::Folders).to_vec(),
            disabled_at: webhook.disabled_at.map(rfc3339),
            installation_id: None,
            created_at: rfc3339(webhook.created_at),
        }
    }

    /// A webhook with its secret.
    fn with_secret(webhook: Webhook, now: Timestamp) -> Self {
        let secret = Some(webhook.secret.clone());
        Self { secret, ..Self::of(webhook, now) }
    }
}

async fn create(
    State(app): State<Shared>,
    caller: Caller,
    Fields(fields): Fields<WebhookFields>,
) -> Result<(StatusCode, Json<WebhookBody>), ApiError> {
    let new = input::new_webhook(fields, &app)?;
    let now = app.clock.now();
    let webhook = app.store.create_webhook(&caller.workspace, &new, app.max_webhooks, now).await?;
    Ok((StatusCode::CREATED, Json(WebhookBody::with_secret(webhook, now))))
}

async fn list(State(app): State<Shared>, caller: Caller) -> Result<Json<Vec<WebhookBody>>, ApiError> {
    let webhooks = app.store.webhooks(&caller.workspace).await?;
    let now = app.clock.now();
    Ok(Json(webhooks.into_iter().map(|webhook| WebhookBody::of(webhook, now)).collect()))
}

async fn one(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
) -> Result<Json<WebhookBody>, ApiError> {
    let webhook = app.store.webhook(&caller.workspace, &id).await?;
    webhook.map(|webhook| Json(WebhookBody::of(webhook, app.clock.now()))).ok_or_else(not_found)
}

async fn delete(State(app): State<Shared>, caller: Caller, Name(id): Name) -> Result<Json<Value>, ApiError> {
    if app.store.delete_webhook(&caller.workspace, &id).await? {
        app.deleted.notify_one();
        Ok(Json(json!({ "id": id })))
    } else {
        Err(not_found())
    }
}

/// Updates the fields that the request names. `disabled: false` enables a webhook that was
/// disabled because of its failures.
async fn update(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    Fields(fields): Fields<WebhookFields>,
) -> Result<Json<WebhookBody>, ApiError> {
    let input = input::update(fields, &app)?;
    let now = app.clock.now();
    let changed = app.store.update_webhook(&caller.workspace, &id, &input, now).await?;
    app.announced.notify_one();
    Ok(Json(WebhookBody::of(changed.ok_or_else(not_found)?, now)))
}

/// Replaces the secret of a webhook by the one in the request, or by a generated one. During the overlap, the previous
/// secret also signs deliveries.
async fn rotate_secret(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    Fields(fields): Fields<RotateSecret>,
) -> Result<Json<WebhookBody>, ApiError> {
    let (secret, overlap) = fields.read()?;
    let (secret, now) = (secret.unwrap_or_else(ids::webhook_secret), app.clock.now());
    let rotated = app.store.rotate_secret(&caller.workspace, &id, &secret, overlap, now).await?;
    Ok(Json(WebhookBody::with_secret(rotated.ok_or_else(not_found)?, now)))
}

/// Sends a sample event of the type `trigger`. It is signed and delivered like any other event.
async fn test(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    Fields(fields): Fields<TestWebhook>,
) -> Result<Json<Value>, ApiError> {
    let webhook = enabled(&app, &caller, &id).await?;
    let trigger = fields.trigger.set().or(webhook.triggers.first().copied()).unwrap_or(Trigger::Created);
    let event = sample(trigger, &caller.workspace.id, &app);
    let sent = json!({ "id": event.id });
    if !app.store.send_to(&caller.workspace, &webhook, event).await? {
        return Err(not_found());
    }
    app.announced.notify_one();
    Ok(Json(sent))
}

/// An event about a link that does not exist, or a quota of a subscriber that does not.
fn sample(trigger: Trigger, workspace_id: &str, app: &App) -> Event {
    let now = app.clock.now();
    let link = Link::sample(workspace_id, app.public_url.default_domain(), now);
    match trigger {
        Trigger::Clicked => {
            let mut click = Click::new(&link.id, now);
            click.details.url = link.url.clone().into();
            Event::of_click(&click, link.body(&app.public_url))
        }
        Trigger::UsageThreshold => {
            let (id, subscriber) = (ids::alphanumeric(25), "key_sample".to_owned());
            let [class, quota] = ["standard", "standard-day"].map(str::to_owned);
            let (share, limit, used, at) = (80, 1000, 800, now);
            Event::of_threshold(Threshold {
                id,
                at,
                subscriber,
                class,
                quota,
                share,
                limit,
                used,
                from: at,
                to: at,
            })
        }
        Trigger::Created | Trigger::Updated | Trigger::Deleted => {
            Event::of_link(trigger, &link, &app.public_url, now)
        }
    }
}

/// A webhook that is not disabled.
async fn enabled(app: &App, caller: &Caller, id: &str) -> Result<Webhook, ApiError> {
    let webhook = app.store.webhook(&caller.workspace, id).await?.ok_or_else(not_found)?;
    match webhook.disabled_at {
        None => Ok(webhook),
        Some(_) => Err(ApiError::new(Code::Conflict, "The webhook is disabled.")),
    }
}

fn not_found() -> ApiError {
    ApiError::not_found("Webhook not found.")
}
