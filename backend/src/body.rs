//! Parses JSON bodies field by field. Errors have the published validator's format: `<issue>: <path>: <message>`.

use std::ops::Deref;

use axum::extract::{FromRequest, Request};
use serde_json::{Map, Value};

use crate::background;
use crate::bodies::Received;
use crate::error::ApiError;
use crate::value_count::{MAX_JSON_VALUES, has_too_many_values};

/// Maximum length of a text in a list, in characters.
pub(crate) const MAX_ITEM: usize = 255;

/// A request body with any JSON value.
#[derive(Debug)]
pub(crate) struct JsonBody(pub(crate) BodyValue);

/// The value of a body. A large one is dropped in the background.
#[derive(Debug)]
pub(crate) struct BodyValue(SizedJsonBody);

impl Deref for BodyValue {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0.value
    }
}

impl Drop for BodyValue {
    fn drop(&mut self) {
        background::discard(self.0.bytes, self.0.value.take());
    }
}

/// A request body with any JSON value, and its size.
#[derive(Debug)]
pub(crate) struct SizedJsonBody {
    pub(crate) value: Value,
    pub(crate) bytes: usize,
}

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Ok(Self(BodyValue(SizedJsonBody::from_request(request, state).await?)))
    }
}

/// Parses the body that [`crate::auth::permitted`] has read.
impl<S: Sync> FromRequest<S> for SizedJsonBody {
    type Rejection = ApiError;

    async fn from_request(mut request: Request, _: &S) -> Result<Self, ApiError> {
        let body = request.extensions_mut().remove::<Received>();
        let Received(body) = body.ok_or_else(ApiError::internal)?;
        let bytes = body.len();
        let value =
            background::run_on(bytes, move || parse(&body)).await.ok_or_else(ApiError::internal)??;
        Ok(Self { value, bytes })
    }
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    // RFC 8259, section 8.1: a parser may ignore a byte order mark.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if has_too_many_values(body) {
        let message = format!("Too big: expected the body to have <={MAX_JSON_VALUES} JSON values");
        return Err(ApiError::invalid("too_big", "", &message));
    }
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("Invalid JSON format in request body: {error}.")))
}

/// The effect of a request on one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Change<T> {
    /// Absent: the field keeps its value.
    #[default]
    Keep,
    /// `null`: the field is cleared.
    Clear,
    /// A new value.
    Set(T),
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
}

/// A JSON object and its path in the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// The path: empty for the body itself, `[1]` for the second item of a list, `data` for the field of that name.
    at: &'a str,
}

