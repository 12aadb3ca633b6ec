//! The filter's place in a stream: what reaches it, what it holds back, what it lets go on.
//!
//! This is Envoy's filter manager (`filter_manager.cc`) at one filter, with the filter's side of it
//! (`extensions/common/wasm/context.cc`). The way from filter to filter is `manager.rs`.

use std::{collections::VecDeque, mem};

use bytes::{Bytes, BytesMut};
use envoy_config::FailurePolicy;

use crate::{
    abi::{DataAction, HeadersAction},
    stream::{
        frame::{Answer, Direction, Frame, Part},
        half::{Half, Iteration},
        local_reply::LocalReply,
    },
    trace::Parameters,
    vm::{Vm, exports::OfMessage},
    wire::headers::{Headers, Kind},
};

/// A blob that the guest counts has no more entries than fit its numbers.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
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

impl Vm {
    fn half(&mut self, id: u32, direction: Direction) -> Option<&mut Half> {
        self.state().stream(id).map(|stream| stream.half(direction))
    }

    fn with_half(&mut self, id: u32, direction: Direction, change: impl FnOnce(&mut Half)) {
        if let Some(half) = self.half(id, direction) {
            change(half);
        }
    }

    /// Whether what comes in this direction is still of interest.
    fn accepts(&mut self, id: u32, direction: Direction) -> bool {
        self.state().stream(id).is_some_and(|stream| match direction {
            // A reply has been made in the upstream's place: the request's rest is dropped.
            Direction::Request => !stream.request_over && !stream.reset,
            // What an upstream goes on to send after a reply took its response's place is dropped too.
            Direction::Response => !stream.reset && !stream.response.end_released,
        })
    }

    /// Whether the filter's callbacks run; a failed VM answers for itself.
    fn filter_runs(&mut self, id: u32, direction: Direction) -> Run {
        let failed = self.is_failed();
        let state = self.state();
        let Some(stream) = state.stream(id) else { return Run::Pass };
        if !stream.created || (direction == Direction::Response && stream.failure_reply) {
            return Run::Pass;
        }
        if !failed {
            return Run::Call;
        }
        let root = stream.root;
        let policy = state.root(root).map(|root| root.plugin.failure_policy).unwrap_or_default();
        if policy == FailurePolicy::DeprecatedFailOpen { Run::Pass } else { Run::Fail }
    }

    /// Asks the filter what to do. What it asks for itself meanwhile runs before its answer counts, as in Envoy: a
    /// direction that it resumes and stops in one callback is stopped.
    fn ask<P: Parameters>(
        &mut self,
        id: u32,
        direction: Direction,
        (name, function): OfMessage<P>,
        arguments: P,
    ) -> Verdict {
        let answer = match (self.filter_runs(id, direction), function) {
            (Run::Pass, _) | (Run::Call, None) => return Verdict::Pass,
            (Run::Fail, _) => None,
            (Run::Call, Some(function)) => self.call(name, id, &function, arguments),
        };
        let replied = self.state().stop_iteration;
        self.run_deferred();
        match answer {
            Some(_) if replied => Verdict::Replied,
            Some(action) => Verdict::Action(action),
            None => match self.filter_runs(id, direction) {
                Run::Fail => {
                    self.fail_stream(id);
                    Verdict::Replied
                }
                Run::Pass | Run::Call => Verdict::Pass,
            },
        }
    }

    /// Puts something out for the stream's worker.
    pub(crate) fn put(&mut self, id: u32, answer: Answer) {
        let state = self.state();
        if let Some(stream) = state.stream(id) {
            stream.outputs.push_back(answer);
            if !state.ready.contains(&id) {
                state.ready.push_back(id);
            }
        }
    }

    fn pass(&mut self, id: u32, direction: Direction, part: Part) {
        self.put(id, Answer::Frame(Frame { direction, part }));
    }

    /// A part of a message has come.
    pub(crate) fn take(&mut self, id: u32, Frame { direction, part }: Frame) {
        if !self.accepts(id, direction) {
            return;
        }
        match part {
            Part::Headers { headers, end } => self.headers(id, direction, headers, end),
            Part::Body { data, end } => self.data(id, direction, data, end),
            Part::Trailers(trailers) => self.trailers(id, direction, trailers),
        }
    }

