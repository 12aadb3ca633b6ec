//! Reads JSON into the types of the configuration, and keeps the path of what is wrong.
//!
//! serde_json splits one list or object at a time into the texts of its entries, which are read in turn. So no second copy of the document
//! is in memory, and every type is compiled for one deserializer. serde_json's own errors would quote values, one of which may be an API key.
//! A [`ConfigError`] keeps the given value apart from the problem, and names that the user chose apart from fields.

use core::iter::Enumerate;
use std::vec;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::value::RawValue;

use super::entries::Entries;
use super::error::{ConfigError, Quoted, Step};

/// Reads a document.
///
/// # Errors
/// The first error. An error of syntax has its line and column, and quotes nothing.
pub(super) fn read<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ConfigError> {
    read_value(serde_json::from_slice(json).map_err(syntax)?)
}

/// Reads a value.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_value<'de, T: Deserialize<'de>>(json: &'de RawValue) -> Result<T, ConfigError> {
    T::deserialize(Json(json))
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn syntax(error: serde_json::Error) -> ConfigError {
    ConfigError::new(error.to_string())
}

/// The text of a value.
#[derive(Clone, Copy)]
struct Json<'de>(&'de RawValue);

impl<'de> Json<'de> {
    /// The value without what it holds. Apart from the deserializer's functions, which are compiled for each type.
    #[inline(never)]
    fn parse<T: Deserialize<'de>>(self) -> Result<T, ConfigError> {
        serde_json::from_str(self.0.get()).map_err(syntax)
    }

    /// The kind of the value.
    fn kind(self) -> Unexpected<'static> {
        match self.0.get().bytes().next().unwrap_or_default() {
            b'n' => Unexpected::Unit,
            b't' | b'f' => Unexpected::Bool(true),
            b'"' => Unexpected::Str(""),
            b'[' => Unexpected::Seq,
            b'{' => Unexpected::Map,
            _ => Unexpected::Unsigned(0),
        }
    }

    /// Reads an object. A struct is read from nothing else, so its code has no other kind of value.
    fn object<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let mut object = Object { fields: self.parse::<Entries<_>>()?.0.into_iter(), pending: None };
        let visited = visitor.visit_map(&mut object);
        // An error between a name and its value, such as a repeated field, concerns that name.
        visited.map_err(|error| match object.pending {
            Some((step, _)) => error.within(step),
            None => error,
        })
    }

    /// The error about this value, seen from what holds it. It quotes a text or a number.
    #[cold]
    fn refused(self, error: ConfigError, step: Step) -> ConfigError {
        let error = match self.kind() {
            Unexpected::Str(_) => match self.parse::<String>() {
                Ok(text) => error.given(&Quoted(&text)),
                Err(_) => error,
            },
            Unexpected::Unsigned(_) => error.given(&self.0),
            _ => error,
        };
        error.within(step)
    }
}

impl<'de> Deserializer<'de> for Json<'de> {
    type Error = ConfigError;

    #[inline(never)]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match self.kind() {
            Unexpected::Unit => visitor.visit_unit(),
            Unexpected::Bool(_) => visitor.visit_bool(self.parse()?),
            Unexpected::Str(_) => visitor.visit_string(self.parse()?),
            Unexpected::Seq => {
                visitor.visit_seq(List(self.parse::<Vec<&RawValue>>()?.into_iter().enumerate()))
            }
            Unexpected::Map => self.object(visitor),
            // No field takes a number that is negative, not whole or greater than a `u32`.
            _ => match self.parse::<u32>() {
                Ok(number) => visitor.visit_u64(number.into()),
                Err(_) => visitor.visit_i64(-1),
            },
        }
    }

    #[inline(never)]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match self.kind() {
            Unexpected::Unit => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// Only from an object: serde would also take a list of the fields' values.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match self.kind() {
            Unexpected::Map => self.object(visitor),
            other => Err(ConfigError::invalid_type(other, &"an object")),
        }
    }

    /// Only from a text: serde would also take an object with the word.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match self.kind() {
            Unexpected::Str(_) => visitor.visit_enum(self.parse::<String>()?.into_deserializer()),
            other => Err(ConfigError::invalid_type(other, &words.join(" or ").as_str())),
        }
    }

    /// Without a look at the value, which may be nested however deep.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map identifier
    }
}

struct List<'de>(Enumerate<vec::IntoIter<&'de RawValue>>);

impl<'de> SeqAccess<'de> for List<'de> {
    type Error = ConfigError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ConfigError> {
        let Some((index, item)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Json(item)).map(Some).map_err(|error| Json(item).refused(error, index.into()))
    }
}

struct Object<'de> {
    fields: vec::IntoIter<(String, &'de RawValue)>,
    /// The value of the name that was read last.
    pending: Option<(Step, &'de RawValue)>,
}

impl<'de> MapAccess<'de> for Object<'de> {
    type Error = ConfigError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ConfigError> {
        let Some((name, value)) = self.fields.next() else { return Ok(None) };
        let mut is_field = false;
        let key = seed.deserialize(Name { name: &name, is_field: &mut is_field });
        self.pending = Some((if is_field { Step::Field(name) } else { Step::Name(name) }, value));
        key.map(Some)
    }

    #[inline(never)]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ConfigError> {
        let (step, value) = self.pending.take().ok_or_else(|| ConfigError::new("a name is missing"))?;
        seed.deserialize(Json(value)).map_err(|error| Json(value).refused(error, step))
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
