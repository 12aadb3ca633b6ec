//! Parses the fields of a link in a request.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use url::Url;

use crate::body::{Change, Fields, empty_text, wrong_type};
use crate::error::ApiError;
use crate::links::{Details, key};
use crate::when::{self, Edge};

/// Maximum length of a destination, in characters.
const MAX_URL: usize = 32_000;
/// Maximum length of keys and domains, in characters.
const MAX_KEY: usize = 190;
/// Maximum length of external ids, tenant ids and campaign parameters, in characters.
const MAX_ID: usize = 255;
/// Maximum length of titles, descriptions, comments and image URLs, in characters.
const MAX_TEXT: usize = 32_000;
/// Permitted lengths of a random key.
const KEY_LENGTHS: RangeInclusive<u64> = 3..=190;
/// Maximum number of tags of a link.
const MAX_TAGS: usize = 100;

/// Schemes that execute code in the browser or read from it.
const FORBIDDEN_SCHEMES: [&str; 6] = ["javascript", "data", "vbscript", "file", "blob", "about"];

/// The query parameters of a destination that fields of the link set.
const URL_PARAMETERS: [&str; 6] =
    ["utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "ref"];

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
    parameters: Vec<(&'static str, Change<String>)>,
    details: DetailsInput,
}

/// The tags that a request selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TagSelection {
    /// By id. Each tag must exist in the workspace.
    Ids(Vec<String>),
    /// By name, without regard to case. Each tag must exist in the workspace.
    Names(Vec<String>),
}

