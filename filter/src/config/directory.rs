//! The directory: a service from which the filter fetches subscribers.

use core::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess};

use super::error::{At as _, ConfigError, Quoted};
use super::forms::{Forms, read_by_forms};
use super::leaf::{Authority, Path, Span, Text, Variable, is_authority};
use super::strangers::NotReadyFields;

/// Upper bound of a poll's timeout, in seconds.
const MAX_TIMEOUT: u32 = 5;

/// The host that polls name where the name of the cluster has none. `.internal` is reserved for private use.
const DEFAULT_AUTHORITY: &str = "weir.internal";

/// A service that lists subscribers.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Directory"))]
#[serde(deny_unknown_fields)]
pub struct DirectorySettings {
    /// The gateway's cluster of the directory.
    pub cluster: Text,
    /// Path of the document.
    pub path: Path,
    /// Host that polls name as `:authority`, with or without a port. The default is the part of the cluster's name after its last vertical
    /// bar, as Istio's names have it, or the whole name if it has none. If that is not a host, the default is `weir.internal`.
    authority: Option<Authority>,
    /// Time between polls, such as `10s`, `5m` or `2h`. A poll times out after the interval or 5 s, whichever is shorter.
    #[serde(default = "default_interval")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "10s")))]
    pub interval: Span<1>,
    /// Bearer token that the filter sends to the directory: a string, or `{"env": "NAME"}` for the value of an environment variable of the
    /// gateway. A token in the configuration can be read in the gateway's config dump, and the value of a variable cannot. The gateway has
    /// to pass the variable to the filter: `host_env_keys` in Envoy, `valueFrom: HOST` in Istio, `env.hostKeys` in Envoy Gateway. nginx
    /// passes none. A variable that is not set refuses the configuration. By default the filter sends no token.
    pub bearer: Option<Secret>,
    /// Policy for requests with an unknown key before the first good answer, and after `max_stale`. By default each client address has 600
    /// requests a minute.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {"action": "limit", "quotas": ["600/minute"]})))]
    pub(super) not_ready: NotReadyFields,
    /// Time after which the filter drops the last good answer, such as `30s`, `5m` or `2h`. `not_ready` then applies. With `0s` the
    /// filter keeps the answer for as long as the directory does not answer.
    #[serde(default = "default_max_stale")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "0s")))]
    pub max_stale: Span<0>,
}

const fn default_interval() -> Span<1> {
    Span(10)
}

const fn default_max_stale() -> Span<0> {
    Span(0)
}

/// Without the bearer token, and without the path, which may hold a token, too.
impl fmt::Debug for DirectorySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectorySettings").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl DirectorySettings {
    /// The `:authority` of polls.
    #[must_use]
    pub fn authority(&self) -> &str {
        let host = self.cluster.rsplit('|').next().unwrap_or_default();
        match &self.authority {
            Some(authority) => authority,
            None if is_authority(host) => host,
            None => DEFAULT_AUTHORITY,
        }
    }

    /// Timeout of a poll in milliseconds: the interval, and at most five seconds.
    #[must_use]
    pub fn timeout_milliseconds(&self) -> u32 {
        self.interval.0.min(MAX_TIMEOUT) * 1000
    }

    /// Replaces the name of the token's variable by its value.
    pub(super) fn read_variables(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        if let Some(Secret::Variable(name)) = &self.bearer {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
                let unset = ConfigError::new("not set, or this host passes none");
                return Err(unset.given(&Quoted(name))).at("env").at("bearer");
            };
            self.bearer = Some(Secret::Given(value));
        }
        Ok(())
    }
}

/// A bearer token, or the environment variable that has it. The debugging output has neither.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The token.
    Given(String),
    /// The name of the variable, which [`super::Config::with_environment`] replaces by its value.
    Variable(String),
}

impl Secret {
    /// The token; empty as long as it is the name of a variable.
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

/// The environment variable that has a secret.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct EnvironmentVariable {
    /// Name of the variable: letters, digits and `_`.
    env: Variable,
}

impl<'de> Forms<'de> for Secret {
    const EXPECTED: &'static str = r#"a token, or {"env": "NAME"} for an environment variable"#;

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self::Given(text.to_owned()))
    }

    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        let variable = EnvironmentVariable::deserialize(MapAccessDeserializer::new(object))?;
        Ok(Self::Variable(variable.env.0))
    }
}

read_by_forms!(Secret, |generator| {"anyOf": [{"type": "string"}, generator.subschema_for::<EnvironmentVariable>()]});
