//! How requests are matched, and where they carry their key.

#[cfg(feature = "schema")]
use serde_json::json;

use super::leaf::{HeaderName, MetadataPath, Method, Path, Scheme, Text};
use crate::read::error::{At as _, ConfigError, Quoted};
#[cfg(feature = "schema")]
use crate::read::schema::given;
use crate::read::{NonEmpty, Value, fields, forms};
use crate::request::identity::KeySource;
use crate::request::readings::Readings;
use crate::request::template::Template;

fields! {
    /// A condition on requests. All given fields must match, and at least one is required.
    pub struct Match as "Match" derive(Clone, Debug, PartialEq, Eq) checked by check_fields where {
        "anyOf": [given("methods"), given("path"), given("path_prefix")],
        "not": {"allOf": [given("path"), given("path_prefix")]},
    } {
        /// Methods in upper case. `GET` also matches `HEAD`.
        pub(super) methods: Option<NonEmpty<Method>>,
        /// Exact path. A segment `{name}` stands for any one that is not empty, as in `/users/{id}/reports`. A trailing slash of the request does
        /// not matter. Excludes `path_prefix`.
        pub(super) path: Option<Template>,
        /// Path and everything below it, by whole segments: `/r` matches `/r/x` and does not match `/rx`. A segment `{name}` stands for any one.
        /// Excludes `path`.
        pub(super) path_prefix: Option<Template>,
    }
}

forms! {
    Template: "a path",
    |_definitions| {
        let segment = r"([^/{}*]*|\{[^/{}*]+\})";
        json!({"type": "string", "pattern": format!("^/{segment}(/{segment})*$")})
    };
    Value::Text(text) => Self::new(text).map_err(|error| ConfigError::new(error.to_string())),
}

impl Match {
    /// Requests to read what is at `path`.
    pub(super) fn get(path: Path) -> Self {
        let methods = NonEmpty(vec![Method("GET".to_owned())]);
        Self { methods: Some(methods), path: Some(Template::literal(path.0)), path_prefix: None }
    }

    fn check_fields(&self) -> Result<(), ConfigError> {
        match self {
            Self { path: Some(_), path_prefix: Some(_), .. } => {
                Err(ConfigError::new("give either path or path_prefix, not both"))
            }
            Self { methods: None, path: None, path_prefix: None } => Err(ConfigError::new(
                "give methods, path or path_prefix: a match without any would match everything",
            )),
            _ => Ok(()),
        }
    }

    /// Checks the path by the readings of requests' paths.
    pub(super) fn check(&self, readings: &Readings) -> Result<(), ConfigError> {
        for (field, template) in [("path", &self.path), ("path_prefix", &self.path_prefix)] {
            if let Some(template) = template {
                template.check(readings).map_err(|normal| not_normal(template.text(), &normal)).at(field)?;
            }
        }
        Ok(())
    }

    /// Whether a request matches. `path` is in normal form and without the base path; `None` for a request that has none.
    pub(super) fn matches(&self, method: &[u8], path: Option<&[u8]>) -> bool {
        // The path first, because it tells more requests apart.
        self.path.as_ref().is_none_or(|template| path.is_some_and(|path| template.is(path)))
            && self
                .path_prefix
                .as_ref()
                .is_none_or(|prefix| path.is_some_and(|path| prefix.is_at_or_above(path)))
            && self.allows(method)
    }

    fn allows(&self, method: &[u8]) -> bool {
        let is_allowed =
            |allowed: &Method| allowed.as_bytes() == method || (&**allowed == "GET" && method == b"HEAD");
        self.methods.as_ref().is_none_or(|NonEmpty(methods)| methods.iter().any(is_allowed))
    }

    /// Whether it matches every request that `later` matches.
    pub(super) fn covers(&self, later: &Self) -> bool {
        let of_later = later.path.as_ref().or(later.path_prefix.as_ref());
        let covers = |template: &Template, or_below| {
            of_later.is_some_and(|of_later| template.covers(of_later, or_below))
        };
        let are_allowed = |NonEmpty(methods): &NonEmpty<Method>| {
            methods.iter().all(|method| self.allows(method.as_bytes()))
        };
        self.path.as_ref().is_none_or(|path| later.path.is_some() && covers(path, false))
            && self.path_prefix.as_ref().is_none_or(|prefix| covers(prefix, true))
            && (self.methods.is_none() || later.methods.as_ref().is_some_and(are_allowed))
    }

    /// Whether it depends on the path.
    pub(super) fn looks_at_path(&self) -> bool {
        self.path.is_some() || self.path_prefix.is_some()
    }
}

