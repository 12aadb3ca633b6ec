//! The endpoints of tags and folders.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing};
use jiff::Timestamp;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::api::caller::Caller;
use crate::api::state::Shared;
use crate::domain::change::Change;
use crate::domain::folder::Folder;
use crate::domain::ids;
use crate::domain::tag::{COLORS, Tag};
use crate::http::error::ApiError;
use crate::http::fields::{MAX_ITEM, Text, kept, name_of, required};
use crate::http::issue::Issue;
use crate::http::json_body::Fields;
use crate::http::path::Name;
use crate::http::query::{MAX_VALUES, Query};
use crate::store::{Label, LabelFilter};

/// Maximum length of the name of a folder, in characters.
const MAX_NAME: usize = 190;
/// Maximum length of the description of a folder, in characters.
const MAX_DESCRIPTION: usize = 500;

/// A label with endpoints.
pub(crate) trait Resource: Label {
    /// The body that creates or updates one.
    type Fields: DeserializeOwned + Send;
    /// The path of the list, and that of one.
    const PATHS: [&'static str; 2];
    /// Default and maximum number on a page.
    const PAGE_SIZE: i64;
    const NOT_FOUND: &'static str;

    /// The one that a request creates.
    fn new(fields: Self::Fields, now: Timestamp) -> Result<Self, ApiError>;
    /// What a request changes.
    fn change(fields: Self::Fields) -> Result<impl FnOnce(&mut Self) + Send, ApiError>;
}

pub(crate) fn router() -> Router<Shared> {
    router_of::<Tag>().merge(router_of::<Folder>())
}

fn router_of<L: Resource>() -> Router<Shared> {
    let [all, one] = L::PATHS;
    Router::new()
        .route(all, routing::get(list::<L>).post(create::<L>))
        .route(one, routing::patch(update::<L>).delete(delete::<L>))
}

async fn list<L: Resource>(
    State(app): State<Shared>,
    caller: Caller,
    query: Query,
) -> Result<Json<Vec<L>>, ApiError> {
    let filter = LabelFilter {
        search: query.search()?.map(str::to_owned),
        ids: query.list("ids", MAX_VALUES)?,
        by_age: query.choice("sortBy", &[("name", false), ("createdAt", true)])?.unwrap_or(false),
        descending: query.choice("sortOrder", &[("asc", false), ("desc", true)])?.unwrap_or(false),
    };
    let page = query.page(L::PAGE_SIZE)?;
    let reader = app.store.reader().await?;
    Ok(Json(app.store.list_labels(&caller.workspace, &filter, page, reader).await?))
}

async fn create<L: Resource>(
    State(app): State<Shared>,
    caller: Caller,
    Fields(fields): Fields<L::Fields>,
) -> Result<(StatusCode, Json<L>), ApiError> {
    let label = app.store.create_label(&caller.workspace, L::new(fields, app.clock.now())?).await?;
    Ok((StatusCode::CREATED, Json(label)))
}

async fn update<L: Resource>(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    Fields(fields): Fields<L::Fields>,
) -> Result<Json<L>, ApiError> {
    let change = L::change(fields)?;
    let changed = app.store.update_label(&caller.workspace, &id, change, app.clock.now()).await?;
    Ok(Json(changed.ok_or_else(|| ApiError::not_found(L::NOT_FOUND))?))
}

async fn delete<L: Resource>(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
) -> Result<Json<Value>, ApiError> {
    if !app.store.delete_label::<L>(&caller.workspace, &id).await? {
        return Err(ApiError::not_found(L::NOT_FOUND));
    }
    app.deleted.notify_one();
    Ok(Json(json!({ "id": id })))
}

/// The name that a creation needs.
fn required_name(name: Option<String>) -> Result<String, ApiError> {
    required(name.map_or(Change::Keep, Change::Set), "name", "string")
}

/// A colour of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Color(&'static str);

impl<'de> Deserialize<'de> for Color {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let color = COLORS.into_iter().find(|color| *color == name);
        color.map(Self).ok_or_else(|| D::Error::custom(Issue::unknown_option(&COLORS)))
    }
}

/// The colour of a tag with this name, unless another is asked for.
fn color_of(name: &str) -> &'static str {
    COLORS[name.bytes().map(usize::from).sum::<usize>() % COLORS.len()]
}

/// The body that creates or updates a tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TagFields {
    name: Change<Text<MAX_ITEM>>,
    tag: Change<Text<MAX_ITEM>>,
    color: Change<Color>,
}

impl TagFields {
    /// The name. Both fields must agree.
    fn name(&self) -> Result<Option<String>, ApiError> {
        match (name_of(self.name.clone(), "name")?, name_of(self.tag.clone(), "tag")?) {
            (Some(name), Some(tag)) if name != tag => Err(Issue::custom("Differs from name").at("tag")),
            (name, tag) => Ok(name.or(tag)),
        }
    }
}

impl Resource for Tag {
    type Fields = TagFields;
    const PATHS: [&'static str; 2] = ["/tags", "/tags/{id}"];
    const PAGE_SIZE: i64 = 100;
    const NOT_FOUND: &'static str = "Tag not found.";

    fn new(fields: TagFields, now: Timestamp) -> Result<Self, ApiError> {
        let name = required_name(fields.name()?)?;
        let color = fields.color.set().map_or_else(|| color_of(&name), |Color(color)| color).to_owned();
        Ok(Self { id: ids::sortable("tag_", now), name, color })
    }

    fn change(fields: TagFields) -> Result<impl FnOnce(&mut Self) + Send, ApiError> {
        let name = fields.name()?;
        let color = kept(fields.color, "color", "string")?.map(|Color(color)| color.to_owned());
        Ok(move |tag: &mut Self| {
            tag.name = name.unwrap_or(std::mem::take(&mut tag.name));
            tag.color = color.unwrap_or(std::mem::take(&mut tag.color));
        })
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

impl Resource for Folder {
    type Fields = FolderFields;
    const PATHS: [&'static str; 2] = ["/folders", "/folders/{id}"];
    const PAGE_SIZE: i64 = 50;
    const NOT_FOUND: &'static str = "Folder not found.";

    fn new(fields: FolderFields, now: Timestamp) -> Result<Self, ApiError> {
        let (id, name) = (ids::sortable("fold_", now), required_name(name_of(fields.name, "name")?)?);
        let description = fields.description.text().set();
        Ok(Self { id, name, description, created_at: now, updated_at: now })
    }

    fn change(fields: FolderFields) -> Result<impl FnOnce(&mut Self) + Send, ApiError> {
        let (name, description) = (name_of(fields.name, "name")?, fields.description.text());
        Ok(move |folder: &mut Self| {
            folder.name = name.unwrap_or(std::mem::take(&mut folder.name));
            description.apply(&mut folder.description);
        })
    }
}
