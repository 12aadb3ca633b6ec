//! The endpoints of webhooks.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Value, json};

use super::receiver::{self, InvalidReceiver};
use super::{Event, LinkSnapshot, Trigger, parse_trigger, signature};
use crate::auth::Caller;
use crate::body::{Change, Fields, JsonBody, wrong_type};
use crate::error::{ApiError, Code};
use crate::ids;
use crate::links::{Link, rfc3339};
use crate::path::{Name, Names};
use crate::query::Query;
use crate::state::{App, Shared};
use crate::store::{
    Attempt, Click, DeliveryFilter, DeliveryRecord, DeliveryStatus, NewWebhook, REPLAYED_AT_ONCE, Scope,
    Webhook, WebhookConflict,
};
use crate::when::{self, Edge};

/// Longest name, in characters.
const MAX_NAME: usize = 40;
/// Longest receiver address, in characters.
const MAX_URL: usize = 2_048;
/// Most links, and most folders, of a scope.
const MAX_SCOPE: usize = 1_000;
/// Deliveries on a page, unless asked for fewer; also the most.
const PAGE_SIZE: i64 = 100;
/// What may have become of a delivery.
pub(crate) const STATUSES: [(&str, DeliveryStatus); 3] = [
    ("pending", DeliveryStatus::Pending),
    ("delivered", DeliveryStatus::Delivered),
    ("failed", DeliveryStatus::Failed),
];
/// How long deliveries are signed with both secrets after a rotation unless the request says otherwise, in seconds.
const OVERLAP: u64 = 86_400;
/// The longest such overlap, in seconds.
pub(crate) const MAX_OVERLAP: u32 = 7 * 86_400;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/webhooks", routing::get(list).post(create))
        .route("/webhooks/{id}", routing::get(one).patch(update).delete(delete))
        .route("/webhooks/{id}/test", routing::post(test))
        .route("/webhooks/{id}/rotate-secret", routing::post(rotate_secret))
        .route("/webhooks/{id}/deliveries", routing::get(deliveries))
        .route("/webhooks/{id}/deliveries/replay", routing::post(replay_all))
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
    /// Only where it has just been made or rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// Until when deliveries are signed with the secret from before as well.
    old_secret_until: Option<String>,
    triggers: Vec<Trigger>,
    link_scope: Option<&'static str>,
    link_ids: Vec<String>,
    folder_ids: Vec<String>,
    disabled_at: Option<String>,
    installation_id: Option<String>,
    created_at: String,
    /// The fields that a request to change the webhook has changed; only in its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Vec<&'static str>>,
}

