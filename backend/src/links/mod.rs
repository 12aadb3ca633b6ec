//! Short links: their types, the parsing of requests, and the endpoints.

pub(crate) mod bulk;
mod conflict;
pub(crate) mod destination;
pub(crate) mod input;
pub(crate) mod key;
mod public_url;
pub(crate) mod routes;
pub(crate) mod search;
pub(crate) mod selectors;
pub(crate) mod tag_fields;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use url::Url;

pub use self::public_url::{InvalidPublicUrl, PublicUrl};
use crate::ids;
use crate::when::rfc3339;

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

/// A label for links of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Tag {
    /// `tag_` and a ULID.
    pub(crate) id: String,
    /// Unique in the workspace, without regard to case.
    pub(crate) name: String,
    /// The name of a [`TagColor`].
    pub(crate) color: String,
}

/// The colours that the published clients accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
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

impl TagColor {
    pub(crate) const ALL: [Self; 8] =
        [Self::Red, Self::Yellow, Self::Green, Self::Blue, Self::Purple, Self::Brown, Self::Gray, Self::Pink];

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

/// A link in responses. All fields are present, because the published clients require them.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Link)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the published Link object has these flags")]
pub(crate) struct LinkBody {
    id: String,
    domain: String,
    key: String,
    url: String,
    /// Always false, like all flags whose effect does not exist here.
    track_conversion: bool,
    external_id: Option<String>,
    tenant_id: Option<String>,
    program_id: Option<String>,
    partner_id: Option<String>,
    archived: bool,
    expires_at: Option<String>,
    expired_url: Option<String>,
    /// Always null: links cannot be disabled.
    disabled_at: Option<String>,
    /// Always null: links have no password protection.
    password: Option<String>,
    proxy: bool,
    title: Option<String>,
    description: Option<String>,
    image: Option<String>,
    video: Option<String>,
    rewrite: bool,
    do_index: bool,
    ios: Option<String>,
    android: Option<String>,
    geo: Option<BTreeMap<String, String>>,
    public_stats: bool,
    tags: Vec<Tag>,
    folder_id: Option<String>,
    comments: Option<String>,
    short_link: String,
    qr_code: String,
    #[serde(rename = "utm_source")]
    utm_source: Option<String>,
    #[serde(rename = "utm_medium")]
    utm_medium: Option<String>,
    #[serde(rename = "utm_campaign")]
    utm_campaign: Option<String>,
    #[serde(rename = "utm_term")]
    utm_term: Option<String>,
    #[serde(rename = "utm_content")]
    utm_content: Option<String>,
    /// Always null: a link has one destination.
    test_variants: Option<Vec<String>>,
    test_started_at: Option<String>,
    test_completed_at: Option<String>,
    /// Always null: links are created by keys, not by users.
    user_id: Option<String>,
    workspace_id: String,
    clicks: i64,
    leads: i64,
    conversions: i64,
    sales: i64,
    /// In cents.
    sale_amount: i64,
    last_clicked: Option<String>,
    created_at: String,
    updated_at: String,
    tag_id: Option<String>,
    project_id: String,
    webhook_ids: Vec<String>,
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

    /// The link in responses and webhook payloads.
    pub(crate) fn body(&self, public: &PublicUrl) -> LinkBody {
        let details = self.details.clone();
        let short_link = public.short_link(&self.domain, &self.key);
        let utm = UtmParameters::of(&self.url);
        LinkBody {
            id: self.id.clone(),
            domain: self.domain.clone(),
            key: self.key.clone(),
            url: self.url.clone(),
            track_conversion: false,
            external_id: self.external_id.clone(),
            tenant_id: self.tenant_id.clone(),
            program_id: details.program_id,
            partner_id: details.partner_id,
            archived: self.archived,
            expires_at: details.expires_at.map(rfc3339),
            expired_url: details.expired_url,
            disabled_at: None,
            password: None,
            proxy: false,
            title: details.title,
            description: details.description,
            image: details.image,
            video: details.video,
            rewrite: false,
            do_index: details.do_index,
            ios: details.ios,
            android: details.android,
            geo: details.geo,
            public_stats: false,
            tags: self.tags.clone(),
            folder_id: self.folder_id.clone(),
            comments: details.comments,
            qr_code: public.qr_code(&short_link),
            short_link,
            utm_source: utm.source,
            utm_medium: utm.medium,
            utm_campaign: utm.campaign,
            utm_term: utm.term,
            utm_content: utm.content,
            test_variants: None,
            test_started_at: None,
            test_completed_at: None,
            user_id: None,
            workspace_id: self.workspace_id.clone(),
            clicks: self.clicks,
            leads: 0,
            conversions: 0,
            sales: 0,
            sale_amount: 0,
            last_clicked: self.last_clicked.map(rfc3339),
            created_at: rfc3339(self.created_at),
            updated_at: rfc3339(self.updated_at),
            tag_id: self.tags.first().map(|tag| tag.id.clone()),
            project_id: self.workspace_id.trim_start_matches("ws_").to_owned(),
            webhook_ids: Vec::new(),
        }
    }
}

/// The campaign parameters in the query of a destination. Empty parameters count as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UtmParameters {
    pub(crate) source: Option<String>,
    pub(crate) medium: Option<String>,
    pub(crate) campaign: Option<String>,
    pub(crate) term: Option<String>,
    pub(crate) content: Option<String>,
}

impl UtmParameters {
    /// The source, the medium, the campaign, the term and the content.
    pub(crate) fn values(&self) -> [&Option<String>; 5] {
        [&self.source, &self.medium, &self.campaign, &self.term, &self.content]
    }

    pub(crate) fn of(url: &str) -> Self {
        let mut utm = Self::default();
        // Most parameters are not campaign parameters, so the prefix is checked first.
        if !url.contains('?') {
            return utm;
        }
        let Ok(url) = Url::parse(url) else { return utm };
        for (name, value) in url.query_pairs().filter(|(_, value)| !value.is_empty() && !value.contains('\0'))
        {
            let field = match &*name {
                "utm_source" => &mut utm.source,
                "utm_medium" => &mut utm.medium,
                "utm_campaign" => &mut utm.campaign,
                "utm_term" => &mut utm.term,
                "utm_content" => &mut utm.content,
                _ => continue,
            };
            *field = Some(value.into_owned());
        }
        utm
    }
}
