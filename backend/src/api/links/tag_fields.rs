//! The fields of a request that name the tags of a link.

use crate::domain::change::Change;
use crate::domain::tag::{TagIds, TagSelection};
use crate::http::error::ApiError;
use crate::http::fields::{Item, join, required};
use crate::http::issue::Issue;
use serde::Deserialize;

/// Maximum number of tags of a link.
pub(super) const MAX_TAGS: usize = 100;

/// A tag as responses show it. Only its id counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ShownTag {
    id: Change<Item>,
}

/// The tags of the fields at the path `at`. None if they name no tags and do not clear them.
///
/// A cleared field clears the tags, unless another field names some. `tags` is the list in responses. It counts if the request
/// has no other field, so that a link can be written back.
pub(super) fn selection(
    tag_ids: Change<Vec<String>>,
    mut tag_id: Change<Vec<String>>,
    names: Change<Vec<String>>,
    shown_tags: Change<Vec<ShownTag>>,
    at: &str,
) -> Result<Option<TagSelection>, ApiError> {
    let shown = shown(shown_tags, at)?;
    for (name, change) in [("tagIds", &tag_ids), ("tagId", &tag_id), ("tagNames", &names)] {
        if matches!(change, Change::Set(values) if values.iter().any(String::is_empty)) {
            return Err(Issue::custom("Invalid tag: \"\"").at(&join(at, name)));
        }
    }
    // Responses have the id of the first tag beside the list.
    if let Some(shown) = &shown
        && tag_id == shown.first().map_or(Change::Clear, |first| Change::Set(vec![first.clone()]))
    {
        tag_id = Change::Keep;
    }
    if [&tag_ids, &tag_id, &names].into_iter().all(|change| *change == Change::Keep) {
        return Ok(shown.map(|values| TagSelection::of_ids("tags", values)));
    }
    let ids = match (tag_ids.set(), tag_id.set()) {
        (Some(all), Some(some))
            if all.is_empty() != some.is_empty() || some.iter().any(|id| !all.contains(id)) =>
        {
            let issue = Issue::custom("Does not name the same tags as tagIds");
            return Err(issue.at(&join(at, "tagId")));
        }
        (Some(values), _) => Some(TagIds { field: "tagIds", values }),
        (None, Some(values)) => Some(TagIds { field: "tagId", values }),
        (None, None) => None,
    };
    match (ids, names.set()) {
        (None, None) => Ok(Some(TagSelection::of_ids("tagIds", Vec::new()))),
        (ids, names) => Ok(Some(TagSelection { ids, names })),
    }
}

/// The ids in `tags`. None if the request does not have this list.
fn shown(tags: Change<Vec<ShownTag>>, at: &str) -> Result<Option<Vec<String>>, ApiError> {
    let Some(tags) = tags.or_default() else { return Ok(None) };
    if tags.len() > MAX_TAGS {
        return Err(Issue::too_many(MAX_TAGS).at(&join(at, "tags")));
    }
    let id = |(index, tag): (usize, ShownTag)| {
        required(tag.id, &join(at, &format!("tags[{index}].id")), "string").map(|Item(id)| id)
    };
    tags.into_iter().enumerate().map(id).collect::<Result<_, _>>().map(Some)
}
