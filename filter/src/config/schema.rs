//! The JSON Schema of the configuration, made from the types that read it.
//!
//! The schema accepts every configuration that the filter accepts. It also accepts some that the filter refuses: those whose fields
//! contradict each other, such as a subscriber whose plan does not exist.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::cost::{Cost, CostAfterResponse, Status};
use super::rate::{Grant, QuotaTerms};
use super::raw::{Config, Entries};
use crate::count::entry::MAX_QUOTAS;
use crate::count::table::MAX_CAPACITY;

/// A whole number of at least 1. Only the filter checks the upper bound.
const LIMIT: &str = "0*[1-9][0-9]*";
const NAME: &str = "^[a-z0-9_-]{1,32}$";
const TOKEN: &str = "^[-!#$%&'*+.^_`|~0-9A-Za-z]+$";
const PATH: &str = "^/";
const DIGEST: &str = "^sha256:[0-9A-Fa-f]{64}$";
const DURATION: &str = "^[0-9]+[smhd]$";
const METADATA: &str = "^[^\\u0000]+$";

/// The schema has no place for the bounds of a field: the field has another name or type now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema of the configuration has no {0}")]
pub struct Unplaced(&'static str);

/// The JSON Schema, draft 2020-12.
///
/// # Errors
/// The bounds of a field that do not fit the types.
pub fn document() -> Result<Value, Unplaced> {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Config>();
    portable(&mut schema);
    let mut document = schema.to_value();
    for (pointer, keywords) in bounds() {
        let schema = document.pointer_mut(pointer).and_then(Value::as_object_mut);
        let schema = schema.ok_or(Unplaced(pointer))?;
        let Value::Object(keywords) = keywords else { return Err(Unplaced(pointer)) };
        schema.extend(keywords);
    }
    Ok(document)
}

/// What the filter checks beyond the types of the fields, and what the types do not say of their defaults, by pointer into the schema.
fn bounds() -> [(&'static str, Value); 54] {
    let subject = json!(["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]);
    let plan = json!(["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "plan"]);
    let key = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    [
        ("", json!({"title": "Configuration of Weir"})),
        (
            "/properties/plans",
            json!({
                "minProperties": 1,
                "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,64}$", "not": {"const": "none"}},
                "examples": [{"free": {"standard": ["60/minute"]}, "pro": {"standard": ["600/minute", "100000/month"], "analytics": "unlimited"}}],
            }),
        ),
        (
            "/properties/classes",
            json!({"examples": [
                [{"name": "analytics", "match": [{"methods": ["GET"], "path": "/analytics"}]}],
                [{"name": "chat", "cost": {"reserve": 1000, "actual": {"response_header": "x-cost"}}, "match": [{"path": "/chat"}]}],
                [{"name": "search", "refund": {"statuses": ["5xx", 408]}, "match": [{"path_prefix": "/search"}]}],
            ]}),
        ),
        ("/properties/default_class", json!({"pattern": NAME})),
        (
            "/properties/exempt",
            json!({"examples": [[{"methods": ["OPTIONS"]}, {"methods": ["GET"], "path_prefix": "/r"}]]}),
        ),
        ("/properties/base_path", json!({"pattern": "^(/|$)", "examples": ["/v1"]})),
        (
            "/properties/upstream_paths",
            json!({"examples": [{"merge_slashes": true, "matrix_parameters": "keep"}]}),
        ),
        (
            "/properties/key_sources",
            json!({"minItems": 1, "examples": [[{"header": "x-api-key"}], [{"query": "api_key"}], [{"metadata": subject}]]}),
        ),
        (
            "/properties/subscribers",
            json!({"default": [], "examples": [[{"id": "acme", "plan": "free", "keys": [key], "limits": {"standard": ["5000/minute"]}}]]}),
        ),
        ("/properties/plan_source", json!({"examples": [{"metadata": plan}]})),
        (
            "/properties/directory",
            json!({"examples": [{"cluster": "backend-internal", "path": "/internal/keys", "not_ready": "unavailable"}]}),
        ),
        ("/properties/unknown_key", json!({"examples": [{"action": "reject"}]})),
        (
            "/properties/missing_key",
            json!({"examples": [{"action": "limit", "quotas": ["10/minute", "200/day"]}]}),
        ),
        ("/properties/ipv6_prefix", json!({"minimum": 1, "maximum": 128})),
        ("/properties/usage_path", json!({"pattern": PATH, "examples": ["/quota"]})),
        (
            "/properties/operators",
            json!({"examples": [{"path": "/weir", "tokens": [{"name": "on-call", "token": key}]}]}),
        ),
        ("/$defs/Operators/properties/path", json!({"pattern": "^(/[A-Za-z0-9_-]+)+$"})),
        ("/$defs/Operators/properties/tokens", json!({"minItems": 1})),
        ("/$defs/OperatorToken/properties/name", json!({"pattern": NAME})),
        ("/$defs/OperatorToken/properties/token", json!({"pattern": DIGEST})),
        ("/$defs/Class/properties/name", json!({"pattern": NAME})),
        ("/$defs/CostAfterResponse/properties/reserve", json!({"minimum": 1})),
        ("/$defs/ActualCost", json!({"oneOf": [given("response_header"), given("metadata")]})),
        ("/$defs/ActualCost/properties/response_header", json!({"pattern": TOKEN})),
        ("/$defs/ActualCost/properties/metadata", json!({"minItems": 2})),
        ("/$defs/ActualCost/properties/metadata/items", json!({"pattern": METADATA})),
        ("/$defs/RefundFields/properties/statuses", json!({"minItems": 1})),
        (
            "/$defs/Match",
            json!({
                "anyOf": [given("methods"), given("path"), given("path_prefix")],
                "not": {"allOf": [given("path"), given("path_prefix")]},
            }),
        ),
        ("/$defs/Match/properties/methods", json!({"minItems": 1})),
        ("/$defs/Match/properties/methods/items", json!({"pattern": "^[A-Z-]+$"})),
        ("/$defs/Match/properties/path", json!({"pattern": PATH})),
        ("/$defs/Match/properties/path_prefix", json!({"pattern": PATH})),
        (
            "/$defs/KeySource",
            json!({
                "oneOf": [given("header"), given("query"), given("metadata")],
                "if": given("scheme"),
                "then": given("header"),
            }),
        ),
        ("/$defs/KeySource/properties/header", json!({"pattern": TOKEN})),
        ("/$defs/KeySource/properties/scheme", json!({"pattern": TOKEN})),
        ("/$defs/KeySource/properties/query", json!({"minLength": 1})),
        ("/$defs/KeySource/properties/metadata", json!({"minItems": 2})),
        ("/$defs/KeySource/properties/metadata/items", json!({"pattern": METADATA})),
        ("/$defs/PlanSource/properties/metadata", json!({"minItems": 2})),
        ("/$defs/PlanSource/properties/metadata/items", json!({"pattern": METADATA})),
        ("/$defs/Subscriber/properties/keys/items", json!({"pattern": DIGEST})),
        ("/$defs/Subscriber/properties/limits", json!({"default": {}})),
        ("/$defs/Parent/properties/organisation", json!({"minLength": 1})),
        ("/$defs/Directory/properties/cluster", json!({"minLength": 1})),
        ("/$defs/Directory/properties/path", json!({"pattern": PATH})),
        ("/$defs/Directory/properties/interval", json!({"pattern": "^0*[1-9][0-9]*[smhd]$"})),
        ("/$defs/Directory/properties/max_stale", json!({"pattern": DURATION})),
        (
            "/$defs/StrangerPolicy",
            json!({"if": given("quotas"), "then": {"properties": {"action": {"const": "limit"}}}}),
        ),
        (
            "/$defs/StrangerPolicy/properties/quotas",
            json!({"minItems": 1, "maxItems": MAX_QUOTAS, "default": ["60/minute"]}),
        ),
        (
            "/$defs/NotInPlan/properties/status",
            json!({"minimum": 400, "maximum": 499, "not": {"const": 429}}),
        ),
        ("/$defs/Capacity/properties/known", json!({"minimum": 1, "maximum": MAX_CAPACITY / 2})),
        ("/$defs/Capacity/properties/strangers", json!({"minimum": 1, "maximum": MAX_CAPACITY / 2})),
        ("/$defs/Quota/anyOf/1/properties/name", json!({"pattern": NAME})),
        (
            "/$defs/Quota/anyOf/1/properties/window",
            json!({"pattern": "^(second|minute|hour|day|month|0*[1-9][0-9]*[smhd])$"}),
        ),
    ]
}

/// A schema of the objects that have a field with another value than null, which the filter takes for an absent field.
fn given(field: &str) -> Value {
    json!({"required": [field], "properties": {field: {"not": {"type": "null"}}}})
}

/// Makes a schema portable: `format` and a default of null are keywords that only some validators and editors know how to read.
fn portable(schema: &mut Schema) {
    if schema.remove("format").is_some_and(|format| format == "uint32") {
        schema.insert("maximum".to_owned(), u32::MAX.into());
    }
    if let Some(description) = schema.remove("description")
        && let Some(text) = description.as_str()
    {
        let paragraphs: Vec<_> = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        schema.insert("description".to_owned(), paragraphs.join("\n\n").into());
    }
    if let Some(default) = schema.remove("default")
        && let Some(default) = without_nulls(default)
    {
        schema.insert("default".to_owned(), default);
    }
    transform_subschemas(&mut portable, schema);
}

/// A default without the fields that are absent.
fn without_nulls(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) => Some(items.into_iter().filter_map(without_nulls).collect()),
        Value::Object(fields) => {
            let given = fields.into_iter().filter_map(|(name, value)| Some((name, without_nulls(value)?)));
            Some(Value::Object(given.collect()))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value),
    }
}

/// Describes a quota in both of its forms: the derived schema describes the object.
pub(super) fn or_rate(schema: &mut Schema) {
    let mut object = core::mem::take(schema);
    object.remove("description");
    *schema = json_schema!({
        "description": "A limit in a window: a text such as `\"60/minute\"`, or an object. The text takes a limit and `second`, \
            `minute`, `hour`, `day` or `month`.",
        "anyOf": [
            {"type": "string", "pattern": format!("^{LIMIT}/(second|minute|hour|day|month)$")},
            object,
        ],
    });
}

impl JsonSchema for Grant {
    fn schema_name() -> Cow<'static, str> {
        "Quotas".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": format!("Up to {MAX_QUOTAS} quotas, all of which apply, or `\"unlimited\"`. Two quotas of the same mode have \
                different windows."),
            "anyOf": [
                {"const": "unlimited"},
                {"type": "array", "items": generator.subschema_for::<QuotaTerms>(), "minItems": 1, "maxItems": MAX_QUOTAS},
            ],
        })
    }
}

impl JsonSchema for Cost {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Cost".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": u32::MAX},
                generator.subschema_for::<CostAfterResponse>(),
            ],
        })
    }
}

impl JsonSchema for Status {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Status".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "integer", "minimum": 200, "maximum": 599},
                {"type": "string", "pattern": "^[2-5]xx$"},
            ],
        })
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Entries_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": generator.subschema_for::<T>()})
    }
}

impl JsonSchema for super::AllowOrigin {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AllowOrigin".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"const": "*"}, {"type": "array", "items": {"type": "string"}}]})
    }
}

impl JsonSchema for super::Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "string"}, {"type": "object", "required": ["env"]}]})
    }
}

impl JsonSchema for super::directory::NotReadyFields {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NotReady".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "string"}, {"type": "object"}]})
    }
}
