//! A stream's way through the filters: requests in their order, responses in reverse, and replies in the upstream's
//! place.
//!
//! This is Envoy's filter manager (`filter_manager.cc`) between filters; what happens at one of them is
//! `stream/filter.rs`.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    abi::LogLevel,
    state::{stream::FilterState, stream::StreamContext, stream::Upstream},
    stream::{
        filter::StreamFilter,
        filter_vm::{FilterVm, Onward, Release},
    },
    wire::{
        content_length::Seen,
        frame::Direction,
        frame::{Frame, Output, Part},
        grpc::VIA_UPSTREAM,
        local_reply::{CLOSE_DETAILS, Kind, LocalReply},
        message::{Connection, HTTP2, Peer},
    },
    worker::{
        Worker,
        chain::{Chain, Stage, StreamId},
    },
};

impl Worker {
    /// Begins a stream: every filter gets a context for it, as the failure policies say. It lasts until it is
    /// [closed](Self::close).
    pub fn open(&mut self, connection: &Connection) -> StreamId {
        self.open_for(Peer {
            source: Arc::clone(&connection.source),
            destination: Arc::clone(&connection.destination),
            protocol: connection.protocol,
            connection_id: connection.id,
            properties: BTreeMap::new(),
        })
    }

    /// Begins a stream of a request of which this is known.
    pub(crate) fn open_for(&mut self, peer: Peer) -> StreamId {
        let key = self.next_chain;
        self.next_chain += 1;
        let (peer, filter_state) = (Arc::new(peer), FilterState::default());
        let mut chain = Chain { is_http2: peer.protocol == HTTP2, ..Chain::default() };
        for place in 0..self.filters() {
            let Some((generation, root)) = self.ready_filter(place) else { continue };
            if let Some(vm) = self.vms.get_mut(&generation) {
                let context = vm.open_stream(root, key, Arc::clone(&peer), filter_state.clone());
                chain.stages.push(Stage { generation, context });
            }
        }
        self.chains.insert(key, chain);
        StreamId(key)
    }

    fn chain(&mut self, key: u64) -> Option<&mut Chain> {
        self.chains.get_mut(&key)
    }

    /// Does something to each filter's context of a stream.
    pub(super) fn each(&mut self, key: u64, mut change: impl FnMut(&mut StreamContext)) {
        let Some(chain) = self.chains.get(&key) else { return };
        for Stage { generation, context } in &chain.stages {
            let vm = self.vms.get_mut(generation);
            if let Some(stream) = vm.and_then(|vm| vm.state().stream(*context)) {
                change(stream);
            }
        }
    }

    /// Feeds a stream a part of its request or response. A body comes in the pieces of the host's
    /// [`framing`](Self::framing).
    pub fn feed(&mut self, stream: StreamId, mut frame: Frame) {
        let StreamId(key) = stream;
        if frame.direction == Direction::Response && frame.part.is_last() {
            let now = self.shared.clock.monotonic_nanos();
            self.each(key, |stream| stream.progress.answered = Some(now));
        }
        match (&mut frame.part, frame.direction) {
            (Part::Headers { headers, .. }, Direction::Request) => {
                let (request, uri) = (Kind::of_request(headers), self.shared.flavour.read_uri(headers));
                if let Some(chain) = self.chain(key) {
                    chain.request = request;
                    chain.nginx_uri.clone_from(&uri);
                }
                self.each(key, |stream| {
                    stream.is_grpc = request.is_grpc;
                    stream.nginx_uri.clone_from(&uri);
                });
            }
            (Part::Headers { .. }, Direction::Response) => {
                self.each(key, |stream| stream.details = Some(VIA_UPSTREAM.to_owned()));
            }
            (Part::Body { data, .. }, Direction::Request) => {
                let received = data.len() as u64;
                self.each(key, |stream| stream.received += received);
            }
            _ => {}
        }
        self.enter(key, frame);
    }

