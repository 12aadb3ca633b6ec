//! The filter's place in a stream: what reaches it, what it holds back, what it lets go on.
//!
//! This is Envoy's filter manager (`filter_manager.cc`) at one filter, with the filter's side of it
//! (`extensions/common/wasm/context.cc`). The way from filter to filter is the worker's.

use std::mem;

use bytes::{Bytes, BytesMut};
use envoy_config::FailurePolicy;

use crate::{
    abi::{DataAction, HeadersAction, count},
    state::stream::{Half, Iteration, StreamContext},
    stream::filter_vm::{FilterVm, Onward},
    trace::callbacks::Parameters,
    vm::exports::{Callback, Exports},
    wire::{
        frame::Direction,
        frame::{Frame, Part},
        headers::{Headers, Kind},
        local_reply::LocalReply,
    },
};

/// A filter at a stream.
pub(crate) struct StreamFilter<'a> {
    pub(super) vm: &'a mut FilterVm,
    /// The stream's context.
    pub(super) id: u32,
}

/// What asking the filter came to.
enum Verdict {
    /// There was none to ask: the stream goes on without it.
    Pass,
    /// The filter's answer.
    Action(u32),
    /// A reply is on its way in the stream's place.
    Replied,
}

/// What happens instead of, or at, a callback.
enum Run {
    /// The filter is called.
    Call,
    /// The stream goes on without it.
    Pass,
    /// The VM has failed: the stream is answered 503.
    Fail,
}

impl<'a> StreamFilter<'a> {
    /// The filter that has this context of a stream; none where the stream is gone.
    pub(crate) fn of(vm: &'a mut FilterVm, id: u32) -> Option<Self> {
        vm.state().stream(id).is_some().then_some(Self { vm, id })
    }

    pub(super) fn stream(&mut self) -> &mut StreamContext {
        self.vm
            .state()
            .stream(self.id)
            .expect("a context lasts until its stream ends, which no callback does")
    }

    fn half(&mut self, direction: Direction) -> &mut Half {
        self.stream().half(direction)
    }

    /// Whether what comes in this direction is still of interest.
    fn accepts(&mut self, direction: Direction) -> bool {
        let stream = self.stream();
        match direction {
            // A reply has been made in the upstream's place: the request's rest is dropped.
            Direction::Request => !stream.request_over && !stream.reset,
            // What an upstream goes on to send after a reply took its response's place is dropped too.
            Direction::Response => !stream.reset && !stream.response.end_released,
        }
    }

    /// Whether the filter's callbacks run; a failed VM answers for itself.
    fn runs(&mut self, direction: Direction) -> Run {
        let stream = self.stream();
        let root = stream.root;
        if !stream.created || (direction == Direction::Response && stream.failure_reply) {
            return Run::Pass;
        }
        if self.vm.failure().is_none() {
            return Run::Call;
        }
        let root = self.vm.state().root(root);
        let policy = root.map(|root| root.plugin.failure_policy).unwrap_or_default();
        if policy == FailurePolicy::DeprecatedFailOpen { Run::Pass } else { Run::Fail }
    }

    /// Asks the filter what to do. What it asks for itself meanwhile is done before its answer counts, as in Envoy: a
    /// direction that it resumes and stops in one callback is stopped.
    fn ask<P: Parameters>(
        &mut self,
        direction: Direction,
        callback: impl Fn(&Exports) -> &Callback<P, u32>,
        arguments: P,
    ) -> Verdict {
        let answer = match self.runs(direction) {
            Run::Call if callback(&self.vm.guest.exports).function.is_some() => {
                self.vm.call(callback, self.id, arguments)
            }
            Run::Call | Run::Pass => return Verdict::Pass,
            Run::Fail => None,
        };
        match answer {
            Some(_) if self.vm.state().stop_iteration => Verdict::Replied,
            Some(action) => Verdict::Action(action),
            None if matches!(self.runs(direction), Run::Fail) => {
                self.fail();
                Verdict::Replied
            }
            None => Verdict::Pass,
        }
    }

    fn release(&mut self, what: Onward) {
        self.vm.release(self.id, what);
    }

    fn pass(&mut self, direction: Direction, part: Part) {
        self.release(Onward::Part(Frame { direction, part }));
    }

