//! What happens to requests without a known key.

use core::num::NonZeroU32;
use std::sync::Arc;

use super::error::ConfigError;
use super::plans::{Class, quota_set};
use super::problem::Problem;
use super::rate::QuotaTerms;
use super::raw;
use crate::quota::{Mode, QuotaSet};
use crate::window::Window;

/// The class under which the addresses of strangers are counted.
pub const ADDRESS_CLASS: &str = "address";

/// Policy for requests without a known key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrangerPolicy {
    /// Count the request per client address, and forward it while quota is left.
    Limit(Arc<QuotaSet>),
    /// Answer 401.
    Reject,
    /// Forward the request.
    Pass,
}

impl StrangerPolicy {
    pub(super) fn check(raw: raw::Stranger) -> Result<Self, ConfigError> {
        Self::checked(raw, 60)
    }

    /// As [`StrangerPolicy::check`]; without quotas, this limit a minute.
    pub(super) fn checked(raw: raw::Stranger, default_limit: u32) -> Result<Self, ConfigError> {
        match (raw.action, raw.quotas) {
            (raw::Action::Limit, list) => {
                let list = list.unwrap_or_else(|| vec![default_quota(default_limit)]);
                let quotas =
                    quota_set(&list, &Class::plain(ADDRESS_CLASS)).map_err(|error| error.within("quotas"))?;
                Ok(Self::Limit(quotas))
            }
            (_, Some(_)) => Err(ConfigError::new(
                "quotas",
                Problem::Invalid(r#"only the action "limit" has quotas"#.into()),
            )),
            (raw::Action::Reject, None) => Ok(Self::Reject),
            (raw::Action::Pass, None) => Ok(Self::Pass),
        }
    }
}

fn default_quota(limit: u32) -> QuotaTerms {
    let limit = NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN);
    QuotaTerms { limit, window: Window::MINUTE, name: None, mode: Mode::Enforced, refundable: true }
}
