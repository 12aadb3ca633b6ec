//! A short link, and what a request sets and changes of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::destination::Parameters;
use super::ids;
use super::tag::{Tag, TagSelection};

/// Maximum size of a link, in bytes: its domain, key, destination and ids, and its other fields as JSON.
pub(crate) const MAX_LINK_BYTES: usize = 64 * 1024;

/// A short link in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// The store's number of the link. It is never shown or reused. 0 if the link is not stored.
    pub(crate) seq: i64,
    /// `link_` and a ULID.
    pub(crate) id: String,
    pub(crate) workspace_id: String,
    pub(crate) domain: String,
    pub(crate) key: String,
    pub(crate) url: String,
    pub(crate) external_id: Option<String>,
    pub(crate) tenant_id: Option<String>,
    pub(crate) folder_id: Option<String>,
    pub(crate) archived: bool,
    pub(crate) details: Details,
    pub(crate) tags: Vec<Tag>,
    pub(crate) clicks: i64,
    pub(crate) last_clicked: Option<Timestamp>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// Declares the fields of a link that no query reads, once for what is stored and for what a request changes.
macro_rules! details {
    ($($(#[$doc:meta])* $field:ident: $kind:ty,)*) => {
        /// The fields of a link that no query reads. They are stored as a JSON document without empty fields.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub(crate) struct Details {
            #[serde(skip_serializing_if = "is_false")]
            pub(crate) do_index: bool,
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub(crate) $field: Option<$kind>,)*
        }

        /// The changes of [`Details`].
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(crate) struct DetailsInput {
            pub(crate) do_index: Option<bool>,
            $($(#[$doc])* pub(crate) $field: Change<$kind>,)*
        }

        impl DetailsInput {
            pub(crate) fn apply(self, details: &mut Details) {
                details.do_index = self.do_index.unwrap_or(details.do_index);
                $(self.$field.apply(&mut details.$field);)*
            }
        }
    };
}

details! {
    program_id: String,
    partner_id: String,
    expires_at: Timestamp,
    expired_url: String,
    title: String,
    description: String,
    image: String,
    video: String,
    ios: String,
    android: String,
    /// Destinations by upper-case ISO 3166 country code.
    geo: BTreeMap<String, String>,
    comments: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Link {
    /// A sample link that is not stored.
    pub(crate) fn sample(workspace_id: &str, domain: &str, now: Timestamp) -> Self {
        Self {
            id: ids::sortable("link_", now),
            workspace_id: workspace_id.to_owned(),
            domain: domain.to_owned(),
            key: "sample".to_owned(),
            url: "https://example.com/sample".to_owned(),
            created_at: now,
            updated_at: now,
            ..Self::default()
        }
    }
}

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
