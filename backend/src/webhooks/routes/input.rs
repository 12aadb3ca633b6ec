//! Reads the fields of a webhook from request bodies.

use serde_json::Value;

use super::super::receiver::{self, InvalidReceiver};
use super::super::{Trigger, parse_trigger, signature};
use crate::body::{Change, Fields, empty_list, empty_text, unknown_option, wrong_type};
use crate::error::ApiError;
use crate::state::App;
use crate::store::{NewWebhook, Scope};

/// Maximum length of a name, in characters.
pub(crate) const MAX_NAME: usize = 40;
/// Maximum length of a receiver's URL, in characters.
pub(crate) const MAX_URL: usize = 2_048;
/// Maximum number of links or folders in a scope.
pub(crate) const MAX_SCOPE: usize = 1_000;

pub(super) fn new_webhook(body: &Value, app: &App) -> Result<NewWebhook, ApiError> {
    let fields = Fields::of(body, "")?;
    let name = name(&fields)?;
    let secret = secret(&fields)?;
    let triggers = triggers(&fields)?;
    Ok(NewWebhook { name, url: url(&fields, app)?, secret, scope: scope(&fields, None)?, triggers })
}

/// The secret in the request, if it has one.
pub(super) fn secret(fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    let secret = fields.text("secret", MAX_URL)?.set();
    if let Some(secret) = &secret {
        signature::standard(secret, "", 0, b"")
            .map_err(|error| fields.invalid("secret", &error.to_string()))?;
    }
    Ok(secret)
}

pub(super) fn name(fields: &Fields<'_>) -> Result<String, ApiError> {
    let name = fields.required_text("name", MAX_NAME)?;
    if name.is_empty() {
        return Err(empty_text("name"));
    }
    Ok(name)
}

pub(super) fn url(fields: &Fields<'_>, app: &App) -> Result<String, ApiError> {
    let text = fields.required_text("url", MAX_URL)?;
    let refused = |error: InvalidReceiver| fields.invalid("url", &error.to_string());
    let url = receiver::parse(&text).map_err(refused)?;
    if !app.webhook_addresses.allows_url(&url) {
        return Err(fields.invalid("url", "Invalid URL: the address is not public"));
    }
    Ok(url.into())
}

/// The triggers of a webhook, without duplicates.
pub(super) fn triggers(fields: &Fields<'_>) -> Result<Vec<Trigger>, ApiError> {
    let path = fields.path("triggers");
    let items = match fields.get("triggers") {
        Some(Value::Array(items)) if !items.is_empty() => items,
        Some(Value::Array(_)) => return Err(empty_list(&path)),
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

/// The scope of a new webhook, or of one whose scope is `present`. The default is the whole workspace. Ids that do not
/// belong to the scope are refused.
pub(super) fn scope(fields: &Fields<'_>, present: Option<&Scope>) -> Result<Scope, ApiError> {
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