    fn headers(&mut self, id: u32, direction: Direction, headers: Headers, end: bool) {
        if direction == Direction::Request {
            self.create_in_guest(id);
        }
        let entries = count(headers.len());
        let Some(stream) = self.state().stream(id) else { return };
        stream.end_of_stream = end;
        let half = stream.half(direction);
        half.headers = Some(headers.into_kind(Kind::of_headers(direction)));
        half.ended = end;
        half.headers_open = true;
        let callback = self.exports.on_headers[direction.index()].clone();
        let action = match self.ask(id, direction, callback, (id, entries, u32::from(end))) {
            Verdict::Pass => HeadersAction::Continue,
            Verdict::Replied => HeadersAction::StopAll,
            Verdict::Action(code) => HeadersAction::from_code(code, self.may_stop_headers_alone(id)),
        };
        let Some(half) = self.half(id, direction) else { return };
        match action {
            HeadersAction::Continue => {
                half.headers_open = false;
                self.release_headers(id, direction);
            }
            HeadersAction::StopIteration => half.iteration = Iteration::Stopped,
            HeadersAction::StopAll => half.iteration = Iteration::StoppedAll { whole: false },
            HeadersAction::StopAllAndBuffer => half.iteration = Iteration::StoppedAll { whole: true },
        }
    }

    /// Whether the body callbacks run while the filter holds the headers.
    fn may_stop_headers_alone(&mut self, id: u32) -> bool {
        let state = self.state();
        let root = state.root_of(id);
        state.root(root).is_some_and(|root| root.plugin.allow_on_headers_stop_iteration)
    }

    fn data(&mut self, id: u32, direction: Direction, data: Bytes, end: bool) {
        let Some(half) = self.half(id, direction) else { return };
        half.ended |= end;
        if let Iteration::StoppedAll { whole } = half.iteration {
            half.held.extend_from_slice(&data);
            if whole {
                self.refuse_too_large(id, direction);
            }
        } else {
            self.filter_data(id, direction, data, end);
            self.release_new_trailers(id, direction);
        }
    }

