//! What handlers share.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore};

use crate::admission::Admission;
use crate::click_rules::{ClickRules, Repeats};
use crate::clock::Clock;
use crate::links::PublicUrl;
use crate::metrics::Metrics;
use crate::places::Places;
use crate::recorder::Recorder;
use crate::store::Store;
use crate::targets::Targets;
use crate::visitor::Agents;
use crate::webhooks::address::AddressPolicy;

/// What every handler sees.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) public_url: PublicUrl,
    pub(crate) webhook_addresses: AddressPolicy,
    pub(crate) targets: Targets,
    pub(crate) recorder: Recorder,
    pub(crate) admission: Admission,
    pub(crate) places: Places,
    /// Places of those that draw QR codes, which takes a processor for a while and no key.
    pub(crate) drawing: Semaphore,
    pub(crate) click_rules: ClickRules,
    pub(crate) repeats: Repeats,
    pub(crate) agents: Agents,
    pub(crate) internal_token: Option<String>,
    pub(crate) max_webhooks: u32,
    pub(crate) metrics: Metrics,
    /// Woken when something was written that webhooks may have to hear of.
    pub(crate) announced: Arc<Notify>,
    /// Woken when a link was deleted.
    pub(crate) deleted: Arc<Notify>,
}

pub(crate) type Shared = Arc<App>;
