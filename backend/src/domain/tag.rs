//! Tags, and the tags that a request names.

use serde::{Deserialize, Serialize};

/// A label for links of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tag {
    /// `tag_` and a ULID.
    pub(crate) id: String,
    /// Unique in the workspace, without regard to case.
    pub(crate) name: String,
    /// One of [`COLORS`].
    pub(crate) color: String,
}

/// The colours that the published clients accept.
pub(crate) const COLORS: [&str; 8] = ["red", "yellow", "green", "blue", "purple", "brown", "gray", "pink"];

/// The tags that a request names by id, by name, or both. Each tag must exist in the workspace. Ids and names in one
/// request must name the same tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TagSelection {
    pub(crate) ids: Option<TagIds>,
    /// Names, without regard to case.
    pub(crate) names: Option<Vec<String>>,
}

/// Ids of tags, and the field of the request that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TagIds {
    pub(crate) field: &'static str,
    pub(crate) values: Vec<String>,
}

impl TagSelection {
    /// The tags with these ids, which a field of the request names.
    pub(crate) fn of_ids(field: &'static str, values: Vec<String>) -> Self {
        Self { ids: Some(TagIds { field, values }), names: None }
    }
}
