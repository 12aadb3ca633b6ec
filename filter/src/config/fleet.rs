//! The fleet: gateways that share quotas through a ledger.

#[cfg(feature = "schema")]
use serde_json::json;

use super::leaf::{Authority, Millis, Text};
use super::service::{Secret, authority};
use crate::count::holding::{Beyond, Sharing};
use crate::read::error::{At as _, ConfigError};
use crate::read::{Value, fields, forms};

/// How much use is held in advance, in milliseconds: what follows a burst for as long as its rate is not forgotten.
const AHEAD: u32 = 10_000;
/// A term has room for this many timeouts: a count gives back what it holds only when no call of it can be in flight.
const TIMEOUTS_IN_A_TERM: u32 = 4;

fields! {
    /// Gateways that share quotas.
    pub struct FleetSettings as "Fleet" derive(Clone, Debug) checked by check {
        /// The gateway's cluster of the ledger.
        pub cluster: Text,
        /// Host that calls name as `:authority`, with or without a port. Its default is that of `directory.authority`.
        authority: Option<Authority>,
        /// Bearer token that the filter sends to the ledger: a string, or `{"env": "NAME"}` for the value of an environment variable of the
        /// gateway, as in `directory`. By default the filter sends no token.
        pub bearer: Option<Secret>,
        /// How long a request waits for the ledger at most, from `1ms` to `500ms`. `on_unavailable` decides then.
        timeout: Millis<1, 500> = "250ms",
        /// How long a gateway holds units that it does not use, from `500ms` to `2s`, and at least four times `timeout`. It is also how long a
        /// gateway goes without asking when the ledger has nothing left.
        term: Millis<500, 2_000> = "1s",
        /// Policy for a request that finds too little in its gateway's share while the ledger does not answer.
        pub on_unavailable: Beyond = {"local": 10},
    }
}

impl FleetSettings {
    fn check(&self) -> Result<(), ConfigError> {
        let least = TIMEOUTS_IN_A_TERM * self.timeout.0;
        if self.term.0 < least {
            let problem = format!("expected at least four times timeout, {least} ms");
            return Err(ConfigError::new(problem).given(&format_args!("{} ms", self.term.0))).at("term");
        }
        Ok(())
    }

    /// The `:authority` of calls.
    #[must_use]
    pub fn authority(&self) -> &str {
        authority(&self.cluster, self.authority.as_ref())
    }

    /// How quotas are shared. `in_shadow`: nothing is refused.
    #[must_use]
    pub fn sharing(&self, in_shadow: bool) -> Sharing {
        let (timeout, term, beyond) = (self.timeout.0, self.term.0, self.on_unavailable);
        Sharing { timeout, term, ahead: AHEAD, beyond, in_shadow }
    }
}

fields! {
    /// A share of each limit.
    struct Local as "Local" derive() {
        /// Percentage of each limit that a gateway admits beyond its share in a window, at least one request.
        local: u32 where {"minimum": 1, "maximum": 100},
    }
}

forms! {
    Beyond: r#""allow", "deny", or {"local": 10} for a percentage of the limit"#,
    |definitions| json!({"anyOf": [{"const": "allow"}, {"const": "deny"}, Local::schema(definitions)]});
    Value::Text(text) if text == "allow" => Ok(Self::All),
    Value::Text(text) if text == "deny" => Ok(Self::Nothing),
    object @ Value::Object(_) => match Local::read(object)? {
        Local { local: percent @ 1..=100 } => Ok(Self::Percent(percent as u8)),
        Local { local } => Err(ConfigError::new("expected 1 to 100 percent").given(&local)).at("local"),
    },
}
