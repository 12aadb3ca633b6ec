//! Fields of a message in the form that JSON and YAML give it.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ConfigurationError;

pub(crate) type Fields = Map<String, Value>;

/// The name as JSON prefers it: `vm_id` is `vmId` there. Both are read.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(word.len().min(1));
        name + &initial.to_ascii_uppercase() + rest
    })
}

/// A field by its name in the protocol; one that is null is not given.
pub(crate) fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a Value> {
    let found = fields.get(name).or_else(|| fields.get(&camel_case(name)));
    found.filter(|value| !value.is_null())
}

/// A field of a message that may not be there.
pub(crate) fn field_of<'a>(message: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    field(message?.as_object()?, name)
}

/// A value, which is the default of its type unless given. `field` names it in a message about it, and `expected` says what it takes.
fn typed<T: DeserializeOwned + Default>(
    value: Option<&Value>,
    field: &'static str,
    expected: &'static str,
) -> Result<T, ConfigurationError> {
    let Some(value) = value else { return Ok(T::default()) };
    T::deserialize(value).map_err(|_| ConfigurationError::Field { field, expected })
}

/// A text, which is empty unless given. `field` names the field in a message about it.
pub(crate) fn text(value: Option<&Value>, field: &'static str) -> Result<String, ConfigurationError> {
    typed(value, field, "a text")
}

/// A choice, which is no unless given.
pub(crate) fn flag(value: Option<&Value>, field: &'static str) -> Result<bool, ConfigurationError> {
    typed(value, field, "true or false")
}

/// A list of texts, which is empty unless given.
pub(crate) fn names(
    value: Option<&Value>,
    field: &'static str,
) -> Result<BTreeSet<String>, ConfigurationError> {
    typed(value, field, "a list of texts")
}

/// A map of texts, which is empty unless given.
pub(crate) fn texts(
    value: Option<&Value>,
    field: &'static str,
) -> Result<BTreeMap<String, String>, ConfigurationError> {
    typed(value, field, "a map of texts")
}
