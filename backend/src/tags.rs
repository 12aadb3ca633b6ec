//! The endpoints of tags.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use serde_json::{Value, json};

use crate::auth::Caller;
use crate::body::{Change, Fields, JsonBody, MAX_ITEM, unknown_option};
use crate::error::ApiError;
use crate::links::{TAG_COLORS, Tag};
use crate::long_read;
use crate::path::Name;
use crate::query::{MAX_VALUES, Query};
use crate::state::Shared;
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
    let store = app.store.clone();
    let tags = long_read::run(&app, move |reader| async move {
        store.list_tags(&caller.workspace, &filter, page, reader).await
    });
    Ok(Json(tags.await?))
}

async fn create(
    State(app): State<Shared>,
    caller: Caller,
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<Tag>), ApiError> {
    let fields = Fields::of(&body, "")?;
    let name = name(&fields)?.ok_or_else(|| fields.missing("name"))?;
    let color = color(&fields)?;
    let made = app.store.create_tag(&caller.workspace, &name, color, app.clock.now()).await?;
    Ok((StatusCode::CREATED, Json(made?)))
}

async fn update(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    JsonBody(body): JsonBody,
) -> Result<Json<Tag>, ApiError> {
    let fields = Fields::of(&body, "")?;
    let (name, color) = (name(&fields)?, color(&fields)?);
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

/// The name of a tag. `tag` is the deprecated name of the field.
fn name(fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    match (fields.name("name", MAX_ITEM)?, fields.name("tag", MAX_ITEM)?) {
        (Some(name), Some(tag)) if name != tag => Err(fields.invalid("tag", "Differs from name")),
        (name, tag) => Ok(name.or(tag)),
    }
}

fn color(fields: &Fields<'_>) -> Result<Option<&'static str>, ApiError> {
    let Change::Set(text) = fields.text("color", MAX_ITEM)? else { return Ok(None) };
    let color = TAG_COLORS.into_iter().find(|color| *color == text);
    color.map(Some).ok_or_else(|| unknown_option("color", &TAG_COLORS))
}

fn not_found() -> ApiError {
    ApiError::not_found("Tag not found.")
}
