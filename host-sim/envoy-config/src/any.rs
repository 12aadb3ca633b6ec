//! The bytes that Envoy hands to a filter for a `google.protobuf.Any` (`MessageUtil::anyToBytes`): the text of a
//! `StringValue`, the bytes of a `BytesValue`, and of every other message its protocol-buffers form.

use bytes::Bytes;
use serde_json::{Number, Value};

use crate::{
    error::ConfigurationError,
    fields::{Fields, field},
};

/// Adds fields to a message in the wire format.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn float(mut self, field: u64, value: f32) -> Self {
        self.varint(field << 3 | 5);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
}

/// A `google.protobuf.Struct`; its entries go by their names.
fn structure(fields: &Fields) -> Vec<u8> {
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    let entries = sorted.into_iter().fold(Message::default(), |message, (name, entry)| {
        message.bytes(1, &Message::default().bytes(1, name.as_bytes()).bytes(2, &value(entry)).0)
    });
    entries.0
}

/// An `envoy.config.core.v3.Metadata` with this `filter_metadata`.
pub(crate) fn metadata(filters: &Fields) -> Vec<u8> {
    let empty = Fields::new();
    let mut sorted: Vec<_> = filters.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    let entries = sorted.into_iter().fold(Message::default(), |message, (name, entry)| {
        let entry = structure(entry.as_object().unwrap_or(&empty));
        message.bytes(1, &Message::default().bytes(1, name.as_bytes()).bytes(2, &entry).0)
    });
    entries.0
}

/// A `google.protobuf.ListValue`.
fn list(entries: &[Value]) -> Vec<u8> {
    entries.iter().fold(Message::default(), |message, entry| message.bytes(1, &value(entry))).0
}

/// A `google.protobuf.Value`.
fn value(given: &Value) -> Vec<u8> {
    let message = Message::default();
    let filled = match given {
        Value::Null => message.number(1, 0),
        Value::Number(number) => message.double(2, number.as_f64().unwrap_or_default()),
        Value::String(text) => message.bytes(3, text.as_bytes()),
        Value::Bool(given) => message.number(4, u64::from(*given)),
        Value::Object(fields) => message.bytes(5, &structure(fields)),
        Value::Array(entries) => message.bytes(6, &list(entries)),
    };
    filled.0
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

/// A signed number as the wire has it.
fn signed(given: &Value, range: std::ops::RangeInclusive<i64>) -> Option<u64> {
    let number = number(given)?.as_i64().filter(|number| range.contains(number))?;
    Some(number.cast_unsigned())
}

fn unsigned(given: &Value, most: u64) -> Option<u64> {
    number(given)?.as_u64().filter(|number| *number <= most)
}

/// Base64, in the standard's alphabet or the one for URLs, padded or not.
fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

/// The wire format leaves out what a wrapper holds anyway.
fn wrapper(given: u64) -> Vec<u8> {
    if given == 0 { Vec::new() } else { Message::default().number(1, given).0 }
}

/// A `TypedStruct` of Envoy's.
fn typed_struct(any: &Fields) -> Option<Vec<u8>> {
    let mut message = Message::default();
    if let Some(url) = field(any, "type_url") {
        message = message.bytes(1, url.as_str()?.as_bytes());
    }
    if let Some(value) = field(any, "value") {
        message = message.bytes(2, &structure(value.as_object()?));
    }
    Some(message.0)
}

/// What the message of a type becomes. `None` when its value is none of that type's.
fn encode(kind: &str, any: &Fields) -> Option<Option<Vec<u8>>> {
    let null = Value::Null;
    let given = any.get("value").unwrap_or(&null);
    let default = given.is_null();
    let bytes = match kind {
        "google.protobuf.StringValue" | "google.protobuf.BytesValue" if default => Some(Vec::new()),
        "google.protobuf.StringValue" => given.as_str().map(|text| text.as_bytes().to_vec()),
        "google.protobuf.BytesValue" => given.as_str().and_then(base64),
        "google.protobuf.Value" => Some(value(given)),
        "google.protobuf.Struct" | "google.protobuf.ListValue" if default => Some(Vec::new()),
        "google.protobuf.Struct" => given.as_object().map(structure),
        "google.protobuf.ListValue" => given.as_array().map(|entries| list(entries)),
        "google.protobuf.BoolValue" => {
            (default || given.is_boolean()).then(|| wrapper(u64::from(*given == true)))
        }
        "google.protobuf.Int32Value"
        | "google.protobuf.Int64Value"
        | "google.protobuf.UInt32Value"
        | "google.protobuf.UInt64Value"
        | "google.protobuf.DoubleValue"
        | "google.protobuf.FloatValue"
            if default =>
        {
            Some(Vec::new())
        }
        "google.protobuf.Int32Value" => signed(given, i32::MIN.into()..=i32::MAX.into()).map(wrapper),
        "google.protobuf.Int64Value" => signed(given, i64::MIN..=i64::MAX).map(wrapper),
        "google.protobuf.UInt32Value" => unsigned(given, u32::MAX.into()).map(wrapper),
        "google.protobuf.UInt64Value" => unsigned(given, u64::MAX).map(wrapper),
        "google.protobuf.DoubleValue" => number(given).and_then(|number| number.as_f64()).map(|number| {
            if number.to_bits() == 0 { Vec::new() } else { Message::default().double(1, number).0 }
        }),
        "google.protobuf.FloatValue" => number(given).and_then(|number| number.as_f64()).map(|number| {
            if number.to_bits() == 0 { Vec::new() } else { Message::default().float(1, number as f32).0 }
        }),
        "google.protobuf.Empty" => Some(Vec::new()),
        "xds.type.v3.TypedStruct" | "udpa.type.v1.TypedStruct" => typed_struct(any),
        _ => return None,
    };
    Some(bytes)
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
