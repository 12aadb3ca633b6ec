//! Calls of a guest, each of which is followed by what the guest asked for in it.

use crate::{
    state::{Deferred, VmState},
    stream::{
        filter::StreamFilter,
        filter_vm::{FilterVm, Onward},
    },
    trace::callbacks::{Parameters, Returned},
    vm::exports::{Callback, Exports},
    wire::grpc::GrpcEvent,
};

impl FilterVm {
    /// Calls the guest on behalf of a context, and then does what it asked for meanwhile. `None` when the guest lacks the
    /// callback, or the VM has failed, now or before.
    pub(super) fn call<P: Parameters, R: Returned>(
        &mut self,
        callback: impl FnOnce(&Exports) -> &Callback<P, R>,
        context: u32,
        arguments: P,
    ) -> Option<R> {
        self.call_and(callback, context, arguments, |_| {})
    }

    /// The same, where what the callback could see is taken away `after` it and before anything else.
    pub(super) fn call_and<P: Parameters, R: Returned>(
        &mut self,
        callback: impl FnOnce(&Exports) -> &Callback<P, R>,
        context: u32,
        arguments: P,
        after: impl FnOnce(&mut VmState),
    ) -> Option<R> {
        let answer = self.guest.call(callback, context, arguments);
        after(self.state());
        self.run_deferred();
        answer
    }

    /// Does what the guest asked for, in that order. In Envoy an action that comes back to the guest runs the next one
    /// before it returns, so it and all that follow are one deeper on the guest's stack.
    fn run_deferred(&mut self) {
        let state = self.state();
        let (outermost, replied) = (state.depth, state.stop_iteration);
        while let Some(action) = self.state().deferred.pop_front() {
            let (depth, calls) = (self.state().depth, self.state().calls);
            self.state().depth = depth + 1;
            let comes_back = match action {
                Deferred::LocalReply { stream, reply } => {
                    StreamFilter::of(self, stream).is_some_and(|mut filter| filter.reply_locally(reply))
                }
                Deferred::Continue { stream, direction } => {
                    if let Some(mut filter) = StreamFilter::of(self, stream) {
                        filter.go_on(direction);
                    }
                    self.state().calls > calls
                }
                Deferred::Reset { stream } => {
                    self.release(stream, Onward::Reset);
                    false
                }
                Deferred::CloseGrpc { root, token, why } => {
                    self.tell_grpc(root, token, GrpcEvent::unavailable(why));
                    true
                }
                Deferred::DeleteRoot { root } => {
                    self.delete_root(root);
                    self.state().calls > calls
                }
            };
            if !comes_back {
                self.state().depth = depth;
            }
        }
        let state = self.state();
        state.depth = outermost;
        state.stop_iteration = replied;
    }
}