    /// Answers in the upstream's place, as Envoy's router does where there is no upstream. The reply passes through the
    /// filters as a response. Once a reply was made it is not replaced.
    pub fn reply(&mut self, stream: StreamId, status: u16, body: &'static str, details: &str) {
        if !self.is_local_reply(stream) {
            self.reply_locally(stream.0, LocalReply::of_the_gateway(status.into(), body, details));
        }
    }

    /// A part comes from the client or the upstream, or is made in the upstream's place.
    fn enter(&mut self, key: u64, frame: Frame) {
        let direction = frame.direction;
        let Some(chain) = self.chain(key) else { return };
        if !chain.accepts(direction) {
            return;
        }
        chain.response_begun |= direction == Direction::Response;
        match chain.entry(direction) {
            Some(stage) => self.give(key, stage, frame),
            None => self.leave(key, frame),
        }
    }

    /// Gives a part to a filter, and what the filter lets go on to the next.
    fn give(&mut self, key: u64, stage: usize, frame: Frame) {
        let stage = self.chains.get(&key).and_then(|chain| chain.stages.get(stage));
        let Some(Stage { generation, context }) = stage.copied() else { return };
        self.ask(generation, |vm| {
            if let Some(filter) = StreamFilter::of(vm, context) {
                filter.take(frame);
            }
        });
    }

    /// Asks something of a VM, and follows what its filters let go on or ask for meanwhile.
    pub(super) fn ask<T>(&mut self, generation: u64, ask: impl FnOnce(&mut FilterVm) -> T) -> Option<T> {
        let vm = self.vms.get_mut(&generation)?;
        let answer = ask(vm);
        for release in vm.take_released() {
            self.follow(generation, release);
        }
        Some(answer)
    }

    /// Follows what a filter has let go on or asked for as far as it goes, at the depth that its VM had then.
    fn follow(&mut self, generation: u64, Release { stream: key, context, depth, what }: Release) {
        let Some(chain) = self.chains.get(&key) else { return };
        let this = Stage { generation, context };
        let Some(stage) = chain.stages.iter().position(|stage| *stage == this) else { return };
        let before = self.set_depth(generation, depth);
        match what {
            Onward::Part(frame) => self.go_on(key, stage, frame),
            Onward::Reply(reply) => self.reply_locally(key, reply),
            Onward::Reset => {
                let details = self
                    .chain(key)
                    .map(|chain| chain.details.get_or_insert_with(|| CLOSE_DETAILS.to_owned()).clone());
                self.each(key, |stream| stream.details.clone_from(&details));
                self.cut(key);
            }
        }
        self.set_depth(generation, before);
    }

    /// Puts a VM at this depth, and gives back the one where it was.
    fn set_depth(&mut self, generation: u64, depth: u32) -> u32 {
        self.vms.get_mut(&generation).map_or(0, |vm| std::mem::replace(&mut vm.state().depth, depth))
    }

    fn go_on(&mut self, key: u64, stage: usize, frame: Frame) {
        let direction = frame.direction;
        let Some(chain) = self.chain(key) else { return };
        if !chain.accepts(direction) {
            return;
        }
        match chain.after(stage, direction) {
            Some(next) => self.give(key, next, frame),
            None => self.leave(key, frame),
        }
    }

    /// A part has passed all filters, and goes to whoever reads it.
    fn leave(&mut self, key: u64, mut frame: Frame) {
        let Some(chain) = self.chain(key) else { return };
        if let Frame { direction: Direction::Request, part: Part::Headers { headers, .. } } = &mut frame
            && let Some(uri) = &chain.nginx_uri
        {
            // Whatever filters have made of it: that is what nginx's `proxy_pass` without a path sends.
            headers.set(":path", uri.sent.clone());
        }
        let (direction, last) = (frame.direction, frame.part.is_last());
        if direction == Direction::Response {
            chain.response_sent = true;
            chain.response_ended = last;
            if let Part::Body { data, .. } = &frame.part {
                let sent = data.len() as u64;
                self.each(key, |stream| stream.sent += sent);
            }
        } else {
            chain.request_sent = last;
            let now = self.shared.clock.monotonic_nanos();
            self.each(key, |stream| {
                stream.progress.sent.get_or_insert(now);
            });
        }
        let Some(chain) = self.chain(key) else { return };
        // Upstreams are spoken to over HTTP/1.
        let is_http2 = chain.is_http2 && direction == Direction::Response;
        let (seen, warning) = chain.read[direction.index()].pass(frame, chain.request.is_head, is_http2);
        match seen {
            Seen::Part(part) => {
                chain.outputs.push(Output::Frame(Frame { direction, part }));
                self.ready.insert(key);
            }
            Seen::Broken => self.cut(key),
            Seen::Nothing => {}
        }
        if let Some(warning) = warning {
            self.log(LogLevel::Warn, &warning);
        }
    }

