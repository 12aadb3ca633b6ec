//! Settings of the service.

use std::time::Duration;

use crate::api::redirect::rules::ClickRules;
use crate::domain::address_policy::AddressPolicy;
use crate::domain::public_url::PublicUrl;

/// Settings of the service. [`Settings::new`] returns the defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The public URL of the service and its short links.
    pub public_url: PublicUrl,
    /// The addresses to which webhooks may be sent.
    pub webhook_addresses: AddressPolicy,
    /// Which visits count as clicks, and which data of the visitor is recorded.
    pub clicks: ClickRules,
    /// The bearer token of `/internal/keys` and `/internal/usage`. Without a token, these endpoints refuse all requests.
    pub internal_token: Option<String>,
    /// Time limit of a request, from its headers to the response. After it, the response is 408.
    pub request_timeout: Duration,
    /// Maximum number of webhooks in a workspace.
    pub max_webhooks: u32,
    /// Time for which a cached link is followed. After it, a visit waits for the database.
    pub max_stale: Duration,
    /// The time for which clicks are kept. None keeps them forever. Rollups are always kept.
    pub retention: Option<Duration>,
}

impl Settings {
    /// The defaults for a service at this URL: webhooks to public addresses only, 30 s per request, 20 webhooks per
    /// workspace, and cached links for 10 minutes while the database is unavailable. Clicks are
    /// kept without a time limit. No internal token is set.
    #[must_use]
    pub fn new(public_url: PublicUrl) -> Self {
        Self {
            public_url,
            webhook_addresses: AddressPolicy::public_only(),
            clicks: ClickRules::default(),
            internal_token: None,
            request_timeout: Duration::from_secs(30),
            max_webhooks: 20,
            max_stale: Duration::from_secs(600),
            retention: None,
        }
    }
}
