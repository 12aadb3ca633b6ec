//! What a guest asks for that runs when its callback has returned.

use crate::{
    stream::{
        frame::{Answer, Direction},
        local_reply::LocalReply,
    },
    vm::Vm,
    wire::grpc::GrpcEvent,
};

/// How many actions of one guest call may come back to the guest, one inside the other. Measured in Envoy 1.40: with 256
/// local replies the guest's stack holds, with 400 it overflows and the VM is dead, with 2,000 Envoy crashes.
pub(crate) const MAX_DEPTH: u32 = 256;

pub(crate) const STACK_OVERFLOW: &str = "Maximum call stack size exceeded: one callback asked for more than 256 replies or resumes that \
                              come back to the guest, each inside the one before";

/// What waits for the running callback to return.
#[derive(Debug)]
pub(crate) enum Deferred {
    LocalReply { stream: u32, reply: LocalReply },
    Continue { stream: u32, direction: Direction },
    Reset { stream: u32 },
    DeleteRoot { root: u32 },
    CloseGrpc { root: u32, token: u32, why: &'static str },
}

impl Vm {
    /// Runs what the guest asked for while its callback ran, in that order. In Envoy an action that comes back to the guest
    /// runs the next one before it returns, so it and all that follow are one deeper on the guest's stack.
    pub(crate) fn run_deferred(&mut self) {
        self.state().stop_iteration = false;
        let outermost = self.state().depth;
        while let Some(action) = self.state().deferred.pop_front() {
            let (depth, calls) = (self.state().depth + 1, self.state().calls);
            self.state().depth = depth;
            let returns = match action {
                Deferred::LocalReply { stream, reply } => self.reply_locally(stream, reply, depth),
                Deferred::Continue { stream, direction } => {
                    self.continue_stream(stream, direction);
                    self.state().calls > calls
                }
                Deferred::Reset { stream } => {
                    self.put(stream, Answer::Reset);
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
            if !returns {
                self.state().depth -= 1;
            }
        }
        self.state().depth = outermost;
    }
}