    /// Sends the filter's reply, once for each stream of the filter; says whether it did.
    pub(super) fn reply_locally(&mut self, reply: LocalReply) -> bool {
        let stream = self.stream();
        let first = !mem::replace(&mut stream.replied, true);
        if first {
            stream.request_over = true;
            self.release(Onward::Reply(reply));
        }
        first
    }

    /// Answers 503 for a VM that has failed, once.
    fn fail(&mut self) {
        let stream = self.stream();
        if !mem::replace(&mut stream.failure_reply, true) {
            stream.request_over = true;
            self.release(Onward::Reply(LocalReply::of_failed_vm()));
        }
    }

    /// A part of a message has come.
    pub(crate) fn take(mut self, Frame { direction, part }: Frame) {
        if !self.accepts(direction) {
            return;
        }
        match part {
            Part::Headers { headers, end } => self.headers(direction, headers, end),
            Part::Body { data, end } => self.data(direction, data, end),
            Part::Trailers(trailers) => self.trailers(direction, trailers),
        }
    }

    fn headers(&mut self, direction: Direction, headers: Headers, end: bool) {
        if direction == Direction::Request {
            self.create();
        }
        let entries = count(headers.len());
        let stream = self.stream();
        stream.end_of_stream = end;
        let half = stream.half(direction);
        half.headers = Some(headers.into_kind(Kind::of_headers(direction)));
        half.ended = end;
        half.headers_open = true;
        let arguments = (self.id, entries, u32::from(end));
        let action = match self.ask(direction, |exports| &exports.on_headers[direction.index()], arguments) {
            Verdict::Pass => HeadersAction::Continue,
            Verdict::Replied => HeadersAction::StopAll,
            Verdict::Action(code) => HeadersAction::from_code(code, self.may_stop_headers_alone()),
        };
        let half = self.half(direction);
        match action {
            HeadersAction::Continue => {
                half.headers_open = false;
                self.release_headers(direction);
            }
            HeadersAction::StopIteration => half.iteration = Iteration::Stopped,
            HeadersAction::StopAll => half.iteration = Iteration::StoppedAll { whole: false },
            HeadersAction::StopAllAndBuffer => half.iteration = Iteration::StoppedAll { whole: true },
        }
    }

    /// Whether the body callbacks run while the filter holds the headers.
    fn may_stop_headers_alone(&mut self) -> bool {
        let root = self.stream().root;
        self.vm.state().root(root).is_some_and(|root| root.plugin.allow_on_headers_stop_iteration)
    }

    fn data(&mut self, direction: Direction, data: Bytes, end: bool) {
        let half = self.half(direction);
        half.ended |= end;
        if let Iteration::StoppedAll { whole } = half.iteration {
            half.held.extend_from_slice(&data);
            if whole {
                self.refuse_too_large(direction);
            }
            return;
        }
        self.filter_data(direction, data, end);
        // Trailers that the filter made up in its last body callback have no other callback: it may go on reaching for them.
        let half = self.half(direction);
        if half.trailers_open && half.ended && half.iteration == Iteration::Running {
            self.release_trailers(direction);
        }
    }

    fn filter_data(&mut self, direction: Direction, data: Bytes, end: bool) {
        let stream = self.stream();
        stream.end_of_stream = end;
        let half = stream.half(direction);
        let mut chunk = match data.try_into_mut() {
            Ok(unique) => unique,
            Err(shared) => BytesMut::from(shared.as_ref()),
        };
        if half.sees_held {
            half.held.unsplit(mem::take(&mut chunk));
            if self.refuse_too_large(direction) {
                return;
            }
        }
        let half = self.half(direction);
        let size = count(if half.sees_held { half.held.len() } else { chunk.len() });
        half.chunk = Some(chunk);
        half.chunk_open = true;
        let arguments = (self.id, size, u32::from(end));
        let action = match self.ask(direction, |exports| &exports.on_body[direction.index()], arguments) {
            Verdict::Pass => DataAction::Continue,
            Verdict::Replied => DataAction::StopNoBuffer,
            Verdict::Action(code) => DataAction::from_code(code),
        };
        let half = self.half(direction);
        half.sees_held = false;
        let chunk = half.chunk.take().unwrap_or_default();
        match action {
            DataAction::Continue if half.iteration == Iteration::Running => {
                let end = half.ended && half.trailers.is_none();
                self.release_data(direction, chunk.freeze(), end);
            }
            DataAction::Continue => {
                half.held.unsplit(chunk);
                self.resume(direction, false);
            }
            DataAction::StopAndBuffer => {
                half.iteration = Iteration::Stopped;
                half.sees_held = true;
                half.held.unsplit(chunk);
                self.refuse_too_large(direction);
            }
            DataAction::StopAndWatermark => {
                half.iteration = Iteration::Stopped;
                half.held.unsplit(chunk);
            }
            DataAction::StopNoBuffer => half.iteration = Iteration::Stopped,
        }
    }

