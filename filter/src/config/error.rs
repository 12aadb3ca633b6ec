//! Why a configuration is refused, and in which field.

use core::fmt::{self, Display, Write as _};
use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_path_to_error::Segment;

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

/// The fields in [`SECRET_FIELDS`]. Every other name in them is one that the user chose.
const NAMES_IN_SECRET_FIELDS: &str = "key_sources header scheme query metadata subscribers id plan keys limits parent organisation \
    limit window name mode refundable directory cluster path authority interval bearer env not_ready action quotas max_stale \
    operators tokens token";

/// The problem of a field that does not exist, whose value is not what is wrong.
const UNKNOWN: &str = "unknown field";

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A name in an object.
    Name(String),
    /// A place in a list.
    Index(usize),
}

impl From<&str> for Step {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
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

    /// With the value that `json` has at the path, or, in [`SECRET_FIELDS`], without the names that were given.
    pub(super) fn quoting(mut self, json: &[u8]) -> Self {
        let Some(Step::Name(field)) = self.path.last() else { return self };
        if !SECRET_FIELDS.contains(&field.as_str()) {
            let is_unknown = self.problem.starts_with(UNKNOWN);
            self.given = self.given.take().or_else(|| self.value(json).filter(|_| !is_unknown));
            return self;
        }
        self.given = None;
        for step in &mut self.path {
            if let Step::Name(name) = step
                && !NAMES_IN_SECRET_FIELDS.split_whitespace().any(|known| known == name)
            {
                *step = Step::from("*");
            }
        }
        self
    }

    /// The text or the number that `json` has at the path.
    fn value(&self, json: &[u8]) -> Option<String> {
        let mut value: &RawValue = serde_json::from_slice(json).ok()?;
        for step in self.path.iter().rev() {
            value = match step {
                Step::Name(name) => {
                    *serde_json::from_str::<HashMap<String, &RawValue>>(value.get()).ok()?.get(name)?
                }
                Step::Index(index) => {
                    *serde_json::from_str::<Vec<&RawValue>>(value.get()).ok()?.get(*index)?
                }
            };
        }
        match value.get().as_bytes().first()? {
            b'"' => Some(Quoted(&serde_json::from_str::<String>(value.get()).ok()?).to_string()),
            b'-' | b'0'..=b'9' => Some(value.get().to_owned()),
            _ => None,
        }
    }

    /// The path of the field, for example `plans.pro.standard[0]`; empty for the configuration itself. `*` stands for a name that
    /// must not be shown.
    #[must_use]
    pub fn path(&self) -> String {
        self.path.iter().rev().fold(String::new(), |mut path, step| {
            let separator = if path.is_empty() { "" } else { "." };
            // Writing to a String cannot fail.
            let _ = match step {
                Step::Name(name) => write!(path, "{separator}{}", Abbreviated(name)),
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
        let parts = [Some(&path).filter(|path| !path.is_empty()), self.given.as_ref(), Some(&self.problem)];
        let line = parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(": ");
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

/// Reads JSON straight into a type.
///
/// # Errors
/// The first error.
pub(super) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, ConfigError> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let document = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path: Vec<_> = error.path().iter().map(step).collect();
        refusal(path, error.inner())
    })?;
    deserializer.end().map_err(|error| ConfigError::new(error.to_string()))?;
    Ok(document)
}

fn step(segment: &Segment) -> Step {
    match segment {
        Segment::Seq { index } => Step::Index(*index),
        Segment::Map { key } => Step::from(key.as_str()),
        Segment::Enum { variant } => Step::from(variant.as_str()),
        Segment::Unknown => Step::from("*"),
    }
}

/// An error of serde's without what it quotes. `path` starts with the outermost step.
fn refusal(mut path: Vec<Step>, error: &serde_json::Error) -> ConfigError {
    let message = error.to_string();
    if !error.is_data() {
        // Syntax, with its place in the text. Nothing is quoted.
        return ConfigError::new(message);
    }
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message);
    let (found, expected) = message.rsplit_once(", expected ").unwrap_or((message, ""));
    let problem = if let Some(found) = found.strip_prefix("invalid type: ") {
        format!("expected {}, found {}", expected.replace("a sequence", "a list"), kind(found))
    } else if found.starts_with("invalid value: ") || found.starts_with("unknown variant ") {
        format!("expected {}", expected.replace('`', ""))
    } else if found.starts_with("unknown field ") {
        let names: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
        match path.last() {
            Some(Step::Name(given)) => format!("{UNKNOWN}, {}", Instead { given, names: &names }),
            _ => UNKNOWN.to_owned(),
        }
    } else {
        message.to_owned()
    };
    path.reverse();
    ConfigError { path, given: None, problem }
}

/// The JSON type that serde names first, before it quotes a value.
fn kind(found: &str) -> &'static str {
    match found.split([' ', ',']).next() {
        Some("boolean") => "a boolean",
        Some("integer" | "floating" | "number") => "a number",
        Some("string") => "a string",
        Some("sequence") => "a list",
        Some("map") => "an object",
        _ => "null",
    }
}

/// The result of a check, seen from the field that holds what was checked.
pub(super) trait At {
    /// The same error, with the step to what was checked.
    fn at(self, parent: impl Into<Step>) -> Self;
}

impl<T> At for Result<T, ConfigError> {
    fn at(self, parent: impl Into<Step>) -> Self {
        self.map_err(|mut error| {
            error.path.push(parent.into());
            error
        })
    }
}

/// Checks each entry of a list.
pub(super) fn each<T, U>(
    list: impl IntoIterator<Item = T>,
    mut check: impl FnMut(T) -> Result<U, ConfigError>,
) -> Result<Vec<U>, ConfigError> {
    list.into_iter().enumerate().map(|(index, entry)| check(entry).at(index)).collect()
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
pub(super) struct Abbreviated<'t>(pub(super) &'t str);

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
pub(super) struct Quoted<'t>(pub(super) &'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Abbreviated(self.0).to_string())
    }
}

/// Names that were possible in place of `given`: the nearest one if it is near, and else the list.
pub(super) struct Instead<'n> {
    pub(super) given: &'n str,
    pub(super) names: &'n [&'n str],
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
    let lower = |text: &str, most: usize| {
        text.chars().take(most).map(|one| one.to_ascii_lowercase()).collect::<Vec<_>>()
    };
    let (given, name) = (lower(given, 2 * name.len()), lower(name, usize::MAX));
    let most = given.len().max(name.len()) / 3;
    // The distances of what has been read of `given` from each start of `name`.
    let mut distances: Vec<usize> = (0..=name.len()).collect();
    for (row, one) in given.iter().enumerate() {
        let (mut left, mut above_left) = (row + 1, row);
        for (above, other) in distances.iter_mut().zip([None].into_iter().chain(name.iter().map(Some))) {
            let replaced = above_left + usize::from(Some(one) != other);
            above_left = *above;
            *above = match other {
                None => left,
                Some(_) => replaced.min(*above + 1).min(left + 1),
            };
            left = *above;
        }
    }
    distances.last().copied().filter(|distance| *distance <= most)
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
