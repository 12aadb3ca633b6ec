//! The endpoints of folders.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::caller::Caller;
use crate::api::state::Shared;
use crate::domain::change::Change;
use crate::domain::folder::{Folder, FolderInput};
use crate::domain::when::rfc3339;
use crate::http::error::ApiError;
use crate::http::fields::{Text, name_of, required};
use crate::http::json_body::Fields;
use crate::http::path::Name;
use crate::http::query::Query;

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 190;
/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 500;
/// The access level of every key of the workspace.
const ACCESS_LEVEL: &str = "write";

/// A folder as responses show it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FolderBody {
    id: String,
    name: String,
    description: Option<String>,
    /// Always `default`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Always `write`, because a key has full access to its workspace.
    access_level: &'static str,
    created_at: String,
    updated_at: String,
}

impl From<Folder> for FolderBody {
    fn from(folder: Folder) -> Self {
        Self {
            id: folder.id,
            name: folder.name,
            description: folder.description,
            kind: "default",
            access_level: ACCESS_LEVEL,
            created_at: rfc3339(folder.created_at),
            updated_at: rfc3339(folder.updated_at),
        }
    }
}

/// The body that creates or updates a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FolderFields {
    name: Change<Text<MAX_NAME>>,
    description: Change<Text<MAX_DESCRIPTION>>,
    access_level: Change<AccessLevel>,
}

/// The access levels that requests may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AccessLevel {
    Write,
}

impl TryFrom<FolderFields> for FolderInput {
    type Error = ApiError;

    fn try_from(fields: FolderFields) -> Result<Self, ApiError> {
        Ok(Self { name: name_of(fields.name, "name")?, description: fields.description.text() })
    }
}

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
    let (search, page) = (query.search()?, query.page(PAGE_SIZE)?);
    let reader = app.store.reader().await?;
    let folders = app.store.list_folders(&caller.workspace, search, page, reader).await?;
    Ok(Json(folders.into_iter().map(FolderBody::from).collect()))
}

async fn create(
    State(app): State<Shared>,
    caller: Caller,
    Fields(fields): Fields<FolderFields>,
) -> Result<(StatusCode, Json<FolderBody>), ApiError> {
    let input = FolderInput::try_from(fields)?;
    let name = required(input.name.map_or(Change::Keep, Change::Set), "name", "string")?;
    let (description, now) = (input.description.set(), app.clock.now());
    let made = app.store.create_folder(&caller.workspace, &name, description.as_deref(), now).await?;
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
