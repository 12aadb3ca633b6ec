//! The operations: their paths, parameters, bodies and responses.

use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

use super::parameters::{self, in_path};
use super::{list_of, reference};
use crate::api::links::bulk::MAX_BULK;
use crate::http::fields::Items;
use crate::http::server::MAX_HEADER_BYTES;
use crate::http::value_count::MAX_JSON_VALUES;

pub(super) fn paths() -> Value {
    let link = || reference("Link");
    let link_id = || in_path("id", "The link's id, or ext_ and its external id.");
    let tag_id = || in_path("id", "The tag's id.");
    let folder_id = || in_path("id", "The folder's id.");
    let webhook_id = || in_path("id", "The webhook's id.");
    let event_id = || in_path("event", "The event's id.");
    let of_deliveries = || [vec![webhook_id()], parameters::delivery_list()].concat();
    let done = || json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}});
    json!({
        "/links": {
            "get": operation("getLinks", parameters::link_list(), None, 200, list_of("Link")),
            "post": operation("createLink", parameters::repeatable(), Some(reference("CreateLink")), 200, link()),
        },
        "/links/count": {
            "get": operation("getLinksCount", parameters::link_count(), None, 200, json!({"oneOf": [
                {"type": "integer"},
                {"type": "array", "items": {"type": "object", "required": ["_count"]}},
            ]})),
        },
        "/links/info": {
            "get": operation("getLinkInfo", parameters::link_info(), None, 200, link()),
        },
        "/links/upsert": {
            "put": operation("upsertLink", vec![], Some(reference("CreateLink")), 200, link()),
        },
        "/links/bulk": {
            "post": operation("bulkCreateLinks", parameters::repeatable(), Some(bulk_create()), 200, list_of("BulkResult")),
            "patch": operation("bulkUpdateLinks", vec![], Some(bulk_update()), 200, list_of("Link")),
            "delete": operation(
                "bulkDeleteLinks",
                parameters::bulk_delete(),
                None,
                200,
                json!({
                    "type": "object", "required": ["deletedCount"],
                    "properties": {"deletedCount": {"type": "integer", "minimum": 0}},
                }),
            ),
        },
        "/links/{id}": {
            "get": operation("getLink", vec![link_id()], None, 200, link()),
            "patch": operation("updateLink", vec![link_id()], Some(reference("UpdateLink")), 200, link()),
            "put": operation("replaceLink", vec![link_id()], Some(reference("UpdateLink")), 200, link()),
            "delete": operation("deleteLink", vec![link_id()], None, 200, done()),
        },
        "/tags": {
            "get": operation("getTags", parameters::tag_list(), None, 200, list_of("Tag")),
            "post": operation("createTag", parameters::repeatable(), Some(with_required("TagFields", &["name"])), 201, reference("Tag")),
        },
        "/tags/{id}": {
            "patch": operation("updateTag", vec![tag_id()], Some(reference("TagFields")), 200, reference("Tag")),
            "delete": operation("deleteTag", vec![tag_id()], None, 200, done()),
        },
        "/folders": {
            "get": operation("listFolders", parameters::folder_list(), None, 200, list_of("Folder")),
            "post": operation("createFolder", parameters::repeatable(), Some(with_required("FolderFields", &["name"])), 201, reference("Folder")),
        },
        "/folders/{id}": {
            "patch": operation("updateFolder", vec![folder_id()], Some(reference("FolderFields")), 200, reference("Folder")),
            "delete": operation("deleteFolder", vec![folder_id()], None, 200, done()),
        },
        "/domains": {
            "get": operation("listDomains", parameters::domain_list(), None, 200, list_of("Domain")),
        },
        "/analytics": {
            "get": operation("retrieveAnalytics", parameters::analytics(), None, 200, analytics_response()),
        },
        "/events": {
            "get": operation("listEvents", parameters::event_list(), None, 200, list_of("Event")),
        },
        "/qr": {"get": qr_code()},
        "/webhooks": {
            "get": operation("getWebhooks", vec![], None, 200, list_of("Webhook")),
            "post": operation("createWebhook", parameters::repeatable(), Some(with_required("WebhookFields", &["name", "url", "triggers"])), 201, reference("Webhook")),
        },
        "/webhooks/{id}": {
            "get": operation("getWebhook", vec![webhook_id()], None, 200, reference("Webhook")),
            "patch": operation("updateWebhook", vec![webhook_id()], Some(reference("WebhookFields")), 200, reference("Webhook")),
            "delete": operation("deleteWebhook", vec![webhook_id()], None, 200, done()),
        },
        "/webhooks/{id}/test": {
            "post": operation("testWebhook", vec![webhook_id()], Some(reference("TestWebhook")), 200, done()),
        },
        "/webhooks/{id}/rotate-secret": {
            "post": operation("rotateWebhookSecret", vec![webhook_id()], Some(reference("RotateSecret")), 200, reference("Webhook")),
        },
        "/webhooks/{id}/deliveries": {
            "get": operation("getDeliveries", of_deliveries(), None, 200, list_of("Delivery")),
        },
        "/webhooks/{id}/deliveries/replay": {
            "post": operation("replayEvents", vec![webhook_id()], Some(reference("Replay")), 200, replayed()),
        },
        "/webhooks/{id}/deliveries/{event}/replay": {
            "post": operation("replayEvent", vec![webhook_id(), event_id()], None, 200, done()),
        },
    })
}

