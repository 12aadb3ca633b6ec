//! Folders of links.

use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::link_body::entries;
use super::when::rfc3339;

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

impl Serialize for Folder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        entries!(body, {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "type": "default",
            // A key has full access to its workspace.
            "accessLevel": "write",
            "createdAt": rfc3339(self.created_at),
            "updatedAt": rfc3339(self.updated_at),
        });
        body.end()
    }
}
