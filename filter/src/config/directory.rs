//! The directory: a service from which the filter fetches subscribers.

use core::fmt;
use core::net::Ipv6Addr;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Unexpected, Visitor};

use super::error::ConfigError;
use super::problem::Problem;
use super::raw;
use super::strangers::StrangerPolicy;
use crate::config::rate::{QuotaTerms, duration};
use crate::quota::QuotaSet;

/// Upper bound of a poll's timeout, in seconds.
const MAX_TIMEOUT: u32 = 5;

/// A directory to poll.
#[derive(Clone, PartialEq, Eq)]
pub struct DirectorySettings {
    /// The gateway's cluster of the directory.
    pub cluster: String,
    /// The path of the document.
    pub path: String,
    /// Seconds between polls; at least 1.
    pub interval: u32,
    /// The bearer token that the filter sends to the directory.
    pub bearer: Option<Secret>,
    /// The `:authority` of polls.
    pub authority: String,
    /// Policy for unknown keys before the first good answer.
    pub not_ready: NotReady,
    /// Seconds after which the filter drops the last good answer; 0 for never.
    pub max_stale: u32,
}

/// Without the bearer token, and without the path, which may hold a token, too.
impl fmt::Debug for DirectorySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, path: _, interval, bearer: _, authority, not_ready, max_stale } = self;
        f.debug_struct("DirectorySettings")
            .field("cluster", cluster)
            .field("authority", authority)
            .field("interval", interval)
            .field("not_ready", not_ready)
            .field("max_stale", max_stale)
            .finish_non_exhaustive()
    }
}

/// A bearer token, or the environment variable that has it. Its debugging output shows neither.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The token.
    Given(String),
    /// The name of the variable. [`super::Config::with_environment`] replaces it by its value.
    Variable(String),
}

impl Secret {
    /// The token; empty for a variable that has not been replaced by its value.
    #[must_use]
    pub fn expose(&self) -> &str {
        match self {
            Self::Given(token) => token,
            Self::Variable(_) => "",
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Variable {
            env: String,
        }

        struct SecretVisitor;

        impl<'de> Visitor<'de> for SecretVisitor {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a token, or {"env": "NAME"}"#)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Secret, E> {
                Ok(Secret::Given(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Secret, A::Error> {
                let Variable { env } = Variable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Secret::Variable(env))
            }
        }

        deserializer.deserialize_any(SecretVisitor)
    }
}

/// Policy for unknown keys before the directory's first good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// Forward the request without counting it: the key may be a subscriber's.
    Pass,
    /// Answer 503.
    Unavailable,
    /// Count the request per client address, and forward it while quota is left.
    Limit(Arc<QuotaSet>),
}

/// As JSON has it: an action, or an object.
#[derive(Default)]
#[cfg_attr(feature = "schema", derive(serde::Serialize), serde(untagged))]
pub(super) enum NotReadyFields {
    Pass,
    Unavailable,
    #[default]
    DefaultLimit,
    #[cfg_attr(feature = "schema", serde(skip))]
    Limit(Option<Vec<QuotaTerms>>),
}

impl<'de> Deserialize<'de> for NotReadyFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            action: Action,
            quotas: Option<Vec<QuotaTerms>>,
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Action {
            Limit,
            Pass,
            Unavailable,
        }

        struct PolicyVisitor;

        impl<'de> Visitor<'de> for PolicyVisitor {
            type Value = NotReadyFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#""pass", "unavailable" or {"action": "limit", "quotas": ["600/minute"]}"#)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<NotReadyFields, E> {
                match text {
                    "pass" => Ok(NotReadyFields::Pass),
                    "unavailable" => Ok(NotReadyFields::Unavailable),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NotReadyFields, A::Error> {
                let Fields { action, quotas } = Fields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(match action {
                    Action::Limit => NotReadyFields::Limit(quotas),
                    Action::Pass => NotReadyFields::Pass,
                    Action::Unavailable => NotReadyFields::Unavailable,
                })
            }
        }

        deserializer.deserialize_any(PolicyVisitor)
    }
}

impl NotReady {
    fn check(raw: NotReadyFields) -> Result<Self, ConfigError> {
        let quotas = match raw {
            NotReadyFields::Pass => return Ok(Self::Pass),
            NotReadyFields::Unavailable => return Ok(Self::Unavailable),
            NotReadyFields::DefaultLimit => None,
            NotReadyFields::Limit(quotas) => quotas,
        };
        match StrangerPolicy::checked(raw::Stranger::new(raw::Action::Limit, quotas), 600)? {
            StrangerPolicy::Limit(quotas) => Ok(Self::Limit(quotas)),
            StrangerPolicy::Reject => Ok(Self::Unavailable),
            StrangerPolicy::Pass => Ok(Self::Pass),
        }
    }
}

/// The host of calls to a cluster: the given one, or else the part of the cluster's name after the last `|`, as Istio names clusters. Where
/// that is not a host, `weir.internal`.
fn authority(given: Option<String>, cluster: &str) -> Result<String, ConfigError> {
    if let Some(given) = given {
        let problem = Problem::Invalid(
            "expected a host, with or without a port, such as directory.internal:8082".into(),
        );
        return if is_authority(&given) { Ok(given) } else { Err(ConfigError::new("authority", problem)) };
    }
    let host = cluster.rsplit('|').next().unwrap_or(cluster);
    Ok(if is_authority(host) { host } else { "weir.internal" }.to_owned())
}

/// Whether a text is `host[:port]`.
fn is_authority(text: &str) -> bool {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (is_host, port) = match bracketed {
        Some((address, rest)) => (address.parse::<Ipv6Addr>().is_ok(), rest),
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_label = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            (!host.is_empty() && host.bytes().all(is_label), port)
        }
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

impl DirectorySettings {
    pub(super) fn check(raw: raw::Directory) -> Result<Self, ConfigError> {
        let seconds = |field, text: String| {
            duration(&text).flatten().ok_or_else(|| ConfigError::new(field, Problem::Duration).given(text))
        };
        if raw.cluster.is_empty() {
            return Err(ConfigError::new("cluster", Problem::NoneGiven));
        }
        if !raw.path.starts_with('/') {
            return Err(ConfigError::new("path", Problem::NoSlash).given(raw.path));
        }
        let interval = seconds("interval", raw.interval)?;
        if interval == 0 {
            return Err(ConfigError::new("interval", Problem::Range { expected: "1 second or more" }));
        }
        Ok(Self {
            authority: authority(raw.authority, &raw.cluster)?,
            cluster: raw.cluster,
            path: raw.path,
            interval,
            bearer: raw.bearer,
            not_ready: NotReady::check(raw.not_ready).map_err(|error| error.within("not_ready"))?,
            max_stale: seconds("max_stale", raw.max_stale)?,
        })
    }

    /// Timeout of a poll in milliseconds: the interval, and at most five seconds.
    #[must_use]
    pub fn timeout_milliseconds(&self) -> u32 {
        self.interval.min(MAX_TIMEOUT) * 1000
    }
}