    /// A body that the filter wants whole and that is beyond the gateway's limit is answered in its place; says whether
    /// it was.
    fn refuse_too_large(&mut self, direction: Direction) -> bool {
        let limit = self.vm.state().shared.buffer_limit;
        let stream = self.stream();
        let refused = limit > 0 && stream.half(direction).held.len() > limit;
        if refused {
            stream.request_over = true;
            self.release(Onward::Reply(LocalReply::too_large(direction)));
        }
        refused
    }

    fn trailers(&mut self, direction: Direction, trailers: Headers) {
        let half = self.half(direction);
        half.ended = true;
        half.trailers = Some(trailers.into_kind(Kind::of_trailers(direction)));
        if !matches!(half.iteration, Iteration::StoppedAll { .. }) {
            self.filter_trailers(direction);
        }
    }

    fn filter_trailers(&mut self, direction: Direction) {
        let half = self.half(direction);
        let entries = half.trailers.as_ref().map_or(0, Headers::len);
        half.trailers_open = true;
        let arguments = (self.id, count(entries));
        let verdict = self.ask(direction, |exports| &exports.on_trailers[direction.index()], arguments);
        let half = self.half(direction);
        if matches!(verdict, Verdict::Pass | Verdict::Action(0)) {
            half.trailers_open = false;
            self.resume(direction, false);
        } else {
            half.iteration = Iteration::Stopped;
        }
    }

    /// The filter lets a direction go on: one that it has stopped, or whose headers callback runs.
    pub(super) fn go_on(&mut self, direction: Direction) {
        if !self.accepts(direction) {
            return;
        }
        let half = self.half(direction);
        if half.headers.is_none() || (half.iteration == Iteration::Running && half.headers_released) {
            return;
        }
        let stopped_all = matches!(half.iteration, Iteration::StoppedAll { .. });
        if direction == Direction::Response {
            half.headers_open = false;
        }
        self.resume(direction, stopped_all);
    }

    /// Lets what is held go on: to the filter's own next callbacks when it stopped everything, else past it.
    fn resume(&mut self, direction: Direction, through_filter: bool) {
        self.half(direction).iteration = Iteration::Running;
        self.release_headers(direction);
        let half = self.half(direction);
        let held = mem::take(&mut half.held).freeze();
        // What the callback that runs is about follows.
        let callback_has_none = half.chunk.as_ref().is_none_or(BytesMut::is_empty);
        let last = half.ended && half.trailers.is_none() && callback_has_none;
        if !held.is_empty() || (last && !half.end_released) {
            if through_filter {
                self.filter_data(direction, held, last);
            } else {
                half.sees_held = false;
                self.release_data(direction, held, last);
            }
        }
        let half = self.half(direction);
        if half.trailers.is_some() && !half.end_released {
            if through_filter {
                self.filter_trailers(direction);
            } else {
                self.release_trailers(direction);
            }
        }
    }

    fn release_headers(&mut self, direction: Direction) {
        let half = self.half(direction);
        if half.headers_released {
            return;
        }
        half.headers_released = true;
        let end = half.ended && half.held.is_empty() && half.chunk.is_none() && half.trailers.is_none();
        half.end_released = end;
        let headers = half.headers.clone().unwrap_or_default();
        self.pass(direction, Part::Headers { headers, end });
    }

    fn release_data(&mut self, direction: Direction, data: Bytes, end: bool) {
        let half = self.half(direction);
        if !half.end_released && (end || !data.is_empty()) {
            half.end_released = end;
            self.pass(direction, Part::Body { data, end });
        }
    }

    fn release_trailers(&mut self, direction: Direction) {
        let half = self.half(direction);
        if !half.end_released {
            half.end_released = true;
            let trailers = half.trailers.clone().unwrap_or_default();
            self.pass(direction, Part::Trailers(trailers));
        }
    }
}
