//! How requests are matched, and where they carry their key.

use super::error::ConfigError;
use super::plans::check_name;
use super::problem::Problem;
use super::raw;
use crate::request::classes::{Match, PathMatch};
use crate::request::identity::KeySource;
use crate::request::readings::Readings;

/// Checks paths and matches against what the upstream may take a path for.
pub(super) struct Paths(pub(super) Readings);

impl Paths {
    /// The matches of a list.
    pub(super) fn matches(&self, raw: Vec<raw::Match>) -> Result<Vec<Match>, ConfigError> {
        raw.into_iter()
            .enumerate()
            .map(|(index, rule)| self.one_match(rule).map_err(|error| error.within(index)))
            .collect()
    }

    /// A path with which readings of requests' paths are compared must have one reading: itself.
    pub(super) fn checked(&self, path: String) -> Result<String, ConfigError> {
        if !path.starts_with('/') {
            return Err(ConfigError::new("", Problem::NoSlash).given(path));
        }
        match self.0.check(&path) {
            Ok(()) => Ok(path),
            Err(normal) => Err(ConfigError::new("", Problem::PathForm { normal }).given(path)),
        }
    }

    fn one_match(&self, raw: raw::Match) -> Result<Match, ConfigError> {
        let path = match (raw.path, raw.path_prefix) {
            (Some(_), Some(_)) => {
                return Err(ConfigError::new("", Problem::EitherOr("path", "path_prefix")));
            }
            (Some(path), None) => PathMatch::Exact(self.checked(path).map_err(|error| error.within("path"))?),
            (None, Some(prefix)) => {
                PathMatch::Prefix(self.checked(prefix).map_err(|error| error.within("path_prefix"))?)
            }
            (None, None) => PathMatch::Any,
        };
        let methods = match raw.methods {
            None if path == PathMatch::Any => {
                return Err(ConfigError::new("", Problem::MatchesEverything));
            }
            None => Vec::new(),
            Some(methods) if methods.is_empty() => {
                return Err(ConfigError::new("methods", Problem::NoneGiven));
            }
            Some(methods) => methods,
        };
        for (index, method) in methods.iter().enumerate() {
            let expected = "that of a method in upper case";
            check_name(method, expected, |method| {
                !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
            })
            .map_err(|error| error.within(index).within("methods"))?;
        }
        Ok(Match { methods, path })
    }
}

/// Refuses what is not the name of a header.
pub(super) fn check_header(name: &str) -> Result<(), ConfigError> {
    check_name(name, "that of a header (RFC 9110, section 5.1)", is_token)
}

fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

pub(super) fn key_sources(raw: Vec<raw::KeySource>) -> Result<Vec<KeySource>, ConfigError> {
    if raw.is_empty() {
        return Err(ConfigError::new("", Problem::NoneGiven));
    }
    let source = |source: raw::KeySource| match (source.header, source.query, source.metadata, source.scheme)
    {
        (Some(header), None, None, scheme) => {
            check_header(&header).map_err(|error| error.within("header"))?;
            if let Some(scheme) = &scheme {
                check_name(scheme, "that of a scheme (RFC 9110, section 11.1)", is_token)
                    .map_err(|error| error.within("scheme"))?;
            }
            Ok(KeySource::Header { name: header.to_ascii_lowercase(), scheme })
        }
        (None, _, _, Some(_)) => Err(ConfigError::new("scheme", Problem::SchemeWithoutHeader)),
        (None, Some(name), None, None) if name.is_empty() => {
            Err(ConfigError::new("query", Problem::NoneGiven))
        }
        (None, Some(name), None, None) => Ok(KeySource::Query { name }),
        (None, None, Some(metadata), None) => {
            property_path(&metadata).map(|path| KeySource::Metadata { path })
        }
        _ => Err(ConfigError::new("", Problem::OneOf("header, query or metadata"))),
    };
    raw.into_iter().enumerate().map(|(index, raw)| source(raw).map_err(|error| error.within(index))).collect()
}

/// The path of the property that `metadata` names, its parts joined by NUL.
pub(super) fn property_path(metadata: &[String]) -> Result<Vec<u8>, ConfigError> {
    let odd = |part: &String| part.is_empty() || part.contains('\0');
    if metadata.len() < 2 || metadata.iter().any(odd) {
        return Err(ConfigError::new("metadata", Problem::MetadataPath));
    }
    Ok(format!("metadata\0{}", metadata.join("\0")).into_bytes())
}
