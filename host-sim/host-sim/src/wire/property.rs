//! Values of properties and their encodings.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{abi::Status, wire::pairs};

/// The value of a property, as Envoy's expressions know it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text or bytes: crosses the ABI as it is.
    Bytes(Bytes),
    /// Eight bytes, little-endian.
    Int(i64),
    /// Eight bytes, little-endian.
    Uint(u64),
    /// Eight bytes, little-endian. Numbers in metadata are of this kind.
    Double(f64),
    /// One byte.
    Bool(bool),
    /// Nanoseconds since 1970, as eight bytes.
    Timestamp(i64),
    /// Nanoseconds, as eight bytes.
    Duration(i64),
    /// A blob of pairs.
    Map(BTreeMap<Bytes, Self>),
    /// A message: whole, it is these bytes; its fields are found by name.
    Message(Bytes, BTreeMap<Bytes, Self>),
    /// A blob of pairs whose values are empty.
    List(Vec<Self>),
    /// Has no encoding: the call answers [`Status::SerializationFailure`].
    Null,
}

impl Value {
    /// The bytes that a guest receives.
    pub(crate) fn encode(&self) -> Result<Bytes, Status> {
        Ok(match self {
            Self::Bytes(bytes) | Self::Message(bytes, _) => bytes.clone(),
            Self::Int(number) | Self::Timestamp(number) | Self::Duration(number) => {
                Bytes::copy_from_slice(&number.to_le_bytes())
            }
            Self::Uint(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
            Self::Double(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
            Self::Bool(yes) => Bytes::copy_from_slice(&[u8::from(*yes)]),
            Self::Map(map) => {
                let values = map.values().map(Self::encode).collect::<Result<Vec<_>, _>>()?;
                pairs::encode(map.keys().zip(&values).map(|(key, value)| (key.as_ref(), value.as_ref())))
                    .into()
            }
            Self::List(list) => {
                let values = list.iter().map(Self::encode).collect::<Result<Vec<_>, _>>()?;
                pairs::encode(values.iter().map(|value| (value.as_ref(), &[][..]))).into()
            }
            Self::Null => return Err(Status::SerializationFailure),
        })
    }

    /// What lies under `path` within this value.
    pub(crate) fn descend(&self, path: &[&[u8]]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        match self {
            Self::Map(fields) | Self::Message(_, fields) => fields.get(*first)?.descend(rest),
            Self::List(list) => {
                let index: usize = std::str::from_utf8(first).ok()?.parse().ok()?;
                list.get(index)?.descend(rest)
            }
            _ => None,
        }
    }
}

macro_rules! from {
    ($($from:ty => |$given:ident| $value:expr;)*) => {
        $(
            impl From<$from> for Value {
                fn from($given: $from) -> Self {
                    $value
                }
            }
        )*
    };
}

from! {
    &str => |text| Self::Bytes(Bytes::copy_from_slice(text.as_bytes()));
    String => |text| Self::Bytes(text.into());
    Vec<u8> => |bytes| Self::Bytes(bytes.into());
    bool => |yes| Self::Bool(yes);
    i64 => |number| Self::Int(number);
    u64 => |number| Self::Uint(number);
    f64 => |number| Self::Double(number);
}

impl From<serde_json::Value> for Value {
    /// As a `google.protobuf.Struct` holds it: every number is a double.
    fn from(json: serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(yes) => Self::Bool(yes),
            serde_json::Value::Number(number) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            serde_json::Value::String(text) => text.into(),
            serde_json::Value::Array(list) => Self::List(list.into_iter().map(Self::from).collect()),
            serde_json::Value::Object(map) => {
                Self::Map(map.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
            }
        }
    }
}

/// Parts as the ABI joins them.
pub(crate) fn joined<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Vec<u8> {
    parts.into_iter().map(|part| part.as_ref().to_vec()).collect::<Vec<_>>().join(&0)
}

/// The parts of a path that a person writes: dots separate them, and a part that holds dots itself is in double quotes,
/// as in `metadata.filter_metadata."envoy.filters.http.jwt_authn".sub`.
pub fn path(text: &str) -> Vec<String> {
    let (mut parts, mut quoted) = (vec![String::new()], false);
    for letter in text.chars() {
        match (letter, parts.last_mut()) {
            ('"', _) => quoted = !quoted,
            ('.', _) if !quoted => parts.push(String::new()),
            (letter, Some(part)) => part.push(letter),
            (_, None) => {}
        }
    }
    parts
}

/// The parts of a path, which zero bytes separate. A zero byte at the end adds no part.
pub(crate) fn parts(path: &[u8]) -> Vec<&[u8]> {
    let mut parts: Vec<&[u8]> = path.split(|byte| *byte == 0).collect();
    if parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_written_path_may_hold_dots() {
        let rows: [(&str, &[&str]); 5] = [
            ("a", &["a"]),
            ("xds.route_name", &["xds", "route_name"]),
            (
                "metadata.\"envoy.filters.http.jwt_authn\".sub",
                &["metadata", "envoy.filters.http.jwt_authn", "sub"],
            ),
            ("a.\"b\"", &["a", "b"]),
            ("", &[""]),
        ];
        for (text, expected) in rows {
            assert_eq!(path(text), expected, "{text}");
        }
    }

    #[test]
    fn values_are_encoded_as_envoy_encodes_them() {
        let rows: [(Value, Result<&[u8], Status>); 8] = [
            ("text".into(), Ok(b"text")),
            (1_i64.into(), Ok(&[1, 0, 0, 0, 0, 0, 0, 0])),
            (u64::MAX.into(), Ok(&[255; 8])),
            (1.5_f64.into(), Ok(&[0, 0, 0, 0, 0, 0, 248, 63])),
            (true.into(), Ok(&[1])),
            (serde_json::json!({"a": "b"}).into(), Ok(b"\x01\0\0\0\x01\0\0\0\x01\0\0\0a\0b\0")),
            (serde_json::json!(["a"]).into(), Ok(b"\x01\0\0\0\x01\0\0\0\0\0\0\0a\0\0")),
            (Value::Null, Err(Status::SerializationFailure)),
        ];
        for (value, expected) in rows {
            let encoded = value.encode();
            assert_eq!(encoded.as_deref(), expected.as_deref(), "{value:?}");
        }
    }

    #[test]
    fn a_path_is_split_at_zero_bytes() {
        let rows: [(&[u8], &[&[u8]]); 4] =
            [(b"a\0b", &[b"a", b"b"]), (b"a\0b\0", &[b"a", b"b"]), (b"a", &[b"a"]), (b"", &[])];
        for (path, expected) in rows {
            assert_eq!(parts(path), expected);
        }
    }
}