impl TagSelection {
    /// Number of the tags.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ids(values) | Self::Names(values) => values.len(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DetailsInput {
    do_index: Option<bool>,
    texts: Vec<(DetailText, Change<String>)>,
    instants: Vec<(DetailInstant, Change<Timestamp>)>,
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

/// The JSON schema of a body that creates or updates a link, derived from the tables with which bodies are parsed.
#[cfg(feature = "openapi")]
pub(crate) fn schema(required: &[&str]) -> Value {
    use serde_json::{Map, json};

    use crate::body::MAX_ITEM;
    use crate::store::MAX_LINK_BYTES;

    let text = |max: usize| json!({"type": ["string", "null"], "maxLength": max});
    let list = json!({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string", "maxLength": MAX_ITEM}, "maxItems": MAX_TAGS}, {"type": "null"}]});
    let mut properties = Map::new();
    let mut add = |name: &str, schema: Value| properties.insert(name.to_owned(), schema);
    add(
        "url",
        json!({"type": "string", "maxLength": MAX_URL, "description": "The destination; https:// is put in front where it names no scheme."}),
    );
    add("domain", text(MAX_KEY));
    add("key", text(MAX_KEY));
    add(
        "keyLength",
        json!({"type": ["integer", "null"], "minimum": KEY_LENGTHS.start(), "maximum": KEY_LENGTHS.end()}),
    );
    add("prefix", text(MAX_KEY));
    for name in ["externalId", "tenantId"].into_iter().chain(URL_PARAMETERS) {
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
    for name in ["tagIds", "tagId", "tagNames"] {
        add(name, list.clone());
    }
    let country =
        json!({"type": ["object", "null"], "additionalProperties": {"type": "string", "maxLength": MAX_URL}});
    add("geo", country);
    let description = format!("A link has at most {MAX_LINK_BYTES} bytes in all.");
    json!({"type": "object", "description": description, "required": required, "properties": properties})
}

impl LinkInput {
    /// Parses a body that creates a link: like [`Self::update`], with a required destination.
    pub(crate) fn create(value: &Value, at: &str, now: Timestamp) -> Result<Self, ApiError> {
        let fields = Fields::of(value, at)?;
        fields.required_text("url", MAX_URL)?;
        let input = Self::update(value, at, now)?;
        match &input.key {
            Some(key) if !key::is_valid(key) => Err(fields.invalid("key", key::INVALID)),
            _ => Ok(input),
        }
    }

    /// Parses a body that updates a link. Absent fields keep their values. A link may keep an invalid key. Unknown
    /// fields are ignored.
    pub(crate) fn update(value: &Value, at: &str, now: Timestamp) -> Result<Self, ApiError> {
        let fields = Fields::of(value, at)?;
        if let Change::Set(_) = fields.text("password", MAX_TEXT)? {
            return Err(fields.invalid("password", "Password protection is not supported."));
        }
        refuse_without_effect(&fields)?;
        let url = match fields.text("url", MAX_URL)? {
            Change::Keep => None,
            Change::Clear => return Err(wrong_type(&fields.path("url"), "string", &Value::Null)),
            Change::Set(text) => Some(destination(&fields, "url", &text)?),
        };
        let mut parameters = Vec::new();
        for name in URL_PARAMETERS {
            let change = fields.text(name, MAX_ID)?;
            if change != Change::Keep {
                parameters.push((name, change));
            }
        }
        Ok(Self {
            url,
            domain: fields.text("domain", MAX_KEY)?.set().map(|domain| domain.to_lowercase()),
            key: trimmed(&fields, "key")?,
            key_length: fields
                .integer("keyLength", KEY_LENGTHS)?
                .set()
                .and_then(|length| length.try_into().ok()),
            prefix: prefix(&fields)?,
            external_id: external_id(&fields)?,
            tenant_id: fields.text("tenantId", MAX_ID)?,
            folder_id: folder_id(&fields)?,
            archived: fields.boolean("archived")?.set(),
            tags: tags(&fields)?,
            parameters,
            details: DetailsInput::read(&fields, now)?,
        })
    }

    /// The destination with the campaign parameters of this input: the new destination, or `before`.
    pub(crate) fn destination(&self, current: Option<&str>) -> String {
        let url = self.url.as_deref().or(current).unwrap_or_default();
        if self.parameters.is_empty() {
            return url.to_owned();
        }
        let Ok(mut parsed) = Url::parse(url) else { return url.to_owned() };
        let mut pairs: Vec<(String, String)> = parsed
            .query_pairs()
            .filter(|(name, _)| self.parameters.iter().all(|(changed, _)| changed != name))
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        for (name, change) in &self.parameters {
            if let Change::Set(value) = change
                && !value.is_empty()
            {
                pairs.push(((*name).to_owned(), value.clone()));
            }
        }
        if pairs.is_empty() {
            parsed.set_query(None);
        } else {
            parsed.query_pairs_mut().clear().extend_pairs(pairs);
        }
        parsed.into()
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
        for (instant, change) in input.instants {
            change.apply(instant(details));
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
            let change = match fields.text(name, MAX_URL)? {
                Change::Set(url) if url.is_empty() => Change::Clear,
                Change::Set(url) => Change::Set(destination(fields, name, &url)?),
                other => other,
            };
            input.texts.push((text, change));
        }
        for (name, instant) in INSTANTS {
            let change = match fields.text(name, MAX_ID)? {
                Change::Keep => Change::Keep,
                Change::Clear => Change::Clear,
                Change::Set(text) => Change::Set(
                    when::parse(&text, now, &TimeZone::UTC, Edge::Start)
                        .map_err(|error| fields.invalid(name, &error.to_string()))?,
                ),
            };
            input.instants.push((instant, change));
        }
        input.geo = geo(fields)?;
        Ok(input)
    }
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

/// Parses a destination. `https://` is added if the scheme is missing.
fn destination(fields: &Fields<'_>, name: &str, text: &str) -> Result<String, ApiError> {
    let invalid = || fields.invalid(name, "Invalid destination URL");
    let text = text.trim();
    if let Ok(url) = Url::parse(text) {
        // `localhost:3000` and `example.com:8080/x` parse as URLs with a scheme.
        let names_port = !text.contains("://")
            && text.split_once(':').is_some_and(|(host, rest)| {
                (host.contains('.') || host == "localhost")
                    && rest.starts_with(|first: char| first.is_ascii_digit())
            });
        if !names_port {
            let leads_somewhere = !FORBIDDEN_SCHEMES.contains(&url.scheme());
            return if leads_somewhere { Ok(text.to_owned()) } else { Err(invalid()) };
        }
    }
    let with_scheme = format!("https://{text}");
    let url = Url::parse(&with_scheme).map_err(|_| invalid())?;
    let host = url.host_str().ok_or_else(invalid)?;
    if host.contains('.') || host == "localhost" { Ok(with_scheme) } else { Err(invalid()) }
}

/// Parses a key or prefix and removes slashes at its ends.
fn trimmed(fields: &Fields<'_>, name: &str) -> Result<Option<String>, ApiError> {
    let Change::Set(text) = fields.text(name, MAX_KEY)? else { return Ok(None) };
    let key = text.trim_matches('/');
    Ok((!key.is_empty()).then(|| key.to_owned()))
}

fn prefix(fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    match trimmed(fields, "prefix")? {
        Some(prefix) if !key::is_valid(&prefix) => Err(fields.invalid("prefix", key::INVALID)),
        prefix => Ok(prefix),
    }
}

fn external_id(fields: &Fields<'_>) -> Result<Change<String>, ApiError> {
    match fields.text("externalId", MAX_ID)? {
        Change::Set(text) => {
            let id = text.strip_prefix("ext_").unwrap_or(&text);
            if id.is_empty() {
                return Err(empty_text(&fields.path("externalId")));
            }
            Ok(Change::Set(id.to_owned()))
        }
        other => Ok(other),
    }
}

fn folder_id(fields: &Fields<'_>) -> Result<Change<String>, ApiError> {
    match fields.text("folderId", MAX_KEY)? {
        Change::Set(id) if id.is_empty() => Ok(Change::Clear),
        other => Ok(other),
    }
}

fn tags(fields: &Fields<'_>) -> Result<Option<TagSelection>, ApiError> {
    let selection = [
        ("tagIds", TagSelection::Ids as fn(Vec<String>) -> TagSelection),
        ("tagId", TagSelection::Ids),
        ("tagNames", TagSelection::Names),
    ];
    // The first present field counts. The others are validated all the same.
    let mut selected = None;
    for (name, select) in selection {
        match fields.texts(name, MAX_TAGS)? {
            Change::Keep => {}
            Change::Clear => _ = selected.get_or_insert(TagSelection::Ids(Vec::new())),
            Change::Set(values) => {
                if values.iter().any(String::is_empty) {
                    return Err(fields.invalid(name, "Invalid tag: \"\""));
                }
                selected.get_or_insert(select(values));
            }
        }
    }
    Ok(selected)
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
            let message = format!("Too big: expected string to have <={MAX_URL} characters");
            return Err(ApiError::invalid("too_big", &format!("{path}.{country}"), &message));
        }
        let target = destination(fields, &format!("geo.{country}"), target)?;
        targets.insert(country.to_uppercase(), target);
    }
    Ok(Change::Set(targets))
}