impl WebhookBody {
    /// A webhook as it is shown at `now`, without its secret.
    fn of(webhook: Webhook, now: Timestamp) -> Self {
        let (link_scope, link_ids, folder_ids) = match webhook.scope {
            Scope::Workspace => ("workspace", Vec::new(), Vec::new()),
            Scope::Links(ids) => ("links", ids, Vec::new()),
            Scope::Folders(ids) => ("folders", Vec::new(), ids),
        };
        Self {
            id: webhook.id,
            name: webhook.name,
            url: webhook.url,
            secret: None,
            old_secret_until: webhook.old_secret_until.filter(|until| *until > now).map(rfc3339),
            triggers: webhook.triggers,
            link_scope: Some(link_scope),
            link_ids,
            folder_ids,
            disabled_at: webhook.disabled_at.map(rfc3339),
            installation_id: None,
            created_at: rfc3339(webhook.created_at),
            changed: None,
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
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<WebhookBody>), ApiError> {
    let new = new_webhook(&body, &app)?;
    let now = app.clock.now();
    let made = app.store.create_webhook(&caller.workspace, &new, app.max_webhooks, now).await?;
    let webhook = made.map_err(|conflict| match conflict {
        WebhookConflict::Url => url_is_taken(),
        WebhookConflict::TooMany => {
            let message = format!("A workspace has at most {} webhooks.", app.max_webhooks);
            ApiError::new(Code::Forbidden, message)
        }
    })?;
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
        Ok(Json(json!({ "id": id })))
    } else {
        Err(not_found())
    }
}

/// Changes what the request names, and says what that was. `disabled: false` enables a webhook that was disabled for its
/// failures.
async fn update(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    JsonBody(body): JsonBody,
) -> Result<Json<WebhookBody>, ApiError> {
    let fields = Fields::of(&body, "")?;
    let before = app.store.webhook(&caller.workspace, &id).await?.ok_or_else(not_found)?;
    if fields.get("secret").is_some_and(|secret| !secret.is_null()) {
        return Err(fields.invalid("secret", "Expected none: POST /webhooks/{id}/rotate-secret changes it"));
    }
    let mut webhook = before.clone();
    if fields.get("name").is_some() {
        webhook.name = name(&fields)?;
    }
    if fields.get("url").is_some() {
        webhook.url = receiver(&fields, &fields.required_text("url", MAX_URL)?, &app)?;
    }
    if fields.get("triggers").is_some() {
        webhook.triggers = triggers(&fields)?;
    }
    webhook.scope = scope(&fields, Some(&before.scope))?;
    match fields.boolean("disabled")? {
        Change::Set(true) => webhook.disabled_at = webhook.disabled_at.or(Some(app.clock.now())),
        Change::Set(false) => webhook.disabled_at = None,
        Change::Keep | Change::Clear => {}
    }
    if !app.store.update_webhook(&caller.workspace, &webhook).await? {
        return Err(url_is_taken());
    }
    app.announced.notify_one();
    let changed = changed(&before, &webhook);
    Ok(Json(WebhookBody { changed: Some(changed), ..WebhookBody::of(webhook, app.clock.now()) }))
}

/// The fields in which two states of a webhook differ.
fn changed(before: &Webhook, after: &Webhook) -> Vec<&'static str> {
    let ids = |scope: &Scope| match scope {
        Scope::Workspace => (Vec::new(), Vec::new()),
        Scope::Links(ids) => (ids.clone(), Vec::new()),
        Scope::Folders(ids) => (Vec::new(), ids.clone()),
    };
    let (ids_before, ids_after) = (ids(&before.scope), ids(&after.scope));
    let differences = [
        ("name", before.name != after.name),
        ("url", before.url != after.url),
        ("triggers", before.triggers != after.triggers),
        ("linkScope", std::mem::discriminant(&before.scope) != std::mem::discriminant(&after.scope)),
        ("linkIds", ids_before.0 != ids_after.0),
        ("folderIds", ids_before.1 != ids_after.1),
        ("disabled", before.disabled_at.is_some() != after.disabled_at.is_some()),
    ];
    differences.into_iter().filter(|(_, differ)| *differ).map(|(name, _)| name).collect()
}

/// Gives a webhook another secret: the one that the request brings, or one that is made up. For a while deliveries are
/// signed with the one from before as well.
async fn rotate_secret(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    JsonBody(body): JsonBody,
) -> Result<Json<WebhookBody>, ApiError> {
    let fields = Fields::of(&body, "")?;
    let secret = secret(&fields)?.unwrap_or_else(ids::webhook_secret);
    let overlap = fields.integer("overlapSeconds", 0..=u64::from(MAX_OVERLAP))?.set().unwrap_or(OVERLAP);
    let mut webhook = app.store.webhook(&caller.workspace, &id).await?.ok_or_else(not_found)?;
    let now = app.clock.now();
    webhook.old_secret_until = match overlap {
        0 => None,
        seconds => Some(now.saturating_add(Duration::from_secs(seconds)).unwrap_or(Timestamp::MAX)),
    };
    app.store.rotate_secret(&webhook, &secret, webhook.old_secret_until).await?;
    webhook.secret = secret;
    Ok(Json(WebhookBody::with_secret(webhook, now)))
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
            Event::of_click(&click, &LinkSnapshot::of(&link, &app.public_url))
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
    query: Query,
) -> Result<Json<Vec<DeliveryBody>>, ApiError> {
    let webhook = app.store.webhook(&caller.workspace, &id).await?.ok_or_else(not_found)?;
    let filter = delivery_filter(app.clock.now(), |name| Ok(query.filter(name)?.map(str::to_owned)))?;
    let (skip, size) = query.page(PAGE_SIZE)?;
    let records = app.store.deliveries(&webhook, &filter, skip, size).await?;
    Ok(Json(records.into_iter().map(DeliveryBody::of).collect()))
}

