//! The request bodies of operations.

use serde_json::{Value, json};

use super::reference;
use crate::body::MAX_ITEM;
use crate::folders::{self, ACCESS_LEVEL, MAX_DESCRIPTION};
use crate::links::TAG_COLORS;
use crate::links::bulk::MAX_BULK;
use crate::store::REPLAYED_AT_ONCE;
use crate::webhooks::routes::MAX_OVERLAP;
use crate::webhooks::routes::input::{MAX_NAME, MAX_SCOPE, MAX_TRIGGERS};
use crate::webhooks::{MAX_URL, ScopeKind, Trigger};

/// A list of ids, as an array or as a comma-separated string.
fn ids(max: usize) -> Value {
    json!({"oneOf": [
        {"type": "array", "items": {"type": "string", "maxLength": MAX_ITEM}, "maxItems": max}, {"type": "string"}, {"type": "null"},
    ]})
}

pub(super) fn bulk_create() -> Value {
    json!({"type": "array", "minItems": 1, "maxItems": MAX_BULK, "items": reference("CreateLink")})
}

pub(super) fn bulk_update() -> Value {
    let ids = ids(MAX_BULK);
    json!({
        "type": "object", "required": ["data"],
        "properties": {"linkIds": ids, "externalIds": ids, "data": reference("UpdateLink")},
        "anyOf": [{"required": ["linkIds"]}, {"required": ["externalIds"]}],
    })
}

pub(super) fn update_tag() -> Value {
    let name = json!({"type": "string", "minLength": 1, "maxLength": MAX_ITEM});
    let mut color = json!({"enum": TAG_COLORS});
    if let Some(colors) = color["enum"].as_array_mut() {
        colors.push(Value::Null);
    }
    json!({"type": "object", "properties": {"name": name, "tag": name, "color": color}})
}

pub(super) fn create_tag() -> Value {
    let mut schema = update_tag();
    schema["anyOf"] = json!([{"required": ["name"]}, {"required": ["tag"]}]);
    schema
}

/// The body that creates or updates a folder, with its required fields.
pub(super) fn folder(required: &[&str]) -> Value {
    json!({
        "type": "object",
        "required": required,
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": folders::MAX_NAME},
            "description": {"type": ["string", "null"], "maxLength": MAX_DESCRIPTION},
            "accessLevel": {"enum": [ACCESS_LEVEL, null]},
        },
    })
}

fn trigger() -> Value {
    let names: Vec<&str> = Trigger::ALL.into_iter().map(Trigger::name).collect();
    json!({"type": "string", "enum": names})
}

pub(super) fn create_webhook() -> Value {
    let mut schema = update_webhook();
    schema["required"] = json!(["name", "url", "triggers"]);
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.remove("disabled");
        properties.insert("secret".to_owned(), secret());
    }
    schema
}

pub(super) fn test_webhook() -> Value {
    json!({"type": "object", "properties": {"trigger": trigger()}})
}

fn secret() -> Value {
    let description = "`whsec_` and 24 to 64 bytes in Base64. Generated if absent.";
    json!({"type": ["string", "null"], "description": description})
}

pub(super) fn replay() -> Value {
    let mut event_ids = ids(REPLAYED_AT_ONCE as usize);
    event_ids["oneOf"][0]["minItems"] = json!(1);
    json!({
        "type": "object",
        "properties": {
            "status": {"enum": ["delivered", "failed", null]},
            "event": {"anyOf": [trigger(), {"type": "null"}]},
            "start": {"type": ["string", "null"]},
            "end": {"type": ["string", "null"]},
            "eventIds": event_ids,
        },
    })
}

pub(super) fn rotate_secret() -> Value {
    let overlap = json!({"type": ["integer", "null"], "minimum": 0, "maximum": MAX_OVERLAP});
    json!({"type": "object", "properties": {"secret": secret(), "overlapSeconds": overlap}})
}

pub(super) fn update_webhook() -> Value {
    let ids = ids(MAX_SCOPE);
    let mut scope = json!({"enum": ScopeKind::ALL.map(ScopeKind::name)});
    if let Some(kinds) = scope["enum"].as_array_mut() {
        kinds.push(Value::Null);
    }
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
            "url": {"type": "string", "format": "uri", "maxLength": MAX_URL},
            "triggers": {"type": "array", "minItems": 1, "maxItems": MAX_TRIGGERS, "items": trigger()},
            "linkScope": scope,
            "linkIds": ids,
            "folderIds": ids,
            "disabled": {"type": ["boolean", "null"]},
        },
    })
}
