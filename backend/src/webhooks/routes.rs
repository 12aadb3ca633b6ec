//! The endpoints of webhooks.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use super::{Event, Trigger, parse_trigger, signature};
use crate::app::{App, Shared};
use crate::auth::Caller;
use crate::body::{Change, Fields, JsonBody, wrong_type};
use crate::error::ApiError;
use crate::links::{Link, rfc3339};
use crate::path::{Name, Names};
use crate::store::{Attempt, Click, DeliveryRecord, NewWebhook, Scope, Webhook};

/// Longest name, in characters.
const MAX_NAME: usize = 40;
/// Longest receiver address, in characters.
const MAX_URL: usize = 2_048;
/// Most links, and most folders, of a scope.
const MAX_SCOPE: usize = 1_000;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/webhooks", routing::get(list).post(create))
        .route("/webhooks/{id}", routing::get(one).patch(update).delete(delete))
        .route("/webhooks/{id}/test", routing::post(test))
        .route("/webhooks/{id}/deliveries", routing::get(deliveries))
        .route("/webhooks/{id}/deliveries/{event}/replay", routing::post(replay))
}

/// A webhook as responses show it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Webhook))]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookBody {
    id: String,
    name: String,
    url: String,
    secret: String,
    triggers: Vec<Trigger>,
    link_scope: Option<&'static str>,
    link_ids: Vec<String>,
    folder_ids: Vec<String>,
    disabled_at: Option<String>,
    installation_id: Option<String>,
    created_at: String,
}

impl WebhookBody {
    fn of(webhook: Webhook) -> Self {
        let (link_scope, link_ids, folder_ids) = match webhook.scope {
            Scope::Workspace => ("workspace", Vec::new(), Vec::new()),
            Scope::Links(ids) => ("links", ids, Vec::new()),
            Scope::Folders(ids) => ("folders", Vec::new(), ids),
        };
        Self {
            id: webhook.id,
            name: webhook.name,
            url: webhook.url,
            secret: webhook.secret,
            triggers: webhook.triggers,
            link_scope: Some(link_scope),
            link_ids,
            folder_ids,
            disabled_at: webhook.disabled_at.map(rfc3339),
            installation_id: None,
            created_at: rfc3339(webhook.created_at),
        }
    }
}

async fn create(
    State(app): State<Shared>,
    caller: Caller,
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<WebhookBody>), ApiError> {
    let new = new_webhook(&body, &app)?;
    let webhook = app.store.create_webhook(&caller.workspace, &new, app.clock.now()).await?;
    let webhook = webhook.ok_or_else(url_is_taken)?;
    Ok((StatusCode::CREATED, Json(WebhookBody::of(webhook))))
}

async fn list(State(app): State<Shared>, caller: Caller) -> Result<Json<Vec<WebhookBody>>, ApiError> {
    let webhooks = app.store.webhooks(&caller.workspace).await?;
    Ok(Json(webhooks.into_iter().map(WebhookBody::of).collect()))
}

async fn one(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
) -> Result<Json<WebhookBody>, ApiError> {
    let webhook = app.store.webhook(&caller.workspace, &id).await?;
    webhook.map(|webhook| Json(WebhookBody::of(webhook))).ok_or_else(not_found)
}

async fn delete(State(app): State<Shared>, caller: Caller, Name(id): Name) -> Result<Json<Value>, ApiError> {
    if app.store.delete_webhook(&caller.workspace, &id).await? {
        Ok(Json(json!({ "id": id })))
    } else {
        Err(not_found())
    }
}

