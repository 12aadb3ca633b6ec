//! What is wrong with a configuration, and where.

use core::fmt::{self, Write as _};

/// A configuration that is refused: the path of the field and what is wrong with it.
///
/// ```
/// let refused = filter::config::Config::from_json(br#"{"plans": {"pro": {"standard": ["600/fortnight"]}}}"#).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     r#"plans.pro.standard[0]: "600/fortnight": unknown unit, expected second, minute, hour, day or month"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    path: String,
    problem: Problem,
}

impl ConfigError {
    pub(super) fn new(path: impl Into<String>, problem: Problem) -> Self {
        Self { path: path.into(), problem }
    }

    /// The same error, seen from the field that holds this one.
    pub(super) fn within(mut self, parent: impl fmt::Display) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{parent}{separator}{}", self.path);
        self
    }

    /// The field, as `plans.pro.standard[0]`; empty for the configuration itself.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = OneLine(f);
        if self.path.is_empty() {
            write!(line, "{}", self.problem)
        } else {
            write!(line, "{}: {}", self.path, self.problem)
        }
    }
}

/// Escapes control characters: a refusal is one line of a log, whatever a field in the configuration is called.
struct OneLine<'f, 'b>(&'f mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character.is_control() {
            true => write!(self.0, "{}", character.escape_default()),
            false => self.0.write_char(character),
        })
    }
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no configuration.
    #[error(r#"the configuration is empty; it needs plans, for example {{"plans": {{"free": {{"standard": ["60/minute"]}}}}}}"#)]
    Empty,
    /// No JSON, or a value of the wrong type, form or name; the text says what was expected.
    #[error("{0}")]
    Invalid(String),
    /// A list or map that must not be empty.
    #[error("must not be empty")]
    NoneGiven,
    /// A name with other characters, or of another length.
    #[error("{name:?}: a name is {expected}")]
    Name {
        /// As given.
        name: String,
        /// What a name is.
        expected: &'static str,
    },
    /// Two things of one name.
    #[error("{0:?} stands twice")]
    Duplicate(String),
    /// A name that nothing has.
    #[error("there is no {kind} {name:?}, expected {expected}")]
    Unknown {
        /// "class" or "plan".
        kind: &'static str,
        /// As given.
        name: String,
        /// The names there are.
        expected: String,
    },
    /// More quotas than a counter's record has room for.
    #[error("{0} quotas, at most {max} are possible", max = crate::count::consume::MAX_QUOTAS)]
    TooManyQuotas(usize),
    /// A quota that no rate-limit service has a unit for.
    #[error(
        "a fleet shares quotas of a second, minute, hour or day; use one of these, or \"mode\": \"shadow\""
    )]
    NotLeasable,
    /// Two quotas of one class that would count the same.
    #[error("another quota of this class has the same window and mode; keep the lower limit")]
    SameWindow,
    /// A request of this class could never be served.
    #[error("a request of class {class:?} costs {cost}, more than this limit: none could ever pass")]
    CostOverLimit {
        /// The class.
        class: String,
        /// Its cost.
        cost: u32,
    },
    /// A path that upstreams may read in several ways, or that none reads as it is written.
    #[error("{given:?} is compared with a path in its normal form; write {normal:?}")]
    PathForm {
        /// As given.
        given: String,
        /// What it is in normal form.
        normal: String,
    },
    /// A match without any condition.
    #[error("give methods, path or path_prefix: a match without any would match everything")]
    MatchesEverything,
    /// Two fields that exclude each other.
    #[error("give either {0} or {1}")]
    EitherOr(&'static str, &'static str),
    /// Fields of which there must be exactly one.
    #[error("give one of {0}")]
    OneOf(&'static str),
    /// A scheme for something else than a header.
    #[error("only a header has a scheme")]
    SchemeWithoutHeader,
    /// A metadata path that names no value.
    #[error(
        r#"expected the path of a value, for example ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]"#
    )]
    MetadataPath,
    /// A path to ask for that does not start at the root.
    #[error("{0:?}: expected a path that starts with /")]
    NoSlash(String),
    /// No duration.
    #[error("{0:?}: expected whole seconds, minutes, hours or days such as 10s, 5m, 2h, 7d")]
    Duration(String),
    /// No duration, or one that is counted in something else.
    #[error("{0:?}: expected whole milliseconds or seconds such as 250ms, 1s")]
    ShortDuration(String),
    /// A number out of bounds.
    #[error("{given} is out of range, expected {expected}")]
    Range {
        /// As given.
        given: u64,
        /// The bounds.
        expected: &'static str,
    },
    /// An API key where its hash belongs.
    #[error("keys are given by their hash and a plain key is written nowhere; write {hash:?}")]
    PlainKey {
        /// What to write.
        hash: String,
    },
    /// `sha256:` with something else than 64 hexadecimal digits.
    #[error(r#"expected "sha256:" and 64 hexadecimal digits"#)]
    KeyHash,
    /// A key of two subscribers.
    #[error("subscriber {0:?} has the same key")]
    SharedKey(String),
    /// A subscriber that could call nothing.
    #[error(
        "plan {plan:?} has no quota for the default class {class:?}, and limits gives none: the subscriber could call nothing"
    )]
    NoDefaultQuota {
        /// The subscriber's plan.
        plan: String,
        /// The default class.
        class: String,
    },
    /// Too few records for the keys there are.
    #[error("{available} records are fewer than the {needed} that the configured keys need")]
    Capacity {
        /// As configured.
        available: u32,
        /// As needed.
        needed: usize,
    },
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
