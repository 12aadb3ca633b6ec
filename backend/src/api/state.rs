//! The state that handlers share.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore};

use crate::api::places::Places;
use crate::api::redirect::known_domains::KnownDomains;
use crate::api::redirect::rules::{ClickRules, Repeats};
use crate::api::redirect::targets::Targets;
use crate::clicks::Recorder;
use crate::domain::address_policy::AddressPolicy;
use crate::domain::agent::Agents;
use crate::domain::clock::Clock;
use crate::domain::public_url::PublicUrl;
use crate::domain::retention::Retention;
use crate::metrics::Metrics;
use crate::store::{Changed, Store};

/// The shared state of all handlers.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) public_url: PublicUrl,
    pub(crate) webhook_addresses: AddressPolicy,
    pub(crate) domains: KnownDomains,
    pub(crate) targets: Targets,
    pub(crate) recorder: Recorder,
    pub(crate) places: Places,
    /// Permits for drawing QR codes, which takes much CPU time and requires no key.
    pub(crate) drawing: Arc<Semaphore>,
    pub(crate) click_rules: ClickRules,
    pub(crate) repeats: Repeats,
    pub(crate) agents: Agents,
    pub(crate) internal_token: Option<String>,
    pub(crate) max_webhooks: u32,
    pub(crate) retention: Retention,
    pub(crate) metrics: Metrics,
    /// The permit to count the webhook events that wait.
    pub(crate) counting: Arc<Semaphore>,
    /// Notified when an event for webhooks was stored.
    pub(crate) announced: Arc<Notify>,
    /// Notified when a link, tag, folder or webhook was deleted.
    pub(crate) deleted: Arc<Notify>,
}

impl App {
    /// Invalidates a cached link after an update and notifies the webhook sender.
    pub(crate) fn link_changed(&self, changed: &Changed) {
        self.targets.forget(&changed.after.domain, &changed.after.key);
        if let Some(before) = &changed.before {
            self.targets.forget(&before.domain, &before.key);
            self.announced.notify_one();
        }
    }
}

pub(crate) type Shared = Arc<App>;
