//! What a request sets and changes of a link.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::change::Change;
use super::destination::Parameters;
use super::link::Details;
use super::tag::TagSelection;

/// The fields of a link in a request, after validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkInput {
    pub(crate) url: Option<String>,
    pub(crate) domain: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) key_length: Option<usize>,
    pub(crate) prefix: Option<String>,
    pub(crate) external_id: Change<String>,
    pub(crate) tenant_id: Change<String>,
    pub(crate) folder_id: Change<String>,
    pub(crate) archived: Option<bool>,
    pub(crate) tags: Option<TagSelection>,
    pub(crate) parameters: Parameters,
    pub(crate) details: DetailsInput,
}

/// The changes of [`Details`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DetailsInput {
    pub(crate) do_index: Option<bool>,
    pub(crate) program_id: Change<String>,
    pub(crate) partner_id: Change<String>,
    pub(crate) expires_at: Change<Timestamp>,
    pub(crate) expired_url: Change<String>,
    pub(crate) title: Change<String>,
    pub(crate) description: Change<String>,
    pub(crate) image: Change<String>,
    pub(crate) video: Change<String>,
    pub(crate) ios: Change<String>,
    pub(crate) android: Change<String>,
    pub(crate) geo: Change<BTreeMap<String, String>>,
    pub(crate) comments: Change<String>,
}

impl LinkInput {
    /// The destination with the campaign parameters of this input: the new destination, or `current`.
    pub(crate) fn destination(&self, current: Option<&str>) -> String {
        self.parameters.apply(self.url.as_deref().or(current).unwrap_or_default())
    }

    /// Size of the fields that may be long, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let details = &self.details;
        let texts = [
            &details.expired_url,
            &details.title,
            &details.description,
            &details.image,
            &details.video,
            &details.ios,
            &details.android,
            &details.comments,
        ];
        let texts = texts.into_iter().map(|change| match change {
            Change::Set(text) => text.len(),
            Change::Keep | Change::Clear => 0,
        });
        let geo = match &details.geo {
            Change::Set(targets) => targets.values().map(String::len).sum(),
            Change::Keep | Change::Clear => 0,
        };
        self.url.as_ref().map_or(0, String::len) + texts.sum::<usize>() + geo
    }

    /// Applies the fields of [`Details`].
    pub(crate) fn apply_details(&self, details: &mut Details) {
        let input = self.details.clone();
        if let Some(do_index) = input.do_index {
            details.do_index = do_index;
        }
        input.program_id.apply(&mut details.program_id);
        input.partner_id.apply(&mut details.partner_id);
        input.expires_at.apply(&mut details.expires_at);
        input.expired_url.apply(&mut details.expired_url);
        input.title.apply(&mut details.title);
        input.description.apply(&mut details.description);
        input.image.apply(&mut details.image);
        input.video.apply(&mut details.video);
        input.ios.apply(&mut details.ios);
        input.android.apply(&mut details.android);
        input.geo.apply(&mut details.geo);
        input.comments.apply(&mut details.comments);
    }
}
