//! What a filter holds of a stream, and what it may see of it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::{Bytes, BytesMut};

use crate::{
    lock::lock,
    rules::NginxUri,
    wire::{frame::Direction, headers::Headers, message::Peer},
};

/// Whether the filter lets a direction of a stream go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Iteration {
    #[default]
    Running,
    /// What came waits; callbacks for what follows still run.
    Stopped,
    /// What came waits, and no callback runs until the filter continues. Where the filter wants it `whole`, no more comes than fits.
    StoppedAll { whole: bool },
}

/// One direction of a stream: what the filter holds of it and what it has let go.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(crate) struct Half {
    pub(crate) headers: Option<Headers>,
    /// Whether the guest may reach the headers.
    pub(crate) headers_open: bool,
    pub(crate) trailers: Option<Headers>,
    pub(crate) trailers_open: bool,
    /// The data whose callback runs.
    pub(crate) chunk: Option<BytesMut>,
    /// Whether the guest may reach that data.
    pub(crate) chunk_open: bool,
    /// Data that waits for the filter.
    pub(crate) held: BytesMut,
    /// The filter asked to see all that is held, not just what is new.
    pub(crate) sees_held: bool,
    pub(crate) iteration: Iteration,
    /// All of it has come.
    pub(crate) ended: bool,
    pub(crate) headers_released: bool,
    pub(crate) end_released: bool,
}

/// A stream of the filter.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(crate) struct StreamContext {
    pub(crate) root: u32,
    /// The stream's number on its worker, one for the contexts of all filters.
    pub(crate) chain: u64,
    /// `proxy_on_context_create` was called.
    pub(crate) created: bool,
    pub(crate) request: Half,
    pub(crate) response: Half,
    /// The last headers or body callback was the last of its direction.
    pub(crate) end_of_stream: bool,
    /// The request is one of gRPC.
    pub(crate) is_grpc: bool,
    /// The request's URI where the gateway is nginx, which shows filters another `:path` than it sends to the upstream.
    pub(crate) nginx_uri: Option<Arc<NginxUri>>,
    /// All has been said: what follows are the last callbacks.
    pub(crate) complete: bool,
    /// `proxy_on_log` runs.
    pub(crate) logging: bool,
    pub(crate) peer: Arc<Peer>,
    /// Nanoseconds since 1970.
    pub(crate) started: u64,
    /// On the monotonic clock, in nanoseconds.
    pub(crate) started_monotonic: u64,
    /// Bytes of the request's body that came from the client.
    pub(crate) received: u64,
    /// Bytes of the response's body that went to the client.
    pub(crate) sent: u64,
    pub(crate) progress: Progress,
    pub(crate) filter_state: FilterState,
    /// What it has declared for itself, which has no effect.
    pub(crate) declared_properties: BTreeMap<Vec<u8>, bool>,
    pub(crate) details: Option<String>,
    /// The status of a reply that took the response's place.
    pub(crate) code: Option<u16>,
    /// The filter has sent a reply; it does not send another.
    pub(crate) replied: bool,
    /// A reply has been made in the upstream's place, by whomever: the request's rest is dropped.
    pub(crate) request_over: bool,
    pub(crate) failure_reply: bool,
    pub(crate) reset: bool,
}

impl Half {
    /// A reply took its place: nothing more of it goes on. A filter that still holds its headers goes on seeing them, any
    /// other sees the reply's.
    pub(crate) fn abandon(&mut self, reply: &Headers) {
        let own = self.headers.take().filter(|_| self.headers_open);
        *self = Self {
            headers_open: own.is_some(),
            headers: own.or_else(|| Some(reply.clone())),
            ended: true,
            headers_released: true,
            end_released: true,
            ..Self::default()
        };
    }
}

impl StreamContext {
    pub(crate) fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        }
    }

    /// The request's headers, where the guest may see them.
    pub(crate) fn visible_request_headers(&self) -> Option<&Headers> {
        self.request.headers.as_ref().filter(|_| self.request.headers_open || self.logging)
    }

    /// The response's headers, where the guest may see them.
    pub(crate) fn visible_response_headers(&self) -> Option<&Headers> {
        self.response.headers.as_ref().filter(|_| self.response.headers_open || self.logging)
    }

    /// The response's trailers, where the guest may see them.
    pub(crate) fn visible_response_trailers(&self) -> Option<&Headers> {
        self.response.trailers.as_ref().filter(|_| self.response.trailers_open || self.logging)
    }
}

/// The server that a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upstream {
    /// Its address, which `upstream.address` gives.
    pub address: SocketAddr,
    /// The gateway's own address on the connection to it, which `upstream.local_address` gives, once there is one.
    pub local_address: Option<SocketAddr>,
}

/// How far a request has come with its upstream; the times are nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    pub(crate) upstream: Option<Upstream>,
    /// When the request's headers went there.
    pub(crate) sent: Option<u64>,
    /// When the end of the response came from there.
    pub(crate) answered: Option<u64>,
}

/// What filters have put into a stream for each other. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct FilterState(Arc<Mutex<BTreeMap<Vec<u8>, StateObject>>>);

/// An object of the filter state.
#[derive(Debug, Clone)]
pub(crate) struct StateObject {
    pub(crate) value: Bytes,
    /// It was declared to be set only once.
    pub(crate) readonly: bool,
}

impl FilterState {
    /// The value of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Bytes> {
        lock(&self.0).get(name).map(|object| object.value.clone())
    }

    /// Sets a value; false where the one that is there was declared to stay.
    pub(crate) fn set(&self, name: Vec<u8>, object: StateObject) -> bool {
        let mut objects = lock(&self.0);
        if objects.get(&name).is_some_and(|there| there.readonly) {
            return false;
        }
        objects.insert(name, object);
        true
    }
}
