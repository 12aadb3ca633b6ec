//! What a request sets and changes of a link.

use super::change::Change;
use super::destination::Parameters;
use super::link::DetailsInput;
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

impl LinkInput {
    /// The destination with the campaign parameters of this input: the new destination, or `current`.
    pub(crate) fn destination(&self, current: Option<&str>) -> String {
        self.parameters.apply(self.url.as_deref().or(current).unwrap_or_default())
    }
}
