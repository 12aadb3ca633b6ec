//! How streams begin and end in a guest.

use std::sync::Arc;

use crate::{
    state::{Context, stream::FilterState, stream::StreamContext},
    stream::{filter::StreamFilter, filter_vm::FilterVm},
    wire::message::Peer,
};

impl FilterVm {
    /// Makes a context of the worker's stream `chain` under `root`. The guest hears of it when the request arrives.
    pub(crate) fn open_stream(
        &mut self,
        root: u32,
        chain: u64,
        peer: Arc<Peer>,
        filter_state: FilterState,
    ) -> u32 {
        let state = self.state();
        let id = state.allocate_context_id();
        let stream = StreamContext {
            root,
            chain,
            peer,
            started: state.shared.clock.wall_nanos(),
            started_monotonic: state.shared.clock.monotonic_nanos(),
            filter_state,
            ..StreamContext::default()
        };
        state.contexts.insert(id, Context::Stream(Box::new(stream)));
        id
    }
}

impl StreamFilter<'_> {
    /// Tells the guest that the stream begins. Called late, for a stream whose request never reached the filter.
    pub(super) fn create(&mut self) {
        let (id, stream) = (self.id, self.stream());
        if !std::mem::replace(&mut stream.created, true) {
            let root = stream.root;
            self.vm.call(|exports| &exports.on_context_create, id, (id, root));
        }
    }

    /// Has the guest log the stream as it ends.
    pub(crate) fn log(mut self) {
        if self.vm.failure().is_some() {
            return;
        }
        self.create();
        if self.vm.state().shared.logs_streams {
            let id = self.id;
            self.stream().logging = true;
            self.vm.call(|exports| &exports.on_log, id, (id,));
            self.stream().logging = false;
        }
    }

    /// Ends the stream with its last callbacks.
    pub(crate) fn end(mut self) {
        let id = self.id;
        self.vm.call(|exports| &exports.on_done, id, (id,));
        self.vm.call(|exports| &exports.on_delete, id, (id,));
        let root = self.stream().root;
        self.vm.state().contexts.remove(&id);
        self.vm.end_root_if_drained(root);
    }
}
