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

    /// The value that a number stands for; `None` for one that is negative or not whole.
    fn number<E: Error>(_: Option<u64>) -> Result<Self, E> {
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
}

/// Reads a value in any of its forms.
///
/// # Errors
/// The value has another form, or its form refuses it.
pub(super) fn forms<'de, T: Forms<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(FormsVisitor(PhantomData))
}

/// Implements `Deserialize` by [`Forms`].
macro_rules! deserialize_by_forms {
    ($($name:ty),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::config::forms::forms(deserializer)
            }
        }
    )+};
}
pub(super) use deserialize_by_forms;

/// An error about a value that has the right form and the wrong content.
pub(super) fn refused<'de, T: Forms<'de>, E: Error>() -> E {
    E::invalid_value(Unexpected::Other("value"), &T::EXPECTED)
}

struct FormsVisitor<T>(PhantomData<T>);

impl<'de, T: Forms<'de>> Visitor<'de> for FormsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::number(Some(number))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<T, E> {
        T::number(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<T, E> {
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
