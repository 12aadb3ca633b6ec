//! What an operator decides.

use std::time::Duration;

use crate::click_rules::ClickRules;
use crate::links::PublicUrl;
use crate::recorder::WhenFull;
use crate::webhooks::address::AddressPolicy;

/// What an operator decides. [`Settings::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients reach the service, and so where short links live.
    pub public_url: PublicUrl,
    /// Which addresses webhooks may be sent to.
    pub webhook_addresses: AddressPolicy,
    /// Which visits count as clicks, and what is known of them.
    pub clicks: ClickRules,
    /// The bearer token of `/internal/keys`. Without one the endpoint answers nobody.
    pub internal_token: Option<String>,
    /// How long a request may take, from its headers to the answer; then it is answered 408.
    pub request_timeout: Duration,
    /// Webhooks that a workspace may have.
    pub max_webhooks: u32,
    /// How long a short link leads where it led while the database is away.
    pub max_stale: Duration,
    /// What happens to a click when the buffer is full.
    pub when_full: WhenFull,
    /// How long clicks are kept; for ever if absent. Their rollups stay.
    pub retention: Option<Duration>,
}

impl Settings {
    /// The defaults for a service at this URL: webhooks only to public addresses, 30 s for a request, 20 webhooks a
    /// workspace, short links from memory for 10 minutes while the database is away, clicks kept for ever.
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
            when_full: WhenFull::default(),
            retention: None,
        }
    }
}
