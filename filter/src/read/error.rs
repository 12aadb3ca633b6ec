//! Why a configuration is refused, and in which field.

use core::fmt::{self, Display, Write as _};
use std::collections::HashSet;

/// A configuration that is refused: the path of the field, the given value, and the problem.
///
/// The message quotes the given value only where no API key or token belongs. In [`crate::config::SECRET_FIELDS`] it quotes nothing that was given.
/// Elsewhere it abbreviates long texts, because an API key may have been put there by mistake.
///
/// ```
/// let refused = filter::config::Config::from_json(br#"{"plans": {"pro": {"standard": ["600/fortnight"]}}}"#).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     r#"plans.pro.standard[0]: "600/fortnight": unknown unit, expected second, minute, hour, day, week, month, year, billing_month or billing_year"#
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

/// What stands for a name that must not be shown.
const HIDDEN: &str = "*";

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A field of the configuration.
    Field(&'static str),
    /// A name that the user chose, or an unknown field.
    Name(String),
    /// A place in a list.
    Index(usize),
}

impl From<&'static str> for Step {
    fn from(field: &'static str) -> Self {
        Self::Field(field)
    }
}

impl From<&String> for Step {
    fn from(name: &String) -> Self {
        Self::Name(name.clone())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl ConfigError {
    /// A problem with the value that is looked at.
    #[cold]
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self { path: Vec::new(), given: None, problem: problem.into() }
    }

    /// With the number that was given, or the text as [`Quoted`].
    #[cold]
    pub(crate) fn given(mut self, given: &dyn Display) -> Self {
        self.given = Some(given.to_string());
        self
    }

    /// The JSON pointer (RFC 6901) of the field, as far as its path can be shown.
    #[must_use]
    pub fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in self.path.iter().rev() {
            let name = match step {
                Step::Field(field) => (*field).to_owned(),
                Step::Name(name) if name == HIDDEN => break,
                Step::Name(name) => name.replace('~', "~0").replace('/', "~1"),
                Step::Index(index) => index.to_string(),
            };
            pointer = pointer + "/" + &name;
        }
        pointer
    }

    /// The same error, seen from the field that holds this one.
    #[cold]
    pub(crate) fn within(mut self, parent: impl Into<Step>) -> Self {
        self.path.push(parent.into());
        self
    }

    /// Drops everything that was given if the error is in one of these fields of the document, or concerns the document as a whole.
    pub(crate) fn without_secrets(mut self, secret_fields: &[&str]) -> Self {
        let is_secret = match self.path.last() {
            Some(Step::Field(field)) => secret_fields.contains(field),
            Some(Step::Name(_) | Step::Index(_)) => false,
            None => true,
        };
        if is_secret {
            self.given = None;
            for step in &mut self.path {
                if let Step::Name(name) = step {
                    HIDDEN.clone_into(name);
                }
            }
        }
        self
    }
}

/// The path of the field, for example `plans.pro.standard[0]`, then what was given and the problem. `*` stands for a name that must not be shown.
impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        for step in self.path.iter().rev() {
            let separator = if line.is_empty() { "" } else { "." };
            match step {
                Step::Field(field) => write!(line, "{separator}{field}")?,
                Step::Name(name) => write!(line, "{separator}{}", Abbreviated(name))?,
                Step::Index(index) => write!(line, "[{index}]")?,
            }
        }
        for part in self.given.iter().chain([&self.problem]) {
            let separator = if line.is_empty() { "" } else { ": " };
            write!(line, "{separator}{part}")?;
        }
        // A refusal is one line of a log.
        line.chars().try_for_each(|character| match character.is_control() {
            true => write!(f, "{}", character.escape_default()),
            false => f.write_char(character),
        })
    }
}

/// As the message, which abbreviates what was given.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// The result of a check, seen from the field that holds what was checked.
pub(crate) trait At {
    /// As [`ConfigError::within`].
    fn at(self, parent: impl Into<Step>) -> Self;
}

impl<T> At for Result<T, ConfigError> {
    fn at(self, parent: impl Into<Step>) -> Self {
        self.map_err(|error| error.within(parent))
    }
}

/// Refuses a list with a text, that of `field`, that stood in it before.
pub(crate) fn differ<'n>(
    field: &'static str,
    mut texts: impl Iterator<Item = &'n [u8]>,
) -> Result<(), ConfigError> {
    let mut seen = HashSet::new();
    match texts.position(|text| !seen.insert(text)) {
        Some(index) => Err(ConfigError::new("given twice")).at(field).at(index),
        None => Ok(()),
    }
}

