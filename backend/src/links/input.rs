//! Parses the fields of a link in a request.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::destination::{self, MAX_URL, Parameters};
use super::tag_fields::TagSelection;
use super::{Details, key};
use crate::body::{Change, Fields, empty_text, too_long, wrong_type};
use crate::error::ApiError;
use crate::ids;
use crate::when::{self, Edge};

/// Maximum length of keys and domains, in characters.
const MAX_KEY: usize = 190;
/// Maximum length of external ids and tenant ids, in characters.
const MAX_ID: usize = 255;
/// Maximum length of titles, descriptions, comments and image URLs, in characters.
const MAX_TEXT: usize = 32_000;
/// Permitted lengths of a random key.
const KEY_LENGTHS: RangeInclusive<u64> = 3..=190;

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
    parameters: Parameters,
    details: DetailsInput,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DetailsInput {
    do_index: Option<bool>,
    texts: Vec<(DetailText, Change<String>)>,
    instants: Vec<(&'static str, DetailInstant, Change<Timestamp>)>,
    geo: Change<BTreeMap<String, String>>,
}

type DetailText = fn(&mut Details) -> &mut Option<String>;
type DetailInstant = fn(&mut Details) -> &mut Option<Timestamp>;

/// The names of all boolean fields.
pub(crate) const FLAG_NAMES: [&str; 6] =
    ["archived", "trackConversion", "proxy", "rewrite", "doIndex", "publicStats"];

/// Published flags whose effect does not exist here. `true` is refused.
const FLAGS_WITHOUT_EFFECT: [&str; 4] = ["trackConversion", "proxy", "rewrite", "publicStats"];
/// Published lists whose effect does not exist here. A non-empty list is refused.
const LISTS_WITHOUT_EFFECT: [&str; 2] = ["testVariants", "webhookIds"];

const TEXTS: [(&str, usize, DetailText); 7] = [
    ("programId", MAX_ID, |details| &mut details.program_id),
    ("partnerId", MAX_ID, |details| &mut details.partner_id),
    ("title", MAX_TEXT, |details| &mut details.title),
    ("description", MAX_TEXT, |details| &mut details.description),
    ("image", MAX_TEXT, |details| &mut details.image),
    ("video", MAX_TEXT, |details| &mut details.video),
    ("comments", MAX_TEXT, |details| &mut details.comments),
];

const DESTINATIONS: [(&str, DetailText); 3] = [
    ("expiredUrl", |details| &mut details.expired_url),
    ("ios", |details| &mut details.ios),
    ("android", |details| &mut details.android),
];

const INSTANTS: [(&str, DetailInstant); 3] = [
    ("expiresAt", |details| &mut details.expires_at),
    ("testStartedAt", |details| &mut details.test_started_at),
    ("testCompletedAt", |details| &mut details.test_completed_at),
];

/// Published instants whose effect does not exist here. Links from earlier versions may have them.
const INSTANTS_WITHOUT_EFFECT: [&str; 2] = ["testStartedAt", "testCompletedAt"];

/// The message for an instant whose effect does not exist here.
pub(crate) const NO_EFFECT: &str = "Not supported: expected null";

/// The fields that determine how the key of a new link is generated.
const KEY_GENERATION: [&str; 2] = ["keyLength", "prefix"];

/// The JSON schema of a body that updates a link.
#[cfg(feature = "openapi")]
pub(crate) fn update_schema() -> Value {
    let mut schema = create_schema();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("required");
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| !KEY_GENERATION.contains(&name.as_str()));
    }
    schema
}

