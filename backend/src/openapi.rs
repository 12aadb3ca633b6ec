//! `GET /openapi.json`: a description of the API. It is derived from the response types and from the tables with which
//! requests are parsed.

use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::body::MAX_ITEM;
use crate::domains::DomainBody;
use crate::events::EventBody;
use crate::folders::{ACCESS_LEVEL, FolderBody, MAX_DESCRIPTION};
use crate::links::bulk::{BulkResult, MAX_BULK};
use crate::links::{LinkBody, TAG_COLORS, input};
use crate::query::{MAX_PAGE, MAX_SEARCH, MAX_VALUES};
use crate::state::Shared;
use crate::store::REPLAYED_AT_ONCE;
use crate::webhooks::routes::WebhookBody;
use crate::webhooks::routes::deliveries::{self, DeliveryBody};
use crate::webhooks::{self, Trigger};
use crate::{analytics, domains, folders, qr, selection, tags};

pub(crate) async fn document(State(app): State<Shared>) -> Json<Value> {
    Json(describe(app.public_url.base()))
}

fn describe(server: &str) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Weir backend", "version": env!("CARGO_PKG_VERSION")},
        "servers": [{"url": server}],
        "security": [{"token": []}],
        "paths": paths(),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas(),
        },
    })
}

/// The named schemas: the responses with all types that they use, and the request bodies.
fn schemas() -> Value {
    let mut named: Vec<(String, RefOr<Schema>)> = Vec::new();
    add::<LinkBody>(&mut named);
    add::<BulkResult>(&mut named);
    add::<FolderBody>(&mut named);
    add::<DomainBody>(&mut named);
    add::<EventBody<'_>>(&mut named);
    add::<WebhookBody>(&mut named);
    add::<DeliveryBody>(&mut named);
    let mut schemas: Map<String, Value> =
        named.into_iter().map(|(name, schema)| (name, json!(schema))).collect();
    let error = json!({
        "type": "object", "required": ["error"],
        "properties": {"error": {
            "type": "object", "required": ["code", "message", "doc_url"],
            "properties": {
                "code": {"type": "string"}, "message": {"type": "string"}, "doc_url": {"type": "string"},
            },
        }},
    });
    schemas.insert("Error".to_owned(), error);
    schemas.insert("CreateLink".to_owned(), input::schema(&["url"]));
    schemas.insert("UpdateLink".to_owned(), input::schema(&[]));
    Value::Object(schemas)
}

