//! What can be wrong with a field of the configuration.

use std::borrow::Cow;

use super::quoting::{Quoted, list};

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The configuration is empty.
    #[error(r#"the configuration is empty; it needs plans, for example {{"plans": {{"free": {{"standard": ["60/minute"]}}}}}}"#)]
    Empty,
    /// The configuration is not JSON. The text is serde_json's, which has the position and quotes nothing.
    #[error("{0}")]
    Syntax(String),
    /// The value is wrong; the text says what is expected.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// The value has the wrong type.
    #[error("expected {expected}, found {found}")]
    Type {
        /// The JSON type of the given value.
        found: &'static str,
        /// The expected value.
        expected: String,
    },
    /// The value has the right type and the wrong content.
    #[error("expected {expected}")]
    Value {
        /// The expected value.
        expected: String,
    },
    /// The object has no such field.
    #[error("unknown field, expected one of {}", expected.join(", "))]
    UnknownField {
        /// The object's fields.
        expected: &'static [&'static str],
    },
    /// A required field is missing.
    #[error("missing field `{0}`")]
    MissingField(&'static str),
    /// The list or object must not be empty.
    #[error("must not be empty")]
    NoneGiven,
    /// The name has characters or a length that are not allowed.
    #[error("a name is {expected}")]
    Name {
        /// The characters and the length of a name.
        expected: &'static str,
    },
    /// The name is given twice.
    #[error("given twice")]
    Duplicate,
    /// The configuration has no plan or class of this name.
    #[error("unknown {kind}, expected {}", list(expected))]
    Unknown {
        /// "class" or "plan".
        kind: &'static str,
        /// The configured names.
        expected: Vec<String>,
    },
    /// The class has more quotas than a counter's record has room for.
    #[error("{0} quotas, at most {max} are possible", max = crate::count::entry::MAX_QUOTAS)]
    TooManyQuotas(usize),
    /// Two quotas of a class have the same window and mode.
    #[error("another quota of this class has the same window and mode; keep the lower limit")]
    SameWindow,
    /// A request of the class costs more than the limit.
    #[error("a request of class {} costs {cost}, more than this limit: none could ever pass", Quoted(class))]
    CostOverLimit {
        /// The class.
        class: String,
        /// Its cost.
        cost: u32,
    },
    /// A request of the class reserves more than the limit.
    #[error(
        "a request of class {} reserves {reserve} units (its cost.reserve), more than this limit: none could ever pass",
        Quoted(class)
    )]
    ReserveOverLimit {
        /// The class.
        class: String,
        /// Its reserve.
        reserve: u32,
    },
    /// Two quotas of a class have the same window, of which one is refundable.
    #[error(
        "another quota of this class has the same window, so they share one count; give both the same value of refundable"
    )]
    SharedCount,
    /// The path is not in the normal form that the filter compares requests' paths with.
    #[error("not in the normal form that requests' paths are compared in; write {}", Quoted(normal))]
    PathForm {
        /// The path in normal form.
        normal: String,
    },
    /// The match has no condition.
    #[error("give methods, path or path_prefix: a match without any would match everything")]
    MatchesEverything,
    /// Both of two fields that exclude each other are given.
    #[error("give either {0} or {1}")]
    EitherOr(&'static str, &'static str),
    /// Exactly one of these fields is required.
    #[error("give one of {0}")]
    OneOf(&'static str),
    /// A scheme is given for a key source that is not a header.
    #[error("only a header has a scheme")]
    SchemeWithoutHeader,
    /// The path in metadata is too short, or a part is empty.
    #[error("expected the path of a value, for example {SUBJECT}")]
    MetadataPath,
    /// `plan_source` is given, and no key source is metadata.
    #[error(
        "needs a key source from metadata, because a token that is refreshed would start a new quota; add to key_sources the token's subject, for example {{\"metadata\": {SUBJECT}}}"
    )]
    PlanWithoutSubject,
    /// The path does not start with a slash.
    #[error("expected a path that starts with /")]
    NoSlash,
    /// The text is not a duration in whole seconds.
    #[error("expected whole seconds, minutes, hours or days such as 10s, 5m, 2h, 7d")]
    Duration,
    /// The text is not a duration in milliseconds or seconds.
    #[error("expected whole milliseconds or seconds such as 250ms, 1s")]
    ShortDuration,
    /// The number is out of bounds.
    #[error("out of range, expected {expected}")]
    Range {
        /// The bounds and the unit.
        expected: &'static str,
    },
    /// An API key or a token is given in place of its hash.
    #[error("keys and tokens are given by their hash and written nowhere as they are; write {hash:?}")]
    PlainKey {
        /// The hash, as the configuration takes it.
        hash: String,
    },
    /// `sha256:` is not followed by 64 hexadecimal digits.
    #[error(r#"expected "sha256:" and 64 hexadecimal digits"#)]
    KeyHash,
    /// Another subscriber has the same key.
    #[error("subscribers[{0}] has the same key")]
    SharedKey(usize),
    /// Another subscriber gives the same organisation other limits.
    #[error("subscribers[{0}] gives the same organisation other limits")]
    OtherLimits(usize),
    /// Neither the plan nor the subscriber's limits have a quota for the default class.
    #[error(
        "plan {} has no quota for the default class {}, and limits gives none: the subscriber could call nothing",
        Quoted(plan),
        Quoted(class)
    )]
    NoDefaultQuota {
        /// The subscriber's plan.
        plan: String,
        /// The default class.
        class: String,
    },
    /// The configured keys need more records than `counters` has.
    #[error("{available} records are fewer than the {needed} that the configured keys need")]
    Capacity {
        /// The configured number of records.
        available: u32,
        /// The number of records that the keys need.
        needed: usize,
    },
}

/// The subject of a token that Envoy's JWT filter has verified, as a path in metadata.
const SUBJECT: &str = r#"["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]"#;
