//! How the answers of gRPC calls come to a guest.

use bytes::Bytes;

use crate::{
    vm::{Vm, callouts::OpenStream},
    wire::{
        grpc::{GrpcEvent, INTERNAL},
        message::Response,
    },
};

impl Vm {
    /// Hands the answer of a unary call to the guest: its message, or how it failed.
    pub(crate) fn finish_grpc_call(&mut self, root: u32, token: u32, response: Response) {
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
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let Some(root) = self.state().root(root_id) else { return };
        let (callback, function, argument) = match event {
            GrpcEvent::InitialMetadata(headers) => {
                let entries = headers.len();
                root.grpc_initial_metadata = Some(headers);
                let function = self.exports.on_grpc_initial_metadata.clone();
                ("proxy_on_grpc_receive_initial_metadata", function, count(entries))
            }
            GrpcEvent::Message(message) => {
                let size = message.len();
                root.grpc_message = Some(message);
                ("proxy_on_grpc_receive", self.exports.on_grpc_receive.clone(), count(size))
            }
            GrpcEvent::TrailingMetadata(trailers) => {
                let entries = trailers.len();
                root.grpc_trailing_metadata = Some(trailers);
                let function = self.exports.on_grpc_trailing_metadata.clone();
                ("proxy_on_grpc_receive_trailing_metadata", function, count(entries))
            }
            GrpcEvent::Closed { status, message } => {
                root.status = (status, message.into());
                ("proxy_on_grpc_close", self.exports.on_grpc_close.clone(), status)
            }
        };
        if let Some(function) = function {
            self.call(callback, root_id, &function, (root_id, token, argument));
        }
        if let Some(root) = self.state().root(root_id) {
            root.grpc_initial_metadata = None;
            root.grpc_message = None;
            root.grpc_trailing_metadata = None;
            root.status.1 = Bytes::new();
        }
        self.run_deferred();
    }
}
