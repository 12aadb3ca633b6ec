//! Root contexts: how they start, tick and end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use envoy_config::Plugin;

use crate::vm::{
    Vm, VmError,
    callouts::{CallId, GrpcOrder, GrpcStep},
    state::{Context, RootContext, RootLife},
};

impl Vm {
    /// Makes a root context for `plugin` and configures it.
    pub(crate) fn start_root(&mut self, plugin: &Arc<Plugin>) -> Result<u32, VmError> {
        let id = self.state().allocate_context_id();
        let root = RootContext {
            plugin: Arc::clone(plugin),
            timer: None,
            status: (0, Bytes::new()),
            callout_response: None,
            grpc_initial_metadata: None,
            grpc_message: None,
            grpc_trailing_metadata: None,
            declared_properties: BTreeMap::new(),
            #[cfg(feature = "expressions")]
            expressions: crate::hostcalls::expressions::Expressions::default(),
            configuration_open: true,
            life: RootLife::Running,
        };
        self.state().contexts.insert(id, Context::Root(Box::new(root)));

        if let Some(create) = self.exports.on_context_create.clone() {
            self.call("proxy_on_context_create", id, &create, (id, 0));
        }
        self.let_configuration_be_read(id, false);
        let size = |bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Some(start) = self.exports.on_vm_start.clone() {
            let vm_size = size(&self.state().plugin.vm_configuration);
            let started = self.call("proxy_on_vm_start", id, &start, (id, vm_size));
            self.run_deferred();
            if started == Some(0) {
                return Err(self.refused(id, VmError::StartRefused));
            }
        }
        if let Some(configure) = self.exports.on_configure.clone() {
            self.let_configuration_be_read(id, true);
            let configured =
                self.call("proxy_on_configure", id, &configure, (id, size(&plugin.configuration)));
            self.let_configuration_be_read(id, false);
            self.run_deferred();
            if configured == Some(0) {
                return Err(self.refused(id, VmError::ConfigureRefused));
            }
        }
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(id),
        }
    }

    /// A root context that does not come to run does nothing more. The VM goes on with those that it has.
    fn refused(&mut self, root: u32, why: VmError) -> VmError {
        self.state().contexts.remove(&root);
        self.failure.clone().unwrap_or(why)
    }

    fn let_configuration_be_read(&mut self, root: u32, readable: bool) {
        if let Some(root) = self.state().root(root) {
            root.configuration_open = readable;
        }
    }

    /// Fires the timers that are due, each once, and arms them again from now.
    pub(crate) fn tick(&mut self) {
        let now = self.state().shared.clock.monotonic();
        for root in self.root_ids() {
            let due =
                self.state().root(root).and_then(|root| root.timer).is_some_and(|timer| timer.due <= now);
            let Some(on_tick) = self.exports.on_tick.clone().filter(|_| due && !self.is_failed()) else {
                continue;
            };
            self.call("proxy_on_tick", root, &on_tick, root);
            let now = self.state().shared.clock.monotonic();
            if let Some(timer) = self.state().root(root).and_then(|root| root.timer.as_mut())
                && timer.due <= now
            {
                timer.due = now + timer.period;
            }
            self.run_deferred();
        }
    }

    /// When the next timer is due, on the monotonic clock.
    pub(crate) fn next_timer(&mut self) -> Option<Duration> {
        if self.is_failed() || self.exports.on_tick.is_none() {
            return None;
        }
        let roots = self.root_ids();
        roots.into_iter().filter_map(|root| Some(self.state().root(root)?.timer?.due)).min()
    }

    fn root_ids(&mut self) -> Vec<u32> {
        let contexts = &self.state().contexts;
        contexts
            .iter()
            .filter(|(_, context)| matches!(context, Context::Root(_)))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Tells a root context that a queue has something for it.
    pub(crate) fn tell_ready_queue(&mut self, root: u32, token: u32) {
        let there = self.state().root(root).is_some();
        if let Some(on_ready) = self.exports.on_queue_ready.clone().filter(|_| there) {
            self.call("proxy_on_queue_ready", root, &on_ready, (root, token));
            self.run_deferred();
        }
    }

    /// Ends a root context whose configuration was replaced, once its streams are gone.
    pub(crate) fn retire_root(&mut self, root: u32) {
        if let Some(context) = self.state().root(root) {
            context.life = RootLife::Retiring;
        }
        self.end_root_if_drained(root);
    }

    /// Ends the root contexts, as their gateway ends.
    pub(crate) fn retire_roots(&mut self) {
        for root in self.root_ids() {
            self.retire_root(root);
        }
    }

    /// A root context of `plugin` that has not been told that it ends; it serves again.
    pub(crate) fn live_root(&mut self, plugin: &Plugin) -> Option<u32> {
        self.state().contexts.iter_mut().find_map(|(id, context)| match context {
            Context::Root(root) if *root.plugin == *plugin && root.life != RootLife::PendingDone => {
                root.life = RootLife::Running;
                Some(*id)
            }
            _ => None,
        })
    }

    pub(super) fn end_root_if_drained(&mut self, root: u32) {
        let state = self.state();
        let retiring = state.root(root).is_some_and(|context| context.life == RootLife::Retiring);
        let serves = |context: &Context| matches!(context, Context::Stream(stream) if stream.root == root);
        if !retiring || state.contexts.values().any(serves) || self.is_failed() {
            return;
        }
        let done = match self.exports.on_done.clone() {
            Some(on_done) => self.call("proxy_on_done", root, &on_done, root) != Some(0),
            None => true,
        };
        if done {
            self.delete_root(root);
        } else if let Some(context) = self.state().root(root) {
            context.life = RootLife::PendingDone;
        }
        self.run_deferred();
    }

    pub(super) fn delete_root(&mut self, root: u32) {
        if self.state().root(root).is_none() {
            return;
        }
        if let Some(on_delete) = self.exports.on_delete.clone() {
            self.call("proxy_on_delete", root, &on_delete, root);
        }
        // Calls of a root end with it.
        let state = self.state();
        state.contexts.remove(&root);
        state.callouts.open.retain(|_, call| call.root != root);
        let (ended, kept) = std::mem::take(&mut state.callouts.streams)
            .into_iter()
            .partition(|(_, stream)| stream.root == root);
        state.callouts.streams = kept;
        let ended: BTreeMap<u32, _> = ended;
        let generation = state.generation;
        let resets = ended.into_keys().map(|token| CallId { generation, token });
        state.callouts.grpc_orders.extend(resets.map(|call| GrpcOrder { call, step: GrpcStep::Reset }));
    }
}
