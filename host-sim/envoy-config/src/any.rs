//! The bytes that Envoy hands to a filter for a `google.protobuf.Any` (`MessageUtil::anyToBytes`): the text of a
//! `StringValue`, the bytes of a `BytesValue`, and of every other message its protocol-buffers form.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{GeneralPurpose, general_purpose::NO_PAD},
};
use bytes::Bytes;
use prost::Message;
use prost_types::{ListValue, Struct, value::Kind};
use serde_json::{Number, Value};

use crate::{
    error::ConfigurationError,
    fields::{Fields, field},
};

/// `envoy.config.core.v3.Metadata`
#[derive(Message)]
struct Metadata {
    #[prost(message, repeated, tag = "1")]
    filter_metadata: Vec<FilterMetadata>,
}

/// An entry of the map, which is written whole.
#[derive(Message)]
struct FilterMetadata {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(message, required, tag = "2")]
    fields: Struct,
}

/// `xds.type.v3.TypedStruct`
#[derive(Message)]
struct TypedStruct {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Struct>,
}

/// Its entries go by their names.
fn structure(fields: &Fields) -> Struct {
    Struct { fields: fields.iter().map(|(name, given)| (name.clone(), value(given))).collect() }
}

fn list(entries: &[Value]) -> ListValue {
    ListValue { values: entries.iter().map(value).collect() }
}

fn value(given: &Value) -> prost_types::Value {
    let kind = match given {
        Value::Null => Kind::NullValue(0),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Bool(given) => Kind::BoolValue(*given),
        Value::Object(fields) => Kind::StructValue(structure(fields)),
        Value::Array(entries) => Kind::ListValue(list(entries)),
    };
    prost_types::Value { kind: Some(kind) }
}

/// An `envoy.config.core.v3.Metadata` with this `filter_metadata`.
pub(crate) fn metadata(filters: &Fields) -> Vec<u8> {
    let empty = Fields::new();
    let mut sorted: Vec<_> = filters.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    let entries = sorted.into_iter().map(|(name, entry)| FilterMetadata {
        name: name.clone(),
        fields: structure(entry.as_object().unwrap_or(&empty)),
    });
    Metadata { filter_metadata: entries.collect() }.encode_to_vec()
}

/// A number of a wrapper, which JSON writes as itself or as a text.
fn number(given: &Value) -> Option<Number> {
    match given {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => text
            .parse::<i64>()
            .map(Number::from)
            .ok()
            .or_else(|| text.parse::<u64>().ok().map(Number::from))
            .or_else(|| Number::from_f64(text.parse().ok()?)),
        _ => None,
    }
}

/// Base64 without padding, whatever the last bits are.
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

/// Base64, in the standard's alphabet or the one for URLs, padded or not.
fn base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text.trim_end_matches('=').replace('-', "+").replace('_', "/")).ok()
}

fn typed_struct(any: &Fields) -> Option<Vec<u8>> {
    let type_url = match field(any, "type_url") {
        Some(url) => url.as_str()?.to_owned(),
        None => String::new(),
    };
    let value = match field(any, "value") {
        Some(value) => Some(structure(value.as_object()?)),
        None => None,
    };
    Some(TypedStruct { type_url, value }.encode_to_vec())
}

/// Encodes a value; one that is none of the message's is not.
type Encoder = fn(&Value) -> Option<Vec<u8>>;

/// How the value of a message of `google.protobuf` is encoded.
fn encoder(kind: &str) -> Option<Encoder> {
    Some(match kind {
        "StringValue" => |given| Some(given.as_str()?.into()),
        "BytesValue" => |given| base64(given.as_str()?),
        "Struct" => |given| Some(structure(given.as_object()?).encode_to_vec()),
        "ListValue" => |given| Some(list(given.as_array()?).encode_to_vec()),
        "BoolValue" => |given| Some(given.as_bool()?.encode_to_vec()),
        "Int32Value" => |given| Some(i32::try_from(number(given)?.as_i64()?).ok()?.encode_to_vec()),
        "Int64Value" => |given| Some(number(given)?.as_i64()?.encode_to_vec()),
        "UInt32Value" => |given| Some(u32::try_from(number(given)?.as_u64()?).ok()?.encode_to_vec()),
        "UInt64Value" => |given| Some(number(given)?.as_u64()?.encode_to_vec()),
        "DoubleValue" => |given| Some(number(given)?.as_f64()?.encode_to_vec()),
        "FloatValue" => |given| Some((number(given)?.as_f64()? as f32).encode_to_vec()),
        "Empty" => |_| Some(Vec::new()),
        _ => return None,
    })
}

