//! The state that handlers share.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore};

use crate::admission::Admission;
use crate::answers::Answers;
use crate::api::known_domains::KnownDomains;
use crate::api::repeat::Running;
use crate::availability::Availability;
use crate::backlogs::Counting;
use crate::bodies::Bodies;
use crate::click_rules::{ClickRules, Repeats};
use crate::clock::Clock;
use crate::gate::Gate;
use crate::links::PublicUrl;
use crate::metrics::Metrics;
use crate::permits::Permits;
use crate::recorder::Recorder;
use crate::retention::Retention;
use crate::store::{Changed, Store};
use crate::targets::Targets;
use crate::visitor::Agents;
use crate::webhooks::address::AddressPolicy;

/// The shared state of all handlers.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) availability: Availability,
    pub(crate) clock: Clock,
    pub(crate) public_url: PublicUrl,
    pub(crate) webhook_addresses: AddressPolicy,
    pub(crate) domains: KnownDomains,
    pub(crate) targets: Targets,
    pub(crate) running: Running,
    pub(crate) recorder: Recorder,
    pub(crate) gate: Arc<Gate>,
    pub(crate) admission: Admission,
    pub(crate) permits: Permits,
    pub(crate) bodies: Bodies,
    pub(crate) answers: Answers,
    /// Permits for drawing QR codes, which takes much CPU time and requires no key.
    pub(crate) drawing: Arc<Semaphore>,
    pub(crate) click_rules: ClickRules,
    pub(crate) repeats: Repeats,
    pub(crate) agents: Agents,
    pub(crate) internal_token: Option<String>,
    pub(crate) max_webhooks: u32,
    pub(crate) retention: Retention,
    pub(crate) metrics: Metrics,
    pub(crate) backlogs: Counting,
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
