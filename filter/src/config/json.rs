//! A JSON document as a tree, and a deserializer that reads the tree.
//!
//! serde_json's messages quote the value that was given, and that value may be an API key. The errors of this deserializer keep the
//! given value apart from the problem, and names that the user chose apart from field names, so [`ConfigError`] can leave them out.

use core::fmt;
use std::vec;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::Number;

use super::error::{ConfigError, Step};
use super::problem::Problem;

/// A JSON value. An object keeps its fields in their order, and repeated fields, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    /// Whether this is an object that has the field.
    pub(super) fn has(&self, field: &str) -> bool {
        matches!(self, Self::Object(fields) if fields.iter().any(|(name, _)| name == field))
    }

    fn kind(&self) -> Unexpected<'_> {
        match self {
            Self::Null => Unexpected::Unit,
            Self::Bool(flag) => Unexpected::Bool(*flag),
            Self::Number(number) => Unexpected::Float(number.as_f64().unwrap_or_default()),
            Self::Text(text) => Unexpected::Str(text),
            Self::List(_) => Unexpected::Seq,
            Self::Object(_) => Unexpected::Map,
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonVisitor;

        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Json, E> {
                Ok(Json::Bool(flag))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
                Ok(Json::Number(number.into()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
                Ok(Json::Number(number.into()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
                // JSON has no infinite numbers.
                Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Json, E> {
                Ok(Json::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Json::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Json, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = object.next_entry()? {
                    fields.push(field);
                }
                Ok(Json::Object(fields))
            }
        }

        deserializer.deserialize_any(JsonVisitor)
    }
}

impl<'de> Deserializer<'de> for Json {
    type Error = ConfigError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(flag) => visitor.visit_bool(flag),
            Self::Number(ref number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (_, _, number) => visitor.visit_f64(number.unwrap_or_default()),
            }
            .map_err(|error: ConfigError| error.given(self)),
            Self::Text(text) => visitor.visit_str(&text).map_err(|error: ConfigError| error.given(text)),
            Self::List(items) => visitor.visit_seq(List(items.into_iter().enumerate())),
            Self::Object(fields) => {
                let mut object = Object { fields: fields.into_iter(), pending: None };
                let visited = visitor.visit_map(&mut object);
                // An error between a name and its value, such as a repeated field, concerns that name.
                visited.map_err(|error| match object.pending {
                    Some((step, _)) => error.within(step),
                    None => error,
                })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match self {
            Self::Null => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match self {
            Self::Text(text) => visitor
                .visit_enum(text.as_str().into_deserializer())
                .map_err(|error: ConfigError| error.given(text)),
            other => Err(ConfigError::unknown_variant("", variants).given(other)),
        }
    }

    /// Only from an object: serde would also take a list of the fields' values.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match self {
            Self::Object(_) => self.deserialize_any(visitor),
            other => {
                let expected = format!("an object with the fields {}", fields.join(", "));
                Err(ConfigError::invalid_type(other.kind(), &expected.as_str()).given(other))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct List(core::iter::Enumerate<vec::IntoIter<Json>>);

impl<'de> SeqAccess<'de> for List {
    type Error = ConfigError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ConfigError> {
        let Some((index, item)) = self.0.next() else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|error| error.within(index))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Object {
    fields: vec::IntoIter<(String, Json)>,
    /// The value of the name that was read last.
    pending: Option<(Step, Json)>,
}

impl<'de> MapAccess<'de> for Object {
    type Error = ConfigError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ConfigError> {
        let Some((name, value)) = self.fields.next() else { return Ok(None) };
        let mut is_field = false;
        match seed.deserialize(Name { name: &name, is_field: &mut is_field }) {
            Ok(key) => {
                let step = if is_field { Step::Field(name.into()) } else { Step::Name(name) };
                self.pending = Some((step, value));
                Ok(Some(key))
            }
            Err(error) => Err(error.within(Step::Name(name))),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ConfigError> {
        let (step, value) = self.pending.take().ok_or_else(|| ConfigError::new("", Problem::Empty))?;
        seed.deserialize(value).map_err(|error| error.within(step))
    }
}

/// A name in an object. serde reads a struct's fields as identifiers and a map's names as strings.
struct Name<'n> {
    name: &'n str,
    /// Set if the name is a field of the struct.
    is_field: &'n mut bool,
}

impl<'de> Deserializer<'de> for Name<'_> {
    type Error = ConfigError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        visitor.visit_str(self.name)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let field = visitor.visit_str(self.name)?;
        *self.is_field = true;
        Ok(field)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq
        tuple tuple_struct map struct enum ignored_any
    }
}
