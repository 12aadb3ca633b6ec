//! The endpoints of webhooks.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use serde::Serialize;
use serde_json::Value;
use url::Url;

use super::{Trigger, parse_trigger, signature};
use crate::app::Shared;
use crate::auth::Caller;
use crate::body::{Change, Fields, JsonBody, wrong_type};
use crate::error::ApiError;
use crate::links::rfc3339;
use crate::path::Name;
use crate::store::{NewWebhook, Scope, Webhook};

/// Longest name, in characters.
const MAX_NAME: usize = 40;
/// Longest receiver address, in characters.
const MAX_URL: usize = 2_048;
/// Most links, and most folders, of a scope.
const MAX_SCOPE: usize = 1_000;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/webhooks", routing::get(list).post(create))
        .route("/webhooks/{id}", routing::get(one).delete(delete))
}

/// A webhook as responses show it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Webhook)]
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
    let webhook = webhook.ok_or_else(|| ApiError::conflict("A Webhook with this URL already exists."))?;
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
        Ok(Json(serde_json::json!({ "id": id })))
    } else {
        Err(not_found())
    }
}

fn not_found() -> ApiError {
    ApiError::not_found("Webhook not found.")
}

fn new_webhook(body: &Value, app: &Shared) -> Result<NewWebhook, ApiError> {
    let fields = Fields::of(body, "")?;
    let name = fields.required_text("name", MAX_NAME)?;
    if name.is_empty() {
        return Err(ApiError::invalid(
            "too_small",
            "name",
            "Too small: expected string to have >=1 characters",
        ));
    }
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

fn receiver(fields: &Fields<'_>, text: &str, app: &Shared) -> Result<String, ApiError> {
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
        let Some(trigger) = parse_trigger(item) else {
            let names: Vec<&str> = Trigger::ALL.into_iter().map(Trigger::name).collect();
            let message = format!("Invalid option: expected one of {}", names.join(", "));
            return Err(ApiError::invalid("invalid_value", &format!("{path}[{index}]"), &message));
        };
        if !triggers.contains(&trigger) {
            triggers.push(trigger);
        }
    }
    Ok(triggers)
}

/// The scope, which is the whole workspace where the request names none.
fn scope(fields: &Fields<'_>) -> Result<Scope, ApiError> {
    let named = match fields.text("linkScope", MAX_NAME)? {
        Change::Keep | Change::Clear => return Ok(Scope::Workspace),
        Change::Set(named) => named,
    };
    let ids = |name| {
        let ids = fields.texts(name, MAX_SCOPE)?.set().unwrap_or_default();
        if ids.is_empty() {
            return Err(fields.invalid(name, "Expected at least one id for this scope"));
        }
        Ok(ids)
    };
    match named.as_str() {
        "workspace" => Ok(Scope::Workspace),
        "links" => Ok(Scope::Links(ids("linkIds")?)),
        "folders" => Ok(Scope::Folders(ids("folderIds")?)),
        _ => Err(fields.invalid("linkScope", "Invalid option: expected one of workspace, folders, links")),
    }
}
