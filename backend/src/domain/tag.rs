//! Tags, and the tags that a request names.

use serde::{Deserialize, Serialize};

/// A label for links of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tag {
    /// `tag_` and a ULID.
    pub(crate) id: String,
    /// Unique in the workspace, without regard to case.
    pub(crate) name: String,
    /// The name of a [`TagColor`].
    pub(crate) color: String,
}

/// The colours that the published clients accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TagColor {
    Red,
    Yellow,
    Green,
    Blue,
    Purple,
    Brown,
    Gray,
    Pink,
}

#[cfg(test)]
impl Tag {
    /// A red tag.
    pub(crate) fn named(name: &str) -> Self {
        Self { id: format!("tag_{name}"), name: name.to_owned(), color: "red".to_owned() }
    }
}

impl TagColor {
    pub(crate) const ALL: [Self; 8] =
        [Self::Red, Self::Yellow, Self::Green, Self::Blue, Self::Purple, Self::Brown, Self::Gray, Self::Pink];

    /// The colour of a tag with this name, unless another is asked for.
    pub(crate) fn of_name(name: &str) -> Self {
        Self::ALL[name.bytes().map(usize::from).sum::<usize>() % Self::ALL.len()]
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Red => "red",
            Self::Yellow => "yellow",
            Self::Green => "green",
            Self::Blue => "blue",
            Self::Purple => "purple",
            Self::Brown => "brown",
            Self::Gray => "gray",
            Self::Pink => "pink",
        }
    }
}

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
