//! How the answers of calls to clusters come to a guest, and what queues have for it.

use bytes::Bytes;

use crate::{
    abi::{LogLevel, Status, count},
    state::{
        VmState,
        callouts::{CallKind, OpenStream},
    },
    stream::filter_vm::FilterVm,
    wire::{
        callout::Callout,
        grpc::{GrpcEvent, INTERNAL},
        headers::Headers,
        message::Response,
    },
};

/// Removes a root context's view of an answer: only its callback sees that.
fn forget(root: u32) -> impl FnOnce(&mut VmState) {
    move |state| {
        if let Some(root) = state.root(root) {
            root.callout_response = None;
            root.grpc_initial_metadata = None;
            root.grpc_message = None;
            root.grpc_trailing_metadata = None;
            root.status.1 = Bytes::new();
        }
    }
}

impl FilterVm {
    /// Hands the answer of a callout to the guest. An answer for a root that is gone is dropped.
    pub(crate) fn finish_callout(&mut self, token: u32, response: Response) {
        let Some(root_id) = self.state().callouts.open.remove(&token) else { return };
        if CallKind::of(token) == Some(CallKind::Grpc) {
            self.finish_grpc_call(root_id, token, response);
            return;
        }
        let state = self.state();
        let too_large = response.body.len() > Callout::MAX_ANSWER;
        if too_large {
            state.shared.logs.tell(LogLevel::Warn, state.name, Callout::TOO_LARGE.to_owned());
        }
        let Some(root) = state.root(root_id) else { return };
        let (headers, body, trailers) = if too_large || response.failure.is_some() {
            root.status = (Status::BrokenConnection.code(), Bytes::from_static(b"reset"));
            (0, 0, 0)
        } else {
            let trailers = response.trailers.as_ref().map_or(0, Headers::len);
            let counts = (response.headers.len(), response.body.len(), trailers);
            root.callout_response = Some(response);
            counts
        };
        let arguments = (root_id, token, count(headers), count(body), count(trailers));
        self.call_and(|exports| &exports.on_http_call_response, root_id, arguments, forget(root_id));
    }

    /// Hands the answer of a unary call to the guest: its message, or how it failed.
    fn finish_grpc_call(&mut self, root: u32, token: u32, response: Response) {
        let events = GrpcEvent::of_answer(response, false);
        let failed =
            events.iter().find(|event| matches!(event, GrpcEvent::Closed { status, .. } if *status != 0));
        let told = failed.or_else(|| events.iter().find(|event| matches!(event, GrpcEvent::Message(_))));
        // Neither a failure nor a message.
        let told = told.cloned().unwrap_or(GrpcEvent::Closed { status: INTERNAL, message: String::new() });
        self.tell_grpc(root, token, told);
    }

    /// Tells the guest of a stream's event. One for a stream that is gone is dropped.
    pub(crate) fn grpc_stream_event(&mut self, token: u32, event: GrpcEvent) {
        let Some(stream) = self.state().callouts.streams.get_mut(&token) else { return };
        if stream.remote_closed {
            return;
        }
        let closed = matches!(event, GrpcEvent::Closed { .. });
        stream.remote_closed = closed;
        let OpenStream { root, local_closed, .. } = *stream;
        self.tell_grpc(root, token, event);
        if closed && local_closed {
            self.state().callouts.streams.remove(&token);
        }
    }

    pub(super) fn tell_grpc(&mut self, root_id: u32, token: u32, event: GrpcEvent) {
        let Some(root) = self.state().root(root_id) else { return };
        match event {
            GrpcEvent::InitialMetadata(headers) => {
                let arguments = (root_id, token, count(headers.len()));
                root.grpc_initial_metadata = Some(headers);
                self.call_and(
                    |exports| &exports.on_grpc_initial_metadata,
                    root_id,
                    arguments,
                    forget(root_id),
                );
            }
            GrpcEvent::Message(message) => {
                let arguments = (root_id, token, count(message.len()));
                root.grpc_message = Some(message);
                self.call_and(|exports| &exports.on_grpc_receive, root_id, arguments, forget(root_id));
            }
            GrpcEvent::TrailingMetadata(trailers) => {
                let arguments = (root_id, token, count(trailers.len()));
                root.grpc_trailing_metadata = Some(trailers);
                self.call_and(
                    |exports| &exports.on_grpc_trailing_metadata,
                    root_id,
                    arguments,
                    forget(root_id),
                );
            }
            GrpcEvent::Closed { status, message } => {
                root.status = (status, message.into());
                let arguments = (root_id, token, status);
                self.call_and(|exports| &exports.on_grpc_close, root_id, arguments, forget(root_id));
            }
        }
    }

    /// Tells a root context that a queue has something for it.
    pub(crate) fn tell_ready_queue(&mut self, root: u32, token: u32) {
        if self.state().root(root).is_some() {
            self.call(|exports| &exports.on_queue_ready, root, (root, token));
        }
    }
}
