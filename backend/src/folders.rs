//! Folders of links, and their endpoints.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::auth::Caller;
use crate::body::{Change, Fields, JsonBody, MAX_ITEM};
use crate::error::ApiError;
use crate::links::rfc3339;
use crate::long_read;
use crate::path::Name;
use crate::query::Query;
use crate::state::Shared;

/// Maximum length of a name, in characters.
pub(crate) const MAX_NAME: usize = 190;
/// Maximum length of a description, in characters.
pub(crate) const MAX_DESCRIPTION: usize = 500;
/// Default and maximum number of folders on a page.
pub(crate) const PAGE_SIZE: i64 = 50;
/// The access level of every key of the workspace.
pub(crate) const ACCESS_LEVEL: &str = "write";

/// A folder of links. A link is in at most one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    /// `fold_` and a ULID, or the `folderId` of links from an earlier version.
    pub(crate) id: String,
    /// Unique in the workspace, without regard to case.
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// A folder as responses show it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Folder))]
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

/// The fields of a folder in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FolderInput {
    pub(crate) name: Option<String>,
    pub(crate) description: Change<String>,
}

impl FolderInput {
    fn read(fields: &Fields<'_>) -> Result<Self, ApiError> {
        if let Change::Set(level) = fields.text("accessLevel", MAX_ITEM)?
            && level != ACCESS_LEVEL
        {
            return Err(fields.invalid("accessLevel", "Not supported: expected write"));
        }
        let description = fields.text("description", MAX_DESCRIPTION)?;
        Ok(Self { name: fields.name("name", MAX_NAME)?, description })
    }
}

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
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<FolderBody>), ApiError> {
    let fields = Fields::of(&body, "")?;
    let input = FolderInput::read(&fields)?;
    let name = input.name.ok_or_else(|| fields.missing("name"))?;
    let (description, now) = (input.description.set(), app.clock.now());
    let made = app.store.create_folder(&caller.workspace, &name, description.as_deref(), now).await?;
    Ok((StatusCode::CREATED, Json(made?.into())))
}

async fn update(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    JsonBody(body): JsonBody,
) -> Result<Json<FolderBody>, ApiError> {
    let input = FolderInput::read(&Fields::of(&body, "")?)?;
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
