//! How requests are matched, and where they carry their key.

use serde::Deserialize;

use super::error::Quoted;
use super::error::{At as _, ConfigError, each};
use super::leaf::{HeaderName, MetadataPath, Method, NonEmpty, Path, Scheme, Text};
use crate::request::classes::{Match, PathMatch};
use crate::request::identity::KeySource;
use crate::request::readings::Readings;

/// A condition on requests. All given fields must match, and at least one is required.
#[derive(Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Match", extend(
        "anyOf" = [super::leaf::given("methods"), super::leaf::given("path"), super::leaf::given("path_prefix")],
        "not" = {"allOf": [super::leaf::given("path"), super::leaf::given("path_prefix")]},
    ))
)]
#[serde(deny_unknown_fields)]
pub(super) struct MatchFields {
    /// Methods in upper case. `GET` also matches `HEAD`.
    methods: Option<NonEmpty<Method>>,
    /// Exact path. A trailing slash of the request does not matter. Excludes `path_prefix`.
    path: Option<Path>,
    /// Path and everything below it, by whole segments: `/r` matches `/r/x` and does not match `/rx`. Excludes `path`.
    path_prefix: Option<Path>,
}

/// Preflight requests, which browsers send automatically.
pub(super) fn default_exempt() -> Vec<MatchFields> {
    let methods = NonEmpty(vec![Method("OPTIONS".to_owned())]);
    vec![MatchFields { methods: Some(methods), path: None, path_prefix: None }]
}

/// Checks paths and matches against what the upstream may take a path for.
pub(super) struct Paths(pub(super) Readings);

impl Paths {
    /// The matches of a list.
    pub(super) fn matches(&self, list: Vec<MatchFields>) -> Result<Vec<Match>, ConfigError> {
        each(list, |fields| {
            let path = match (fields.path, fields.path_prefix) {
                (Some(_), Some(_)) => {
                    return Err(ConfigError::new("give either path or path_prefix, not both"));
                }
                (Some(path), None) => PathMatch::Exact(self.normal(&path).at("path")?),
                (None, Some(prefix)) => PathMatch::Prefix(self.normal(&prefix).at("path_prefix")?),
                (None, None) if fields.methods.is_none() => {
                    let problem =
                        "give methods, path or path_prefix: a match without any would match everything";
                    return Err(ConfigError::new(problem));
                }
                (None, None) => PathMatch::Any,
            };
            let methods = fields.methods.into_iter().flat_map(|NonEmpty(methods)| methods);
            Ok(Match { methods: methods.map(Into::into).collect(), path })
        })
    }

    /// A path with which readings of requests' paths are compared must have one reading: itself.
    pub(super) fn normal(&self, path: &str) -> Result<String, ConfigError> {
        self.0.check(path).map(|()| path.to_owned()).map_err(|normal| {
            let normal = Quoted(&normal);
            let problem =
                format!("not in the normal form that requests' paths are compared in; write {normal}");
            ConfigError::new(problem).given(path)
        })
    }
}

/// A place where a request may carry its key. Exactly one of `header`, `query` and `metadata` is required.
#[derive(Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "KeySource", extend(
        "oneOf" = [super::leaf::given("header"), super::leaf::given("query"), super::leaf::given("metadata")],
        "if" = (super::leaf::given("scheme")),
        "then" = (super::leaf::given("header")),
    ))
)]
#[serde(deny_unknown_fields)]
pub(super) struct KeySourceFields {
    /// Name of a request header, in any case.
    header: Option<HeaderName>,
    /// Authentication scheme before the key in the header, in any case. Only with `header`.
    scheme: Option<Scheme>,
    /// Name of a query parameter.
    query: Option<Text>,
    /// Path of a value in the metadata of the request, as an authentication filter writes it.
    metadata: Option<MetadataPath>,
}

/// `Authorization: Bearer`.
pub(super) fn default_key_sources() -> NonEmpty<KeySourceFields> {
    let (header, scheme) = (HeaderName("authorization".to_owned()), Scheme("Bearer".to_owned()));
    NonEmpty(vec![KeySourceFields {
        header: Some(header),
        scheme: Some(scheme),
        query: None,
        metadata: None,
    }])
}

impl TryFrom<KeySourceFields> for KeySource {
    type Error = ConfigError;

    fn try_from(fields: KeySourceFields) -> Result<Self, ConfigError> {
        let both = |one, other| Err(ConfigError::new(format!("give either {one} or {other}, not both")));
        let KeySourceFields { header, scheme, query, metadata } = fields;
        match (header, query, metadata) {
            (Some(_), Some(_), _) => both("header", "query"),
            (Some(_), None, Some(_)) => both("header", "metadata"),
            (None, Some(_), Some(_)) => both("query", "metadata"),
            (Some(name), None, None) => {
                Ok(Self::Header { name: name.to_ascii_lowercase(), scheme: scheme.map(Into::into) })
            }
            (None, _, _) if scheme.is_some() => {
                Err(ConfigError::new("only a header has a scheme")).at("scheme")
            }
            (None, Some(name), None) => Ok(Self::Query { name: name.into() }),
            (None, None, Some(MetadataPath(path))) => Ok(Self::Metadata { path }),
            (None, None, None) => Err(ConfigError::new("give header, query or metadata")),
        }
    }
}