fn add<T: ToSchema>(named: &mut Vec<(String, RefOr<Schema>)>) {
    named.push((T::name().into_owned(), <T as PartialSchema>::schema()));
    T::schemas(named);
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn list_of(name: &str) -> Value {
    json!({"type": "array", "items": reference(name)})
}

fn paths() -> Value {
    let link = || reference("Link");
    let id = || path_parameter("id", "The link's id, or ext_ and its external id.");
    let tag_id = || path_parameter("id", "The tag's id.");
    let folder_id = || path_parameter("id", "The folder's id.");
    let webhook_id = || path_parameter("id", "The webhook's id.");
    let done = || json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}});
    json!({
        "/links": {
            "get": operation("getLinks", list_parameters(), None, 200, list_of("Link")),
            "post": operation("createLink", vec![], Some(reference("CreateLink")), 200, link()),
        },
        "/links/count": {
            "get": operation("getLinksCount", count_parameters(), None, 200, json!({"oneOf": [
                {"type": "integer"},
                {"type": "array", "items": {"type": "object", "required": ["_count"]}},
            ]})),
        },
        "/links/info": {
            "get": operation("getLinkInfo", texts(&["linkId", "externalId", "domain", "key"]), None, 200, link()),
        },
        "/links/upsert": {
            "put": operation("upsertLink", vec![], Some(reference("CreateLink")), 200, link()),
        },
        "/links/bulk": {
            "post": operation(
                "bulkCreateLinks",
                vec![],
                Some(json!({"type": "array", "minItems": 1, "maxItems": 100, "items": reference("CreateLink")})),
                200,
                list_of("BulkResult"),
            ),
            "patch": operation("bulkUpdateLinks", vec![], Some(bulk_update()), 200, list_of("Link")),
            "delete": operation(
                "bulkDeleteLinks",
                vec![required(list_parameter("linkIds", MAX_BULK))],
                None,
                200,
                json!({
                    "type": "object", "required": ["deletedCount"],
                    "properties": {"deletedCount": {"type": "integer", "minimum": 0}},
                }),
            ),
        },
        "/links/{id}": {
            "get": operation("getLink", vec![id()], None, 200, link()),
            "patch": operation("updateLink", vec![id()], Some(reference("UpdateLink")), 200, link()),
            "put": operation("replaceLink", vec![id()], Some(reference("UpdateLink")), 200, link()),
            "delete": operation("deleteLink", vec![id()], None, 200, done()),
        },
        "/tags": {
            "get": operation("getTags", tag_parameters(), None, 200, list_of("Tag")),
            "post": operation("createTag", vec![], Some(new_tag()), 201, reference("Tag")),
        },
        "/tags/{id}": {
            "patch": operation("updateTag", vec![tag_id()], Some(tag_changes()), 200, reference("Tag")),
            "delete": operation("deleteTag", vec![tag_id()], None, 200, done()),
        },
        "/folders": {
            "get": operation("listFolders", page_parameters(folders::PAGE_SIZE), None, 200, list_of("Folder")),
            "post": operation("createFolder", vec![], Some(folder(&["name"])), 201, reference("Folder")),
        },
        "/folders/{id}": {
            "patch": operation("updateFolder", vec![folder_id()], Some(folder(&[])), 200, reference("Folder")),
            "delete": operation("deleteFolder", vec![folder_id()], None, 200, done()),
        },
        "/domains": {
            "get": operation("listDomains", domain_parameters(), None, 200, list_of("Domain")),
        },
        "/analytics": {
            "get": operation("retrieveAnalytics", analytics_parameters(), None, 200, analytics_answer()),
        },
        "/events": {
            "get": operation("listEvents", event_parameters(), None, 200, list_of("Event")),
        },
        "/qr": {"get": qr_code()},
        "/webhooks": {
            "get": operation("getWebhooks", vec![], None, 200, list_of("Webhook")),
            "post": operation("createWebhook", vec![], Some(new_webhook()), 201, reference("Webhook")),
        },
        "/webhooks/{id}": {
            "get": operation("getWebhook", vec![webhook_id()], None, 200, reference("Webhook")),
            "patch": operation("updateWebhook", vec![webhook_id()], Some(webhook_changes()), 200, reference("Webhook")),
            "delete": operation("deleteWebhook", vec![webhook_id()], None, 200, done()),
        },
        "/webhooks/{id}/test": {
            "post": operation(
                "testWebhook",
                vec![webhook_id()],
                Some(json!({"type": "object", "properties": {"trigger": trigger()}})),
                200,
                done(),
            ),
        },
        "/webhooks/{id}/rotate-secret": {
            "post": operation("rotateWebhookSecret", vec![webhook_id()], Some(rotation()), 200, reference("Webhook")),
        },
        "/webhooks/{id}/deliveries": {
            "get": operation("getDeliveries", delivery_parameters(webhook_id()), None, 200, list_of("Delivery")),
        },
        "/webhooks/{id}/deliveries/replay": {
            "post": operation("replayEvents", vec![webhook_id()], Some(replay()), 200, replayed()),
        },
        "/webhooks/{id}/deliveries/{event}/replay": {
            "post": operation(
                "replayEvent",
                vec![webhook_id(), path_parameter("event", "The event's id.")],
                None,
                200,
                done(),
            ),
        },
    })
}

/// An operation with its response and the errors that all operations share.
fn operation(id: &str, parameters: Vec<Value>, body: Option<Value>, status: u16, answer: Value) -> Value {
    let mut responses = Map::new();
    let content = |schema: Value| json!({"application/json": {"schema": schema}});
    responses.insert(status.to_string(), json!({"description": "Done.", "content": content(answer)}));
    let errors = [
        (400, "The request cannot be read."),
        (401, "No key, or one that is not known."),
        (403, "The key may not do this."),
        (404, "No such thing in the key's workspace."),
        (408, "The request took too long."),
        (409, "It exists already."),
        (413, "The body is too large."),
        (422, "A field is not valid."),
        (429, "The quota is used up; answered by the gateway."),
        (500, "The service failed."),
        (503, "Not now; `Retry-After` says when."),
    ];
    for (status, description) in errors {
        let error = json!({"description": description, "content": content(reference("Error"))});
        responses.insert(status.to_string(), error);
    }
    responses.insert("414".to_owned(), url_too_long());
    let mut operation = json!({"operationId": id});
    operation["parameters"] = Value::Array(parameters);
    operation["responses"] = Value::Object(responses);
    if let Some(body) = body {
        operation["requestBody"] = json!({"required": true, "content": content(body)});
    }
    operation
}

/// The HTTP library sends this response, because it parses the request line before the service does.
fn url_too_long() -> Value {
    json!({"description": "The URL is longer than 65,534 bytes. The answer has no body."})
}

