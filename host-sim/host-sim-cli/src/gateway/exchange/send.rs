//! What the filters have let go on, on its way to the upstream and the client.

use std::{rc::Rc, sync::atomic::Ordering};

use bytes::Bytes;
use host_sim::{
    Headers,
    driver::{self, Direction, Output, Part, StreamId, Upstream, WorkerGuard},
};

use super::{Exchange, StreamBody, translate};
use crate::gateway::history::{End, Message, Upstream as Asked};

/// What filters have let go on.
pub(super) struct Released {
    outputs: Vec<Output>,
    /// Whether that is all of the request.
    is_request_sent: bool,
}

impl Released {
    pub(super) fn by(worker: &mut WorkerGuard<'_>, stream: StreamId) -> Self {
        Self { outputs: worker.outputs(stream), is_request_sent: worker.is_request_sent(stream) }
    }
}

impl Exchange {
    /// Takes what the filter has let go on meanwhile to where it goes.
    pub(super) fn collect(&mut self) {
        let stream = self.stream;
        let released = self.local.peek(|worker| Released::by(worker, stream));
        self.follow_released(released);
    }

    pub(super) fn follow_released(&mut self, Released { outputs, is_request_sent }: Released) {
        for output in outputs {
            match output {
                Output::Frame(driver::Frame { direction: Direction::Request, part }) => self.send_up(part),
                Output::Frame(driver::Frame { direction: Direction::Response, part }) => self.send_down(part),
                Output::Reset => self.reset(),
            }
        }
        if is_request_sent && !std::mem::replace(&mut self.request_sent, true) {
            self.deadline = Some(Box::pin(tokio::time::sleep(self.local.response_timeout)));
        }
    }

    pub(super) fn send_up(&mut self, part: Part) {
        match part {
            Part::Headers { headers, end } => self.call_upstream(headers, end),
            Part::Body { data, end } => self.up.data(data, end),
            Part::Trailers(trailers) => self.up.trailers(translate::header_map(trailers)),
        }
    }

    pub(super) fn send_down(&mut self, part: Part) {
        match part {
            Part::Headers { headers, end } => self.send_head(headers, end),
            Part::Body { data, end } => {
                self.note(|record| record.sent(&data, end));
                self.down.data(data, end);
            }
            Part::Trailers(trailers) => {
                self.note(|record| {
                    record.answer.end(trailers.clone());
                    record.end = End::Answered;
                });
                self.down.trailers(translate::header_map(trailers));
            }
        }
    }

    pub(super) fn call_upstream(&mut self, headers: Headers, end: bool) {
        let body = if end { StreamBody::whole(Bytes::new()) } else { self.open_up() };
        let forwarded = self.record.is_some().then(|| headers.clone());
        match translate::outbound(headers, &self.local.upstream, body) {
            Ok(request) => {
                self.local.stats.upstream_requests.fetch_add(1, Ordering::Relaxed);
                let address = self.local.upstream_address;
                self.note(|record| {
                    record.headers = forwarded.unwrap_or_default();
                    record.upstream = Asked::Asked;
                    record.upstream_address = address;
                });
                if let Some(address) = address {
                    let upstream = Upstream { address, local_address: None };
                    self.local.peek(|worker| worker.set_upstream(self.stream, upstream));
                }
                let local = Rc::clone(&self.local);
                self.call =
                    Some(Box::pin(async move { local.client.request(&local.upstream, request).await }));
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

    pub(super) fn send_head(&mut self, headers: Headers, end: bool) {
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
        let sent = self.record.is_some().then(|| headers.clone());
        match translate::inbound(headers, body) {
            Ok(response) => {
                self.local.stats.count_response(response.status().as_u16());
                self.note(|record| {
                    record.answer = Message::new(sent.unwrap_or_default());
                    record.local_reply = is_local_reply;
                    record.sent(&Bytes::new(), end);
                });
                self.answer = Some(response);
                self.answered = true;
            }
            Err(translate::Unsendable) => self.reset(),
        }
    }

    /// Breaks the stream off: before its head by an error of the service, after it by one of the body.
    pub(super) fn reset(&mut self) {
        self.local.stats.resets.fetch_add(1, Ordering::Relaxed);
        self.note(|record| record.end = End::Broken);
        self.down.abort();
        self.over = true;
    }
}
