//! `GET /openapi.json`: the API described, from the types that are sent and the tables that requests are read with.

use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::body::MAX_ITEM;
use crate::events::EventBody;
use crate::links::bulk::{BulkResult, MAX_BULK};
use crate::links::routes::MAX_SEARCH;
use crate::links::{LinkBody, input};
use crate::query::MAX_VALUES;
use crate::state::Shared;
use crate::store::REPLAYED_AT_ONCE;
use crate::webhooks::routes::{DeliveryBody, WebhookBody};
use crate::webhooks::{self, Trigger};
use crate::{analytics, qr, selection};

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

/// The named schemas: those of the responses, with all that they mention, and those of the bodies.
fn schemas() -> Value {
    let mut named: Vec<(String, RefOr<Schema>)> = Vec::new();
    add::<LinkBody>(&mut named);
    add::<BulkResult>(&mut named);
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

/// An operation with its answer, and the errors that every operation may answer.
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

/// The answer of the HTTP library, which reads the request line before the service does.
fn url_too_long() -> Value {
    json!({"description": "The URL is longer than 65,534 bytes. The answer has no body."})
}

/// The one operation that needs no key and answers with an image.
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

fn number(name: &str, minimum: u32, maximum: u32) -> Value {
    query_parameter(name, json!({"type": "integer", "minimum": minimum, "maximum": maximum}))
}

fn flag(name: &str) -> Value {
    query_parameter(name, json!({"type": "boolean"}))
}

/// A filter, which has to have a value.
fn filter(name: &str) -> Value {
    query_parameter(name, json!({"type": "string", "minLength": 1}))
}

/// A list of texts separated by commas.
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
    parameters.push(query_parameter("search", json!({"type": "string", "maxLength": MAX_SEARCH})));
    parameters.extend(["showArchived", "withTags"].map(flag));
    parameters
}

fn list_parameters() -> Vec<Value> {
    let mut parameters = link_filters();
    parameters.extend(texts(&["startingAfter", "endingBefore"]));
    parameters.push(choice("sortBy", ["createdAt", "clicks", "lastClicked", "saleAmount"]));
    parameters.extend([number("page", 1, 1_000), number("pageSize", 1, 100)]);
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

/// A list of ids, or one text in which commas separate them.
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
    parameters.push(choice("status", webhooks::routes::STATUSES.map(|(name, _)| name)));
    parameters.push(choice("event", Trigger::ALL.map(Trigger::name)));
    parameters.extend(texts(&["start", "end"]));
    parameters.extend([number("page", 1, 1_000), number("pageSize", 1, 100)]);
    parameters
}

/// The body that says which events are sent again.
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

/// The body that gives a webhook another secret.
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
