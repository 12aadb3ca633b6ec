//! What can be wrong with a value, in the words of the published validator: `<issue>: <path>: <message>`.

use std::fmt;

use crate::http::error::ApiError;

/// Something that is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    code: &'static str,
    message: String,
}

impl fmt::Display for Issue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message)
    }
}

impl Issue {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The issue of a rule that only this service has.
    pub(crate) fn custom(message: impl Into<String>) -> Self {
        Self::new("custom", message)
    }

    /// A string of more than `max` characters.
    pub(crate) fn too_long(max: usize) -> Self {
        Self::new("too_big", format!("Too big: expected string to have <={max} characters"))
    }

    /// A list of more than `max` values.
    pub(crate) fn too_many(max: usize) -> Self {
        Self::new("too_big", format!("Too big: expected array to have <={max} items"))
    }

    /// A number above `max`.
    pub(crate) fn too_large(max: u64) -> Self {
        Self::new("too_big", format!("Too big: expected number to be <={max}"))
    }

    /// A number below `min`, or with a fraction.
    pub(crate) fn too_small(min: u64) -> Self {
        Self::new("too_small", format!("Too small: expected a whole number to be >={min}"))
    }

    /// An empty string.
    pub(crate) fn empty_text() -> Self {
        Self::new("too_small", "Too small: expected string to have >=1 characters")
    }

    /// An empty list.
    pub(crate) fn empty_list() -> Self {
        Self::new("too_small", "Too small: expected array to have >=1 items")
    }

    /// A string with NUL, which neither PostgreSQL nor HTTP headers can contain.
    pub(crate) fn nul() -> Self {
        Self::custom("Invalid string: must not contain NUL")
    }

    /// A value that is not one of `options`.
    pub(crate) fn unknown_option(options: &[&str]) -> Self {
        Self::new("invalid_value", format!("Invalid option: expected one of {}", options.join(", ")))
    }

    /// A name of a field that is not valid.
    pub(crate) fn invalid_key(reason: &str) -> Self {
        Self::new("invalid_key", format!("Invalid key: {reason}"))
    }

    /// A value of the wrong JSON type.
    pub(crate) fn wrong_type(expected: &str, received: &str) -> Self {
        Self::new("invalid_type", format!("Invalid input: expected {expected}, received {received}"))
    }

    /// Reads the message of an error of serde: that of an issue, or of serde itself.
    pub(crate) fn of_message(message: &str) -> Self {
        let codes = ["custom", "too_big", "too_small", "invalid_value", "invalid_type", "invalid_key"];
        if let Some((code, rest)) = message.split_once(": ")
            && let Some(code) = codes.into_iter().find(|known| *known == code)
        {
            return Self::new(code, rest);
        }
        if let Some((_, options)) =
            message.strip_prefix("unknown variant ").and_then(|m| m.rsplit_once("expected "))
        {
            let options = options.trim_start_matches("one of ").replace('`', "");
            return Self::unknown_option(&options.split(" or ").collect::<Vec<_>>());
        }
        let types = message.strip_prefix("invalid type: ").and_then(|types| types.rsplit_once(", expected "));
        let Some((received, expected)) = types else { return Self::custom(message) };
        let of_json = |word: &str| match word {
            "null" | "unit" => "null",
            "boolean" => "boolean",
            "integer" | "floating" | "JSON" => "number",
            "sequence" => "array",
            "map" | "struct" => "object",
            _ => "string",
        };
        let expected = expected.trim_start_matches("a ").split(' ').next().unwrap_or_default();
        let received = received.split(' ').next().unwrap_or_default();
        Self::wrong_type(of_json(expected), of_json(received))
    }

    /// The error for a value at this path.
    pub(crate) fn at(&self, path: &str) -> ApiError {
        ApiError::invalid(self.code, path, &self.message)
    }
}