impl<'a> Fields<'a> {
    /// The object at the path `at`. Any other value is an error.
    pub(crate) fn of(value: &'a Value, at: &'a str) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { map, at }),
            other => Err(wrong_type(at, "object", other)),
        }
    }

    /// The full path of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    /// The error for an invalid value of the field `name`.
    pub(crate) fn invalid(&self, name: &str, message: &str) -> ApiError {
        ApiError::invalid("custom", &self.path(name), message)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name)
    }

    fn change<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'a Value) -> Result<T, ApiError>,
    ) -> Result<Change<T>, ApiError> {
        match self.map.get(name) {
            None => Ok(Change::Keep),
            Some(Value::Null) => Ok(Change::Clear),
            Some(value) => read(value).map(Change::Set),
        }
    }

    /// A string of at most `max` characters.
    pub(crate) fn text(&self, name: &str, max: usize) -> Result<Change<String>, ApiError> {
        self.change(name, |value| {
            let Value::String(text) = value else {
                return Err(wrong_type(&self.path(name), "string", value));
            };
            if text.chars().count() > max {
                return Err(too_long(&self.path(name), max));
            }
            // PostgreSQL and HTTP headers cannot contain NUL.
            if text.contains('\0') {
                return Err(contains_nul(&self.path(name)));
            }
            Ok(text.clone())
        })
    }

    /// A required string of at most `max` characters.
    pub(crate) fn required_text(&self, name: &str, max: usize) -> Result<String, ApiError> {
        match self.text(name, max)? {
            Change::Set(text) => Ok(text),
            Change::Clear => Err(wrong_type(&self.path(name), "string", &Value::Null)),
            Change::Keep => Err(self.missing(name)),
        }
    }

    /// A name: a string that is not empty, without white space at its ends.
    pub(crate) fn name(&self, name: &str, max: usize) -> Result<Option<String>, ApiError> {
        match self.text(name, max)? {
            Change::Keep => Ok(None),
            Change::Clear => Err(wrong_type(&self.path(name), "string", &Value::Null)),
            Change::Set(text) if text.trim().is_empty() => Err(empty_text(&self.path(name))),
            Change::Set(text) => Ok(Some(text.trim().to_owned())),
        }
    }

    /// The error for a missing string.
    pub(crate) fn missing(&self, name: &str) -> ApiError {
        let message = "Invalid input: expected string, received undefined";
        ApiError::invalid("invalid_type", &self.path(name), message)
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Change<bool>, ApiError> {
        self.change(name, |value| {
            value.as_bool().ok_or_else(|| wrong_type(&self.path(name), "boolean", value))
        })
    }

    /// An integer within `bounds`.
    pub(crate) fn integer(
        &self,
        name: &str,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Result<Change<u64>, ApiError> {
        self.change(name, |value| {
            let Some(float) = value.as_f64() else {
                return Err(wrong_type(&self.path(name), "number", value));
            };
            // The published Python client sends whole numbers with a fraction: `5.0`.
            let is_whole = float >= 0.0 && float.fract() == 0.0;
            match value.as_u64().or(is_whole.then_some(float as u64)) {
                Some(number) if bounds.contains(&number) => Ok(number),
                Some(number) if number > *bounds.end() => {
                    let message = format!("Too big: expected number to be <={}", bounds.end());
                    Err(ApiError::invalid("too_big", &self.path(name), &message))
                }
                Some(_) | None => {
                    let message = format!("Too small: expected a whole number to be >={}", bounds.start());
                    Err(ApiError::invalid("too_small", &self.path(name), &message))
                }
            }
        })
    }

    /// A list of at most `max` strings of at most [`MAX_ITEM`] characters each. A string is a comma-separated list with
    /// the same maximum.
    pub(crate) fn texts(&self, name: &str, max: usize) -> Result<Change<Vec<String>>, ApiError> {
        self.change(name, |value| {
            let texts: Vec<&str> = match value {
                Value::String(text) => split_list(text).take(max + 1).collect(),
                Value::Array(items) => items
                    .iter()
                    .take(max + 1)
                    .enumerate()
                    .map(|(index, item)| match item {
                        Value::String(text) => Ok(text.as_str()),
                        other => Err(wrong_type(&format!("{}[{index}]", self.path(name)), "string", other)),
                    })
                    .collect::<Result<_, _>>()?,
                other => return Err(wrong_type(&self.path(name), "array", other)),
            };
            if texts.len() > max {
                return Err(too_many(&self.path(name), max));
            }
            if let Some(index) = texts.iter().position(|text| text.contains('\0')) {
                return Err(contains_nul(&format!("{}[{index}]", self.path(name))));
            }
            if let Some(index) = texts.iter().position(|text| is_too_long(text)) {
                return Err(too_long(&format!("{}[{index}]", self.path(name)), MAX_ITEM));
            }
            Ok(texts.into_iter().map(str::to_owned).collect())
        })
    }
}

/// The values of a comma-separated list, without empty ones.
pub(crate) fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Like [`split_list`], for texts that may have white space at their ends. Only white space after a comma separates values.
pub(crate) fn split_texts(text: &str) -> impl Iterator<Item = &str> {
    let (first, others) = text.split_once(',').unwrap_or((text, ""));
    std::iter::once(first).chain(others.split(',').map(str::trim_start)).filter(|part| !part.is_empty())
}

/// Whether a name or an id in a list exceeds [`MAX_ITEM`]. The prefix of external ids does not count.
pub(crate) fn is_too_long(item: &str) -> bool {
    item.strip_prefix("ext_").unwrap_or(item).chars().count() > MAX_ITEM
}

/// The error for a string with NUL, which PostgreSQL cannot store.
pub(crate) fn contains_nul(path: &str) -> ApiError {
    ApiError::invalid("custom", path, "Invalid string: must not contain NUL")
}

/// The error for a string of more than `max` characters.
pub(crate) fn too_long(path: &str, max: usize) -> ApiError {
    ApiError::invalid("too_big", path, &format!("Too big: expected string to have <={max} characters"))
}

/// The error for an empty string.
pub(crate) fn empty_text(path: &str) -> ApiError {
    ApiError::invalid("too_small", path, "Too small: expected string to have >=1 characters")
}

/// The error for an empty list.
pub(crate) fn empty_list(path: &str) -> ApiError {
    ApiError::invalid("too_small", path, "Too small: expected array to have >=1 items")
}

/// The error for a value that is not one of `options`.
pub(crate) fn unknown_option(path: &str, options: &[&str]) -> ApiError {
    let message = format!("Invalid option: expected one of {}", options.join(", "));
    ApiError::invalid("invalid_value", path, &message)
}

/// The error for a list of more than `max` values.
pub(crate) fn too_many(path: &str, max: usize) -> ApiError {
    ApiError::invalid("too_big", path, &format!("Too big: expected array to have <={max} items"))
}

/// The error for a value of the wrong JSON type.
pub(crate) fn wrong_type(path: &str, expected: &str, received: &Value) -> ApiError {
    let received = match received {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    ApiError::invalid(
        "invalid_type",
        path,
        &format!("Invalid input: expected {expected}, received {received}"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_may_be_written_with_a_fraction() {
        //  value            number, or the start of the message
        let table = [
            (json!(3), Ok(3)),
            (json!(5.0), Ok(5)),
            (json!(190), Ok(190)),
            (json!(2), Err("too_small")),
            (json!(5.5), Err("too_small")),
            (json!(-5), Err("too_small")),
            (json!(191.0), Err("too_big")),
            (json!(1e300), Err("too_big")),
            (json!("5"), Err("invalid_type")),
        ];
        for (value, expected) in table {
            let body = json!({ "n": value });
            match (Fields::of(&body, "").unwrap().integer("n", 3..=190), expected) {
                (Ok(Change::Set(number)), Ok(expected)) => assert_eq!(number, expected, "{value}"),
                (Err(error), Err(expected)) => assert!(error.message.starts_with(expected), "{value}"),
                (found, _) => panic!("{value}: {found:?}"),
            }
        }
    }
}
