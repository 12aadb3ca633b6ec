//! Why a configuration is refused, and in which field.

use core::fmt::{self, Display, Write as _};

use serde::de::{self, Expected, Unexpected};

use super::wording::{Abbreviated, Instead, Quoted};

/// A configuration that is refused: the path of the field, the given value, and the problem.
///
/// The message quotes the given value only where no API key or token belongs. In [`SECRET_FIELDS`] it quotes nothing that was given.
/// Elsewhere it abbreviates long texts, because an API key may have been put there by mistake.
///
/// ```
/// let refused = filter::config::Config::from_json(br#"{"plans": {"pro": {"standard": ["600/fortnight"]}}}"#).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     r#"plans.pro.standard[0]: "600/fortnight": unknown unit, expected second, minute, hour, day or month"#
/// );
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// From the field to the fields that hold it.
    path: Vec<Step>,
    /// The given value as the message quotes it.
    given: Option<String>,
    /// Never holds given text, except names of plans and classes.
    problem: String,
}

/// Fields of the configuration that hold secrets or say where secrets are. Messages about them quote neither values nor names that
/// were given.
pub const SECRET_FIELDS: [&str; 4] = ["key_sources", "subscribers", "directory", "operators"];

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A field of the configuration.
    Field(String),
    /// A name that the user chose, or an unknown field.
    Name(String),
    /// A name that must not be shown.
    Hidden,
    /// A place in a list.
    Index(usize),
}

impl From<&'static str> for Step {
    fn from(field: &'static str) -> Self {
        Self::Field(field.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl ConfigError {
    /// A problem with the value that is looked at.
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self { path: Vec::new(), given: None, problem: problem.into() }
    }

    /// With the text that was given.
    pub(super) fn given(mut self, text: &str) -> Self {
        self.given = Some(Quoted(text).to_string());
        self
    }

    /// With the number that was given.
    pub(super) fn given_number(mut self, number: impl Display) -> Self {
        self.given = Some(number.to_string());
        self
    }

    /// The same error, seen from the field that holds this one.
    pub(super) fn within(mut self, parent: impl Into<Step>) -> Self {
        self.path.push(parent.into());
        self
    }

    /// Drops everything that was given if the error is in [`SECRET_FIELDS`] or concerns the configuration as a whole.
    pub(super) fn without_secrets(mut self) -> Self {
        let is_secret = match self.path.last() {
            Some(Step::Field(field)) => SECRET_FIELDS.contains(&field.as_str()),
            Some(Step::Name(_) | Step::Hidden | Step::Index(_)) => false,
            None => true,
        };
        if is_secret {
            self.given = None;
            for step in &mut self.path {
                if let Step::Name(_) = step {
                    *step = Step::Hidden;
                }
            }
        }
        self
    }

    /// The path of the field, for example `plans.pro.standard[0]`; empty for the configuration itself. `*` stands for a name that
    /// must not be shown.
    #[must_use]
    pub fn path(&self) -> String {
        self.path.iter().rev().fold(String::new(), |mut path, step| {
            let separator = if path.is_empty() { "" } else { "." };
            // Writing to a String cannot fail.
            let _ = match step {
                Step::Field(field) => write!(path, "{separator}{field}"),
                Step::Name(name) => write!(path, "{separator}{}", Abbreviated(name)),
                Step::Hidden => write!(path, "{separator}*"),
                Step::Index(index) => write!(path, "[{index}]"),
            };
            path
        })
    }

    /// What is wrong with the field.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path();
        let parts = [(!path.is_empty()).then_some(&path), self.given.as_ref(), Some(&self.problem)];
        let mut line = OneLine(f);
        for (index, part) in parts.into_iter().flatten().enumerate() {
            line.write_str(if index == 0 { "" } else { ": " })?;
            line.write_str(part)?;
        }
        Ok(())
    }
}

/// As the message, which abbreviates what was given.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// serde's errors without the text that was given, and in JSON's terms.
impl de::Error for ConfigError {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(_) => "a boolean",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
            Unexpected::Char(_) | Unexpected::Str(_) => "a string",
            Unexpected::Unit | Unexpected::Option => "null",
            Unexpected::Seq => "a list",
            Unexpected::Map => "an object",
            _ => "another type",
        };
        let expected = expected.to_string();
        let expected = match expected.as_str() {
            "a sequence" => "a list",
            of_rust if of_rust.starts_with("struct ") => "an object",
            plain => plain,
        };
        Self::new(format!("expected {expected}, found {found}"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("expected {}", expected.join(" or ")))
    }

    fn unknown_field(given: &str, names: &'static [&'static str]) -> Self {
        Self::new(format!("unknown field, {}", Instead { given, names }))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("missing field `{field}`"))
    }

    fn duplicate_field(_: &'static str) -> Self {
        Self::new("given twice")
    }
}

/// The result of a check, seen from the field that holds what was checked.
pub(super) trait At {
    /// As [`ConfigError::within`].
    fn at(self, parent: impl Into<Step>) -> Self;
    /// As [`At::at`], with a name that the user chose.
    fn at_name(self, name: &str) -> Self;
}

impl<T> At for Result<T, ConfigError> {
    fn at(self, parent: impl Into<Step>) -> Self {
        self.map_err(|error| error.within(parent))
    }

    fn at_name(self, name: &str) -> Self {
        self.map_err(|error| error.within(Step::Name(name.to_owned())))
    }
}

/// Checks each entry of a list.
pub(super) fn each<T, U>(
    list: impl IntoIterator<Item = T>,
    mut check: impl FnMut(T) -> Result<U, ConfigError>,
) -> Result<Vec<U>, ConfigError> {
    list.into_iter().enumerate().map(|(index, entry)| check(entry).at(index)).collect()
}

/// Escapes control characters: a refusal is one line of a log.
struct OneLine<'f, 'b>(&'f mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character.is_control() {
            true => write!(self.0, "{}", character.escape_default()),
            false => self.0.write_char(character),
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_refusal_is_one_line_whatever_a_field_is_called() {
        let refused =
            crate::config::Config::from_json(br#"{"plans": {"a\nb": {}}, "c\r\n": 1}"#).unwrap_err();
        assert!(!refused.to_string().contains(['\n', '\r']), "{refused}");
        assert!(refused.to_string().contains(r"c\r\n"), "{refused}");
    }
}