/// Which deliveries a request means, by what it says of each field.
fn delivery_filter(
    now: Timestamp,
    said: impl Fn(&str) -> Result<Option<String>, ApiError>,
) -> Result<DeliveryFilter, ApiError> {
    let status = said("status")?.map(|word| {
        STATUSES.iter().find(|(name, _)| *name == word).map(|(_, status)| *status).ok_or_else(|| {
            let names = STATUSES.map(|(name, _)| name).join(", ");
            ApiError::invalid("invalid_value", "status", &format!("Invalid option: expected one of {names}"))
        })
    });
    let instant = |name: &str, edge| {
        let parsed = said(name)?.map(|text| when::parse(&text, now, &TimeZone::UTC, edge));
        parsed.transpose().map_err(|error| ApiError::invalid("custom", name, &error.to_string()))
    };
    Ok(DeliveryFilter {
        status: status.transpose()?,
        trigger: said("event")?.map(|event| trigger(&Value::String(event), "event")).transpose()?,
        start: instant("start", Edge::Start)?,
        end: instant("end", Edge::End)?,
        event_ids: Vec::new(),
    })
}

/// Sends again what the request describes: the events that it names, or those that were given up unless it says otherwise.
async fn replay_all(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, ApiError> {
    let fields = Fields::of(&body, "")?;
    let webhook = enabled(&app, &caller, &id).await?;
    let now = app.clock.now();
    let mut filter = delivery_filter(now, |name| Ok(fields.text(name, MAX_URL)?.set()))?;
    filter.event_ids = fields.texts("eventIds", REPLAYED_AT_ONCE as usize)?.set().unwrap_or_default();
    if filter.status == Some(DeliveryStatus::Pending) {
        return Err(fields.invalid("status", "Expected delivered or failed: what is pending is on its way"));
    }
    if filter.status.is_none() && filter.event_ids.is_empty() {
        filter.status = Some(DeliveryStatus::Failed);
    }
    let replayed = app.store.replay_all(&webhook, &filter, now).await?;
    app.announced.notify_one();
    Ok(Json(json!({ "replayed": replayed, "more": replayed == u64::from(REPLAYED_AT_ONCE) })))
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
    let secret = secret(&fields)?;
    let triggers = triggers(&fields)?;
    Ok(NewWebhook {
        name,
        url: receiver(&fields, &fields.required_text("url", MAX_URL)?, app)?,
        secret,
        scope: scope(&fields, None)?,
        triggers,
    })
}

/// The secret that a request brings, if it does.
fn secret(fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    let secret = fields.text("secret", MAX_URL)?.set();
    if let Some(secret) = &secret {
        signature::standard(secret, "", 0, b"")
            .map_err(|error| fields.invalid("secret", &error.to_string()))?;
    }
    Ok(secret)
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
    let refused = |error: InvalidReceiver| fields.invalid("url", &error.to_string());
    let url = receiver::parse(text).map_err(refused)?;
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

/// The scope that a request gives a webhook, which has `present` already if it is changed; a new one hears of the whole
/// workspace unless the request says otherwise. Ids that would go unheard are refused.
fn scope(fields: &Fields<'_>, present: Option<&Scope>) -> Result<Scope, ApiError> {
    let (kind, kept) = match present {
        None | Some(Scope::Workspace) => ("workspace", &[][..]),
        Some(Scope::Links(ids)) => ("links", ids.as_slice()),
        Some(Scope::Folders(ids)) => ("folders", ids.as_slice()),
    };
    let named = fields.text("linkScope", MAX_NAME)?;
    let named = match &named {
        Change::Set(named) => named.as_str(),
        Change::Clear => "workspace",
        Change::Keep => kind,
    };
    let ids = |name: &str, of_kind: &str| {
        let ids = match fields.texts(name, MAX_SCOPE)? {
            Change::Set(ids) => ids,
            Change::Keep if named == kind && named == of_kind => kept.to_vec(),
            Change::Keep | Change::Clear => Vec::new(),
        };
        match (named == of_kind, ids.is_empty()) {
            (true, true) => Err(fields.invalid(name, "Expected at least one id for this scope")),
            (false, false) => {
                let message = format!("Expected none without linkScope {of_kind}");
                Err(fields.invalid(name, &message))
            }
            (true, false) | (false, true) => Ok(ids),
        }
    };
    if !["workspace", "links", "folders"].contains(&named) {
        return Err(fields.invalid("linkScope", "Invalid option: expected one of workspace, folders, links"));
    }
    let (link_ids, folder_ids) = (ids("linkIds", "links")?, ids("folderIds", "folders")?);
    Ok(match named {
        "links" => Scope::Links(link_ids),
        "folders" => Scope::Folders(folder_ids),
        _ => Scope::Workspace,
    })
}