/// The only operation that needs no key and returns an image.
fn qr_code() -> Value {
    let (_, min_size, max_size) = qr::SIZE;
    let url = json!({"type": "string", "minLength": 1, "maxLength": qr::MAX_TEXT});
    let color = || json!({"type": "string", "pattern": "^(#?[0-9a-fA-F]{6})?$"});
    let mut parameters = vec![
        query_parameter("url", url),
        choice("level", qr::level_names()),
        number("size", min_size, max_size),
        number("margin", 0, qr::MARGIN.1),
        query_parameter("fgColor", color()),
        query_parameter("bgColor", color()),
        flag("hideLogo"),
        flag("includeMargin"),
    ];
    parameters[0]["required"] = json!(true);
    let mut operation = operation("getQRCode", parameters, None, 200, Value::Null);
    operation["security"] = json!([]);
    operation["responses"]["200"]["content"] = json!({"image/png": {}});
    operation
}

fn path_parameter(name: &str, description: &str) -> Value {
    let schema = json!({"type": "string", "minLength": 1});
    json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema})
}

fn query_parameter(name: &str, schema: Value) -> Value {
    let mut parameter = json!({"name": name, "in": "query"});
    parameter["schema"] = schema;
    parameter
}

fn text(name: &str) -> Value {
    query_parameter(name, json!({"type": "string"}))
}

fn texts(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| text(name)).collect()
}

fn choice<'a>(name: &str, words: impl IntoIterator<Item = &'a str>) -> Value {
    query_parameter(name, json!({"type": "string", "enum": words.into_iter().collect::<Vec<_>>()}))
}

fn number(name: &str, minimum: u32, maximum: impl Into<Value>) -> Value {
    let maximum = maximum.into();
    query_parameter(name, json!({"type": "integer", "minimum": minimum, "maximum": maximum}))
}

fn flag(name: &str) -> Value {
    query_parameter(name, json!({"type": "boolean"}))
}

/// A filter. Its value must not be empty.
fn filter(name: &str) -> Value {
    query_parameter(name, json!({"type": "string", "minLength": 1}))
}

/// A comma-separated list of strings.
fn list_parameter(name: &str, max: usize) -> Value {
    let schema = json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": max});
    json!({"name": name, "in": "query", "style": "form", "explode": false, "schema": schema})
}

fn required(mut parameter: Value) -> Value {
    parameter["required"] = json!(true);
    parameter
}

fn link_filters() -> Vec<Value> {
    let mut parameters: Vec<Value> = ["domain", "tagId", "folderId", "tenantId", "userId"].map(filter).into();
    parameters.extend(["tagIds", "tagNames", "linkIds"].map(|name| list_parameter(name, MAX_VALUES)));
    parameters.push(search());
    parameters.extend(["showArchived", "withTags"].map(flag));
    parameters
}

fn search() -> Value {
    query_parameter("search", json!({"type": "string", "maxLength": MAX_SEARCH}))
}

/// What a list takes whose pages have at most `size` entries.
fn page_parameters(size: u32) -> Vec<Value> {
    vec![search(), number("page", 1, MAX_PAGE), number("pageSize", 1, size)]
}

fn tag_parameters() -> Vec<Value> {
    let mut parameters = page_parameters(tags::PAGE_SIZE);
    parameters.push(list_parameter("ids", MAX_VALUES));
    parameters.extend([choice("sortBy", ["name", "createdAt"]), choice("sortOrder", ["asc", "desc"])]);
    parameters
}

fn domain_parameters() -> Vec<Value> {
    let mut parameters = page_parameters(domains::PAGE_SIZE);
    parameters.push(flag("archived"));
    parameters
}

/// The body that changes a tag.
fn tag_changes() -> Value {
    let name = json!({"type": "string", "minLength": 1, "maxLength": MAX_ITEM});
    let mut color = json!({"enum": TAG_COLORS});
    if let Some(colors) = color["enum"].as_array_mut() {
        colors.push(Value::Null);
    }
    json!({"type": "object", "properties": {"name": name, "tag": name, "color": color}})
}

/// The body that makes a tag.
fn new_tag() -> Value {
    let mut schema = tag_changes();
    schema["anyOf"] = json!([{"required": ["name"]}, {"required": ["tag"]}]);
    schema
}

