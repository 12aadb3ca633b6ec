//! Folders of links.

use jiff::Timestamp;
use serde::Serialize;

use crate::body::{Change, Fields, MAX_ITEM};
use crate::error::ApiError;
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
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, ApiError> {
        if let Change::Set(level) = fields.text("accessLevel", MAX_ITEM)?
            && level != ACCESS_LEVEL
        {
            return Err(fields.invalid("accessLevel", "Not supported: expected write"));
        }
        let description = fields.text("description", MAX_DESCRIPTION)?;
        Ok(Self { name: fields.name("name", MAX_NAME)?, description })
    }
}
