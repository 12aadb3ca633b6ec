//! A stream on its worker: the filters that it passes, and how far it has come with all of them.

use std::sync::Arc;

use crate::{
    rules::NginxUri,
    wire::{content_length::Measure, frame::Direction, frame::Output, local_reply::Kind},
};

/// A stream, on its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

/// A filter's part of a stream: the generation of its VM, and the context there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) generation: u64,
    pub(super) context: u32,
}

/// What a stream is beside what its filters hold of it.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(crate) struct Chain {
    /// The filters that it passes, the one nearest to the client first.
    pub(super) stages: Vec<Stage>,
    /// Whether the client speaks HTTP/2.
    pub(super) is_http2: bool,
    pub(super) request: Kind,
    /// The request's URI where the gateway is nginx.
    pub(super) nginx_uri: Option<Arc<NginxUri>>,
    /// The request as the upstream reads it, and the response as the client does.
    pub(super) read: [Measure; 2],
    /// The end of the request has gone to the upstream.
    pub(super) request_sent: bool,
    pub(super) response_begun: bool,
    /// A reply took the place of a response that filters had begun to see.
    pub(super) response_replaced: bool,
    /// The response's headers have gone to the client.
    pub(super) response_sent: bool,
    /// All of the response has.
    pub(super) response_ended: bool,
    pub(super) local_reply: bool,
    pub(super) reset: bool,
    pub(super) details: Option<String>,
    /// What has passed all filters and waits for the driver.
    pub(super) outputs: Vec<Output>,
}

impl Chain {
    /// Where a direction enters: requests at the client, responses at the upstream.
    pub(super) fn entry(&self, direction: Direction) -> Option<usize> {
        match direction {
            Direction::Request => (!self.stages.is_empty()).then_some(0),
            Direction::Response => self.stages.len().checked_sub(1),
        }
    }

    /// The filter after this one.
    pub(super) fn after(&self, stage: usize, direction: Direction) -> Option<usize> {
        match direction {
            Direction::Request => Some(stage + 1).filter(|next| *next < self.stages.len()),
            Direction::Response => stage.checked_sub(1),
        }
    }

    /// Whether what comes in this direction is still of interest.
    pub(super) fn accepts(&self, direction: Direction) -> bool {
        !self.reset
            && match direction {
                Direction::Request => !self.local_reply,
                Direction::Response => !self.response_ended,
            }
    }
}
