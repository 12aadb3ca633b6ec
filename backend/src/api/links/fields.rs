//! The fields of a link in a request.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::{RefOr, Schema};

use super::tag_fields::{MAX_TAGS, ShownTag, TagFields, selection};
use crate::domain::change::Change;
use crate::domain::destination::{self, MAX_PARAMETER, MAX_URL, Parameters};
use crate::domain::ids;
use crate::domain::key::{self, MAX_KEY};
use crate::domain::link_input::{DetailsInput, LinkInput};
use crate::domain::when::{self, Edge};
use crate::http::body_macro::body;
use crate::http::error::ApiError;
use crate::http::fields::{
    self, ByName, Item, Items, List, NoFlag, NoList, NoText, Text, Whole, join, kept, required,
};
use crate::http::issue::Issue;
use crate::store::MAX_LINK_BYTES;

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

impl PartialSchema for Destination {
    fn schema() -> RefOr<Schema> {
        <Text<MAX_URL> as PartialSchema>::schema()
    }
}

body! {
    /// The body that creates a link or updates one.
    pub(crate) struct LinkFields {
        url: Destination = "The destination. `https://` is added if the scheme is missing.",
        domain: Text<MAX_KEY>,
        key: Text<MAX_KEY>,
        key_length: Whole<3, 190>,
        prefix: Text<MAX_KEY> = "With a slash and the generated key, at most 190 characters.",
        external_id: Item,
        tenant_id: Text<MAX_ID>,
        folder_id: Text<MAX_KEY>,
        archived: bool,
        do_index: bool,
        tag_ids: Items<MAX_TAGS>,
        tag_id: Items<MAX_TAGS>,
        tag_names: Items<MAX_TAGS>,
        tags: List<ShownTag> = "The tags as responses show them, if no other field names tags.",
        utm_source as "utm_source": Text<MAX_PARAMETER>,
        utm_medium as "utm_medium": Text<MAX_PARAMETER>,
        utm_campaign as "utm_campaign": Text<MAX_PARAMETER>,
        utm_term as "utm_term": Text<MAX_PARAMETER>,
        utm_content as "utm_content": Text<MAX_PARAMETER>,
        r#ref: Text<MAX_PARAMETER>,
        program_id: Text<MAX_ID>,
        partner_id: Text<MAX_ID>,
        title: Text<MAX_TEXT>,
        description: Text<MAX_TEXT>,
        image: Text<MAX_TEXT>,
        video: Text<MAX_TEXT>,
        comments: Text<MAX_TEXT>,
        expired_url: Destination,
        ios: Destination,
        android: Destination,
        geo: ByName<Destination> = "Destinations by country code of two letters.",
        expires_at: Text<MAX_ID> = "A day ends with its last millisecond, in UTC.",
        password: NoText,
        disabled_at: NoText,
        test_started_at: NoText,
        test_completed_at: NoText,
        test_variants: NoList,
        webhook_ids: NoList,
        track_conversion: NoFlag,
        proxy: NoFlag,
        rewrite: NoFlag,
        public_stats: NoFlag,
    }
}

/// The JSON schema of a body that creates a link.
pub(crate) fn create_schema() -> Value {
    let mut schema = json!(LinkFields::schema());
    schema["required"] = json!(["url"]);
    schema["description"] = json!(format!("A link has at most {MAX_LINK_BYTES} bytes in all."));
    schema
}

/// The JSON schema of a body that updates a link: that of [`create_schema`] without a required field, and without what generates a key.
pub(crate) fn update_schema() -> Value {
    let mut schema = json!(LinkFields::schema());
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| !["keyLength", "prefix"].contains(&name.as_str()));
    }
    schema
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
        let tags = TagFields {
            ids: fields.tag_ids.map(|Items(ids)| ids),
            id: fields.tag_id.map(|Items(ids)| ids),
            names: fields.tag_names.map(|Items(names)| names),
            shown: fields.tags.map(|List(tags)| tags),
        };
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
            tags: selection(tags, at)?,
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
