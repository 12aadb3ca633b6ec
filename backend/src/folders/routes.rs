//! The endpoints of folders.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use serde_json::{Value, json};

use super::{Folder, FolderBody, FolderFields, FolderInput};
use crate::api::repeat::{Repeat, written};
use crate::auth::Caller;
use crate::domain::change::Change;
use crate::error::ApiError;
use crate::http::fields::required;
use crate::http::json_body::Fields;
use crate::long_read;
use crate::path::Name;
use crate::query::Query;
use crate::state::Shared;

/// Default and maximum number of folders on a page.
pub(crate) const PAGE_SIZE: i64 = 50;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/folders", routing::get(list).post(create))
        .route("/folders/{id}", routing::patch(update).delete(delete))
}

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    query: Query,
) -> Result<Json<Vec<FolderBody>>, ApiError> {
    let (search, page) = (query.search()?.map(str::to_owned), query.page(PAGE_SIZE)?);
    let store = app.store.clone();
    let folders = long_read::run(&app, move |reader| async move {
        store.list_folders(&caller.workspace, search.as_deref(), page, reader).await
    });
    Ok(Json(folders.await?.into_iter().map(FolderBody::from).collect()))
}

async fn create(
    State(app): State<Shared>,
    caller: Caller,
    repeat: Repeat,
    Fields(fields): Fields<FolderFields>,
) -> Result<(StatusCode, Json<FolderBody>), ApiError> {
    let input = FolderInput::try_from(fields)?;
    let name = required(input.name.map_or(Change::Keep, Change::Set), "name", "string")?;
    let (description, now) = (input.description.set(), app.clock.now());
    let body = |folder: &Folder| written(&FolderBody::from(folder.clone()));
    let repeat = repeat.recording(StatusCode::CREATED, &body);
    let made = app.store.create_folder(&caller.workspace, &name, description.as_deref(), now, repeat).await?;
    Ok((StatusCode::CREATED, Json(made?.into())))
}

async fn update(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    Fields(fields): Fields<FolderFields>,
) -> Result<Json<FolderBody>, ApiError> {
    let input = FolderInput::try_from(fields)?;
    let changed = app.store.update_folder(&caller.workspace, &id, &input, app.clock.now()).await?;
    Ok(Json(changed.ok_or_else(not_found)??.into()))
}

async fn delete(State(app): State<Shared>, caller: Caller, Name(id): Name) -> Result<Json<Value>, ApiError> {
    if !app.store.delete_folder(&caller.workspace, &id).await? {
        return Err(not_found());
    }
    app.deleted.notify_one();
    Ok(Json(json!({ "id": id })))
}

fn not_found() -> ApiError {
    ApiError::not_found("Folder not found.")
}
