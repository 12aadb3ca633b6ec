//! A stream's way through the filters: requests in their order, responses in reverse, and replies in the upstream's
//! place.
//!
//! This is Envoy's filter manager (`filter_manager.cc`) between filters; what happens at one of them is
//! `filter.rs`.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    abi::LogLevel,
    rules::NginxUri,
    stream::{
        content_length::{Measure, Seen},
        filter_state::FilterState,
        frame::{Answer, Direction, Frame, Output, Part},
        half::StreamContext,
        local_reply::{CLOSE_DETAILS, Kind, LocalReply},
    },
    vm::Vm,
    wire::message::Peer,
    worker::Worker,
};

/// `%RESPONSE_CODE_DETAILS%` of a stream that the upstream has answered.
pub(crate) const VIA_UPSTREAM: &str = "via_upstream";

/// How `request.protocol` names HTTP/2.
pub(crate) const HTTP2: &str = "HTTP/2";

/// A stream, on its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

/// A filter's part of a stream: the generation of its VM, and the context there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    pub(crate) generation: u64,
    pub(crate) context: u32,
}

/// What a stream is beside what its filters hold of it.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(crate) struct Chain {
    /// The filters that it passes, the one nearest to the client first.
    pub(crate) stages: Vec<Stage>,
    /// Whether the client speaks HTTP/2.
    is_http2: bool,
    request: Kind,
    /// The request's URI where the gateway is nginx.
    nginx_uri: Option<Arc<NginxUri>>,
    /// The request as the upstream reads it, and the response as the client does.
    read: [Measure; 2],
    /// The end of the request has gone to the upstream.
    request_sent: bool,
    response_begun: bool,
    /// A reply took the place of a response that filters had begun to see.
    pub(crate) response_replaced: bool,
    /// The response's headers have gone to the client.
    response_sent: bool,
    /// All of the response has.
    response_ended: bool,
    local_reply: bool,
    reset: bool,
    details: Option<String>,
    outputs: VecDeque<Output>,
}

impl Chain {
    /// Where a direction enters: requests at the client, responses at the upstream.
    fn entry(&self, direction: Direction) -> Option<usize> {
        match direction {
            Direction::Request => (!self.stages.is_empty()).then_some(0),
            Direction::Response => self.stages.len().checked_sub(1),
        }
    }

    /// The filter after this one.
    fn after(&self, stage: usize, direction: Direction) -> Option<usize> {
        match direction {
            Direction::Request => Some(stage + 1).filter(|next| *next < self.stages.len()),
            Direction::Response => stage.checked_sub(1),
        }
    }

    /// Whether what comes in this direction is still of interest.
    fn accepts(&self, direction: Direction) -> bool {
        !self.reset
            && match direction {
                Direction::Request => !self.local_reply,
                Direction::Response => !self.response_ended,
            }
    }
}