/// An operation with its response and the errors that all operations share.
fn operation(id: &str, parameters: Vec<Value>, body: Option<Value>, status: u16, response: Value) -> Value {
    let mut responses = Map::new();
    let content = |schema: Value| json!({"application/json": {"schema": schema}});
    responses.insert(status.to_string(), json!({"description": "Done.", "content": content(response)}));
    let errors = [
        (400, "The request cannot be read."),
        (401, "The key is missing or unknown."),
        (403, "The key may not do this."),
        (404, "The workspace has no such object."),
        (408, "The request took too long."),
        (409, "The object already exists."),
        (413, "The body is too large."),
        (415, "The body has a content coding, such as gzip."),
        (422, "A field is not valid, or the body has too many values."),
        (429, "The quota is used up; answered by the gateway."),
        (500, "The service failed."),
        (503, "The service cannot answer now. `Retry-After` states when to retry."),
    ];
    for (status, description) in errors {
        let error = json!({"description": description, "content": content(reference("Error"))});
        responses.insert(status.to_string(), error);
    }
    for (status, description) in too_long() {
        responses.insert(status.to_owned(), json!({ "description": description }));
    }
    let mut operation = json!({"operationId": id});
    operation["parameters"] = Value::Array(parameters);
    operation["responses"] = Value::Object(responses);
    if let Some(body) = body {
        let description = format!("At most {MAX_JSON_VALUES} JSON values.");
        operation["requestBody"] =
            json!({"required": true, "description": description, "content": content(body)});
    }
    operation
}

/// A body that must have some of its fields, as a creation does.
fn with_required(name: &str, fields: &[&str]) -> Value {
    json!({"allOf": [reference(name), {"required": fields}]})
}

fn bulk_create() -> Value {
    json!({"type": "array", "minItems": 1, "maxItems": MAX_BULK, "items": reference("CreateLink")})
}

fn bulk_update() -> Value {
    let ids = <Items<MAX_BULK> as PartialSchema>::schema();
    json!({
        "type": "object", "required": ["data"],
        "properties": {"linkIds": ids, "externalIds": ids, "data": reference("UpdateLink")},
        "anyOf": [{"required": ["linkIds"]}, {"required": ["externalIds"]}],
    })
}

/// The HTTP library sends these responses, because it parses the head of a request before the service does.
fn too_long() -> [(&'static str, String); 2] {
    let kib = MAX_HEADER_BYTES / 1024;
    [
        ("414", "The URL is longer than 65,534 bytes. The answer has no body.".to_owned()),
        (
            "431",
            format!("The URL and the headers are larger than {kib} KiB together. The answer has no body."),
        ),
    ]
}

/// The only operation that needs no key and returns an image.
fn qr_code() -> Value {
    let mut operation = operation("getQRCode", parameters::qr_code(), None, 200, Value::Null);
    operation["security"] = json!([]);
    operation["responses"]["200"]["content"] = json!({"image/png": {}});
    operation
}

fn analytics_response() -> Value {
    let metrics = ["clicks", "leads", "sales", "saleAmount"];
    let properties: Map<String, Value> =
        metrics.iter().map(|name| ((*name).to_owned(), json!({"type": "integer", "minimum": 0}))).collect();
    let entry = json!({"type": "object", "required": metrics, "properties": properties});
    json!({"oneOf": [entry, {"type": "array", "items": entry}]})
}

fn replayed() -> Value {
    json!({
        "type": "object", "required": ["replayed", "more"],
        "properties": {
            "replayed": {"type": "integer", "minimum": 0, "description": "The number of events that are sent again."},
            "more": {"type": "boolean", "description": "Whether further events match. The next call sends those."},
        },
    })
}
