//! What comes from the client and the upstream, on its way to the filters.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use host_sim::driver::{self, CONNECT_ERROR, Direction, Part, RESET_ERROR, StreamId, WorkerGuard};
use http_body::Body as _;

use super::{Exchange, send::Released, translate};
use crate::gateway::{
    client::{Answer, Failure},
    history::{Message, Upstream as Asked},
};

impl Exchange {
    /// Takes a step of the filter, and follows what it lets go on.
    pub(super) fn step(&mut self, step: impl FnOnce(&mut WorkerGuard<'_>, StreamId)) {
        let stream = self.stream;
        let released = self.local.with_for(self.id, |worker| {
            step(worker, stream);
            Released::by(worker, stream)
        });
        self.follow_released(released);
    }

    pub(super) fn feed(&mut self, direction: Direction, parts: impl IntoIterator<Item = Part>) {
        self.step(|worker, stream| {
            for part in parts {
                worker.feed(stream, driver::Frame { direction, part });
            }
        });
    }

    /// Nothing more is read of a direction.
    pub(super) fn stop_reading(&mut self, direction: Direction) {
        match direction {
            Direction::Request => self.request_body = None,
            Direction::Response => {
                self.response_body = None;
                self.deadline = None;
            }
        }
    }

    pub(super) fn feed_data(&mut self, direction: Direction, data: Bytes, end: bool) {
        if end {
            self.stop_reading(direction);
        }
        self.note(|record| match (direction, &mut record.upstream) {
            (Direction::Request, _) => record.request.add(&data),
            (Direction::Response, Asked::Answered(answer)) => answer.add(&data),
            (Direction::Response, _) => {}
        });
        // Upstreams are spoken to over HTTP/1.
        let is_http2 = self.is_http2() && direction == Direction::Request;
        let framing = self.local.peek(|worker| worker.framing());
        let pieces = framing.pieces(data, end, is_http2);
        self.feed(direction, pieces.into_iter().map(|(data, end)| Part::Body { data, end }));
    }

    pub(super) fn feed_frame(&mut self, direction: Direction, frame: http_body::Frame<Bytes>, last: bool) {
        match frame.into_data() {
            Ok(data) => self.feed_data(direction, data, last),
            Err(frame) => {
                let is_http2 = self.is_http2() && direction == Direction::Request;
                match frame.into_trailers() {
                    Ok(trailers) if is_http2 => {
                        self.stop_reading(direction);
                        let trailers = translate::headers_of(&trailers);
                        self.note(|record| record.request.end(trailers.clone()));
                        self.feed(direction, [Part::Trailers(trailers)]);
                    }
                    // Over HTTP/1 trailers are dropped (`enable_trailers` is off).
                    _ => self.feed_data(direction, Bytes::new(), true),
                }
            }
        }
    }

    /// Whether filters hold so much of a direction that no more is read until they let go.
    pub(super) fn is_full(&mut self, direction: Direction) -> bool {
        let stream = self.stream;
        self.local.peek(|worker| worker.is_full(stream, direction))
    }

    /// The upstream has the whole request, as far as the gateway knows, and has not answered whole in time.
    pub(super) fn time_out(&mut self) {
        self.deadline = None;
        self.call = None;
        self.response_body = None;
        if self.answered {
            self.reset();
        } else {
            self.note(|record| record.upstream = Asked::Late);
            self.step(|worker, stream| {
                worker.reply(stream, 504, "upstream request timeout", "response_timeout");
            });
        }
    }

    pub(super) fn answered(&mut self, answer: Answer) {
        self.call = None;
        let stream = self.stream;
        if self.local.peek(|worker| worker.is_local_reply(stream)) {
            return;
        }
        match answer {
            Ok((response, upstream)) => {
                let (parts, body) = response.into_parts();
                self.local.peek(|worker| worker.set_upstream(stream, upstream));
                self.note(|record| record.upstream_address = Some(upstream.address));
                let end = body.is_end_stream();
                self.response_body = (!end).then_some(body);
                let headers = translate::response_headers(&parts);
                self.note(|record| record.upstream = Asked::Answered(Message::new(headers.clone())));
                if end {
                    self.deadline = None;
                }
                self.feed(Direction::Response, [Part::Headers { headers, end }]);
            }
            Err(failure) => {
                self.local.stats.upstream_failures.fetch_add(1, Ordering::Relaxed);
                let unreachable = failure == Failure::Unreachable;
                self.note(|record| {
                    record.upstream = if unreachable { Asked::Unreachable } else { Asked::Broken };
                });
                let (reason, details) = if unreachable {
                    (CONNECT_ERROR, "upstream_reset_before_response_started{remote_connection_failure}")
                } else {
                    (RESET_ERROR, "upstream_reset_before_response_started{connection_termination}")
                };
                self.step(|worker, stream| worker.reply(stream, 503, reason, details));
            }
        }
    }
}