    fn cut(&mut self, key: u64) {
        let Some(chain) = self.chain(key) else { return };
        if !std::mem::replace(&mut chain.reset, true) {
            chain.outputs.push(Output::Reset);
            self.ready.insert(key);
            self.each(key, |stream| stream.reset = true);
        }
    }

    /// Before a response has begun, the reply passes through all filters as a response does; while filters hold a
    /// response, the reply takes its place directly; once that has gone out, the stream is cut.
    fn reply_locally(&mut self, key: u64, reply: LocalReply) {
        let Some(chain) = self.chain(key) else { return };
        if chain.reset {
            return;
        }
        let details = Some(reply.details.clone());
        chain.details.clone_from(&details);
        if chain.response_sent {
            self.each(key, |stream| stream.details.clone_from(&details));
            self.cut(key);
            return;
        }
        chain.local_reply = true;
        let begun = chain.response_begun;
        let (headers, body) = reply.render(chain.request);
        let (status, end) = (headers.status(), body.is_empty());
        self.each(key, |stream| {
            stream.request_over = true;
            stream.details.clone_from(&details);
        });
        let shown = headers.clone();
        let head = Part::Headers { headers, end };
        let body = (!end).then_some(Part::Body { data: body, end: true });
        let frames =
            std::iter::once(head).chain(body).map(|part| Frame { direction: Direction::Response, part });
        if begun {
            if let Some(chain) = self.chain(key) {
                chain.response_replaced = true;
            }
            self.each(key, |stream| {
                stream.response.abandon(&shown);
                stream.code = Some(status);
            });
            frames.for_each(|frame| self.leave(key, frame));
        } else {
            frames.for_each(|frame| self.enter(key, frame));
        }
    }

    /// Tells where a stream's request goes, as soon as it is known and before its response is fed.
    pub fn set_upstream(&mut self, stream: StreamId, upstream: Upstream) {
        self.each(stream.0, |stream| stream.progress.upstream = Some(upstream));
    }

    /// Takes what all filters have let go on, in its order.
    pub fn outputs(&mut self, stream: StreamId) -> Vec<Output> {
        self.ready.remove(&stream.0);
        self.chain(stream.0).map(|chain| std::mem::take(&mut chain.outputs)).unwrap_or_default()
    }

    /// Whether filters have let the whole request go on. Its [`outputs`](Self::outputs) may lack the end all the same,
    /// when its body is shorter than its `content-length`: then the upstream waits.
    pub fn is_request_sent(&self, stream: StreamId) -> bool {
        self.chains.get(&stream.0).is_some_and(|chain| chain.request_sent)
    }

    /// Whether a reply has been made in the upstream's place: nothing more of the request goes there, and nothing more
    /// is to be fed of its response.
    pub fn is_local_reply(&self, stream: StreamId) -> bool {
        self.chains.get(&stream.0).is_some_and(|chain| chain.local_reply)
    }

    /// `%RESPONSE_CODE_DETAILS%` of a stream that was answered, or cut, in the upstream's place.
    pub fn details(&self, stream: StreamId) -> Option<String> {
        self.chains.get(&stream.0).and_then(|chain| chain.details.clone())
    }

    /// Whether filters hold so much of a direction that no more is to be fed of it until they let go.
    pub fn is_full(&mut self, stream: StreamId, direction: Direction) -> bool {
        let limit = self.shared.buffer_limit;
        let mut held = 0;
        self.each(stream.0, |stream| held += stream.half(direction).held.len());
        limit > 0 && held > limit
    }
}
