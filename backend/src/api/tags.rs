//! The endpoints of tags.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::caller::Caller;
use crate::api::state::Shared;
use crate::domain::change::Change;
use crate::domain::tag::{Tag, TagColor};
use crate::http::error::ApiError;
use crate::http::fields::{MAX_ITEM, Text, kept, name_of, required};
use crate::http::issue::Issue;
use crate::http::json_body::Fields;
use crate::http::path::Name;
use crate::http::query::{MAX_VALUES, Query};
use crate::store::{TagFilter, TagOrder};

/// Default and maximum number of tags on a page.
pub(crate) const PAGE_SIZE: i64 = 100;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/tags", routing::get(list).post(create))
        .route("/tags/{id}", routing::patch(update).delete(delete))
}

async fn list(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Json<Vec<Tag>>, ApiError> {
    let orders = [("name", TagOrder::Name), ("createdAt", TagOrder::CreatedAt)];
    let filter = TagFilter {
        search: query.search()?.map(str::to_owned),
        ids: query.list("ids", MAX_VALUES)?,
        order: query.choice("sortBy", &orders)?.unwrap_or_default(),
        descending: query.choice("sortOrder", &[("asc", false), ("desc", true)])?.unwrap_or(false),
    };
    let page = query.page(PAGE_SIZE)?;
    let reader = app.store.reader().await?;
    Ok(Json(app.store.list_tags(&caller.workspace, &filter, page, reader).await?))
}

async fn create(
    State(app): State<Shared>,
    caller: Caller,
    Fields(fields): Fields<TagFields>,
) -> Result<(StatusCode, Json<Tag>), ApiError> {
    let color = fields.color.set().map(TagColor::name);
    let name = required(name(fields)?.map_or(Change::Keep, Change::Set), "name", "string")?;
    let made = app.store.create_tag(&caller.workspace, &name, color, app.clock.now()).await?;
    Ok((StatusCode::CREATED, Json(made?)))
}

async fn update(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    Fields(fields): Fields<TagFields>,
) -> Result<Json<Tag>, ApiError> {
    let color = kept(fields.color, "color", "string")?.map(TagColor::name);
    let name = name(fields)?;
    let changed = app.store.update_tag(&caller.workspace, &id, name.as_deref(), color).await?;
    Ok(Json(changed.ok_or_else(not_found)??))
}

async fn delete(State(app): State<Shared>, caller: Caller, Name(id): Name) -> Result<Json<Value>, ApiError> {
    if !app.store.delete_tag(&caller.workspace, &id).await? {
        return Err(not_found());
    }
    app.deleted.notify_one();
    Ok(Json(json!({ "id": id })))
}

/// The body that creates or updates a tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TagFields {
    name: Change<Text<MAX_ITEM>>,
    tag: Change<Text<MAX_ITEM>>,
    color: Change<TagColor>,
}

/// The name of a tag. Both fields must agree.
fn name(fields: TagFields) -> Result<Option<String>, ApiError> {
    match (name_of(fields.name, "name")?, name_of(fields.tag, "tag")?) {
        (Some(name), Some(tag)) if name != tag => Err(Issue::custom("Differs from name").at("tag")),
        (name, tag) => Ok(name.or(tag)),
    }
}

fn not_found() -> ApiError {
    ApiError::not_found("Tag not found.")
}
