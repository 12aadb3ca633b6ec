//! The HTTP context: one request and its response.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use super::log::{log_error, log_failure};
use super::state::{Active, Response};
use crate::decide::host::{Host as _, LogLevel};
use crate::decide::reply::Reply;
use crate::decide::settlement::Moment;
use crate::host::{self, Gateway};
use crate::request::line::is_grpc_request;

/// A stream, between the callbacks of its request and of its response.
pub(super) struct Stream {
    /// The state of its configuration; `None` if its root context has none.
    active: Option<Rc<Active>>,
    response: Option<Response>,
}

impl Stream {
    pub(super) fn new(active: Option<Rc<Active>>) -> Self {
        Self { active, response: None }
    }

    /// Settles the charge, if it is still open.
    #[cold]
    fn settle(&mut self, moment: Moment<'_>) {
        if let (Some(active), Some(response)) = (&self.active, &mut self.response) {
            active.with(|state| state.settle(response, moment));
        }
    }

    fn is_open(&self) -> bool {
        self.response.as_ref().is_some_and(|response| response.charged.is_open())
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        let headers = host::request_headers().map_err(log_error).unwrap_or_default();
        let decide =
            |active: &Rc<Active>| active.with(|state| state.decide(headers.as_ref(), &mut self.response));
        let reply = match self.active.as_ref().and_then(decide) {
            Some(reply) => reply,
            None => Some(without_configuration(headers.as_ref())),
        };
        match reply {
            None => Action::Continue,
            Some(reply) => {
                answer(&reply);
                Action::Pause
            }
        }
    }

    fn on_http_response_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        if self.is_open() {
            let headers = host::response_headers().map_err(log_error).unwrap_or_default();
            self.settle(Moment::Headers(headers.as_ref()));
        }
        if let (Some(active), Some(response)) = (&self.active, &self.response)
            && let Some(written) = active.with(|state| state.write_headers(response))
        {
            log_failure(written);
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _trailers: usize) -> Action {
        if self.is_open() {
            let trailers = host::response_trailers().map_err(log_error).unwrap_or_default();
            self.settle(Moment::Trailers(trailers.as_ref()));
        }
        Action::Continue
    }

    fn on_log(&mut self) {
        if self.is_open() {
            self.settle(Moment::End);
        }
    }
}

/// The reply to a request of a root context without a configuration: none of its limits is known, so it does not go on.
#[cold]
fn without_configuration(headers: &[u8]) -> Reply {
    Gateway.log(
        LogLevel::Error,
        format_args!("weir: a request was refused, because the filter has no configuration"),
    );
    Reply::without_configuration(is_grpc_request(headers))
}

/// Answers the request. If the host does not take the reply, the request stays where it is: it must not go on.
#[cold]
fn answer(reply: &Reply) {
    if let Err(error) = host::send(reply) {
        Gateway.log(LogLevel::Error, format_args!("weir: a request waits without an answer: {error}"));
    }
}