/// Checks each entry of a list.
pub(crate) fn each<T>(list: &[T], check: impl Fn(&T) -> Result<(), ConfigError>) -> Result<(), ConfigError> {
    list.iter().enumerate().try_for_each(|(index, entry)| check(entry).at(index))
}

/// Longest part of a text, in characters, that a message quotes in full. An API key with 128 random bits has at least 22.
const LONGEST: usize = 20;

/// Number of characters that a message quotes of a longer part.
const ABBREVIATION: usize = 8;

/// Longest list of names that a message quotes in full.
const LONGEST_LIST: usize = 8;

/// Number of names that a message quotes of a longer list.
const ABBREVIATED_LIST: usize = 5;

/// A text without its long parts, one of which may be an API key: the segments of a path, and any other text as a whole.
pub(crate) struct Abbreviated<'t>(pub(crate) &'t str);

impl Display for Abbreviated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_path = self.0.starts_with('/');
        for part in self.0.split_inclusive(|character| is_path && character == '/') {
            match part.char_indices().nth(ABBREVIATION) {
                Some((end, _)) if part.chars().count() > LONGEST => {
                    write!(f, "{}…", part.get(..end).unwrap_or_default())?;
                }
                _ => f.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// An abbreviated text in quotation marks.
pub(crate) struct Quoted<'t>(pub(crate) &'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Abbreviated(self.0).to_string())
    }
}

/// Names that were possible in place of `given`: the nearest one if it is near, and else the list.
pub(crate) struct Instead<'n> {
    pub(crate) given: &'n str,
    pub(crate) names: &'n [&'n str],
}

impl Display for Instead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let near = self.names.iter().filter_map(|name| Some((distance(self.given, name)?, name)));
        if let Some((_, nearest)) = near.min_by_key(|(distance, _)| *distance) {
            return write!(f, "did you mean {}?", Abbreviated(nearest));
        }
        let listed = if self.names.len() > LONGEST_LIST { ABBREVIATED_LIST } else { self.names.len() };
        for (index, name) in self.names.iter().take(listed).enumerate() {
            let before = if index == 0 { "expected " } else { ", " };
            write!(f, "{before}{}", Abbreviated(name))?;
        }
        match self.names.len() - listed {
            0 => Ok(()),
            more => write!(f, " or {more} others"),
        }
    }
}

/// The number of characters to insert, delete or replace to get from one name to the other, if it is at most a third of
/// the longer one. Case does not matter.
fn distance(given: &str, name: &str) -> Option<usize> {
    // What is longer than twice the name is not near, however long it is.
    let given: String = given.chars().take(2 * name.len()).collect();
    let most = given.chars().count().max(name.chars().count()) / 3;
    let distance = strsim::levenshtein(&given.to_ascii_lowercase(), &name.to_ascii_lowercase());
    (distance <= most).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_whatever_a_field_is_called() {
        let refused =
            crate::config::Config::from_json(br#"{"plans": {"a\nb": {}}, "c\r\n": 1}"#).unwrap_err();
        assert!(!refused.to_string().contains(['\n', '\r']), "{refused}");
        assert!(refused.to_string().contains(r"c\r\n"), "{refused}");
    }

    #[test]
    fn the_distance_of_two_names_is_what_has_to_be_typed_up_to_a_third() {
        let rows = [
            ("plan", "plans", Some(1)),
            ("plans", "plans", Some(0)),
            ("logDecisions", "log_decisions", Some(1)),
            ("unavailable", "UNAVAILABLE", Some(0)),
            ("on-error", "on_error", Some(1)),
            ("key_souces", "key_sources", Some(1)),
            ("classses", "classes", Some(1)),
            ("planz0r", "plans", None),
            ("x", "y", None),
            ("", "plans", None),
            ("é", "plans", None),
        ];
        for (given, name, expected) in rows {
            assert_eq!(distance(given, name), expected, "{given} {name}");
        }
        assert_eq!(distance(&"plans".repeat(100_000), "plans"), None);
    }

    #[test]
    fn a_long_list_of_names_is_abbreviated() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let instead = |names| Instead { given: "zzz", names }.to_string();
        assert_eq!(instead(&names), "expected a, b, c, d, e or 4 others");
        assert_eq!(instead(&names[..8]), "expected a, b, c, d, e, f, g, h");
    }
}
