//! The fields of a link in a request.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::tag_fields::{MAX_TAGS, ShownTag, selection};
use crate::domain::change::Change;
use crate::domain::destination::{self, MAX_PARAMETER, MAX_URL, Parameters};
use crate::domain::ids;
use crate::domain::key::{self, MAX_KEY};
use crate::domain::link::DetailsInput;
use crate::domain::link::LinkInput;
use crate::domain::when::{self, Edge};
use crate::http::error::ApiError;
use crate::http::fields::{
    self, ByName, Item, Items, List, NoFlag, NoList, NoText, Text, Whole, join, kept, required,
};
use crate::http::issue::Issue;

/// Maximum length of external ids and tenant ids, in characters.
const MAX_ID: usize = 255;
/// Maximum length of titles, descriptions, comments and image URLs, in characters.
const MAX_TEXT: usize = 32_000;

/// A destination in a request. `https://` is added if the scheme is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination(pub(crate) String);

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The URL says what is wrong with NUL, too.
        let text = String::deserialize(deserializer)?;
        if text.len() > MAX_URL && text.chars().count() > MAX_URL {
            return Err(D::Error::custom(Issue::too_long(MAX_URL)));
        }
        let invalid = || D::Error::custom(Issue::custom("Invalid destination URL"));
        destination::parse(&text).map(Self).ok_or_else(invalid)
    }
}

/// The body that creates a link or updates one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LinkFields {
    url: Change<Destination>,
    domain: Change<Text<MAX_KEY>>,
    key: Change<Text<MAX_KEY>>,
    key_length: Change<Whole<3, 190>>,
    prefix: Change<Text<MAX_KEY>>,
    external_id: Change<Item>,
    tenant_id: Change<Text<MAX_ID>>,
    folder_id: Change<Text<MAX_KEY>>,
    archived: Change<bool>,
    do_index: Change<bool>,
    tag_ids: Change<Items<MAX_TAGS>>,
    tag_id: Change<Items<MAX_TAGS>>,
    tag_names: Change<Items<MAX_TAGS>>,
    tags: Change<List<ShownTag>>,
    #[serde(rename = "utm_source")]
    utm_source: Change<Text<MAX_PARAMETER>>,
    #[serde(rename = "utm_medium")]
    utm_medium: Change<Text<MAX_PARAMETER>>,
    #[serde(rename = "utm_campaign")]
    utm_campaign: Change<Text<MAX_PARAMETER>>,
    #[serde(rename = "utm_term")]
    utm_term: Change<Text<MAX_PARAMETER>>,
    #[serde(rename = "utm_content")]
    utm_content: Change<Text<MAX_PARAMETER>>,
    r#ref: Change<Text<MAX_PARAMETER>>,
    program_id: Change<Text<MAX_ID>>,
    partner_id: Change<Text<MAX_ID>>,
    title: Change<Text<MAX_TEXT>>,
    description: Change<Text<MAX_TEXT>>,
    image: Change<Text<MAX_TEXT>>,
    video: Change<Text<MAX_TEXT>>,
    comments: Change<Text<MAX_TEXT>>,
    expired_url: Change<Destination>,
    ios: Change<Destination>,
    android: Change<Destination>,
    geo: Change<ByName<Destination>>,
    expires_at: Change<Text<MAX_ID>>,
    password: Change<NoText>,
    disabled_at: Change<NoText>,
    test_started_at: Change<NoText>,
    test_completed_at: Change<NoText>,
    test_variants: Change<NoList>,
    webhook_ids: Change<NoList>,
    track_conversion: Change<NoFlag>,
    proxy: Change<NoFlag>,
    rewrite: Change<NoFlag>,
    public_stats: Change<NoFlag>,
}

impl LinkInput {
    /// Reads a body that creates a link, or creates or updates one. Unknown fields are ignored.
    pub(crate) fn create(value: &Value, at: &str, now: Timestamp) -> Result<Self, ApiError> {
        let mut fields: LinkFields = fields::read(value, at)?;
        let url = required(std::mem::take(&mut fields.url), &join(at, "url"), "string")?;
        let length = std::mem::take(&mut fields.key_length).set();
        let key_length = length.map_or(ids::KEY_LENGTH, |Whole(length)| length as usize);
        let prefix = key_of(std::mem::take(&mut fields.prefix), &join(at, "prefix"))?.set();
        let mut input = Self::of(fields, Change::Set(url), at, now)?;
        // The published API ignores how a key is generated if the request has one. A slash follows the prefix.
        let free = MAX_KEY.saturating_sub(1 + key_length);
        if input.key.is_none() && prefix.as_ref().is_some_and(|prefix| prefix.chars().count() > free) {
            return Err(Issue::too_long(free).at(&join(at, "prefix")));
        }
        (input.key_length, input.prefix) = (length.map(|_| key_length), prefix);
        Ok(input)
    }