/// Changes what the request names. `disabled: false` enables a webhook that was disabled for its failures.
async fn update(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    JsonBody(body): JsonBody,
) -> Result<Json<WebhookBody>, ApiError> {
    let fields = Fields::of(&body, "")?;
    let mut webhook = app.store.webhook(&caller.workspace, &id).await?.ok_or_else(not_found)?;
    if fields.get("name").is_some() {
        webhook.name = name(&fields)?;
    }
    if fields.get("url").is_some() {
        webhook.url = receiver(&fields, &fields.required_text("url", MAX_URL)?, &app)?;
    }
    if fields.get("triggers").is_some() {
        webhook.triggers = triggers(&fields)?;
    }
    let scope = scope(&fields)?;
    if fields.get("linkScope").is_some() {
        webhook.scope = scope;
    }
    match fields.boolean("disabled")? {
        Change::Set(true) => webhook.disabled_at = webhook.disabled_at.or(Some(app.clock.now())),
        Change::Set(false) => webhook.disabled_at = None,
        Change::Keep | Change::Clear => {}
    }
    if !app.store.update_webhook(&caller.workspace, &webhook).await? {
        return Err(url_is_taken());
    }
    app.announced.notify_one();
    Ok(Json(WebhookBody::of(webhook)))
}

/// Sends a made-up event of the kind that `trigger` names, signed and delivered like any other.
async fn test(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, ApiError> {
    let fields = Fields::of(&body, "")?;
    let webhook = enabled(&app, &caller, &id).await?;
    let trigger = match fields.get("trigger") {
        None => webhook.triggers.first().copied().unwrap_or(Trigger::Created),
        Some(value) => trigger(value, "trigger")?,
    };
    let event = sample(trigger, &caller.workspace.id, &app);
    let told = json!({ "id": event.id });
    app.store.send_to(&caller.workspace, &webhook, event).await?;
    app.announced.notify_one();
    Ok(Json(told))
}

/// An event about a link that does not exist.
fn sample(trigger: Trigger, workspace_id: &str, app: &App) -> Event {
    let now = app.clock.now();
    let link = Link::sample(workspace_id, app.public_url.default_domain(), now);
    match trigger {
        Trigger::Clicked => {
            let mut click = Click::new(&link.id, now);
            click.details.url = link.url.clone().into();
            Event::of_click(&click, &link, &app.public_url)
        }
        Trigger::Created | Trigger::Updated | Trigger::Deleted => {
            Event::of_link(trigger, &link, &app.public_url, now)
        }
    }
}

/// An event on its way to a webhook, and every attempt to deliver it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Delivery))]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveryBody {
    event_id: String,
    event: String,
    /// `pending`, `delivered` or `failed`.
    status: &'static str,
    created_at: String,
    next_attempt_at: Option<String>,
    request_body: String,
    attempts: Vec<AttemptBody>,
}

/// One attempt. Without an HTTP status the receiver could not be reached, and `error` says why.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Attempt))]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttemptBody {
    timestamp: String,
    http_status: Option<u16>,
    error: Option<String>,
    response_body: String,
}

impl DeliveryBody {
    fn of(record: DeliveryRecord) -> Self {
        let status = match (record.delivered_at, record.due_at) {
            (Some(_), _) => "delivered",
            (None, Some(_)) => "pending",
            (None, None) => "failed",
        };
        let attempt = |attempt: Attempt| AttemptBody {
            timestamp: rfc3339(attempt.at),
            http_status: attempt.http_status,
            error: attempt.error,
            response_body: attempt.response_body,
        };
        Self {
            event_id: record.event_id,
            event: record.event,
            status,
            created_at: rfc3339(record.created_at),
            next_attempt_at: record.due_at.map(rfc3339),
            request_body: record.payload,
            attempts: record.attempts.into_iter().map(attempt).collect(),
        }
    }
}

async fn deliveries(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
) -> Result<Json<Vec<DeliveryBody>>, ApiError> {
    let webhook = app.store.webhook(&caller.workspace, &id).await?.ok_or_else(not_found)?;
    let records = app.store.deliveries(&webhook).await?;
    Ok(Json(records.into_iter().map(DeliveryBody::of).collect()))
}

async fn replay(
    State(app): State<Shared>,
    caller: Caller,
    Names(id, event): Names,
) -> Result<Json<Value>, ApiError> {
    let webhook = enabled(&app, &caller, &id).await?;
    if !app.store.replay(&webhook, &event, app.clock.now()).await? {
        return Err(ApiError::not_found("Event not found."));
    }
    app.announced.notify_one();
    Ok(Json(json!({ "id": event })))
}

