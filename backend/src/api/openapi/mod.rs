//! `GET /openapi.json`: a description of the API. It is derived from the response types and from the tables with which
//! requests are parsed.

mod operations;
mod parameters;

use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::api::domains::DomainBody;
use crate::api::folders::{FolderBody, FolderFields};
use crate::api::links::bulk::BulkResult;
use crate::api::links::fields::{create_schema, update_schema};
use crate::api::state::Shared;
use crate::api::tags::TagFields;
use crate::api::webhooks::WebhookBody;
use crate::api::webhooks::deliveries::Replay;
use crate::api::webhooks::delivery_page::DeliveryBody;
use crate::api::webhooks::input::{RotateSecret, TestWebhook, WebhookFields};
use crate::domain::event_body::EventBody;
use crate::domain::link_body::LinkBody;
use crate::http::error::ErrorBody;

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

/// The named schemas: the bodies of responses and requests, with all types that they use.
fn schemas() -> Value {
    let mut named: Vec<(String, RefOr<Schema>)> = Vec::new();
    add::<ErrorBody>(&mut named);
    add::<LinkBody>(&mut named);
    add::<BulkResult>(&mut named);
    add::<FolderBody>(&mut named);
    add::<DomainBody>(&mut named);
    add::<EventBody<'_>>(&mut named);
    add::<WebhookBody>(&mut named);
    add::<DeliveryBody>(&mut named);
    add::<TagFields>(&mut named);
    add::<FolderFields>(&mut named);
    add::<WebhookFields>(&mut named);
    add::<RotateSecret>(&mut named);
    add::<TestWebhook>(&mut named);
    let mut schemas: Map<String, Value> =
        named.into_iter().map(|(name, schema)| (name, json!(schema))).collect();
    schemas.insert("Replay".to_owned(), filters::<Replay>());
    schemas.insert("CreateLink".to_owned(), create_schema());
    schemas.insert("UpdateLink".to_owned(), update_schema());
    Value::Object(schemas)
}

/// The schema of a body with filters, which have a value if they are there.
fn filters<T: PartialSchema>() -> Value {
    let mut schema = json!(T::schema());
    let properties = schema["properties"].as_object_mut().into_iter().flat_map(|fields| fields.values_mut());
    for options in properties.filter_map(|property| property["oneOf"].as_array_mut()) {
        options.retain(|option| option["type"] != "null");
    }
    schema
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