    fn filter_data(&mut self, id: u32, direction: Direction, data: Bytes, end: bool) {
        let Some(stream) = self.state().stream(id) else { return };
        stream.end_of_stream = end;
        let half = stream.half(direction);
        let mut chunk = match data.try_into_mut() {
            Ok(unique) => unique,
            Err(shared) => BytesMut::from(shared.as_ref()),
        };
        if half.sees_held {
            half.held.unsplit(mem::take(&mut chunk));
            if self.refuse_too_large(id, direction) {
                return;
            }
        }
        let Some(half) = self.half(id, direction) else { return };
        let size = count(if half.sees_held { half.held.len() } else { chunk.len() });
        half.chunk = Some(chunk);
        half.chunk_open = true;
        let callback = self.exports.on_body[direction.index()].clone();
        let action = match self.ask(id, direction, callback, (id, size, u32::from(end))) {
            Verdict::Pass => DataAction::Continue,
            Verdict::Replied => DataAction::StopNoBuffer,
            Verdict::Action(code) => DataAction::from_code(code),
        };
        let Some(half) = self.half(id, direction) else { return };
        half.sees_held = false;
        let chunk = half.chunk.take().unwrap_or_default();
        match action {
            DataAction::Continue if half.iteration == Iteration::Running => {
                let end = half.ended && half.trailers.is_none();
                self.release_data(id, direction, chunk.freeze(), end);
            }
            DataAction::Continue => {
                half.held.unsplit(chunk);
                self.resume(id, direction, false);
            }
            DataAction::StopAndBuffer => {
                half.iteration = Iteration::Stopped;
                half.sees_held = true;
                half.held.unsplit(chunk);
                self.refuse_too_large(id, direction);
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
    fn refuse_too_large(&mut self, id: u32, direction: Direction) -> bool {
        let limit = self.state().shared.buffer_limit;
        let Some(stream) = self.state().stream(id) else { return false };
        if limit == 0 || stream.half(direction).held.len() <= limit {
            return false;
        }
        stream.request_over = true;
        let depth = self.state().depth;
        self.put(id, Answer::Reply { reply: LocalReply::too_large(direction), depth });
        true
    }

    fn trailers(&mut self, id: u32, direction: Direction, trailers: Headers) {
        let Some(half) = self.half(id, direction) else { return };
        half.ended = true;
        half.trailers = Some(trailers.into_kind(Kind::of_trailers(direction)));
        if !matches!(half.iteration, Iteration::StoppedAll { .. }) {
            self.filter_trailers(id, direction);
        }
    }

    fn filter_trailers(&mut self, id: u32, direction: Direction) {
        let Some(half) = self.half(id, direction) else { return };
        let entries = half.trailers.as_ref().map_or(0, Headers::len);
        half.trailers_open = true;
        let callback = self.exports.on_trailers[direction.index()].clone();
        let goes_on = matches!(
            self.ask(id, direction, callback, (id, count(entries))),
            Verdict::Pass | Verdict::Action(0)
        );
        let Some(half) = self.half(id, direction) else { return };
        if goes_on {
            half.trailers_open = false;
            self.resume(id, direction, false);
        } else {
            half.iteration = Iteration::Stopped;
        }
    }

    /// The filter lets a direction go on: one that it has stopped, or whose headers callback runs.
    pub(crate) fn continue_stream(&mut self, id: u32, direction: Direction) {
        if !self.accepts(id, direction) {
            return;
        }
        let Some(half) = self.half(id, direction) else { return };
        if half.headers.is_none() || (half.iteration == Iteration::Running && half.headers_released) {
            return;
        }
        let stopped_all = matches!(half.iteration, Iteration::StoppedAll { .. });
        if direction == Direction::Response {
            half.headers_open = false;
        }
        self.resume(id, direction, stopped_all);
    }

    /// Lets what is held go on: to the filter's own next callbacks when it stopped everything, else past it.
    fn resume(&mut self, id: u32, direction: Direction, through_filter: bool) {
        self.with_half(id, direction, |half| half.iteration = Iteration::Running);
        self.release_headers(id, direction);
        let Some(half) = self.half(id, direction) else { return };
        let held = mem::take(&mut half.held).freeze();
        // What the callback that runs is about follows.
        let callback_has_none = half.chunk.as_ref().is_none_or(BytesMut::is_empty);
        let last = half.ended && half.trailers.is_none() && callback_has_none;
        if !held.is_empty() || (last && !half.end_released) {
            if through_filter {
                self.filter_data(id, direction, held, last);
            } else {
                half.sees_held = false;
                self.release_data(id, direction, held, last);
            }
        }
        if self.half(id, direction).is_some_and(|half| half.trailers.is_some() && !half.end_released) {
            if through_filter {
                self.filter_trailers(id, direction);
            } else {
                self.release_trailers(id, direction);
            }
        }
    }

    fn release_headers(&mut self, id: u32, direction: Direction) {
        let Some(half) = self.half(id, direction) else { return };
        if half.headers_released {
            return;
        }
        half.headers_released = true;
        let end = half.ended && half.held.is_empty() && half.chunk.is_none() && half.trailers.is_none();
        half.end_released = end;
        let headers = half.headers.clone().unwrap_or_default();
        self.pass(id, direction, Part::Headers { headers, end });
    }

    fn release_data(&mut self, id: u32, direction: Direction, data: Bytes, end: bool) {
        let Some(half) = self.half(id, direction) else { return };
        if half.end_released || (data.is_empty() && !end) {
            return;
        }
        half.end_released = end;
        self.pass(id, direction, Part::Body { data, end });
    }

    /// Trailers that the filter made up in its last body callback, which has no other callback for them: it may go on reaching for them.
    fn release_new_trailers(&mut self, id: u32, direction: Direction) {
        let is_made_up =
            |half: &mut Half| half.trailers_open && half.ended && half.iteration == Iteration::Running;
        if self.half(id, direction).is_some_and(is_made_up) {
            self.release_trailers(id, direction);
        }
    }

    fn release_trailers(&mut self, id: u32, direction: Direction) {
        let Some(half) = self.half(id, direction) else { return };
        if half.end_released {
            return;
        }
        half.end_released = true;
        let trailers = half.trailers.clone().unwrap_or_default();
        self.pass(id, direction, Part::Trailers(trailers));
    }

    /// Takes what the filter has let go on.
    pub(crate) fn take_outputs(&mut self, id: u32) -> VecDeque<Answer> {
        let state = self.state();
        state.ready.retain(|ready| *ready != id);
        state.stream(id).map(|stream| mem::take(&mut stream.outputs)).unwrap_or_default()
    }
}
