//! What the filters have let go on, on its way to the upstream and the client.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use host_sim::{
    Headers,
    driver::{self, Direction, Output, Part, Upstream},
};
use tokio::time::Instant;

use super::{Exchange, StreamBody, translate};
use crate::gateway::history::{End, Message, Upstream as Asked};

impl Exchange {
    /// Takes what the filter has let go on to where it goes.
    pub(super) fn collect(&mut self) {
        let stream = self.stream;
        let (outputs, is_sent) =
            self.local.peek(|worker| (worker.outputs(stream), worker.is_request_sent(stream)));
        for output in outputs {
            match output {
                Output::Frame(driver::Frame { direction: Direction::Request, part }) => self.send_up(part),
                Output::Frame(driver::Frame { direction: Direction::Response, part }) => self.send_down(part),
                Output::Reset => self.reset(),
            }
        }
        if is_sent && !std::mem::replace(&mut self.request_sent, true) {
            self.deadline = Some(Instant::now() + self.local.response_timeout);
        }
    }

    pub(super) fn send_up(&mut self, part: Part) {
        match part {
            Part::Headers { headers, end } => self.call_upstream(&headers, end),
            Part::Body { data, end } => self.up.data(data, end),
            Part::Trailers(trailers) => self.up.trailers(translate::header_map(&trailers)),
        }
    }

    pub(super) fn send_down(&mut self, part: Part) {
        match part {
            Part::Headers { headers, end } => self.send_head(&headers, end),
            Part::Body { data, end } => {
                self.note(|record| record.sent(&data, end));
                self.down.data(data, end);
            }
            Part::Trailers(trailers) => {
                self.down.trailers(translate::header_map(&trailers));
                self.note(|record| {
                    record.answer.end(trailers);
                    record.end = End::Answered;
                });
            }
        }
    }

    pub(super) fn call_upstream(&mut self, headers: &Headers, end: bool) {
        let body = if end { StreamBody::whole(Bytes::new()) } else { self.open_up() };
        match translate::outbound(headers, &self.local.upstream, body) {
            Ok(request) => {
                self.local.stats.upstream_requests.fetch_add(1, Ordering::Relaxed);
                // A name has an address once it is connected to.
                let address =
                    self.local.upstream.authority().and_then(|authority| authority.as_str().parse().ok());
                self.note(|record| {
                    record.headers.clone_from(headers);
                    record.upstream = Asked::Asked;
                    record.upstream_address = address;
                });
                if let Some(address) = address {
                    let upstream = Upstream { address, local_address: None };
                    self.local.peek(|worker| worker.set_upstream(self.stream, upstream));
                }
                self.call = Some(Box::pin(self.local.client.request(request)));
            }
            Err(translate::Unsendable) => {
                self.step(|worker, stream| {
                    worker.reply(stream, 503, "", "filter_removed_required_request_headers");
                });
            }
        }
    }

    pub(super) fn open_up(&mut self) -> StreamBody {
        let (pipe, body) = StreamBody::pipe();
        self.up = pipe;
        body
    }

    pub(super) fn send_head(&mut self, headers: &Headers, end: bool) {
        let stream = self.stream;
        let is_local_reply = self.local.peek(|worker| worker.is_local_reply(stream));
        if is_local_reply {
            // A reply was made in the upstream's place: what goes there is broken off.
            self.up.abort();
            self.call = None;
            self.response_body = None;
        }
        let body = if end {
            StreamBody::whole(Bytes::new())
        } else {
            let (pipe, body) = StreamBody::pipe();
            self.down = pipe;
            body
        };
        match translate::inbound(headers, body) {
            Ok(response) => {
                self.local.stats.count_response(headers.status());
                self.note(|record| {
                    record.answer = Message::new(headers.clone());
                    record.local_reply = is_local_reply;
                    record.sent(&Bytes::new(), end);
                });
                if let Some(head) = self.head.take() {
                    // A client that is gone is noticed by its pipe, or needs nothing more.
                    let _ = head.send(response);
                }
            }
            Err(translate::Unsendable) => self.reset(),
        }
    }

    /// Breaks the stream off: before its head by an error of the service, after it by one of the body.
    pub(super) fn reset(&mut self) {
        self.local.stats.resets.fetch_add(1, Ordering::Relaxed);
        self.note(|record| record.end = End::Broken);
        self.head = None;
        self.down.abort();
        self.over = true;
    }
}