/// A path with which readings of requests' paths are compared must have one reading: itself.
pub(super) fn check_path(path: &str, readings: &Readings) -> Result<(), ConfigError> {
    readings.check(path).map_err(|normal| not_normal(path, &normal))
}

fn not_normal(path: &str, normal: &str) -> ConfigError {
    let normal = Quoted(normal);
    let problem = format!("not in the normal form that requests' paths are compared in; write {normal}");
    ConfigError::new(problem).given(&Quoted(path))
}

fields! {
    /// A place where a request may carry its key. Exactly one of `header`, `query` and `metadata` is required.
    struct KeySourceFields as "KeySource" derive() where {
        "oneOf": [given("header"), given("query"), given("metadata")],
        "if": given("scheme"),
        "then": given("header"),
    } {
        /// Name of a request header, in any case.
        header: Option<HeaderName>,
        /// Authentication scheme before the key in the header, in any case. Only with `header`. The key of `Basic` is the decoded user name.
        scheme: Option<Scheme>,
        /// Name of a query parameter.
        query: Option<Text>,
        /// Path of a value in the metadata of the request, as an authentication filter writes it.
        metadata: Option<MetadataPath>,
    }
}

forms! {
    KeySource, |definitions| KeySourceFields::schema(definitions);
    object => {
        let KeySourceFields { header, scheme, query, metadata } = KeySourceFields::read(object)?;
        let scheme = scheme.map(|scheme| scheme.0);
        match (header, query, metadata) {
            (Some(name), None, None) => Ok(Self::Header { name: name.to_ascii_lowercase(), scheme }),
            (None, _, _) if scheme.is_some() => Err(ConfigError::new("only a header has a scheme")).at("scheme"),
            (None, Some(name), None) => Ok(Self::Query { name: name.0 }),
            (None, None, Some(MetadataPath(path))) => Ok(Self::Metadata { path }),
            (None, None, None) => Err(ConfigError::new("give header, query or metadata")),
            _ => Err(ConfigError::new("give one of header, query and metadata, not several")),
        }
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_covers_those_that_it_leaves_nothing_to() {
        let rows = [
            (r#"{"path_prefix": "/r"}"#, r#"{"methods": ["GET"], "path": "/r/{key}"}"#, true),
            (r#"{"methods": ["GET"], "path_prefix": "/r"}"#, r#"{"methods": ["HEAD"], "path": "/r"}"#, true),
            (r#"{"methods": ["HEAD"], "path_prefix": "/r"}"#, r#"{"methods": ["GET"], "path": "/r"}"#, false),
            (r#"{"methods": ["GET"], "path_prefix": "/r"}"#, r#"{"path": "/r"}"#, false),
            (r#"{"methods": ["GET"]}"#, r#"{"methods": ["GET"], "path": "/r"}"#, true),
            (r#"{"path": "/r"}"#, r#"{"path_prefix": "/r"}"#, false),
            (r#"{"path": "/r"}"#, r#"{"methods": ["GET"]}"#, false),
        ];
        for (earlier, later, expected) in rows {
            let [of, other] =
                [earlier, later].map(|json| crate::read::document::<Match>(json.as_bytes()).unwrap());
            assert_eq!(of.covers(&other), expected, "{later} after {earlier}");
        }
    }

    #[test]
    fn methods_and_paths_match_as_documented() {
        let rule = |json: &str| crate::read::document::<Match>(json.as_bytes()).unwrap();
        let analytics = rule(r#"{"methods": ["GET"], "path": "/analytics"}"#);
        let redirects = rule(r#"{"path_prefix": "/r"}"#);
        let preflight = rule(r#"{"methods": ["OPTIONS"]}"#);
        let everything = rule(r#"{"path_prefix": "/"}"#);
        let rows = [
            (&analytics, "GET", Some("/analytics"), true),
            (&analytics, "HEAD", Some("/analytics"), true),
            (&analytics, "POST", Some("/analytics"), false),
            (&analytics, "get", Some("/analytics"), false),
            (&analytics, "GET", Some("/analytics/x"), false),
            (&analytics, "GET", None, false),
            (&redirects, "GET", Some("/r"), true),
            (&redirects, "DELETE", Some("/r/abc"), true),
            (&redirects, "GET", Some("/rest"), false),
            (&preflight, "OPTIONS", Some("/anything"), true),
            (&preflight, "OPTIONS", None, true),
            (&preflight, "GET", Some("/anything"), false),
            (&everything, "GET", Some("/"), true),
            (&everything, "GET", Some("/x"), true),
            (&everything, "CONNECT", None, false),
        ];
        for (rule, method, path, expected) in rows {
            assert_eq!(
                rule.matches(method.as_bytes(), path.map(str::as_bytes)),
                expected,
                "{method} {path:?} against {rule:?}"
            );
        }
    }
}
