//! How streams begin and end in a guest.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::{
    stream::{
        filter_state::FilterState,
        half::{Half, StreamContext},
        upstream::Progress,
    },
    vm::{Vm, state::Context},
    wire::message::Peer,
};

impl Vm {
    /// Makes a stream under `root`, the worker's number `chain`. The guest hears of it when its request arrives.
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
            created: false,
            request: Half::default(),
            response: Half::default(),
            end_of_stream: false,
            is_grpc: false,
            nginx_uri: None,
            complete: false,
            logging: false,
            peer,
            started: state.shared.clock.wall_nanos(),
            started_monotonic: state.shared.clock.monotonic_nanos(),
            received: 0,
            sent: 0,
            progress: Progress::default(),
            filter_state,
            declared_properties: BTreeMap::new(),
            details: None,
            code: None,
            replied: false,
            request_over: false,
            failure_reply: false,
            reset: false,
            outputs: VecDeque::new(),
        };
        state.contexts.insert(id, Context::Stream(Box::new(stream)));
        id
    }

    /// Tells the guest of a stream that it begins. Called late, for a stream whose request never reached the filter.
    pub(crate) fn create_in_guest(&mut self, id: u32) {
        let Some(stream) = self.state().stream(id).filter(|stream| !stream.created) else { return };
        let root = stream.root;
        stream.created = true;
        if let Some(create) = self.exports.on_context_create.clone() {
            self.call("proxy_on_context_create", id, &create, (id, root));
            self.run_deferred();
        }
    }

    /// Has the guest log a stream that ends.
    pub(crate) fn log_stream(&mut self, id: u32) {
        if self.state().stream(id).is_none() || self.is_failed() {
            return;
        }
        self.create_in_guest(id);
        if self.state().shared.logs_streams {
            self.call_on_log(id);
        }
    }

    /// Ends a stream with its last callbacks.
    pub(crate) fn end_stream(&mut self, id: u32) {
        if self.state().stream(id).is_none() {
            return;
        }
        if !self.is_failed() {
            if let Some(on_done) = self.exports.on_done.clone() {
                self.call("proxy_on_done", id, &on_done, id);
                self.run_deferred();
            }
            if let Some(on_delete) = self.exports.on_delete.clone() {
                self.call("proxy_on_delete", id, &on_delete, id);
                self.run_deferred();
            }
        }
        let root = match self.state().contexts.remove(&id) {
            Some(Context::Stream(stream)) => stream.root,
            _ => return,
        };
        self.state().ready.retain(|ready| *ready != id);
        self.end_root_if_drained(root);
    }

    fn call_on_log(&mut self, id: u32) {
        let Some(on_log) = self.exports.on_log.clone() else { return };
        self.set_logging(id, true);
        self.call("proxy_on_log", id, &on_log, id);
        self.run_deferred();
        self.set_logging(id, false);
    }

    fn set_logging(&mut self, id: u32, logging: bool) {
        if let Some(stream) = self.state().stream(id) {
            stream.logging = logging;
        }
    }
}
