//! What a request does to one field of an object.

use serde::{Deserialize, Deserializer};

/// The effect of a request on one field.
///
/// One rule holds for all fields of all bodies. The reader of bodies makes `""` null, and this type does the rest:
///
/// - An absent field keeps its value. In a creation, it has its default.
/// - `null` and `""` both mean "no value". The field is cleared: a text is then null, a list empty, a flag false, and an enumeration
///   has its default. A field that always has a value, such as `url`, refuses this in an update. In a creation, it has its default or
///   is missing.
/// - Anything else is the new value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Change<T> {
    /// Absent.
    #[default]
    Keep,
    /// `null` or `""`.
    Clear,
    /// A new value.
    Set(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

impl<T> Change<T> {
    /// Applies the change to an optional field.
    pub(crate) fn apply(self, field: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *field = None,
            Self::Set(value) => *field = Some(value),
        }
    }

    /// The new value, if the request has one.
    pub(crate) fn set(self) -> Option<T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Keep | Self::Clear => None,
        }
    }

    /// The new value of a field that has a default when it is cleared. None if the request keeps it.
    pub(crate) fn or_default(self) -> Option<T>
    where
        T: Default,
    {
        match self {
            Self::Keep => None,
            Self::Clear => Some(T::default()),
            Self::Set(value) => Some(value),
        }
    }

    /// The same change with another value.
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Self::Keep => Change::Keep,
            Self::Clear => Change::Clear,
            Self::Set(value) => Change::Set(map(value)),
        }
    }
}

impl<T, E> Change<Result<T, E>> {
    /// The error, or the change with the value.
    pub(crate) fn transpose(self) -> Result<Change<T>, E> {
        Ok(match self {
            Self::Keep => Change::Keep,
            Self::Clear => Change::Clear,
            Self::Set(result) => Change::Set(result?),
        })
    }
}
