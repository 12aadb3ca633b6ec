//! Short links: their types, the parsing of requests, and the endpoints.

pub(crate) mod bulk;
mod conflict;
pub(crate) mod destination;
pub(crate) mod input;
pub(crate) mod key;
pub(crate) mod routes;
pub(crate) mod search;
pub(crate) mod selectors;
pub(crate) mod tag_fields;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::ids;

/// An instant in JSON: RFC 3339 in UTC with milliseconds.
pub(crate) fn rfc3339(instant: Timestamp) -> String {
    format!("{instant:.3}")
}

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
    pub(crate) disabled_at: Option<Timestamp>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) test_started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) test_completed_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A label for links of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct Tag {
    /// `tag_` and a ULID.
    pub(crate) id: String,
    /// Unique in the workspace, without regard to case.
    pub(crate) name: String,
    /// One of [`TAG_COLORS`].
    pub(crate) color: String,
}

/// The colours that the published clients accept.
pub(crate) const TAG_COLORS: [&str; 8] =
    ["red", "yellow", "green", "blue", "purple", "brown", "gray", "pink"];

/// The public URL. Short links are `<base>/r/<key>`.
#[derive(Clone, Debug)]
pub struct PublicUrl {
    base: Url,
    host: String,
    other_domains: Vec<String>,
}

/// The public URL is not valid for short links.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("public URL {url:?}: expected http:// or https:// with a host, without query and fragment")]
pub struct InvalidPublicUrl {
    url: String,
}

impl PublicUrl {
    /// Parses the public URL of the service.
    ///
    /// # Errors
    /// [`InvalidPublicUrl`] if it is not an HTTP URL with a host, or has a query or fragment.
    pub fn parse(text: &str) -> Result<Self, InvalidPublicUrl> {
        let invalid = || InvalidPublicUrl { url: text.to_owned() };
        let base = Url::parse(text.trim_end_matches('/')).map_err(|_| invalid())?;
        let host = base.host_str().ok_or_else(invalid)?.to_owned();
        let plain = base.query().is_none() && base.fragment().is_none() && base.username().is_empty();
        if !plain || !matches!(base.scheme(), "http" | "https") {
            return Err(invalid());
        }
        Ok(Self { base, host, other_domains: Vec::new() })
    }

    /// Permits links on further domains that resolve to this service: `https://<domain>/r/<key>`.
    #[must_use]
    pub fn with_domains(mut self, domains: impl IntoIterator<Item = String>) -> Self {
        self.other_domains = domains.into_iter().map(|domain| domain.to_lowercase()).collect();
        self
    }

    /// The domains of links, the default domain first.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &str> {
        let others = self.other_domains.iter().map(String::as_str).filter(|other| *other != self.host);
        std::iter::once(self.host.as_str()).chain(others)
    }

    /// Whether links may be on `domain`.
    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        self.domains().any(|known| known == domain)
    }

    /// The domain of a request with this `Host` header.
    pub(crate) fn domain_of_host<'a>(&'a self, host: Option<&str>) -> &'a str {
        if self.other_domains.is_empty() {
            return &self.host;
        }
        let named = host.map(|host| host.split(':').next().unwrap_or(host).to_lowercase());
        let other = self.other_domains.iter().find(|other| Some(*other) == named.as_ref());
        other.unwrap_or(&self.host)
    }

    /// The URL without a trailing slash.
    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The domain of links that do not specify one.
    #[must_use]
    pub fn default_domain(&self) -> &str {
        &self.host
    }

    /// The URL of the short link `key` on `domain`. Links on the default domain use the public URL with its port and
    /// path; links on other domains are at the root of the domain.
    #[must_use]
    pub fn short_link(&self, domain: &str, key: &str) -> String {
        let key = percent_encoding::utf8_percent_encode(key, KEY_IN_PATH);
        if domain == self.host {
            format!("{}/r/{key}", self.base())
        } else {
            format!("{}://{domain}/r/{key}", self.base.scheme())
        }
    }

    fn qr_code(&self, short_link: &str) -> String {
        format!("{}/qr?url={short_link}?qr=1", self.base())
    }
}

/// The characters of a key that are escaped in a path.
const KEY_IN_PATH: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'/').remove(b'~');

/// A link in responses. All fields are present, because the published clients require them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Link))]
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
            disabled_at: details.disabled_at.map(rfc3339),
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
            test_started_at: details.test_started_at.map(rfc3339),
            test_completed_at: details.test_completed_at.map(rfc3339),
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
