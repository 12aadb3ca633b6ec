//! Reads JSON straight into the types of the configuration, and keeps the path of what is wrong.
//!
//! serde_json's errors have a line and no field, and quote the value that was given, which may be an API key. This deserializer stands
//! between serde_json and the types. A type's error is a [`ConfigError`], to which each list and object adds its step on the way out, and
//! which knows names that the user chose from fields. serde_json's own errors are about syntax and quote nothing.

use core::cell::Cell;
use core::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::{ConfigError, Step};

/// Reads a document.
///
/// # Errors
/// The first error.
pub(super) fn from_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, ConfigError> {
    let trace = Trace::default();
    let mut inner = serde_json::Deserializer::from_slice(json);
    let syntax = |error: serde_json::Error| ConfigError::new(error.to_string());
    let read = T::deserialize(Traced { inner: &mut inner, trace: &trace });
    let value = read.map_err(|error| trace.syntax.take().map_or(error, ConfigError::new))?;
    inner.end().map_err(syntax)?;
    Ok(value)
}

/// What has gone wrong. The types of serde_json's errors have no place for it, so it goes past them.
#[derive(Default)]
struct Trace {
    refused: Cell<Option<ConfigError>>,
    syntax: Cell<Option<String>>,
}

impl Trace {
    /// A result of the types as the inner deserializer takes it.
    fn inward<T, E: Error>(&self, result: Result<T, ConfigError>) -> Result<T, E> {
        result.map_err(|error| {
            self.refused.set(Some(error));
            E::custom("refused")
        })
    }

    /// A result of the inner deserializer as the types take it.
    fn outward<T, E: Error>(&self, result: Result<T, E>) -> Result<T, ConfigError> {
        result.map_err(|error| {
            self.refused.take().unwrap_or_else(|| {
                self.syntax.set(Some(error.to_string()));
                ConfigError::new("")
            })
        })
    }
}

struct Traced<'t, D> {
    inner: D,
    trace: &'t Trace,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Traced<'_, D> {
    type Error = ConfigError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let watched = Watched { visitor, trace: self.trace, takes_lists: true };
        self.trace.outward(self.inner.deserialize_any(watched))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let watched = Watched { visitor, trace: self.trace, takes_lists: true };
        self.trace.outward(self.inner.deserialize_option(watched))
    }

    /// Only from an object: serde would also take a list of the fields' values.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        let watched = Watched { visitor, trace: self.trace, takes_lists: false };
        self.trace.outward(self.inner.deserialize_any(watched))
    }

    /// Only from a text.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        self.deserialize_any(VariantVisitor { visitor, variants })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// Hands a type's visitor what the inner deserializer reads.
struct Watched<'t, V> {
    visitor: V,
    trace: &'t Trace,
    takes_lists: bool,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Watched<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<V::Value, E> {
        self.trace.inward(self.visitor.visit_bool(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<V::Value, E> {
        let visited = self.visitor.visit_u64(number);
        self.trace.inward(visited.map_err(|error: ConfigError| error.given_number(number)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<V::Value, E> {
        let visited = self.visitor.visit_i64(number);
        self.trace.inward(visited.map_err(|error: ConfigError| error.given_number(number)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<V::Value, E> {
        let visited = self.visitor.visit_f64(number);
        self.trace.inward(visited.map_err(|error: ConfigError| error.given_number(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        let visited = self.visitor.visit_str(text);
        self.trace.inward(visited.map_err(|error: ConfigError| error.given(text)))
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.trace.inward(self.visitor.visit_unit())
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.trace.inward(self.visitor.visit_none())
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.trace.inward(self.visitor.visit_some(Traced { inner, trace: self.trace }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let visited = match self.takes_lists {
            true => self.visitor.visit_seq(List { inner, trace: self.trace, next: 0 }),
            false => Err(ConfigError::invalid_type(Unexpected::Seq, &"an object")),
        };
        self.trace.inward(visited)
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let mut object = Object { inner, trace: self.trace, pending: None };
        let visited = self.visitor.visit_map(&mut object);
        // An error between a name and its value, such as a repeated field, concerns that name.
        self.trace.inward(visited.map_err(|error| match object.pending {
            Some(step) => error.within(step),
            None => error,
        }))
    }
}

struct List<'t, A> {
    inner: A,
    trace: &'t Trace,
    next: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for List<'_, A> {
    type Error = ConfigError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ConfigError> {
        let index = self.next;
        self.next += 1;
        let element = self.inner.next_element_seed(Seed { seed, trace: self.trace });
        self.trace.outward(element).map_err(|error| error.within(index))
    }
}

struct Object<'t, A> {
    inner: A,
    trace: &'t Trace,
    /// The name that was read, and whose value has not been.
    pending: Option<Step>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Object<'_, A> {
    type Error = ConfigError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ConfigError> {
        self.pending = None;
        let Some(name) = self.trace.outward(self.inner.next_key::<String>())? else { return Ok(None) };
        let mut is_field = false;
        let key = seed.deserialize(Name { name: &name, is_field: &mut is_field });
        self.pending = Some(if is_field { Step::Field(name) } else { Step::Name(name) });
        key.map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ConfigError> {
        let value = self.inner.next_value_seed(Seed { seed, trace: self.trace });
        let step = self.pending.take();
        self.trace.outward(value).map_err(|error| match step {
            Some(step) => error.within(step),
            None => error,
        })
    }
}

/// Traces what a list or an object holds.
struct Seed<'t, S> {
    seed: S,
    trace: &'t Trace,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Seed<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.trace.inward(self.seed.deserialize(Traced { inner, trace: self.trace }))
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

/// Reads the name of a variant.
struct VariantVisitor<V> {
    visitor: V,
    variants: &'static [&'static str],
}

impl<'de, V: Visitor<'de>> Visitor<'de> for VariantVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.variants.join(" or "))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        let text: StrDeserializer<'_, E> = text.into_deserializer();
        self.visitor.visit_enum(text)
    }
}
