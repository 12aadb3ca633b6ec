//! What the filter says to a service that it calls: a host, and a token.

use core::fmt;

#[cfg(feature = "schema")]
use serde_json::json;

use super::leaf::{Authority, Variable, is_authority};
use crate::read::error::{At as _, ConfigError, Quoted};
use crate::read::{Value, fields, forms};

/// The header by which a service is asked not to compress what it answers.
pub const AS_IT_IS: (&str, &str) = ("accept-encoding", "identity");

/// How an answer begins that is compressed with gzip all the same.
pub const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The host that calls name where the name of the cluster has none. `.internal` is reserved for private use.
const DEFAULT_AUTHORITY: &str = "weir.internal";

/// The `:authority` of calls to `cluster`: the `configured` one, or the part of the cluster's name after its last vertical bar, as Istio's names
/// have it, if that is a host.
pub(super) fn authority<'a>(cluster: &'a str, configured: Option<&'a Authority>) -> &'a str {
    let host = cluster.rsplit('|').next().unwrap_or_default();
    match configured {
        Some(authority) => authority,
        None if is_authority(host) => host,
        None => DEFAULT_AUTHORITY,
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
    /// Replaces the name of a variable by its value.
    pub(super) fn read_variable(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        if let Self::Variable(name) = self {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
                let unset = ConfigError::new("not set, or this host passes none");
                return Err(unset.given(&Quoted(name))).at("env").at("bearer");
            };
            *self = Self::Given(value);
        }
        Ok(())
    }

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

fields! {
    /// The environment variable that has a secret.
    struct EnvironmentVariable as "EnvironmentVariable" derive() {
        /// Name of the variable: letters, digits and `_`.
        env: Variable,
    }
}

forms! {
    Secret: r#"a token, or {"env": "NAME"} for an environment variable"#,
    |definitions| json!({"anyOf": [{"type": "string"}, EnvironmentVariable::schema(definitions)]});
    Value::Text(token) => Ok(Self::Given(token)),
    object @ Value::Object(_) => EnvironmentVariable::read(object).map(|variable| Self::Variable(variable.env.0)),
}
