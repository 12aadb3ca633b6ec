//! What the host keeps of a root context.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use envoy_config::Plugin;

use crate::wire::{headers::Headers, message::Response};

/// A root context: a plugin that runs in the VM.
#[derive(Debug, Default)]
pub(crate) struct RootContext {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) timer: Option<Timer>,
    /// What `proxy_get_status` answers.
    pub(crate) status: (u32, Bytes),
    /// The response of the callout whose callback runs.
    pub(crate) callout_response: Option<Response>,
    /// What the gRPC callback that runs is about.
    pub(crate) grpc_initial_metadata: Option<Headers>,
    pub(crate) grpc_message: Option<Bytes>,
    pub(crate) grpc_trailing_metadata: Option<Headers>,
    /// Properties that it has declared, and whether each can be set only once.
    pub(crate) declared_properties: BTreeMap<Vec<u8>, bool>,
    /// Its `proxy_on_context_create` or its `proxy_on_configure` runs: the configuration can be read.
    pub(crate) configuration_open: bool,
    pub(crate) life: RootLife,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RootLife {
    #[default]
    Running,
    /// Replaced by a new configuration; ends when its last stream does.
    Retiring,
    /// `proxy_on_done` answered false: ends when the guest calls `proxy_done`.
    PendingDone,
}

/// A root context's timer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    pub(crate) period: Duration,
    /// On the monotonic clock.
    pub(crate) due: Duration,
}
