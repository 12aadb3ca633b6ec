//! Folders of links.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::change::Change;
use crate::error::ApiError;
use crate::http::body_macro::body;
use crate::http::fields::{Text, name_of};
use crate::when::rfc3339;

pub(crate) mod routes;

/// Maximum length of a name, in characters.
pub(crate) const MAX_NAME: usize = 190;
/// Maximum length of a description, in characters.
pub(crate) const MAX_DESCRIPTION: usize = 500;
/// The access level of every key of the workspace.
pub(crate) const ACCESS_LEVEL: &str = "write";

/// A folder of links. A link is in at most one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    /// `fold_` and a ULID.
    pub(crate) id: String,
    /// Unique in the workspace, without regard to case.
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// A folder as responses show it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Folder)]
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

body! {
    /// The body that creates or updates a folder.
    pub(crate) struct FolderFields {
        name: Text<MAX_NAME>,
        description: Text<MAX_DESCRIPTION>,
        access_level: AccessLevel,
    }
}

/// The access levels that requests may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AccessLevel {
    Write,
}

/// The fields of a folder in a request, after validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FolderInput {
    pub(crate) name: Option<String>,
    pub(crate) description: Change<String>,
}

impl TryFrom<FolderFields> for FolderInput {
    type Error = ApiError;

    fn try_from(fields: FolderFields) -> Result<Self, ApiError> {
        Ok(Self { name: name_of(fields.name, "name")?, description: fields.description.text() })
    }
}
