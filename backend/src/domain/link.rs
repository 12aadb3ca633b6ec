//! A short link.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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

/// The fields of a link that no query reads. They are stored as a JSON document without empty fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Details {
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) do_index: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) program_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partner_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expired_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) video: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ios: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) android: Option<String>,
    /// Destinations by upper-case ISO 3166 country code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) geo: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) comments: Option<String>,
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
