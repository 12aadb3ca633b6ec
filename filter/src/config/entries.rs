//! JSON objects whose names the user chose.

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::MapAccess;

use super::error::{At as _, ConfigError};
use super::forms::{Forms, read_by_forms};

/// A JSON object whose names the user chose, in their order. A repeated name stays: `once` refuses it.
#[derive(Debug)]
pub struct Entries<T>(pub Vec<(String, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Forms<'de> for Entries<T> {
    const EXPECTED: &'static str = "an object";

    fn object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut entries = Vec::new();
        while let Some(name) = object.next_key()? {
            entries.push((name, object.next_value()?));
        }
        Ok(Self(entries))
    }
}

read_by_forms!(@T Entries<T>, |generator| {"type": "object", "additionalProperties": generator.subschema_for::<T>()});

/// Refuses a name that stands in an object twice.
pub(super) fn once<T>(entries: &[(String, T)]) -> Result<(), ConfigError> {
    match repeated(entries.iter().map(|(name, _)| name.as_bytes())).and_then(|index| entries.get(index)) {
        Some((name, _)) => Err(ConfigError::new("given twice")).at(name),
        None => Ok(()),
    }
}

/// The place of the first name that stood in the list before.
pub(super) fn repeated<'n>(mut names: impl Iterator<Item = &'n [u8]>) -> Option<usize> {
    let mut seen = HashSet::new();
    names.position(|name| !seen.insert(name))
}
