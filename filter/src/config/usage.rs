//! Usage: a service that is told what callers have used.

use core::fmt;

#[cfg(feature = "schema")]
use serde_json::json;

use super::leaf::{Authority, Path, Seconds, Text};
use super::service::{Secret, authority};
use crate::read::error::{At as _, ConfigError};
use crate::read::{Value, fields, forms};

/// Upper bound of a call's timeout, in seconds.
const MAX_TIMEOUT: u32 = 5;
/// Most shares of a quota that are told.
const MAX_THRESHOLDS: usize = 8;

fields! {
    /// A service that is told what callers have used.
    pub struct UsageSettings as "Usage" derive(Clone) checked by check {
        /// The gateway's cluster of the service.
        pub cluster: Text,
        /// Path that the filter posts batches of CloudEvents to.
        pub path: Path,
        /// Host that calls name as `:authority`, with or without a port. Its default is that of `directory.authority`.
        authority: Option<Authority>,
        /// Time between two reports of a worker, such as `10s`, `1m` or `1h`. What a gateway has not reported when it ends is lost, so this is
        /// also how much that is at most. A call times out after the interval or 5 s, whichever is shorter.
        pub interval: Seconds<1> = "10s",
        /// Bearer token that the filter sends to the service: a string, or `{"env": "NAME"}` for the value of an environment variable of the
        /// gateway, as in `directory`. By default the filter sends no token.
        pub bearer: Option<Secret>,
        /// Shares of a quota, in percent and ascending, at most 8. Once a caller has used such a share of an enforced quota whose window is an
        /// hour or longer, the service is told. 100 means that another request does not fit.
        pub thresholds: Vec<Share> = [80, 100],
    }
}

/// A share of a quota in percent, from 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u8);

forms! {
    Share: "1 to 100 percent", |_definitions| json!({"type": "integer", "minimum": 1, "maximum": 100});
    Value::Number(Some(percent @ 1..=100)) => Ok(Self(percent as u8)),
}

/// Without the bearer token, and without the path, which may hold a token, too.
impl fmt::Debug for UsageSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageSettings").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl UsageSettings {
    fn check(&self) -> Result<(), ConfigError> {
        let problem = match self.thresholds.is_sorted_by(|one, next| one < next) {
            false => "expected ascending shares, each once".to_owned(),
            true if self.thresholds.len() > MAX_THRESHOLDS => {
                format!("expected at most {MAX_THRESHOLDS} shares")
            }
            true => return Ok(()),
        };
        Err(ConfigError::new(problem)).at("thresholds")
    }

    /// The `:authority` of calls.
    #[must_use]
    pub fn authority(&self) -> &str {
        authority(&self.cluster, self.authority.as_ref())
    }

    /// Timeout of a call in milliseconds: the interval, and at most five seconds.
    #[must_use]
    pub fn timeout_milliseconds(&self) -> u32 {
        self.interval.0.min(MAX_TIMEOUT) * 1000
    }
}