/// The JSON schema of a body that creates a link, derived from the tables with which bodies are parsed.
#[cfg(feature = "openapi")]
pub(crate) fn create_schema() -> Value {
    use serde_json::{Map, json};

    use super::tag_fields::MAX_TAGS;
    use crate::body::MAX_ITEM;
    use crate::store::MAX_LINK_BYTES;

    let text = |max: usize| json!({"type": ["string", "null"], "maxLength": max});
    let list = json!({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string", "maxLength": MAX_ITEM}, "maxItems": MAX_TAGS}, {"type": "null"}]});
    let mut properties = Map::new();
    let mut add = |name: &str, schema: Value| properties.insert(name.to_owned(), schema);
    add(
        "url",
        json!({"type": "string", "maxLength": MAX_URL, "description": "The destination. `https://` is added if the scheme is missing."}),
    );
    add("domain", text(MAX_KEY));
    add("key", text(MAX_KEY));
    add(
        "keyLength",
        json!({"type": ["integer", "null"], "minimum": KEY_LENGTHS.start(), "maximum": KEY_LENGTHS.end()}),
    );
    let description = format!("With a slash and the generated key, at most {MAX_KEY} characters.");
    let max = MAX_KEY - key_under_prefix(*KEY_LENGTHS.start() as usize);
    add("prefix", json!({"type": ["string", "null"], "maxLength": max, "description": description}));
    for name in ["externalId", "tenantId"].into_iter().chain(destination::NAMES) {
        add(name, text(MAX_ID));
    }
    add("folderId", text(MAX_KEY));
    for name in ["archived", "doIndex"] {
        add(name, json!({"type": ["boolean", "null"]}));
    }
    for name in FLAGS_WITHOUT_EFFECT {
        add(name, json!({"enum": [false, null], "description": "Not supported."}));
    }
    for name in LISTS_WITHOUT_EFFECT {
        add(name, json!({"type": ["array", "null"], "maxItems": 0, "description": "Not supported."}));
    }
    for (name, max, _) in TEXTS {
        add(name, text(max));
    }
    for (name, _) in DESTINATIONS {
        add(name, text(MAX_URL));
    }
    for (name, _) in INSTANTS {
        add(name, text(MAX_ID));
    }
    for name in INSTANTS_WITHOUT_EFFECT {
        add(
            name,
            json!({"type": ["string", "null"], "maxLength": MAX_ID, "description": "Not supported, except the value that the link has from an earlier version."}),
        );
    }
    for name in ["tagIds", "tagId", "tagNames"] {
        add(name, list.clone());
    }
    let tag = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "maxLength": MAX_ITEM}}});
    add(
        "tags",
        json!({"type": ["array", "null"], "items": tag, "maxItems": MAX_TAGS, "description": "The tags as responses show them, if no other field names tags."}),
    );
    let country =
        json!({"type": ["object", "null"], "additionalProperties": {"type": "string", "maxLength": MAX_URL}});
    add("geo", country);
    let description = format!("A link has at most {MAX_LINK_BYTES} bytes in all.");
    json!({"type": "object", "description": description, "required": ["url"], "properties": properties})
}

impl LinkInput {
    /// Parses a body that creates a link. Unknown fields are ignored.
    pub(crate) fn create(value: &Value, at: &str, now: Timestamp) -> Result<Self, ApiError> {
        let fields = Fields::of(value, at)?;
        let input = Self::new(&fields, now)?;
        match input.refused_in_new() {
            Some((name, message)) => Err(fields.invalid(name, message)),
            None => Ok(input),
        }
    }

    /// Parses a body that creates a link or updates one: like [`Self::create`], but a link may keep what a new link is
    /// refused.
    pub(crate) fn upsert(value: &Value, now: Timestamp) -> Result<Self, ApiError> {
        Self::new(&Fields::of(value, "")?, now)
    }

    /// Parses a body that may create a link: the fields of an update, a required destination, and how the key is
    /// generated.
    fn new(fields: &Fields<'_>, now: Timestamp) -> Result<Self, ApiError> {
        fields.required_text("url", MAX_URL)?;
        let mut input = Self::read(fields, now)?;
        input.key_length =
            fields.integer("keyLength", KEY_LENGTHS)?.set().and_then(|length| length.try_into().ok());
        input.prefix = prefix(fields)?;
        let generated = key_under_prefix(input.key_length.unwrap_or(ids::KEY_LENGTH));
        // The published API ignores how a key is generated if the request has one.
        if let (Some(prefix), None) = (&input.prefix, &input.key)
            && prefix.chars().count() + generated > MAX_KEY
        {
            return Err(too_long(&fields.path("prefix"), MAX_KEY.saturating_sub(generated)));
        }
        Ok(input)
    }

    /// The field that a new link is refused, and the message.
    pub(crate) fn refused_in_new(&self) -> Option<(&'static str, &'static str)> {
        if self.key.as_ref().is_some_and(|key| !key::is_valid(key)) {
            return Some(("key", key::INVALID));
        }
        self.without_effect(&Details::default()).map(|name| (name, NO_EFFECT))
    }

