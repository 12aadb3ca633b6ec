//! Reads the fields of a webhook from request bodies.

use serde_json::Value;

use super::super::receiver::{self, InvalidReceiver, MAX_URL};
use super::super::{ScopeInput, ScopeKind, Trigger, parse_trigger, signature};
use crate::body::{Change, Fields, empty_list, empty_text, too_many, unknown_option, wrong_type};
use crate::error::ApiError;
use crate::state::App;
use crate::store::{NewWebhook, WebhookInput};

/// Maximum length of a name, in characters.
pub(crate) const MAX_NAME: usize = 40;
/// Maximum length of a secret, in characters.
const MAX_SECRET: usize = 255;
/// Maximum number of links or folders in a scope.
pub(crate) const MAX_SCOPE: usize = 1_000;
/// Maximum number of triggers: each once.
pub(crate) const MAX_TRIGGERS: usize = Trigger::ALL.len();

/// A webhook that a request creates.
pub(super) fn new_webhook(body: &Value, app: &App) -> Result<NewWebhook, ApiError> {
    let fields = Fields::of(body, "")?;
    if fields.boolean("disabled")? == Change::Set(true) {
        return Err(fields.invalid("disabled", "Expected false: PATCH /webhooks/{id} disables a webhook"));
    }
    Ok(NewWebhook {
        name: name(&fields)?,
        url: url(&fields, app)?,
        secret: secret(&fields)?,
        triggers: triggers(&fields)?,
        scope: scope(&fields)?,
    })
}

/// The fields of a webhook that a request updates.
pub(super) fn update(body: &Value, app: &App) -> Result<WebhookInput, ApiError> {
    let fields = Fields::of(body, "")?;
    if fields.get("secret").is_some_and(|secret| !secret.is_null()) {
        return Err(fields.invalid("secret", "Expected none: POST /webhooks/{id}/rotate-secret changes it"));
    }
    let has = |name: &str| fields.get(name).is_some();
    Ok(WebhookInput {
        name: has("name").then(|| name(&fields)).transpose()?,
        url: has("url").then(|| url(&fields, app)).transpose()?,
        triggers: has("triggers").then(|| triggers(&fields)).transpose()?,
        scope: scope(&fields)?,
        disabled: fields.boolean("disabled")?.set(),
    })
}

/// The secret in the request, if it has one.
pub(super) fn secret(fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    let secret = fields.text("secret", MAX_SECRET)?.set();
    if let Some(secret) = &secret {
        signature::standard(secret, "", 0, b"")
            .map_err(|error| fields.invalid("secret", &error.to_string()))?;
    }
    Ok(secret)
}

fn name(fields: &Fields<'_>) -> Result<String, ApiError> {
    let name = fields.required_text("name", MAX_NAME)?;
    if name.is_empty() {
        return Err(empty_text("name"));
    }
    Ok(name)
}

fn url(fields: &Fields<'_>, app: &App) -> Result<String, ApiError> {
    let text = fields.required_text("url", MAX_URL)?;
    let refused = |error: InvalidReceiver| fields.invalid("url", &error.to_string());
    let url = receiver::parse(&text).map_err(refused)?;
    if !app.webhook_addresses.allows_url(&url) {
        return Err(fields.invalid("url", "Invalid URL: the address is not public"));
    }
    Ok(url.into())
}

/// The triggers of a webhook, without duplicates.
fn triggers(fields: &Fields<'_>) -> Result<Vec<Trigger>, ApiError> {
    let path = fields.path("triggers");
    let items = match fields.get("triggers") {
        Some(Value::Array(items)) if items.is_empty() => return Err(empty_list(&path)),
        Some(Value::Array(items)) if items.len() > MAX_TRIGGERS => return Err(too_many(&path, MAX_TRIGGERS)),
        Some(Value::Array(items)) => items,
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

pub(super) fn trigger(value: &Value, path: &str) -> Result<Trigger, ApiError> {
    parse_trigger(value).ok_or_else(|| unknown_option(path, &Trigger::ALL.map(Trigger::name)))
}

fn scope(fields: &Fields<'_>) -> Result<ScopeInput, ApiError> {
    let kind = match fields.text("linkScope", MAX_NAME)? {
        Change::Keep => Change::Keep,
        Change::Clear => Change::Clear,
        Change::Set(name) => {
            let kind = ScopeKind::ALL.into_iter().find(|kind| kind.name() == name);
            let kind = kind.ok_or_else(|| {
                let expected = ScopeKind::ALL.map(ScopeKind::name).join(", ");
                fields.invalid("linkScope", &format!("Invalid option: expected one of {expected}"))
            });
            Change::Set(kind?)
        }
    };
    let (link_ids, folder_ids) = (fields.texts("linkIds", MAX_SCOPE)?, fields.texts("folderIds", MAX_SCOPE)?);
    Ok(ScopeInput { kind, link_ids, folder_ids })
}