async fn enabled(app: &App, caller: &Caller, id: &str) -> Result<Webhook, ApiError> {
    let webhook = app.store.webhook(&caller.workspace, id).await?.ok_or_else(not_found)?;
    match webhook.disabled_at {
        None => Ok(webhook),
        Some(_) => Err(ApiError::conflict("The webhook is disabled.")),
    }
}

fn url_is_taken() -> ApiError {
    ApiError::conflict("A Webhook with this URL already exists.")
}

fn not_found() -> ApiError {
    ApiError::not_found("Webhook not found.")
}

fn new_webhook(body: &Value, app: &App) -> Result<NewWebhook, ApiError> {
    let fields = Fields::of(body, "")?;
    let name = name(&fields)?;
    let secret = fields.text("secret", MAX_URL)?.set();
    if let Some(secret) = &secret {
        signature::standard(secret, "", 0, b"")
            .map_err(|error| fields.invalid("secret", &error.to_string()))?;
    }
    let triggers = triggers(&fields)?;
    Ok(NewWebhook {
        name,
        url: receiver(&fields, &fields.required_text("url", MAX_URL)?, app)?,
        secret,
        scope: scope(&fields)?,
        triggers,
    })
}

fn name(fields: &Fields<'_>) -> Result<String, ApiError> {
    let name = fields.required_text("name", MAX_NAME)?;
    if name.is_empty() {
        let message = "Too small: expected string to have >=1 characters";
        return Err(ApiError::invalid("too_small", "name", message));
    }
    Ok(name)
}

fn receiver(fields: &Fields<'_>, text: &str, app: &App) -> Result<String, ApiError> {
    let url = Url::parse(text).map_err(|_| fields.invalid("url", "Invalid URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(fields.invalid("url", "Invalid URL: expected http or https"));
    }
    if !app.webhook_addresses.allows_url(&url) {
        return Err(fields.invalid("url", "Invalid URL: the address is not public"));
    }
    Ok(url.into())
}

fn triggers(fields: &Fields<'_>) -> Result<Vec<Trigger>, ApiError> {
    let path = fields.path("triggers");
    let items = match fields.get("triggers") {
        Some(Value::Array(items)) if !items.is_empty() => items,
        Some(Value::Array(_)) => {
            return Err(ApiError::invalid("too_small", &path, "Too small: expected array to have >=1 items"));
        }
        Some(other) => return Err(wrong_type(&path, "array", other)),
        None => {
            let message = "Invalid input: expected array, received undefined";
            return Err(ApiError::invalid("invalid_type", &path, message));
        }
    };
    let mut triggers = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let trigger = trigger(item, &format!("{path}[{index}]"))?;
        if !triggers.contains(&trigger) {
            triggers.push(trigger);
        }
    }
    Ok(triggers)
}

fn trigger(value: &Value, path: &str) -> Result<Trigger, ApiError> {
    parse_trigger(value).ok_or_else(|| {
        let names: Vec<&str> = Trigger::ALL.into_iter().map(Trigger::name).collect();
        let message = format!("Invalid option: expected one of {}", names.join(", "));
        ApiError::invalid("invalid_value", path, &message)
    })
}

/// The scope, which is the whole workspace where the request names none.
fn scope(fields: &Fields<'_>) -> Result<Scope, ApiError> {
    let link_ids = fields.texts("linkIds", MAX_SCOPE)?.set().unwrap_or_default();
    let folder_ids = fields.texts("folderIds", MAX_SCOPE)?.set().unwrap_or_default();
    let named = match fields.text("linkScope", MAX_NAME)? {
        Change::Keep | Change::Clear => return Ok(Scope::Workspace),
        Change::Set(named) => named,
    };
    let missing = |name| Err(fields.invalid(name, "Expected at least one id for this scope"));
    match named.as_str() {
        "workspace" => Ok(Scope::Workspace),
        "links" if link_ids.is_empty() => missing("linkIds"),
        "links" => Ok(Scope::Links(link_ids)),
        "folders" if folder_ids.is_empty() => missing("folderIds"),
        "folders" => Ok(Scope::Folders(folder_ids)),
        _ => Err(fields.invalid("linkScope", "Invalid option: expected one of workspace, folders, links")),
    }
}
