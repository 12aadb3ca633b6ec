//! The end of a stream: what its filters are shown of it, and their last callbacks.

use crate::{
    stream::{
        half::Half,
        manager::{Stage, StreamId},
    },
    wire::headers::Headers,
    worker::Worker,
};

impl Worker {
    /// Ends a stream: every filter logs it, then every filter's context ends.
    pub(crate) fn close(&mut self, slot: StreamId) {
        self.show_ends(slot.0);
        self.each(slot.0, |stream| stream.complete = true);
        let Some(chain) = self.chains.remove(&slot.0) else { return };
        self.ready.remove(&slot.0);
        let mut over = false;
        for last in [false, true] {
            for Stage { generation, context } in &chain.stages {
                let Some(vm) = self.vms.get_mut(generation) else { continue };
                if last {
                    vm.end_stream(*context);
                    over |= vm.is_failed() || vm.is_drained();
                } else {
                    vm.log_stream(*context);
                }
            }
        }
        if over {
            self.drop_drained();
        }
    }

    /// To the log, the messages are as the last filter that had them left them.
    fn show_ends(&mut self, key: u64) {
        let Some(chain) = self.chains.get(&key) else { return };
        let (stages, replaced) = (chain.stages.len(), chain.response_replaced);
        if stages < 2 {
            return;
        }
        let (mut request, mut response) = (Ends::default(), Ends::default());
        for stage in 0..stages {
            let Some((vm, id)) = self.stage(key, stage) else { continue };
            let Some(stream) = vm.state().stream(id) else { continue };
            // Requests come to the later filters last, responses to the earlier ones.
            request = Ends::of(&stream.request).or(request);
            response = response.or(Ends::of(&stream.response));
        }
        self.each(key, |stream| {
            request.show(&mut stream.request);
            if !replaced {
                response.show(&mut stream.response);
            }
        });
    }
}

/// A message's headers and trailers.
#[derive(Default)]
struct Ends(Option<Headers>, Option<Headers>);

impl Ends {
    fn of(half: &Half) -> Self {
        Self(half.headers.clone(), half.trailers.clone())
    }

    fn or(self, other: Self) -> Self {
        Self(self.0.or(other.0), self.1.or(other.1))
    }

    fn show(&self, half: &mut Half) {
        half.headers.clone_from(&self.0);
        half.trailers.clone_from(&self.1);
    }
}