impl Worker {
    /// Begins a stream that passes those filters which run; the others are passed by as their failure policies say.
    pub(crate) fn open(&mut self, peer: Peer) -> StreamId {
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

    pub(crate) fn stage(&mut self, key: u64, stage: usize) -> Option<(&mut Vm, u32)> {
        let Stage { generation, context } = *self.chains.get(&key)?.stages.get(stage)?;
        Some((self.vms.get_mut(&generation)?, context))
    }

    /// Does something to each filter's context of a stream.
    pub(crate) fn each(&mut self, key: u64, mut change: impl FnMut(&mut StreamContext)) {
        let Some(chain) = self.chains.get(&key) else { return };
        for Stage { generation, context } in &chain.stages {
            let vm = self.vms.get_mut(generation);
            if let Some(stream) = vm.and_then(|vm| vm.state().stream(*context)) {
                change(stream);
            }
        }
    }

    /// A part of a message comes from the client or the upstream.
    pub(crate) fn feed(&mut self, slot: StreamId, mut frame: Frame) {
        let StreamId(key) = slot;
        if frame.direction == Direction::Response && frame.part.is_last() {
            self.note_answered(key);
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
        self.route();
    }

    /// Sends a reply of the router's, which passes through the filters as a response. Once a reply was made it is not
    /// replaced.
    pub(crate) fn reply(&mut self, slot: StreamId, status: u32, body: &'static str, details: &str) {
        if self.is_local_reply(slot) {
            return;
        }
        let reply = LocalReply::of_the_gateway(status, body, details);
        self.reply_locally(slot.0, reply);
        self.route();
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
        let Some((vm, id)) = self.stage(key, stage) else { return };
        vm.take(id, frame);
        self.drain(key, stage);
    }

    /// Follows what a filter has let go on or asked for.
    fn drain(&mut self, key: u64, stage: usize) {
        loop {
            let Some((vm, id)) = self.stage(key, stage) else { return };
            let answers = vm.take_outputs(id);
            if answers.is_empty() {
                return;
            }
            for answer in answers {
                match answer {
                    Answer::Frame(frame) => self.go_on(key, stage, frame),
                    Answer::Reply { reply, depth } => {
                        let before = self.set_depth(key, stage, depth);
                        self.reply_locally(key, reply);
                        self.set_depth(key, stage, before);
                    }
                    Answer::Reset => {
                        let details = self.chain(key).map(|chain| {
                            chain.details.get_or_insert_with(|| CLOSE_DETAILS.to_owned()).clone()
                        });
                        self.each(key, |stream| stream.details.clone_from(&details));
                        self.cut(key);
                    }
                }
            }
        }
    }

    /// Puts the VM of a filter at this depth, and gives back the one where it was.
    fn set_depth(&mut self, key: u64, stage: usize, depth: u32) -> u32 {
        self.stage(key, stage).map_or(0, |(vm, _)| std::mem::replace(&mut vm.state().depth, depth))
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
            self.note_sent(key);
        }
        let Some(chain) = self.chain(key) else { return };
        // Upstreams are spoken to over HTTP/1.
        let is_http2 = chain.is_http2 && direction == Direction::Response;
        let (seen, warning) = chain.read[direction.index()].pass(frame, chain.request.is_head, is_http2);
        match seen {
            Seen::Part(part) => {
                chain.outputs.push_back(Output::Frame(Frame { direction, part }));
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
            chain.outputs.push_back(Output::Reset);
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

    /// Follows what filters have done with streams while something else was asked of their VMs.
    pub(crate) fn route(&mut self) {
        let next = |(generation, vm): (&u64, &mut Vm)| {
            let state = vm.state();
            let id = state.ready.pop_front()?;
            Some((state.stream(id).map(|stream| stream.chain), id, *generation))
        };
        while let Some((key, id, generation)) = self.vms.iter_mut().find_map(next) {
            // A stream that has ended has nothing left to be followed.
            let Some(key) = key else { continue };
            let stage = self.chains.get(&key).and_then(|chain| {
                let is_it = |stage: &Stage| stage.generation == generation && stage.context == id;
                chain.stages.iter().position(is_it)
            });
            if let Some(stage) = stage {
                self.drain(key, stage);
            }
        }
    }

    /// Whether filters have let the whole request go on, of which the upstream may still read less.
    pub(crate) fn is_request_sent(&self, slot: StreamId) -> bool {
        self.chains.get(&slot.0).is_some_and(|chain| chain.request_sent)
    }

    /// Whether a reply has been made in the upstream's place.
    pub(crate) fn is_local_reply(&self, slot: StreamId) -> bool {
        self.chains.get(&slot.0).is_some_and(|chain| chain.local_reply)
    }

    pub(crate) fn details(&self, slot: StreamId) -> Option<String> {
        self.chains.get(&slot.0).and_then(|chain| chain.details.clone())
    }

    /// Takes what has passed all filters.
    pub(crate) fn outputs(&mut self, slot: StreamId) -> VecDeque<Output> {
        self.ready.remove(&slot.0);
        self.chain(slot.0).map(|chain| std::mem::take(&mut chain.outputs)).unwrap_or_default()
    }

    /// Streams that have something for their driver.
    pub(crate) fn take_ready(&mut self) -> Vec<StreamId> {
        self.route();
        std::mem::take(&mut self.ready).into_iter().map(StreamId).collect()
    }

    /// Whether filters hold so much of a direction that the gateway reads no more of it.
    pub(crate) fn is_full(&mut self, slot: StreamId, direction: Direction) -> bool {
        let limit = self.shared.buffer_limit;
        let mut held = 0;
        self.each(slot.0, |stream| held += stream.half(direction).held.len());
        limit > 0 && held > limit
    }
}
