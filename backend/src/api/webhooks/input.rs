//! Reads the fields of a webhook from request bodies.

use serde::Deserialize;
use std::time::Duration;

use crate::api::state::App;
use crate::domain::change::Change;
use crate::domain::event::Trigger;
use crate::domain::receiver::{self, MAX_URL};
use crate::domain::scope::{ScopeInput, ScopeKind};
use crate::domain::signature;
use crate::http::error::ApiError;
use crate::http::fields::{Items, List, MAX_ITEM, Text, Whole, kept, required};
use crate::http::issue::Issue;
use crate::store::{NewWebhook, WebhookInput};

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 40;
/// Maximum length of a secret, in characters.
const MAX_SECRET: usize = 255;
/// Maximum number of links or folders in a scope.
const MAX_SCOPE: usize = 1_000;

/// The body that creates or updates a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WebhookFields {
    name: Change<Text<MAX_NAME>>,
    url: Change<Text<MAX_URL>>,
    secret: Change<Text<MAX_SECRET>>,
    triggers: Change<List<Trigger>>,
    link_scope: Change<ScopeKind>,
    link_ids: Change<Items<MAX_SCOPE>>,
    folder_ids: Change<Items<MAX_SCOPE>>,
    disabled: Change<bool>,
    disabled_at: Change<Text<MAX_ITEM>>,
}

/// A webhook that a request creates.
pub(super) fn new_webhook(fields: WebhookFields, app: &App) -> Result<NewWebhook, ApiError> {
    if disabled(&fields)? == Some(true) {
        let issue = Issue::custom("Expected false: PATCH /webhooks/{id} disables a webhook");
        return Err(issue.at("disabled"));
    }
    Ok(NewWebhook {
        secret: secret(fields.secret)?,
        scope: scope(fields.link_scope, fields.link_ids, fields.folder_ids),
        name: required(fields.name, "name", "string")?.0,
        url: url(required(fields.url, "url", "string")?, app)?,
        triggers: triggers(required(fields.triggers, "triggers", "array")?)?,
    })
}

/// The fields of a webhook that a request updates.
pub(super) fn update(fields: WebhookFields, app: &App) -> Result<WebhookInput, ApiError> {
    if matches!(fields.secret, Change::Set(_)) {
        let issue = Issue::custom("Expected none: POST /webhooks/{id}/rotate-secret changes it");
        return Err(issue.at("secret"));
    }
    let disabled = disabled(&fields)?;
    Ok(WebhookInput {
        disabled,
        scope: scope(fields.link_scope, fields.link_ids, fields.folder_ids),
        name: kept(fields.name, "name", "string")?.map(|Text(name)| name),
        url: kept(fields.url, "url", "string")?.map(|text| url(text, app)).transpose()?,
        triggers: kept(fields.triggers, "triggers", "array")?.map(triggers).transpose()?,
    })
}

/// Whether a request disables or enables a webhook. None if it does neither.
fn disabled(fields: &WebhookFields) -> Result<Option<bool>, ApiError> {
    let by_time = match fields.disabled_at {
        Change::Keep => None,
        Change::Clear => Some(false),
        Change::Set(_) => Some(true),
    };
    match (fields.disabled.or_default(), by_time) {
        (Some(disabled), Some(by_time)) if disabled != by_time => {
            Err(Issue::custom("Differs from disabled").at("disabledAt"))
        }
        (disabled, by_time) => Ok(disabled.or(by_time)),
    }
}

/// The secret in the request, if it has one.
fn secret(secret: Change<Text<MAX_SECRET>>) -> Result<Option<String>, ApiError> {
    let secret = secret.text().set();
    if let Some(secret) = &secret {
        let checked = signature::standard(secret, "", 0, b"");
        checked.map_err(|error| Issue::custom(error.to_string()).at("secret"))?;
    }
    Ok(secret)
}

fn url(Text(text): Text<MAX_URL>, app: &App) -> Result<String, ApiError> {
    let url = receiver::parse(&text).map_err(|error| Issue::custom(error.to_string()).at("url"))?;
    if !app.webhook_addresses.allows_url(&url) {
        return Err(Issue::custom("Invalid URL: the address is not public").at("url"));
    }
    Ok(url.into())
}

/// The triggers of a webhook, without duplicates.
fn triggers(List(all): List<Trigger>) -> Result<Vec<Trigger>, ApiError> {
    if all.is_empty() {
        return Err(Issue::empty_list().at("triggers"));
    }
    if all.len() > Trigger::ALL.len() {
        return Err(Issue::too_many(Trigger::ALL.len()).at("triggers"));
    }
    let mut triggers = Vec::new();
    for trigger in all {
        if !triggers.contains(&trigger) {
            triggers.push(trigger);
        }
    }
    Ok(triggers)
}

fn scope(
    kind: Change<ScopeKind>,
    link_ids: Change<Items<MAX_SCOPE>>,
    folder_ids: Change<Items<MAX_SCOPE>>,
) -> ScopeInput {
    let ids = |change: Change<Items<MAX_SCOPE>>| change.map(|Items(ids)| ids);
    ScopeInput { kind, link_ids: ids(link_ids), folder_ids: ids(folder_ids) }
}

/// The longest overlap of two secrets, in seconds. Receivers have this time to change to the new one.
pub(crate) const MAX_OVERLAP: u64 = 7 * 86_400;
/// The overlap of a rotation that does not name one, in seconds.
const OVERLAP: u64 = 86_400;

/// The body that replaces the secret of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RotateSecret {
    secret: Change<Text<MAX_SECRET>>,
    overlap_seconds: Change<Whole<0, MAX_OVERLAP>>,
}

impl RotateSecret {
    /// The secret, if the request has one, and the overlap.
    pub(super) fn read(self) -> Result<(Option<String>, Duration), ApiError> {
        let overlap = self.overlap_seconds.set().map_or(OVERLAP, |Whole(seconds)| seconds);
        Ok((secret(self.secret)?, Duration::from_secs(overlap)))
    }
}

/// The body that sends a sample event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TestWebhook {
    /// The type of the event.
    pub(super) trigger: Change<Trigger>,
}