    /// Reads a body that updates a link. Absent fields keep their values. Unknown fields are ignored.
    pub(crate) fn update(value: &Value, at: &str, now: Timestamp) -> Result<Self, ApiError> {
        let mut fields: LinkFields = fields::read(value, at)?;
        let generates_key = [
            ("keyLength", fields.key_length.set().is_some()),
            ("prefix", matches!(fields.prefix, Change::Set(_))),
        ];
        if let Some((name, _)) = generates_key.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Issue::custom("Applies only to new links").at(&join(at, name)));
        }
        let always_set = [("domain", &fields.domain), ("key", &fields.key)];
        if let Some((name, _)) = always_set.into_iter().find(|(_, change)| **change == Change::Clear) {
            return Err(Issue::wrong_type("string", "null").at(&join(at, name)));
        }
        let url = kept(std::mem::take(&mut fields.url), &join(at, "url"), "string")?;
        Self::of(fields, url.map_or(Change::Keep, Change::Set), at, now)
    }

    /// Checks the fields that a new link and an update have.
    fn of(fields: LinkFields, url: Change<Destination>, at: &str, now: Timestamp) -> Result<Self, ApiError> {
        let ids = |change: Change<Items<MAX_TAGS>>| change.map(|Items(ids)| ids);
        let shown = fields.tags.map(|List(tags)| tags);
        let tags = selection(ids(fields.tag_ids), ids(fields.tag_id), ids(fields.tag_names), shown, at)?;
        let parameters = [
            ("utm_source", fields.utm_source),
            ("utm_medium", fields.utm_medium),
            ("utm_campaign", fields.utm_campaign),
            ("utm_term", fields.utm_term),
            ("utm_content", fields.utm_content),
            ("ref", fields.r#ref),
        ];
        let instant = |Text(text): Text<MAX_ID>| {
            let instant = when::parse(&text, now, &TimeZone::UTC, Edge::End);
            let instant =
                instant.map_err(|error| Issue::custom(error.to_string()).at(&join(at, "expiresAt")))?;
            // Responses show milliseconds, so a link that is written back keeps its time.
            Ok::<_, ApiError>(Timestamp::from_millisecond(instant.as_millisecond()).unwrap_or(instant))
        };
        let geo = |targets| geo(targets, &join(at, "geo"));
        Ok(Self {
            url: url.set().map(|Destination(url)| url),
            domain: fields.domain.set().map(|Text(domain)| domain.to_lowercase()),
            key: key_of(fields.key, &join(at, "key"))?.set(),
            key_length: None,
            prefix: None,
            external_id: fields.external_id.map(|id| external_id(id, &join(at, "externalId"))).transpose()?,
            tenant_id: fields.tenant_id.text(),
            folder_id: fields.folder_id.text(),
            archived: fields.archived.or_default(),
            tags,
            parameters: Parameters::of(parameters.map(|(name, change)| (name, change.text()))),
            details: DetailsInput {
                do_index: fields.do_index.or_default(),
                program_id: fields.program_id.text(),
                partner_id: fields.partner_id.text(),
                expires_at: fields.expires_at.map(instant).transpose()?,
                expired_url: fields.expired_url.map(|Destination(url)| url),
                title: fields.title.text(),
                description: fields.description.text(),
                image: fields.image.text(),
                video: fields.video.text(),
                ios: fields.ios.map(|Destination(url)| url),
                android: fields.android.map(|Destination(url)| url),
                geo: fields.geo.map(geo).transpose()?,
                comments: fields.comments.text(),
            },
        })
    }
}

/// A key or prefix without slashes at its ends. It has no value if nothing else is left.
fn key_of(change: Change<Text<MAX_KEY>>, path: &str) -> Result<Change<String>, ApiError> {
    let Change::Set(Text(text)) = change else { return Ok(change.text()) };
    match text.trim_matches('/') {
        "" => Ok(Change::Clear),
        key if key::is_valid(key) => Ok(Change::Set(key.to_owned())),
        _ => Err(Issue::custom(key::INVALID).at(path)),
    }
}

fn external_id(Item(text): Item, path: &str) -> Result<String, ApiError> {
    match text.strip_prefix("ext_").unwrap_or(&text) {
        "" => Err(Issue::empty_text().at(path)),
        id => Ok(id.to_owned()),
    }
}

/// Destinations by upper-case country code.
fn geo(ByName(targets): ByName<Destination>, path: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let target = |(country, Destination(url)): (String, Destination)| {
        if country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Ok((country.to_uppercase(), url));
        }
        Err(Issue::invalid_key("expected an ISO 3166 country code of two letters").at(&join(path, &country)))
    };
    targets.into_iter().map(target).collect()
}