    /// The instant that has no effect. A link may keep the one that it has from an earlier version.
    pub(crate) fn without_effect(&self, before: &Details) -> Option<&'static str> {
        let mut before = before.clone();
        let mut instants = self.details.instants.iter();
        let new = instants.find(|(name, instant, change)| {
            let is_kept = instant(&mut before).is_some_and(|before| is_shown_alike(before, change));
            INSTANTS_WITHOUT_EFFECT.contains(name) && matches!(change, Change::Set(_)) && !is_kept
        });
        new.map(|(name, ..)| *name)
    }

    /// Parses a body that updates a link. Absent fields keep their values. A link may keep an invalid key. Unknown
    /// fields are ignored.
    pub(crate) fn update(value: &Value, at: &str, now: Timestamp) -> Result<Self, ApiError> {
        let fields = Fields::of(value, at)?;
        let is_set = |name: &&str| fields.get(name).is_some_and(|value| !value.is_null());
        if let Some(name) = KEY_GENERATION.iter().find(|name| is_set(name)) {
            return Err(fields.invalid(name, "Applies only to new links"));
        }
        Self::read(&fields, now)
    }

    /// Parses the fields that a new link and an update have.
    fn read(fields: &Fields<'_>, now: Timestamp) -> Result<Self, ApiError> {
        if let Change::Set(_) = fields.text("password", MAX_TEXT)? {
            return Err(fields.invalid("password", "Password protection is not supported."));
        }
        refuse_without_effect(fields)?;
        let url = match fields.text("url", MAX_URL)? {
            Change::Keep => None,
            Change::Clear => return Err(wrong_type(&fields.path("url"), "string", &Value::Null)),
            Change::Set(text) => Some(destination::parse(fields, "url", &text)?),
        };
        let parameters = Parameters::read(fields, url.as_deref())?;
        Ok(Self {
            url,
            domain: fields.text("domain", MAX_KEY)?.set().map(|domain| domain.to_lowercase()),
            key: trimmed(fields, "key")?,
            key_length: None,
            prefix: None,
            external_id: external_id(fields)?,
            tenant_id: not_empty(fields.text("tenantId", MAX_ID)?),
            folder_id: not_empty(fields.text("folderId", MAX_KEY)?),
            archived: fields.boolean("archived")?.set(),
            tags: TagSelection::read(fields)?,
            parameters,
            details: DetailsInput::read(fields, now)?,
        })
    }

    /// The destination with the campaign parameters of this input: the new destination, or `current`.
    pub(crate) fn destination(&self, current: Option<&str>) -> String {
        self.parameters.apply(self.url.as_deref().or(current).unwrap_or_default())
    }

    /// Size of the fields that may be long, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let long = |change: &Change<String>| match change {
            Change::Set(text) => text.len(),
            Change::Keep | Change::Clear => 0,
        };
        let texts: usize = self.details.texts.iter().map(|(_, change)| long(change)).sum();
        let geo = match &self.details.geo {
            Change::Set(targets) => targets.values().map(String::len).sum(),
            Change::Keep | Change::Clear => 0,
        };
        self.url.as_ref().map_or(0, String::len) + texts + geo
    }

    /// Applies the fields of [`Details`].
    pub(crate) fn apply_details(&self, details: &mut Details) {
        let input = self.details.clone();
        if let Some(do_index) = input.do_index {
            details.do_index = do_index;
        }
        for (text, change) in input.texts {
            change.apply(text(details));
        }
        for (_, instant, change) in input.instants {
            let field = instant(details);
            // Responses show milliseconds. A link that is written back keeps the rest.
            if !field.is_some_and(|before| is_shown_alike(before, &change)) {
                change.apply(field);
            }
        }
        input.geo.apply(&mut details.geo);
    }
}

