//! A stream's way through the filters: requests in their order, responses in reverse, and replies in the upstream's
//! place.
//!
//! This is Envoy's filter manager (`filter_manager.cc`) between filters; what happens at one of them is
//! `filter_chain.rs`.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use crate::{
    filter_state::FilterState,
    flavour::Flavour,
    headers::Headers,
    local_reply::{CLOSE_DETAILS, Kind},
    message::Peer,
    state::{Direction, FilterOutput, Half, LocalReply, Output, StreamContext},
    vm::Vm,
    worker::Worker,
};

/// `%RESPONSE_CODE_DETAILS%` of a stream that the upstream has answered.
pub(crate) const VIA_UPSTREAM: &str = "via_upstream";

/// A stream, on its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// What the filters of a stream hold of a direction's body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// How many bytes.
    pub bytes: usize,
    /// Whether a filter asked to see all of them at once, so that it lets none go before the last has come.
    pub wanted_whole: bool,
}

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
    stages: Vec<Stage>,
    request: Kind,
    response_begun: bool,
    /// A reply took the place of a response that filters had begun to see.
    response_replaced: bool,
    /// The response's headers have gone to the client.
    response_sent: bool,
    /// All of the response has.
    response_ended: bool,
    sent: u64,
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
        let mut chain = Chain::default();
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

    fn stage(&mut self, key: u64, stage: usize) -> Option<(&mut Vm, u32)> {
        let Stage { generation, context } = *self.chains.get(&key)?.stages.get(stage)?;
        Some((self.vms.get_mut(&generation)?, context))
    }

    /// Does something to each filter's context of a stream.
    fn each(&mut self, key: u64, mut change: impl FnMut(&mut StreamContext)) {
        let Some(chain) = self.chains.get(&key) else { return };
        for Stage { generation, context } in &chain.stages {
            let vm = self.vms.get_mut(generation);
            if let Some(stream) = vm.and_then(|vm| vm.state().stream(*context)) {
                change(stream);
            }
        }
    }

    pub(crate) fn headers(&mut self, slot: StreamId, direction: Direction, headers: Headers, end: bool) {
        if direction == Direction::Request
            && let Some(chain) = self.chain(slot.0)
        {
            chain.request = Kind::of_request(&headers);
        }
        if direction == Direction::Response {
            self.each(slot.0, |stream| stream.details = Some(VIA_UPSTREAM.to_owned()));
        }
        self.enter(slot.0, Output::headers(direction, headers, end));
        self.route();
    }

    pub(crate) fn data(&mut self, slot: StreamId, direction: Direction, data: Bytes, end: bool) {
        if direction == Direction::Request {
            let received = data.len() as u64;
            self.each(slot.0, |stream| stream.request.received += received);
        }
        self.enter(slot.0, Output::body(direction, data, end));
        self.route();
    }

    pub(crate) fn trailers(&mut self, slot: StreamId, direction: Direction, trailers: Headers) {
        self.enter(slot.0, Output::trailers(direction, trailers));
        self.route();
    }

    /// Sends a reply of the router's, which passes through the filters as a response. Once a reply was made it is not
    /// replaced.
    pub(crate) fn reply(&mut self, slot: StreamId, status: u32, body: &'static str, details: &str) {
        if self.is_local_reply(slot) {
            return;
        }
        let reply = LocalReply {
            status,
            headers: Vec::new(),
            body: Bytes::from_static(body.as_bytes()),
            grpc_status: None,
            details: details.to_owned(),
        };
        self.reply_locally(slot.0, reply);
        self.route();
    }

    /// Something comes from the client or the upstream, or is made in the upstream's place.
    fn enter(&mut self, key: u64, output: Output) {
        match output {
            Output::ResponseHeaders { headers, end: true } if self.has_body_callback(key, &headers) => {
                self.enter_filters(key, Output::ResponseHeaders { headers, end: false });
                self.enter_filters(key, Output::ResponseBody { data: Bytes::new(), end: true });
            }
            output => self.enter_filters(key, output),
        }
    }

    /// Whether filters hear of the body of a response that ends with its headers: nginx passes the end on through its
    /// body filters, but where a response can have no body.
    fn has_body_callback(&self, key: u64, headers: &Headers) -> bool {
        let bodiless = self.chains.get(&key).is_none_or(|chain| chain.request.is_head);
        self.shared.shared_data.flavour() == Flavour::Ngx
            && !bodiless
            && !matches!(headers.status(), 204 | 304)
    }

    fn enter_filters(&mut self, key: u64, output: Output) {
        let direction = output.direction();
        let Some(chain) = self.chain(key) else { return };
        if !chain.accepts(direction) {
            return;
        }
        chain.response_begun |= direction == Direction::Response;
        match chain.entry(direction) {
            Some(stage) => self.feed(key, stage, output),
            None => self.leave(key, output),
        }
    }

    /// Gives something to a filter, and what the filter lets go on to the next.
    fn feed(&mut self, key: u64, stage: usize, output: Output) {
        let Some((vm, id)) = self.stage(key, stage) else { return };
        let direction = output.direction();
        match output {
            Output::RequestHeaders { headers, end } | Output::ResponseHeaders { headers, end } => {
                vm.headers(id, direction, headers, end);
            }
            Output::RequestBody { data, end } | Output::ResponseBody { data, end } => {
                vm.data(id, direction, data, end);
            }
            Output::RequestTrailers(trailers) | Output::ResponseTrailers(trailers) => {
                vm.trailers(id, direction, trailers);
            }
            Output::Reset => {}
        }
        self.drain(key, stage);
    }

    /// Follows what a filter has let go on or asked for.
    fn drain(&mut self, key: u64, stage: usize) {
        loop {
            let Some((vm, id)) = self.stage(key, stage) else { return };
            let outputs = vm.take_outputs(id);
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    FilterOutput::Reply { reply, depth } => {
                        let before = self.set_depth(key, stage, depth);
                        self.reply_locally(key, reply);
                        self.set_depth(key, stage, before);
                    }
                    FilterOutput::Pass(Output::Reset) => {
                        let details = self.chain(key).map(|chain| {
                            chain.details.get_or_insert_with(|| CLOSE_DETAILS.to_owned()).clone()
                        });
                        self.each(key, |stream| stream.details.clone_from(&details));
                        self.cut(key);
                    }
                    FilterOutput::Pass(output) => self.go_on(key, stage, output),
                }
            }
        }
    }

    /// Puts the VM of a filter at this depth, and gives back the one where it was.
    fn set_depth(&mut self, key: u64, stage: usize, depth: u32) -> u32 {
        self.stage(key, stage).map_or(0, |(vm, _)| std::mem::replace(&mut vm.state().depth, depth))
    }

    fn go_on(&mut self, key: u64, stage: usize, output: Output) {
        let direction = output.direction();
        let Some(chain) = self.chain(key) else { return };
        if !chain.accepts(direction) {
            return;
        }
        match chain.after(stage, direction) {
            Some(next) => self.feed(key, next, output),
            None => self.leave(key, output),
        }
    }

    /// Something has passed all filters.
    fn leave(&mut self, key: u64, output: Output) {
        let Some(chain) = self.chain(key) else { return };
        match &output {
            Output::ResponseHeaders { end, .. } => {
                chain.response_sent = true;
                chain.response_ended = *end;
            }
            Output::ResponseBody { data, end } => {
                chain.sent += data.len() as u64;
                chain.response_ended = *end;
            }
            Output::ResponseTrailers(_) => chain.response_ended = true,
            _ => {}
        }
        chain.outputs.push_back(output);
        self.ready.insert(key);
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
        if chain.response_sent {
            self.cut(key);
            return;
        }
        chain.local_reply = true;
        let details = Some(reply.details.clone());
        chain.details.clone_from(&details);
        let begun = chain.response_begun;
        let (headers, body) = reply.render(chain.request);
        let (status, end) = (headers.status(), body.is_empty());
        self.each(key, |stream| {
            stream.request_over = true;
            stream.details.clone_from(&details);
        });
        let shown = headers.clone();
        let head = Output::ResponseHeaders { headers, end };
        let body = (!end).then_some(Output::ResponseBody { data: body, end: true });
        if begun {
            if let Some(chain) = self.chain(key) {
                chain.response_replaced = true;
            }
            self.each(key, |stream| {
                stream.response.abandon(&shown);
                stream.code = Some(status);
            });
            for output in std::iter::once(head).chain(body) {
                self.leave(key, output);
            }
        } else {
            for output in std::iter::once(head).chain(body) {
                self.enter(key, output);
            }
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

    /// What filters hold of a direction.
    pub(crate) fn held(&mut self, slot: StreamId, direction: Direction) -> Held {
        let mut held = Held::default();
        self.each(slot.0, |stream| {
            let half = stream.half(direction);
            held.bytes += half.held.len();
            held.wanted_whole |= half.sees_held;
        });
        held
    }

    /// Ends a stream: every filter logs it, then every filter's context ends.
    pub(crate) fn close(&mut self, slot: StreamId) {
        self.show_ends(slot.0);
        let Some(chain) = self.chains.remove(&slot.0) else { return };
        self.ready.remove(&slot.0);
        let mut failed = false;
        for last in [false, true] {
            for Stage { generation, context } in &chain.stages {
                let Some(vm) = self.vms.get_mut(generation) else { continue };
                if last {
                    vm.end_stream(*context);
                    failed |= vm.is_failed();
                } else {
                    vm.log_stream(*context);
                }
            }
        }
        if failed {
            self.drop_drained();
        }
    }

    /// To the log, the messages are as the last filter that had them left them.
    fn show_ends(&mut self, key: u64) {
        let Some(chain) = self.chains.get(&key) else { return };
        let (sent, stages, replaced) = (chain.sent, chain.stages.len(), chain.response_replaced);
        self.each(key, |stream| stream.response.received = sent);
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
