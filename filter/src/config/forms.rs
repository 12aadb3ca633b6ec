//! Values that JSON may have in several forms, such as a quota: `"60/minute"`, or an object.

use core::fmt;
use core::marker::PhantomData;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

/// The forms of a value. A form that is not implemented is refused.
pub(super) trait Forms<'de>: Sized {
    /// What the forms are, as the end of "expected …".
    const EXPECTED: &'static str;

    /// The value that a text stands for.
    fn text<E: Error>(text: &str) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Str(text), &Self::EXPECTED))
    }

    /// The value that a number stands for; `None` for one that is negative, not whole or greater than a `u32`.
    fn number<E: Error>(_: Option<u32>) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Unsigned(0), &Self::EXPECTED))
    }

    /// The value that a list stands for.
    fn list<A: SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Seq, &Self::EXPECTED))
    }

    /// The value that an object stands for.
    fn object<A: MapAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Map, &Self::EXPECTED))
    }

    /// The value, or an error about one that has the right form and the wrong content.
    fn or_refused<E: Error>(value: Option<Self>) -> Result<Self, E> {
        value.ok_or_else(|| E::invalid_value(Unexpected::Other("value"), &Self::EXPECTED))
    }
}

/// Reads a value in any of its forms.
///
/// # Errors
/// The value has another form, or its form refuses it.
pub(super) fn forms<'de, T: Forms<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(FormsVisitor(PhantomData))
}

/// Implements `Deserialize` by [`Forms`], and describes the value in the JSON Schema, unless its schema is derived: where it stands, or under
/// a title.
macro_rules! read_by_forms {
    ($(@$generic:ident)? $name:ty) => {
        impl<'de $(, $generic: serde::Deserialize<'de>)?> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::config::forms::forms(deserializer)
            }
        }
    };
    ($name:ty, $schema:tt) => {
        $crate::config::forms::read_by_forms!($name, |_generator| $schema);
    };
    ($(@$generic:ident)? $name:ty, |$generator:ident| $schema:tt) => {
        $crate::config::forms::read_by_forms!($(@$generic)? $name);
        $crate::config::forms::describe!($(@$generic)? $name, stringify!($name), true, |$generator| $schema);
    };
    ($name:ty as $title:literal, |$generator:ident| $schema:tt) => {
        $crate::config::forms::read_by_forms!($name);
        $crate::config::forms::describe!($name, $title, false, |$generator| $schema);
    };
}
pub(super) use read_by_forms;

/// Describes a value in the JSON Schema.
macro_rules! describe {
    ($(@$generic:ident)? $name:ty, $title:expr, $inline:literal, |$generator:ident| $schema:tt) => {
        #[cfg(feature = "schema")]
        impl<$($generic: schemars::JsonSchema)?> schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                $inline
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $title.into()
            }

            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}
pub(super) use describe;

struct FormsVisitor<T>(PhantomData<T>);

impl<'de, T: Forms<'de>> Visitor<'de> for FormsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::number(u32::try_from(number).ok())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<T, E> {
        T::number(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<T, A::Error> {
        T::object(object)
    }
}