impl DetailsInput {
    fn read(fields: &Fields<'_>, now: Timestamp) -> Result<Self, ApiError> {
        let mut input = Self { do_index: fields.boolean("doIndex")?.set(), ..Self::default() };
        for (name, max, text) in TEXTS {
            input.texts.push((text, fields.text(name, max)?));
        }
        for (name, text) in DESTINATIONS {
            let change = match not_empty(fields.text(name, MAX_URL)?) {
                Change::Set(url) => Change::Set(destination::parse(fields, name, &url)?),
                other => other,
            };
            input.texts.push((text, change));
        }
        for (name, instant) in INSTANTS {
            let change = match fields.text(name, MAX_ID)? {
                Change::Keep => Change::Keep,
                Change::Clear => Change::Clear,
                Change::Set(text) => Change::Set(
                    when::parse(&text, now, &TimeZone::UTC, Edge::End)
                        .map_err(|error| fields.invalid(name, &error.to_string()))?,
                ),
            };
            input.instants.push((name, instant, change));
        }
        input.geo = geo(fields)?;
        Ok(input)
    }
}

/// Whether responses show this instant like the one that a request sets.
fn is_shown_alike(before: Timestamp, change: &Change<Timestamp>) -> bool {
    matches!(change, Change::Set(instant) if instant.as_millisecond() == before.as_millisecond())
}

/// Refuses values whose effect does not exist here. `false`, null and the empty list are accepted.
fn refuse_without_effect(fields: &Fields<'_>) -> Result<(), ApiError> {
    for name in FLAGS_WITHOUT_EFFECT {
        if fields.boolean(name)? == Change::Set(true) {
            return Err(fields.invalid(name, "Not supported: expected false"));
        }
    }
    for name in LISTS_WITHOUT_EFFECT {
        match fields.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) if items.is_empty() => {}
            Some(Value::Array(_)) => {
                return Err(fields.invalid(name, "Not supported: expected an empty list"));
            }
            Some(other) => return Err(wrong_type(&fields.path(name), "array", other)),
        }
    }
    Ok(())
}

/// Parses a key or prefix and removes slashes at its ends.
fn trimmed(fields: &Fields<'_>, name: &str) -> Result<Option<String>, ApiError> {
    let Change::Set(text) = fields.text(name, MAX_KEY)? else { return Ok(None) };
    let key = text.trim_matches('/');
    Ok((!key.is_empty()).then(|| key.to_owned()))
}

/// The number of characters that follow a prefix: a slash and the generated key.
fn key_under_prefix(key_length: usize) -> usize {
    1 + key_length
}

fn prefix(fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    match trimmed(fields, "prefix")? {
        Some(prefix) if !key::is_valid(&prefix) => Err(fields.invalid("prefix", key::INVALID)),
        prefix => Ok(prefix),
    }
}

/// The maximum applies without the prefix, as in lists.
fn external_id(fields: &Fields<'_>) -> Result<Change<String>, ApiError> {
    match fields.text("externalId", usize::MAX)? {
        Change::Set(text) => {
            let id = text.strip_prefix("ext_").unwrap_or(&text);
            if id.is_empty() {
                return Err(empty_text(&fields.path("externalId")));
            }
            if id.chars().count() > MAX_ID {
                return Err(too_long(&fields.path("externalId"), MAX_ID));
            }
            Ok(Change::Set(id.to_owned()))
        }
        other => Ok(other),
    }
}

/// An empty text clears a field, like null.
fn not_empty(change: Change<String>) -> Change<String> {
    match change {
        Change::Set(text) if text.is_empty() => Change::Clear,
        other => other,
    }
}

fn geo(fields: &Fields<'_>) -> Result<Change<BTreeMap<String, String>>, ApiError> {
    let (map, path) = match fields.get("geo") {
        None => return Ok(Change::Keep),
        Some(Value::Null) => return Ok(Change::Clear),
        Some(Value::Object(map)) => (map, fields.path("geo")),
        Some(other) => return Err(wrong_type(&fields.path("geo"), "object", other)),
    };
    let mut targets = BTreeMap::new();
    for (country, target) in map {
        if country.len() != 2 || !country.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            let message = "Invalid key: expected an ISO 3166 country code of two letters";
            return Err(ApiError::invalid("invalid_key", &format!("{path}.{country}"), message));
        }
        let Value::String(target) = target else {
            return Err(wrong_type(&format!("{path}.{country}"), "string", target));
        };
        if target.chars().count() > MAX_URL {
            return Err(too_long(&format!("{path}.{country}"), MAX_URL));
        }
        let target = destination::parse(fields, &format!("geo.{country}"), target)?;
        targets.insert(country.to_uppercase(), target);
    }
    Ok(Change::Set(targets))
}
