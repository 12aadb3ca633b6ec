//! The HTTP context: one request and its response.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, MapType};

use super::log::logged;
use super::state::{Active, Next, State};
use crate::decide::decision::{Answer, Decided};
use crate::decide::host::{CounterHost as _, LogLevel};
use crate::decide::reply::Reply;
use crate::decide::settlement::Moment;
use crate::host::{self, Gateway};
use crate::request::line::LineReader;

/// A stream, between the callbacks of its request and of its response.
pub(super) struct Stream {
    /// The state of its configuration; `None` if its root context has none, or once the stream has ended.
    active: Option<Rc<Active>>,
    decided: Decided,
}

impl Stream {
    pub(super) fn new(active: Option<Rc<Active>>) -> Self {
        Self { active, decided: Decided::default() }
    }

    /// Whether the request's charge is still to be settled.
    fn is_open(&self) -> bool {
        self.decided.charged.as_ref().is_some_and(|charged| charged.is_open)
    }

    /// The stream has ended. Hosts tell it by `proxy_on_log`, or `proxy_on_done`, or both.
    fn end(&mut self) {
        let Some(active) = self.active.take() else { return };
        let Decided { charged, answer, .. } = &mut self.decided;
        if let Some(charged) = charged
            && (charged.is_open || charged.is_in_flight)
        {
            active.with(|state| state.settle(charged, Moment::End));
        }
        if let Some(Answer::Later(wait)) = answer.as_deref() {
            active.with(|state| state.abandon(wait));
        }
    }

    /// Settles the charge.
    #[cold]
    fn settle(&mut self, moment: Moment<'_>) {
        if let (Some(active), Some(charged)) = (&self.active, &mut self.decided.charged) {
            active.with(|state| state.settle(charged, moment));
        }
    }
}

impl Context for Stream {
    fn on_http_call_response(&mut self, call: u32, headers: usize, body_size: usize, _trailers: usize) {
        let Self { active: Some(active), decided } = self else { return };
        if !matches!(decided.answer.as_deref(), Some(Answer::Later(wait)) if wait.call == Some(call)) {
            return;
        }
        let request = logged(host::header_map(MapType::HttpRequestHeaders));
        let decide =
            |state: &mut State| state.decide_later(request.as_ref(), decided, headers > 0, body_size);
        match active.with(decide) {
            Some(Next::GoOn) => logged(host::resume()),
            Some(Next::Answer(reply)) => answer(&reply),
            Some(Next::Wait) | None => {}
        }
    }

    fn on_done(&mut self) -> bool {
        self.end();
        true
    }
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        let headers = logged(host::header_map(MapType::HttpRequestHeaders));
        let Self { active, decided } = self;
        let decide = |active: &Rc<Active>| active.with(|state| state.decide(headers.as_ref(), decided));
        match active.as_ref().and_then(decide) {
            Some(Next::GoOn) => return Action::Continue,
            Some(Next::Wait) => {}
            Some(Next::Answer(reply)) => answer(&reply),
            None => answer(&without_configuration(headers.as_ref())),
        }
        Action::Pause
    }

    fn on_http_response_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        if self.is_open() {
            let headers = logged(host::header_map(MapType::HttpResponseHeaders));
            self.settle(Moment::Headers(headers.as_ref()));
        }
        if let Some(active) = &self.active {
            active.with(|state| logged(state.write_headers(&self.decided)));
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _trailers: usize) -> Action {
        if self.is_open() {
            let trailers = logged(host::header_map(MapType::HttpResponseTrailers));
            self.settle(Moment::Trailers(trailers.as_ref()));
        }
        Action::Continue
    }

    fn on_log(&mut self) {
        self.end();
    }
}

/// The reply to a request of a root context without a configuration: none of its limits is known, so it does not go on.
#[cold]
fn without_configuration(headers: &[u8]) -> Reply {
    Gateway.log(
        LogLevel::Error,
        format_args!("weir: a request was refused, because the filter has no configuration"),
    );
    Reply::without_configuration(LineReader::new(&[]).read(headers).is_some_and(|line| line.is_grpc))
}

/// Answers the request. If the host does not take the reply, the request stays where it is: it must not go on.
#[cold]
fn answer(reply: &Reply) {
    if let Err(error) = host::send(reply) {
        Gateway.log(LogLevel::Error, format_args!("weir: a request waits without an answer: {error}"));
    }
}
