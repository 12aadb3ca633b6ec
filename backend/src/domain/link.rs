//! A short link.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::ids;
use super::tag::Tag;

/// A short link in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
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
            seq: 0,
            id: ids::sortable("link_", now),
            workspace_id: workspace_id.to_owned(),
            domain: domain.to_owned(),
            key: "sample".to_owned(),
            url: "https://example.com/sample".to_owned(),
            external_id: None,
            tenant_id: None,
            folder_id: None,
            archived: false,
            details: Details::default(),
            tags: Vec::new(),
            clicks: 0,
            last_clicked: None,
            created_at: now,
            updated_at: now,
        }
    }
}
