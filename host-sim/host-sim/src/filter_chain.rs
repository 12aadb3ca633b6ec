//! The filter's place in a stream: what reaches it, what it holds back, what it lets go on.
//!
//! This is Envoy's filter manager (`filter_manager.cc`) at one filter, with the filter's side of it
//! (`extensions/common/wasm/context.cc`). The way from filter to filter is `chain.rs`.

use std::{collections::VecDeque, mem, sync::Arc};

use bytes::{Bytes, BytesMut};
use envoy_config::FailurePolicy;

use crate::{
    abi::{DataAction, HeadersAction},
    filter_state::FilterState,
    headers::{Headers, Kind},
    hostcalls::ngx,
    message::Peer,
    state::{Context, Direction, FilterOutput, Half, Iteration, Output, StreamContext},
    vm::Vm,
};

/// A blob that the guest counts has no more entries than fit its numbers.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Vm {
    /// Makes a stream under `root`, the worker's number `chain`. The guest hears of it when its request arrives.
    pub(crate) fn open_stream(
        &mut self,
        root: u32,
        chain: u64,
        peer: Arc<Peer>,
        filter_state: FilterState,
    ) -> u32 {
        let state = self.state();
        let id = state.allocate_context_id();
        let stream = StreamContext {
            root,
            chain,
            created: false,
            request: Half::default(),
            response: Half::default(),
            end_of_stream: false,
            logging: false,
            peer,
            started: state.shared.clock.wall_nanos(),
            started_monotonic: state.shared.clock.monotonic_nanos(),
            filter_state,
            details: None,
            code: None,
            replied: false,
            request_over: false,
            failure_reply: false,
            reset: false,
            outputs: VecDeque::new(),
        };
        state.contexts.insert(id, Context::Stream(Box::new(stream)));
        id
    }

    fn half(&mut self, id: u32, direction: Direction) -> Option<&mut Half> {
        self.state().stream(id).map(|stream| stream.half(direction))
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

    /// Lets something go on.
    pub(crate) fn pass(&mut self, id: u32, output: Output) {
        self.put(id, FilterOutput::Pass(output));
    }

    /// Puts something out for the stream's worker.
    pub(crate) fn put(&mut self, id: u32, output: FilterOutput) {
        let state = self.state();
        if let Some(stream) = state.stream(id) {
            stream.outputs.push_back(output);
            if !state.ready.contains(&id) {
                state.ready.push_back(id);
            }
        }
    }

    /// Headers have come.
    pub(crate) fn headers(&mut self, id: u32, direction: Direction, headers: Headers, end: bool) {
        if !self.accepts(id, direction) {
            return;
        }
        if direction == Direction::Request {
            self.create_in_guest(id);
        }
        let entries = count(headers.len());
        let Some(stream) = self.state().stream(id) else { return };
        stream.end_of_stream = end;
        let half = stream.half(direction);
        half.headers = Some(headers.into_kind(Kind::of_headers(direction)));
        half.ended = end;
        let function = self.exports.on_headers[Self::export_index(direction)].clone();
        let action = match (self.filter_runs(id, direction), function) {
            (Run::Pass, _) | (Run::Call, None) => HeadersAction::Continue,
            (Run::Fail, _) => self.fail_stream(id),
            (Run::Call, Some(function)) => {
                self.with_half(id, direction, |half| half.headers_open = true);
                let name = match direction {
                    Direction::Request => "proxy_on_request_headers",
                    Direction::Response => "proxy_on_response_headers",
                };
                let end = ngx::shows_end(self.state(), end);
                let answer = self.call(name, id, &function, (id, entries, u32::from(end)));
                match answer {
                    Some(_) if self.state().stop_iteration => HeadersAction::StopAll,
                    Some(code) => {
                        let root = self.state().stream(id).map_or(0, |stream| stream.root);
                        let allow = self
                            .state()
                            .root(root)
                            .is_some_and(|root| root.plugin.allow_on_headers_stop_iteration);
                        HeadersAction::from_code(code, allow)
                    }
                    None => match self.filter_runs(id, direction) {
                        Run::Fail => self.fail_stream(id),
                        Run::Pass | Run::Call => HeadersAction::Continue,
                    },
                }
            }
        };
        match action {
            HeadersAction::Continue => {
                self.with_half(id, direction, |half| half.headers_open = false);
                self.release_headers(id, direction);
            }
            HeadersAction::StopIteration => {
                self.with_half(id, direction, |half| half.iteration = Iteration::Stopped);
            }
            HeadersAction::StopAll => {
                self.with_half(id, direction, |half| half.iteration = Iteration::StoppedAll);
            }
        }
        self.run_deferred();
    }

    /// Body has come.
    pub(crate) fn data(&mut self, id: u32, direction: Direction, data: Bytes, end: bool) {
        if !self.accepts(id, direction) {
            return;
        }
        let Some(half) = self.half(id, direction) else { return };
        half.ended |= end;
        if half.iteration == Iteration::StoppedAll {
            half.held.extend_from_slice(&data);
            return;
        }
        self.filter_data(id, direction, data, end);
        self.run_deferred();
    }

    fn filter_data(&mut self, id: u32, direction: Direction, data: Bytes, end: bool) {
        let function = self.exports.on_body[Self::export_index(direction)].clone();
        let run = self.filter_runs(id, direction);
        let Some(stream) = self.state().stream(id) else { return };
        stream.end_of_stream = end;
        let half = stream.half(direction);
        let mut chunk = match data.try_into_mut() {
            Ok(unique) => unique,
            Err(shared) => BytesMut::from(shared.as_ref()),
        };
        if half.sees_held {
            half.held.unsplit(mem::take(&mut chunk));
        }
        let size = count(if half.sees_held { half.held.len() } else { chunk.len() });
        half.chunk = Some(chunk);
        let action = match (run, function) {
            (Run::Pass, _) | (Run::Call, None) => DataAction::Continue,
            (Run::Fail, _) => {
                self.fail_stream(id);
                DataAction::StopNoBuffer
            }
            (Run::Call, Some(function)) => {
                let name = match direction {
                    Direction::Request => "proxy_on_request_body",
                    Direction::Response => "proxy_on_response_body",
                };
                let answer = self.call(name, id, &function, (id, size, u32::from(end)));
                match answer {
                    Some(_) if self.state().stop_iteration => DataAction::StopNoBuffer,
                    Some(code) => DataAction::from_code(code),
                    None => match self.filter_runs(id, direction) {
                        Run::Fail => {
                            self.fail_stream(id);
                            DataAction::StopNoBuffer
                        }
                        Run::Pass | Run::Call => DataAction::Continue,
                    },
                }
            }
        };
        let Some(half) = self.half(id, direction) else { return };
        half.sees_held = false;
        let chunk = half.chunk.take().unwrap_or_default();
        match action {
            DataAction::Continue if half.iteration == Iteration::Running => {
                let end = half.ended && half.trailers.is_none();
                self.release_data(id, direction, chunk.freeze(), end);
                self.release_new_trailers(id, direction);
            }
            DataAction::Continue => {
                half.held.unsplit(chunk);
                self.resume(id, direction, false);
            }
            DataAction::StopAndBuffer | DataAction::StopAndWatermark => {
                half.iteration = Iteration::Stopped;
                half.sees_held = action == DataAction::StopAndBuffer;
                half.held.unsplit(chunk);
            }
            DataAction::StopNoBuffer => half.iteration = Iteration::Stopped,
        }
    }

    /// Trailers have come.
    pub(crate) fn trailers(&mut self, id: u32, direction: Direction, trailers: Headers) {
        if !self.accepts(id, direction) {
            return;
        }
        let Some(half) = self.half(id, direction) else { return };
        half.ended = true;
        half.trailers = Some(trailers.into_kind(Kind::of_trailers(direction)));
        if half.iteration == Iteration::StoppedAll {
            return;
        }
        self.filter_trailers(id, direction);
        self.run_deferred();
    }

    fn filter_trailers(&mut self, id: u32, direction: Direction) {
        let function = self.exports.on_trailers[Self::export_index(direction)].clone();
        let go_on = match (self.filter_runs(id, direction), function) {
            (Run::Pass, _) | (Run::Call, None) => true,
            (Run::Fail, _) => {
                self.fail_stream(id);
                false
            }
            (Run::Call, Some(function)) => {
                let entries =
                    self.half(id, direction).and_then(|half| half.trailers.as_ref()).map_or(0, Headers::len);
                self.with_half(id, direction, |half| half.trailers_open = true);
                let name = match direction {
                    Direction::Request => "proxy_on_request_trailers",
                    Direction::Response => "proxy_on_response_trailers",
                };
                let answer = self.call(name, id, &function, (id, count(entries)));
                match answer {
                    Some(code) => code == 0 && !self.state().stop_iteration,
                    None => match self.filter_runs(id, direction) {
                        Run::Fail => {
                            self.fail_stream(id);
                            false
                        }
                        Run::Pass | Run::Call => true,
                    },
                }
            }
        };
        let Some(half) = self.half(id, direction) else { return };
        if go_on {
            half.trailers_open = false;
            self.resume(id, direction, false);
        } else {
            half.iteration = Iteration::Stopped;
        }
    }

    /// The filter lets a stopped direction go on.
    pub(crate) fn continue_stream(&mut self, id: u32, direction: Direction) {
        if !self.accepts(id, direction) {
            return;
        }
        let Some(half) = self.half(id, direction) else { return };
        if half.headers.is_none() || half.iteration == Iteration::Running {
            return;
        }
        let stopped_all = half.iteration == Iteration::StoppedAll;
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
        let last = half.ended && half.trailers.is_none();
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
        self.pass(id, Output::headers(direction, headers, end));
    }

    fn release_data(&mut self, id: u32, direction: Direction, data: Bytes, end: bool) {
        let Some(half) = self.half(id, direction) else { return };
        if half.end_released || (data.is_empty() && !end) {
            return;
        }
        half.end_released = end;
        self.pass(id, Output::body(direction, data, end));
    }

    /// Trailers that the filter made up in its last body callback; it does not see them again.
    fn release_new_trailers(&mut self, id: u32, direction: Direction) {
        if self.half(id, direction).is_some_and(|half| half.trailers_open && half.ended) {
            self.with_half(id, direction, |half| half.trailers_open = false);
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
        self.pass(id, Output::trailers(direction, trailers));
    }

    fn with_half(&mut self, id: u32, direction: Direction, change: impl FnOnce(&mut Half)) {
        if let Some(half) = self.half(id, direction) {
            change(half);
        }
    }

    /// Takes what the filter has let go on.
    pub(crate) fn take_outputs(&mut self, id: u32) -> VecDeque<FilterOutput> {
        let state = self.state();
        state.ready.retain(|ready| *ready != id);
        state.stream(id).map(|stream| mem::take(&mut stream.outputs)).unwrap_or_default()
    }
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
