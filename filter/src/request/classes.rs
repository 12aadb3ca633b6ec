//! Endpoint classes: which quota a request is counted under, by its method and path.
//!
//! A path is matched in a normal form, so that no spelling of `/analytics` that an upstream may serve as `/analytics` is counted as
//! something else. The case of letters is kept, and an encoded `/` stays encoded: those are other resources.

use super::path::below;

/// Matches requests by method and path. A part that is absent matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Methods, as they are on the wire; `GET` matches `HEAD` too. Empty: any.
    pub methods: Vec<String>,
    /// The path, in normal form.
    pub path: PathMatch,
}

/// How a [`Match`] looks at the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PathMatch {
    /// Any path, also none.
    #[default]
    Any,
    /// This path.
    Exact(String),
    /// This path and all below it, by whole segments.
    Prefix(String),
}

impl Match {
    /// Whether a request matches. `path` is in normal form and without the base path; `None` for a request that has none.
    #[must_use]
    pub fn matches(&self, method: &[u8], path: Option<&[u8]>) -> bool {
        // The path first, because it tells more requests apart.
        let path_matches = match &self.path {
            PathMatch::Any => true,
            PathMatch::Exact(expected) => path == Some(expected.as_bytes()),
            PathMatch::Prefix(prefix) => path.is_some_and(|path| below(prefix, path).is_some()),
        };
        let allows =
            |allowed: &String| allowed.as_bytes() == method || (allowed == "GET" && method == b"HEAD");
        path_matches && (self.methods.is_empty() || self.methods.iter().any(allows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_and_paths_match_as_documented() {
        let analytics = Match { methods: vec!["GET".into()], path: PathMatch::Exact("/analytics".into()) };
        let redirects = Match { methods: vec![], path: PathMatch::Prefix("/r".into()) };
        let preflight = Match { methods: vec!["OPTIONS".into()], path: PathMatch::Any };
        let everything = Match { methods: vec![], path: PathMatch::Prefix("/".into()) };
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
