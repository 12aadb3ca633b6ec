//! What happens to requests without a known key.

use std::sync::Arc;

use super::leaf::Name;
use super::plans::{Class, quota_set};
use super::quota::QuotaTerms;
#[cfg(feature = "schema")]
use crate::count::entry::MAX_QUOTAS;
use crate::quota::QuotaSet;
use crate::read::error::{At as _, ConfigError};
#[cfg(feature = "schema")]
use crate::read::schema::given;
use crate::read::{Read as _, Value, fields, forms, words};

/// The class under which the addresses of strangers are counted.
pub const ADDRESS_CLASS: &str = "address";

/// What happens to a request without a known key, or to one with an unknown key while the filter has no list from the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrangerPolicy {
    /// Count the request per client address, and forward it while quota is left.
    Limit(Arc<QuotaSet>),
    /// Forward the request without counting it.
    Pass,
    /// Refuse the request.
    Refuse,
}

fields! {
    /// Policy for requests without a known key.
    struct StrangerFields as "StrangerPolicy" derive()
        where {"if": given("quotas"), "then": {"properties": {"action": {"const": "limit"}}}}
    {
        /// What the filter does with the request.
        action: Action,
        /// Quotas of each client address. Only with `"action": "limit"`.
        quotas: Option<Vec<QuotaTerms>> where {"minItems": 1, "maxItems": MAX_QUOTAS, "default": ["60/minute"]},
    }
}

words! {
    /// What the filter does with a request without a known key.
    enum Action derive() {
        /// Count the request per client address. Forward it while quota is left, so that the upstream answers, and refuse it after that.
        "limit" => Limit,
        /// Answer 401.
        "reject" => Reject,
        /// Forward the request without counting it.
        "pass" => Pass,
    }
}

// The default is the limit of the smallest plan in the contract.
forms! {
    StrangerPolicy, |definitions| StrangerFields::schema(definitions);
    object => {
        let StrangerFields { action, quotas } = StrangerFields::read(object)?;
        let plain = match action {
            Action::Limit => None,
            Action::Reject => Some(Self::Refuse),
            Action::Pass => Some(Self::Pass),
        };
        Self::with(plain, quotas, "60/minute")
    },
}

fields! {
    /// Policy for requests with an unknown key before the first good answer of the directory. Without quotas, the action alone.
    struct NotReadyFields as "NotReady" derive()
        or r#""limit", "pass", "unavailable" or {"action": "limit", "quotas": ["600/minute"]}"#
            {"$ref": "#/$defs/NotReadyAction"} by Self::from_text,
        where {"if": given("quotas"), "then": {"properties": {"action": {"const": "limit"}}}}
    {
        /// What the filter does with the request.
        action: NotReadyAction,
        /// Quotas of each client address. Only with `"action": "limit"`.
        quotas: Option<Vec<QuotaTerms>> where {"minItems": 1, "maxItems": MAX_QUOTAS, "default": ["600/minute"]},
    }
}

words! {
    /// What the filter does with a request with an unknown key before the first good answer of the directory.
    enum NotReadyAction derive() {
        /// Count the request per client address. Forward it while quota is left, and answer 429 after that.
        "limit" => Limit,
        /// Forward the request without counting it. No limit applies to it.
        "pass" => Pass,
        /// Answer 503 with `Retry-After`.
        "unavailable" => Unavailable,
    }
}

impl NotReadyFields {
    fn from_text(action: &str) -> Result<Self, ConfigError> {
        NotReadyAction::read(Value::Text(action.to_owned())).map(|action| Self { action, quotas: None })
    }
}

/// The policy before the first good answer of the directory.
#[derive(Clone)]
pub(super) struct NotReady(pub(super) StrangerPolicy);

// The default is more than an honest client needs until the directory has answered.
forms! {
    NotReady, |definitions| NotReadyFields::schema(definitions);
    given => {
        let NotReadyFields { action, quotas } = NotReadyFields::read(given)?;
        let plain = match action {
            NotReadyAction::Limit => None,
            NotReadyAction::Pass => Some(StrangerPolicy::Pass),
            NotReadyAction::Unavailable => Some(StrangerPolicy::Refuse),
        };
        StrangerPolicy::with(plain, quotas, "600/minute").map(Self)
    },
}

impl StrangerPolicy {
    /// A policy that limits, unless it is a `plain` one, which has no quotas.
    fn with(
        plain: Option<Self>,
        quotas: Option<Vec<QuotaTerms>>,
        default: &str,
    ) -> Result<Self, ConfigError> {
        let quotas = match (plain, quotas) {
            (Some(plain), None) => return Ok(plain),
            (Some(_), Some(_)) => {
                return Err(ConfigError::new(r#"only the action "limit" has quotas"#)).at("quotas");
            }
            (None, Some(quotas)) => quotas,
            (None, None) => vec![default.parse().map_err(ConfigError::new)?],
        };
        quota_set(&quotas, &Class::plain(Name(ADDRESS_CLASS.to_owned()))).map(Self::Limit).at("quotas")
    }
}
