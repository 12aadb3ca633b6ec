//! A short link as responses and webhook payloads show it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::destination::UtmParameters;
use super::link::Link;
use super::public_url::PublicUrl;
use super::tag::Tag;
use super::when::rfc3339;

/// A link in responses. All fields are present, because the published clients require them.
#[derive(Clone, Debug, Serialize)]
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
