//! What happens to requests without a known key.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, IntoDeserializer as _, MapAccess};

use super::error::{At as _, ConfigError};
use super::forms::{Forms, read_by_forms};
use super::leaf::Name;
use super::plans::{Class, quota_set};
use super::rate::QuotaTerms;
use crate::quota::QuotaSet;

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

/// Policy for requests without a known key.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "StrangerPolicy", transform = schema::only_limit_has_quotas)
)]
#[serde(deny_unknown_fields)]
pub(super) struct StrangerFields {
    /// What the filter does with the request.
    action: Action,
    /// Quotas of each client address. Only with `"action": "limit"`.
    #[cfg_attr(feature = "schema", schemars(extend("default" = ["60/minute"])))]
    quotas: Option<Vec<QuotaTerms>>,
}

/// What the filter does with a request without a known key.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Count the request per client address. Forward it while quota is left, so that the upstream answers, and refuse it after that.
    #[default]
    Limit,
    /// Answer 401.
    Reject,
    /// Forward the request without counting it.
    Pass,
}

impl StrangerFields {
    /// The default is the limit of the smallest plan in the contract.
    pub(super) fn check(self) -> Result<StrangerPolicy, ConfigError> {
        let plain = match self.action {
            Action::Limit => None,
            Action::Reject => Some(StrangerPolicy::Refuse),
            Action::Pass => Some(StrangerPolicy::Pass),
        };
        policy(plain, self.quotas.as_deref(), "60/minute")
    }
}

/// Policy for requests with an unknown key before the first good answer of the directory. Without quotas, the action alone.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "NotReady", transform = schema::or_action)
)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(super) struct NotReadyFields {
    /// What the filter does with the request.
    action: NotReadyAction,
    /// Quotas of each client address. Only with `"action": "limit"`.
    #[cfg_attr(feature = "schema", schemars(extend("default" = ["600/minute"])))]
    quotas: Option<Vec<QuotaTerms>>,
}

/// What the filter does with a request with an unknown key before the first good answer of the directory.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum NotReadyAction {
    /// Count the request per client address. Forward it while quota is left, and answer 429 after that.
    #[default]
    Limit,
    /// Forward the request without counting it. No limit applies to it.
    Pass,
    /// Answer 503 with `Retry-After`.
    Unavailable,
}

impl NotReadyFields {
    /// The default is more than an honest client needs until the directory has answered.
    pub(super) fn check(self) -> Result<StrangerPolicy, ConfigError> {
        let plain = match self.action {
            NotReadyAction::Limit => None,
            NotReadyAction::Pass => Some(StrangerPolicy::Pass),
            NotReadyAction::Unavailable => Some(StrangerPolicy::Refuse),
        };
        policy(plain, self.quotas.as_deref(), "600/minute")
    }
}

impl<'de> Forms<'de> for NotReadyFields {
    const EXPECTED: &'static str =
        r#""limit", "pass", "unavailable" or {"action": "limit", "quotas": ["600/minute"]}"#;

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        let text: StrDeserializer<'_, E> = text.into_deserializer();
        NotReadyAction::deserialize(text).map(|action| Self { action, quotas: None })
    }

    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Self::deserialize(MapAccessDeserializer::new(object))
    }
}

read_by_forms!(NotReadyFields);

/// A policy that limits, unless it is one that is not about quotas.
fn policy(
    plain: Option<StrangerPolicy>,
    quotas: Option<&[QuotaTerms]>,
    default: &str,
) -> Result<StrangerPolicy, ConfigError> {
    let policy = match (plain, quotas) {
        (Some(plain), None) => return Ok(plain),
        (Some(_), Some(_)) => Err(ConfigError::new(r#"only the action "limit" has quotas"#)),
        (None, quotas) => {
            let default = default.parse().map(|default| [default]).map_err(ConfigError::new)?;
            let class = Class::plain(Name(ADDRESS_CLASS.to_owned()));
            quota_set(quotas.unwrap_or(&default), &class).map(StrangerPolicy::Limit)
        }
    };
    policy.at("quotas")
}

#[cfg(feature = "schema")]
mod schema {
    use schemars::{Schema, json_schema};
    use serde_json::json;

    use crate::config::leaf::given;
    use crate::count::entry::MAX_QUOTAS;

    pub(super) fn only_limit_has_quotas(schema: &mut Schema) {
        if let Some(quotas) =
            schema.pointer_mut("/properties/quotas").and_then(|quotas| quotas.as_object_mut())
        {
            quotas.insert("minItems".to_owned(), 1.into());
            quotas.insert("maxItems".to_owned(), MAX_QUOTAS.into());
        }
        schema.insert("if".to_owned(), given("quotas"));
        schema.insert("then".to_owned(), json!({"properties": {"action": {"const": "limit"}}}));
    }

    /// The derived schema describes the object.
    pub(super) fn or_action(schema: &mut Schema) {
        only_limit_has_quotas(schema);
        let mut object = core::mem::take(schema);
        let description = object.remove("description");
        let action = object.pointer("/properties/action/$ref").cloned();
        *schema = json_schema!({"description": description, "anyOf": [{"$ref": action}, object]});
    }
}
