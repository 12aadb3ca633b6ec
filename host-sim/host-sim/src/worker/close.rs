//! The end of a stream: what its filters are shown of it, and their last callbacks.

use std::mem;

use crate::{
    state::{stream::FilterState, stream::Half},
    stream::filter::StreamFilter,
    wire::headers::Headers,
    worker::{
        Worker,
        chain::{Stage, StreamId},
    },
};

impl Worker {
    /// What filters have put into a stream for each other so far.
    pub(crate) fn filter_state(&mut self, stream: StreamId) -> FilterState {
        let mut shared = FilterState::default();
        self.each(stream.0, |stream| shared = stream.filter_state.clone());
        shared
    }

    /// Ends a stream, whole or not: every filter logs it, then every filter's context ends.
    pub fn close(&mut self, stream: StreamId) {
        self.show_ends(stream.0);
        self.each(stream.0, |stream| stream.complete = true);
        let Some(chain) = self.chains.remove(&stream.0) else { return };
        self.ready.remove(&stream.0);
        let mut over = false;
        for last in [false, true] {
            for Stage { generation, context } in &chain.stages {
                let ended = self.ask(*generation, |vm| {
                    let filter = StreamFilter::of(vm, *context)?;
                    if last {
                        filter.end();
                    } else {
                        filter.log();
                    }
                    Some(last && (vm.failure().is_some() || vm.state().is_drained()))
                });
                over |= ended.flatten().unwrap_or_default();
            }
        }
        if over {
            self.drop_drained();
        }
    }

    /// To the log, the messages are as the last filter that had them left them.
    fn show_ends(&mut self, key: u64) {
        let Some(chain) = self.chains.get(&key).filter(|chain| chain.stages.len() > 1) else { return };
        let replaced = chain.response_replaced;
        let (mut request, mut response) = (Ends::default(), Ends::default());
        self.each(key, |stream| {
            // Requests come to the later filters last, responses to the earlier ones.
            request = Ends::of(&stream.request).or(mem::take(&mut request));
            response = mem::take(&mut response).or(Ends::of(&stream.response));
        });
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
