//! Root contexts: how they start, tick and end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use envoy_config::Plugin;

use crate::{
    abi::count,
    state::{
        Context, VmState,
        root::{RootContext, RootLife, Timer},
    },
    stream::filter_vm::FilterVm,
    vm::error::VmError,
    wire::callout::{CallId, GrpcOrder, GrpcStep},
};

/// Lets a root context read its configuration, or no longer.
fn open_configuration(state: &mut VmState, root: u32, is_open: bool) {
    if let Some(root) = state.root(root) {
        root.configuration_open = is_open;
    }
}

impl FilterVm {
    /// Makes a root context for `plugin` and configures it.
    pub(crate) fn start_root(&mut self, plugin: &Arc<Plugin>) -> Result<u32, VmError> {
        let id = self.state().allocate_context_id();
        let root =
            RootContext { plugin: Arc::clone(plugin), configuration_open: true, ..RootContext::default() };
        self.state().contexts.insert(id, Context::Root(Box::new(root)));
        let close = |state: &mut VmState| open_configuration(state, id, false);
        self.call_and(|exports| &exports.on_context_create, id, (id, 0), close);
        let vm_size = count(self.state().plugin.vm_configuration.len());
        if self.call(|exports| &exports.on_vm_start, id, (id, vm_size)) == Some(0) {
            return Err(self.refused(id, VmError::StartRefused));
        }
        open_configuration(self.state(), id, true);
        let arguments = (id, count(plugin.configuration.len()));
        if self.call_and(|exports| &exports.on_configure, id, arguments, close) == Some(0) {
            return Err(self.refused(id, VmError::ConfigureRefused));
        }
        match self.failure() {
            Some(failure) => Err(failure.clone()),
            None => Ok(id),
        }
    }

    /// A root context that does not come to run does nothing more. The VM goes on with those that it has.
    fn refused(&mut self, root: u32, why: VmError) -> VmError {
        self.state().contexts.remove(&root);
        self.failure().cloned().unwrap_or(why)
    }

    /// Fires a root's timer if it is due, and arms it again from now.
    pub(crate) fn tick(&mut self, root: u32) {
        if self.due(root).is_some() && self.ticks() {
            self.call(|exports| &exports.on_tick, root, (root,));
            if let Some((now, timer)) = self.due(root) {
                timer.due = now + timer.period;
            }
        }
    }

    /// A root's timer that is due, and the time.
    fn due(&mut self, root: u32) -> Option<(Duration, &mut Timer)> {
        let now = self.state().shared.clock.monotonic();
        let timer = self.state().root(root)?.timer.as_mut()?;
        (timer.due <= now).then_some((now, timer))
    }

    /// Whether timers fire at all.
    fn ticks(&self) -> bool {
        self.failure().is_none() && self.guest.exports.on_tick.function.is_some()
    }

    /// When the next timer is due, on the monotonic clock.
    pub(crate) fn next_timer(&mut self) -> Option<Duration> {
        if !self.ticks() {
            return None;
        }
        let roots = self.root_ids();
        roots.into_iter().filter_map(|root| Some(self.state().root(root)?.timer?.due)).min()
    }

    pub(crate) fn root_ids(&mut self) -> Vec<u32> {
        let contexts = self.state().contexts.iter();
        contexts.filter(|(_, context)| matches!(context, Context::Root(_))).map(|(id, _)| *id).collect()
    }

    /// Ends a root context whose configuration was replaced, once its streams are gone.
    pub(crate) fn retire_root(&mut self, root: u32) {
        if let Some(context) = self.state().root(root) {
            context.life = RootLife::Retiring;
        }
        self.end_root_if_drained(root);
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
        if !retiring || state.contexts.values().any(serves) || self.failure().is_some() {
            return;
        }
        if self.call(|exports| &exports.on_done, root, (root,)) != Some(0) {
            self.delete_root(root);
        } else if let Some(context) = self.state().root(root) {
            context.life = RootLife::PendingDone;
        }
    }

    pub(super) fn delete_root(&mut self, root: u32) {
        if self.state().root(root).is_none() {
            return;
        }
        self.call(|exports| &exports.on_delete, root, (root,));
        // Calls of a root end with it.
        let state = self.state();
        state.contexts.remove(&root);
        state.callouts.open.retain(|_, of| *of != root);
        let (ended, kept): (BTreeMap<u32, _>, _) = std::mem::take(&mut state.callouts.streams)
            .into_iter()
            .partition(|(_, stream)| stream.root == root);
        state.callouts.streams = kept;
        let generation = state.generation;
        let resets = ended.into_keys().map(|token| CallId { generation, token });
        state.callouts.grpc_orders.extend(resets.map(|call| GrpcOrder { call, step: GrpcStep::Reset }));
    }
}
