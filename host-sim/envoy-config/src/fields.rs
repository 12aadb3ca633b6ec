//! Fields of a message in the form that JSON and YAML give it.

use std::collections::{BTreeMap, BTreeSet};

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

/// A text, which is empty unless given. `whole` names the field in a message about it.
pub(crate) fn text(value: Option<&Value>, whole: &'static str) -> Result<String, ConfigurationError> {
    match value {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(ConfigurationError::Field { field: whole, expected: "a text" }),
    }
}

/// A choice, which is no unless given.
pub(crate) fn flag(value: Option<&Value>, whole: &'static str) -> Result<bool, ConfigurationError> {
    match value {
        None => Ok(false),
        Some(Value::Bool(given)) => Ok(*given),
        Some(_) => Err(ConfigurationError::Field { field: whole, expected: "true or false" }),
    }
}

/// A list of texts, which is empty unless given.
pub(crate) fn names(
    value: Option<&Value>,
    whole: &'static str,
) -> Result<BTreeSet<String>, ConfigurationError> {
    let expected = ConfigurationError::Field { field: whole, expected: "a list of texts" };
    let Some(value) = value else { return Ok(BTreeSet::new()) };
    let names =
        value.as_array().map(|list| list.iter().map(|name| Some(name.as_str()?.to_owned())).collect());
    names.flatten().ok_or(expected)
}

/// A map of texts, which is empty unless given.
pub(crate) fn texts(
    value: Option<&Value>,
    whole: &'static str,
) -> Result<BTreeMap<String, String>, ConfigurationError> {
    let expected = ConfigurationError::Field { field: whole, expected: "a map of texts" };
    let Some(value) = value else { return Ok(BTreeMap::new()) };
    let texts = value.as_object().map(|map| {
        map.iter().map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
    });
    texts.flatten().ok_or(expected)
}
