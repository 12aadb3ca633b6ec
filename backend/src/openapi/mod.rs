//! `GET /openapi.json`: a description of the API. It is derived from the response types and from the tables with which
//! requests are parsed.

mod bodies;
mod operations;
mod parameters;

use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::domains::DomainBody;
use crate::event_body::EventBody;
use crate::folders::FolderBody;
use crate::links::bulk::BulkResult;
use crate::links::{LinkBody, input};
use crate::state::Shared;
use crate::webhooks::routes::WebhookBody;
use crate::webhooks::routes::delivery_page::DeliveryBody;

pub(crate) async fn document(State(app): State<Shared>) -> Json<Value> {
    Json(describe(app.public_url.base()))
}

fn describe(server: &str) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Weir backend", "version": env!("CARGO_PKG_VERSION")},
        "servers": [{"url": server}],
        "security": [{"token": []}],
        "paths": operations::paths(),
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
    schemas.insert("CreateLink".to_owned(), input::create_schema());
    schemas.insert("UpdateLink".to_owned(), input::update_schema());
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
