//! Types of fields in JSON bodies. They check themselves, and their errors have the published validator's format.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::issue::Issue;
use crate::domain::change::Change;
use crate::http::error::ApiError;

/// Maximum length of a text in a list, in characters.
pub(crate) const MAX_ITEM: usize = 255;

/// Reads the fields of an object at the path `at`: empty for the body itself, `[1]` for the second item of a list, `data` for the
/// field of that name. Unknown fields are ignored. `""` is `null`, as [`Change`] says.
pub(crate) fn read<T: DeserializeOwned>(value: &Value, at: &str) -> Result<T, ApiError> {
    let Value::Object(fields) = value else { return Err(Issue::wrong_type("object", kind(value)).at(at)) };
    let is_empty = |value: &Value| value.as_str() == Some("");
    let value = if fields.values().any(is_empty) {
        let cleared = |value: &Value| if is_empty(value) { Value::Null } else { value.clone() };
        let fields = fields.iter().map(|(name, value)| (name.clone(), cleared(value)));
        Cow::Owned(Value::Object(fields.collect()))
    } else {
        Cow::Borrowed(value)
    };
    serde_path_to_error::deserialize(&*value).map_err(|error| {
        let path = error.path().to_string();
        Issue::of_message(&error.inner().to_string()).at(&join(at, &path))
    })
}

/// The path of a field in the object at `at`.
pub(crate) fn join(at: &str, field: &str) -> String {
    if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") }
}

/// The JSON type of a value.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The value of a field that always has one.
///
/// # Errors
/// 422 if the field is absent or has no value.
pub(crate) fn required<T>(change: Change<T>, path: &str, expected: &str) -> Result<T, ApiError> {
    let received = match change {
        Change::Set(value) => return Ok(value),
        Change::Clear => "null",
        Change::Keep => "undefined",
    };
    Err(Issue::wrong_type(expected, received).at(path))
}

/// The change of a field that always has a value.
///
/// # Errors
/// 422 if the field has no value.
pub(crate) fn kept<T>(change: Change<T>, path: &str, expected: &str) -> Result<Option<T>, ApiError> {
    match change {
        Change::Keep => Ok(None),
        change => required(change, path, expected).map(Some),
    }
}

/// The name of an object: a text that is not empty, without white space at its ends.
///
/// # Errors
/// 422 if the field has no value, or nothing but white space.
pub(crate) fn name_of<const MAX: usize>(
    change: Change<Text<MAX>>,
    path: &str,
) -> Result<Option<String>, ApiError> {
    let Some(Text(name)) = kept(change, path, "string")? else { return Ok(None) };
    match name.trim() {
        "" => Err(Issue::empty_text().at(path)),
        name => Ok(Some(name.to_owned())),
    }
}

/// A string of at most `MAX` characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text<const MAX: usize>(pub(crate) String);

impl<'de, const MAX: usize> Deserialize<'de> for Text<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > MAX && text.chars().count() > MAX {
            return Err(D::Error::custom(Issue::too_long(MAX)));
        }
        if text.contains('\0') { Err(D::Error::custom(Issue::nul())) } else { Ok(Self(text)) }
    }
}

impl<const MAX: usize> Change<Text<MAX>> {
    pub(crate) fn text(self) -> Change<String> {
        self.map(|text| text.0)
    }
}

/// A name or an id: a string of at most [`MAX_ITEM`] characters. The prefix of external ids does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item(pub(crate) String);

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if is_too_long(&text, MAX_ITEM) {
            return Err(D::Error::custom(Issue::too_long(MAX_ITEM)));
        }
        if text.contains('\0') { Err(D::Error::custom(Issue::nul())) } else { Ok(Self(text)) }
    }
}

/// Whether a value has more than `max` characters. The prefix of external ids does not count.
pub(crate) fn is_too_long(item: &str, max: usize) -> bool {
    item.strip_prefix("ext_").unwrap_or(item).chars().count() > max
}

/// The values of a comma-separated list, without empty ones.
pub(crate) fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// A list of at most `MAX` names or ids. A string is a comma-separated list with the same maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Items<const MAX: usize>(pub(crate) Vec<String>);

impl<'de, const MAX: usize> Deserialize<'de> for Items<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemsVisitor::<MAX>)
    }
}

