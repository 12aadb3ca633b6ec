//! A short link as responses and webhook payloads show it.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::destination::UtmParameters;
use super::link::Link;
use super::public_url::PublicUrl;
use super::when::rfc3339;

/// Writes the entries of an object.
macro_rules! entries {
    ($map:ident, { $($name:literal: $value:expr),* $(,)? }) => {
        $($map.serialize_entry($name, &$value)?;)*
    };
}
pub(crate) use entries;

/// No value of a field.
const NONE: Option<&str> = None;

/// A link in responses. All fields are present, because the published clients require them.
#[derive(Clone, Debug)]
pub(crate) struct LinkBody {
    link: Link,
    short_link: String,
    qr_code: String,
}

impl Link {
    /// The link in responses and webhook payloads.
    pub(crate) fn body(&self, public: &PublicUrl) -> LinkBody {
        let short_link = public.short_link(&self.domain, &self.key);
        LinkBody { link: self.clone(), qr_code: public.qr_code(&short_link), short_link }
    }
}

impl Serialize for LinkBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { link, short_link, qr_code } = self;
        let (details, utm) = (&link.details, UtmParameters::of(&link.url));
        let mut body = serializer.serialize_map(None)?;
        entries!(body, {
            "id": link.id,
            "domain": link.domain,
            "key": link.key,
            "url": link.url,
            // Flags whose effect does not exist here are false.
            "trackConversion": false,
            "externalId": link.external_id,
            "tenantId": link.tenant_id,
            "programId": details.program_id,
            "partnerId": details.partner_id,
            "archived": link.archived,
            "expiresAt": details.expires_at.map(rfc3339),
            "expiredUrl": details.expired_url,
            // Links cannot be disabled, and have no password protection.
            "disabledAt": NONE,
            "password": NONE,
            "proxy": false,
            "title": details.title,
            "description": details.description,
            "image": details.image,
            "video": details.video,
            "rewrite": false,
            "doIndex": details.do_index,
            "ios": details.ios,
            "android": details.android,
            "geo": details.geo,
            "publicStats": false,
            "tags": link.tags,
            "folderId": link.folder_id,
            "comments": details.comments,
            "shortLink": short_link,
            "qrCode": qr_code,
            "utm_source": utm.source,
            "utm_medium": utm.medium,
            "utm_campaign": utm.campaign,
            "utm_term": utm.term,
            "utm_content": utm.content,
            // A link has one destination.
            "testVariants": NONE,
            "testStartedAt": NONE,
            "testCompletedAt": NONE,
            // Links are created by keys, not by users.
            "userId": NONE,
            "workspaceId": link.workspace_id,
            "clicks": link.clicks,
            "leads": 0,
            "conversions": 0,
            "sales": 0,
            "saleAmount": 0,
            "lastClicked": link.last_clicked.map(rfc3339),
            "createdAt": rfc3339(link.created_at),
            "updatedAt": rfc3339(link.updated_at),
            "tagId": link.tags.first().map(|tag| &tag.id),
            "projectId": link.workspace_id.trim_start_matches("ws_"),
            "webhookIds": [NONE; 0],
        });
        body.end()
    }
}