/// The body that makes or changes a folder.
fn folder(required: &[&str]) -> Value {
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

fn list_parameters() -> Vec<Value> {
    let mut parameters = link_filters();
    parameters.extend(texts(&["startingAfter", "endingBefore"]));
    parameters.push(choice("sortBy", ["createdAt", "clicks", "lastClicked", "saleAmount"]));
    parameters.extend([number("page", 1, MAX_PAGE), number("pageSize", 1, 100)]);
    parameters
}

fn count_parameters() -> Vec<Value> {
    let mut parameters = link_filters();
    parameters.push(choice("groupBy", ["domain", "folderId", "tagId", "userId"]));
    parameters
}

fn click_filters() -> Vec<Value> {
    let mut parameters = vec![choice("interval", selection::interval_names())];
    parameters.extend(texts(&["start", "end", "timezone"]));
    parameters.extend(["key", "externalId", "customerId"].map(filter));
    parameters.extend(selection::filter_names().map(filter));
    parameters.push(choice("saleType", ["new", "recurring"]));
    parameters.extend(["qr", "root"].map(flag));
    parameters
}

fn analytics_parameters() -> Vec<Value> {
    let mut parameters = vec![
        choice("groupBy", analytics::grouping_names()),
        choice("event", ["clicks", "leads", "sales", "composite"]),
    ];
    parameters.extend(click_filters());
    parameters
}

fn event_parameters() -> Vec<Value> {
    let mut parameters = vec![
        choice("event", ["clicks", "leads", "sales"]),
        number("page", 1, 1_000_000),
        number("limit", 1, 1_000),
        choice("sortBy", ["timestamp"]),
        choice("sortOrder", ["asc", "desc"]),
        choice("order", ["asc", "desc"]),
    ];
    parameters.extend(click_filters());
    parameters
}

fn analytics_answer() -> Value {
    let metrics = ["clicks", "leads", "sales", "saleAmount"];
    let properties: Map<String, Value> =
        metrics.iter().map(|name| ((*name).to_owned(), json!({"type": "integer", "minimum": 0}))).collect();
    let entry = json!({"type": "object", "required": metrics, "properties": properties});
    json!({"oneOf": [entry, {"type": "array", "items": entry}]})
}

/// A list of ids, as an array or as a comma-separated string.
fn ids(max: u32) -> Value {
    json!({"oneOf": [
        {"type": "array", "items": {"type": "string", "maxLength": MAX_ITEM}, "maxItems": max}, {"type": "string"}, {"type": "null"},
    ]})
}

fn bulk_update() -> Value {
    let ids = ids(100);
    json!({
        "type": "object", "required": ["data"],
        "properties": {"linkIds": ids, "externalIds": ids, "data": reference("UpdateLink")},
        "anyOf": [{"required": ["linkIds"]}, {"required": ["externalIds"]}],
    })
}

fn trigger() -> Value {
    let names: Vec<&str> = Trigger::ALL.into_iter().map(Trigger::name).collect();
    json!({"type": "string", "enum": names})
}

/// The body that makes a webhook.
fn new_webhook() -> Value {
    let mut schema = webhook_changes();
    schema["required"] = json!(["name", "url", "triggers"]);
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.remove("disabled");
        properties.insert("secret".to_owned(), secret());
    }
    schema
}

fn secret() -> Value {
    let description = "whsec_ and 24 to 64 bytes in Base64; made up if absent.";
    json!({"type": ["string", "null"], "description": description})
}

fn delivery_parameters(webhook_id: Value) -> Vec<Value> {
    let mut parameters = vec![webhook_id];
    parameters.push(choice("status", deliveries::STATUSES.map(|(name, _)| name)));
    parameters.push(choice("event", Trigger::ALL.map(Trigger::name)));
    parameters.extend(texts(&["start", "end"]));
    parameters.extend([number("page", 1, MAX_PAGE), number("pageSize", 1, 100)]);
    parameters
}

/// The body that selects the events to send again.
fn replay() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {"enum": ["delivered", "failed", null]},
            "event": {"anyOf": [trigger(), {"type": "null"}]},
            "start": {"type": ["string", "null"]},
            "end": {"type": ["string", "null"]},
            "eventIds": ids(REPLAYED_AT_ONCE),
        },
    })
}

fn replayed() -> Value {
    json!({
        "type": "object", "required": ["replayed", "more"],
        "properties": {"replayed": {"type": "integer", "minimum": 0}, "more": {"type": "boolean"}},
    })
}

/// The body that replaces the secret of a webhook.
fn rotation() -> Value {
    let overlap =
        json!({"type": ["integer", "null"], "minimum": 0, "maximum": webhooks::routes::MAX_OVERLAP});
    json!({"type": "object", "properties": {"secret": secret(), "overlapSeconds": overlap}})
}

/// The body that changes a webhook.
fn webhook_changes() -> Value {
    let ids = ids(1_000);
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 40},
            "url": {"type": "string", "format": "uri", "maxLength": 2_048},
            "triggers": {"type": "array", "minItems": 1, "items": trigger()},
            "linkScope": {"enum": ["workspace", "links", "folders", null]},
            "linkIds": ids,
            "folderIds": ids,
            "disabled": {"type": ["boolean", "null"]},
        },
    })
}