struct ItemsVisitor<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for ItemsVisitor<MAX> {
    type Value = Items<MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a sequence")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Items<MAX>, E> {
        let items: Vec<String> = split_list(text).take(MAX + 1).map(str::to_owned).collect();
        if items.len() > MAX {
            return Err(E::custom(Issue::too_many(MAX)));
        }
        if text.contains('\0') {
            return Err(E::custom(Issue::nul()));
        }
        match items.iter().any(|item| is_too_long(item, MAX_ITEM)) {
            true => Err(E::custom(Issue::too_long(MAX_ITEM))),
            false => Ok(Items(items)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<MAX>, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX {
            let Some(Item(item)) = list.next_element()? else { return Ok(Items(items)) };
            items.push(item);
        }
        match list.next_element::<IgnoredAny>()? {
            Some(_) => Err(A::Error::custom(Issue::too_many(MAX))),
            None => Ok(Items(items)),
        }
    }
}

/// A list of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// Values by names of the client's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ByName<T>(pub(crate) BTreeMap<String, T>);

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole<const MIN: u64, const MAX: u64>(pub(crate) u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        // The published Python client sends whole numbers with a fraction: `5.0`.
        let float = number.as_f64().unwrap_or_default();
        let is_whole = float >= 0.0 && float.fract() == 0.0;
        match number.as_u64().or(is_whole.then_some(float as u64)) {
            Some(number) if number > MAX => Err(D::Error::custom(Issue::too_large(MAX))),
            Some(number) if number >= MIN => Ok(Self(number)),
            Some(_) | None => Err(D::Error::custom(Issue::too_small(MIN))),
        }
    }
}

/// A flag whose effect does not exist here. Only false is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoFlag;

impl<'de> Deserialize<'de> for NoFlag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match bool::deserialize(deserializer)? {
            true => Err(D::Error::custom(Issue::custom("Not supported: expected false"))),
            false => Ok(Self),
        }
    }
}

/// A list whose effect does not exist here. Only an empty one is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoList;

impl<'de> Deserialize<'de> for NoList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Vec::<IgnoredAny>::deserialize(deserializer)?.as_slice() {
            [] => Ok(Self),
            _ => Err(D::Error::custom(Issue::custom("Not supported: expected an empty list"))),
        }
    }
}

/// A text whose effect does not exist here. None is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoText;

impl<'de> Deserialize<'de> for NoText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?;
        Err(D::Error::custom(Issue::custom("Not supported: expected null")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Sample {
        text: Change<Text<3>>,
        items: Change<Items<2>>,
        number: Change<Whole<3, 190>>,
        flag: Change<bool>,
        no_flag: Change<NoFlag>,
        no_list: Change<NoList>,
        no_text: Change<NoText>,
    }

    #[test]
    fn values_are_accepted_or_refused_with_their_path() {
        let accepted = [
            json!({"text": "éàü"}),
            json!({"items": "a, b,"}),
            json!({"items": [format!("ext_{}", "x".repeat(255)), "b"]}),
            json!({"number": 3}),
            json!({"number": 5.0}),
            json!({"number": 190}),
            json!({"no_flag": false, "no_list": []}),
        ];
        for body in accepted {
            assert!(read::<Sample>(&body, "").is_ok(), "{body}");
        }
        //  body, and the error of it in the item 1 of a list
        let refused = [
            (json!([]), "invalid_type: [1]: Invalid input: expected object, received array"),
            (json!({"text": "long"}), "too_big: [1].text: Too big: expected string to have <=3 characters"),
            (json!({"text": "\0"}), "custom: [1].text: Invalid string: must not contain NUL"),
            (json!({"text": 1}), "invalid_type: [1].text: Invalid input: expected string, received number"),
            (json!({"text": 1.5}), "invalid_type: [1].text: Invalid input: expected string, received number"),
            (json!({"items": 1}), "invalid_type: [1].items: Invalid input: expected array, received number"),
            (
                json!({"items": ["a", {}]}),
                "invalid_type: [1].items[1]: Invalid input: expected string, received object",
            ),
            (json!({"items": "a,b,c"}), "too_big: [1].items: Too big: expected array to have <=2 items"),
            (
                json!({"items": ["a", "b", "c"]}),
                "too_big: [1].items: Too big: expected array to have <=2 items",
            ),
            (
                json!({"items": ["x".repeat(256)]}),
                "too_big: [1].items[0]: Too big: expected string to have <=255 characters",
            ),
            (json!({"items": ["a", "b\0"]}), "custom: [1].items[1]: Invalid string: must not contain NUL"),
            (json!({"number": 2}), "too_small: [1].number: Too small: expected a whole number to be >=3"),
            (json!({"number": 5.5}), "too_small: [1].number: Too small: expected a whole number to be >=3"),
            (json!({"number": -5}), "too_small: [1].number: Too small: expected a whole number to be >=3"),
            (json!({"number": 191.0}), "too_big: [1].number: Too big: expected number to be <=190"),
            (json!({"number": 1e300}), "too_big: [1].number: Too big: expected number to be <=190"),
            (
                json!({"number": "5"}),
                "invalid_type: [1].number: Invalid input: expected number, received string",
            ),
            (
                json!({"flag": "true"}),
                "invalid_type: [1].flag: Invalid input: expected boolean, received string",
            ),
            (json!({"no_flag": true}), "custom: [1].no_flag: Not supported: expected false"),
            (json!({"no_list": [1]}), "custom: [1].no_list: Not supported: expected an empty list"),
            (
                json!({"no_list": {}}),
                "invalid_type: [1].no_list: Invalid input: expected array, received object",
            ),
            (json!({"no_text": "x"}), "custom: [1].no_text: Not supported: expected null"),
        ];
        for (body, message) in refused {
            assert_eq!(read::<Sample>(&body, "[1]").unwrap_err().message, message, "{body}");
        }
    }
}