/// What the message of a type becomes. `None` when its value is none of that type's.
fn encode(kind: &str, any: &Fields) -> Option<Option<Vec<u8>>> {
    if matches!(kind, "xds.type.v3.TypedStruct" | "udpa.type.v1.TypedStruct") {
        return Some(typed_struct(any));
    }
    let kind = kind.strip_prefix("google.protobuf.")?;
    let given = any.get("value").unwrap_or(&Value::Null);
    if kind == "Value" {
        return Some(Some(value(given).encode_to_vec()));
    }
    let encode = encoder(kind)?;
    Some(if given.is_null() { Some(Vec::new()) } else { encode(given) })
}

/// The bytes of an `Any` in a field, which are none where it is not given.
pub(crate) fn bytes(any: Option<&Value>, field: &'static str) -> Result<Bytes, ConfigurationError> {
    let Some(any) = any else { return Ok(Bytes::new()) };
    let message = any.as_object().and_then(|fields| Some((fields, fields.get("@type")?.as_str()?)));
    let Some((fields, type_url)) = message else {
        return Err(ConfigurationError::Field { field, expected: "a message with its \"@type\"" });
    };
    let kind = type_url.rsplit('/').next().unwrap_or_default();
    match encode(kind, fields) {
        Some(Some(bytes)) => Ok(bytes.into()),
        Some(None) => Err(ConfigurationError::Value { field, type_url: type_url.to_owned() }),
        None => Err(ConfigurationError::MessageType { field, type_url: type_url.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(any: &str) -> Result<String, String> {
        let any: Value = serde_json::from_str(any).unwrap();
        let bytes = bytes(Some(&any), "configuration").map_err(|error| error.to_string())?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    #[test]
    fn a_message_becomes_the_bytes_that_envoy_hands_over() {
        //  type, value, bytes
        let rows = [
            ("StringValue", r#""ab""#, "6162"),
            ("StringValue", "null", ""),
            ("BytesValue", r#""/+8=""#, "ffef"),
            ("BytesValue", r#""_-8""#, "ffef"),
            ("Struct", "{}", ""),
            ("Struct", r#"{"a": 1}"#, "0a0e0a0161120911000000000000f03f"),
            (
                "Struct",
                r#"{"a": [true, null], "b": {"c": "d"}}"#,
                "0a0f0a0161120a32080a0220010a0208000a110a0162120c2a0a0a080a016312031a0164",
            ),
            ("ListValue", r#"["a"]"#, "0a031a0161"),
            ("Value", r#""a""#, "1a0161"),
            ("Value", "null", "0800"),
            ("BoolValue", "true", "0801"),
            ("BoolValue", "false", ""),
            ("Int32Value", "-1", "08ffffffffffffffffff01"),
            ("Int64Value", r#""300""#, "08ac02"),
            ("UInt32Value", "0", ""),
            ("UInt64Value", r#""18446744073709551615""#, "08ffffffffffffffffff01"),
            ("DoubleValue", "1", "09000000000000f03f"),
            ("FloatValue", "1", "0d0000803f"),
            ("Empty", "{}", ""),
        ];
        for (kind, value, expected) in rows {
            let any =
                format!(r#"{{"@type": "type.googleapis.com/google.protobuf.{kind}", "value": {value}}}"#);
            assert_eq!(of(&any), Ok(expected.replace(' ', "")), "{any}");
        }
        let typed = r#"{"@type": "x/xds.type.v3.TypedStruct", "typeUrl": "u", "value": {}}"#;
        assert_eq!(of(typed), Ok("0a01751200".to_owned()));
    }

    #[test]
    fn what_is_no_such_message_is_told() {
        let rows = [
            (
                r#"{"@type": "x/google.protobuf.Struct", "value": 1}"#,
                "configuration: the value is no x/google.protobuf.Struct",
            ),
            (
                r#"{"@type": "x/google.protobuf.Int32Value", "value": 2147483648}"#,
                "configuration: the value is no x/",
            ),
            (
                r#"{"@type": "x/google.protobuf.UInt32Value", "value": -1}"#,
                "configuration: the value is no x/",
            ),
            (
                r#"{"@type": "x/google.protobuf.BytesValue", "value": "%"}"#,
                "configuration: the value is no x/",
            ),
            (
                r#"{"@type": "x/envoy.Other"}"#,
                "configuration: host-sim has no protocol-buffers form of x/envoy.Other",
            ),
            (r#"{"value": "text"}"#, "configuration: expected a message with its \"@type\""),
        ];
        for (any, expected) in rows {
            let error = of(any).unwrap_err();
            assert!(error.starts_with(expected), "{any}: {error}");
        }
    }
}
