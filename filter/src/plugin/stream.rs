//! The HTTP context: one request and its response.

use core::cell::Cell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::config::{HeaderOptions, UpstreamHeaders};
use crate::count::shared_data::HostError;
use crate::decide::limiter::Reservation;
use crate::decide::response_headers::{self, EXPOSED};
use crate::host::{self, Gateway};
use crate::plugin::root::{Shared, State, answer, log_error, log_failure};
use crate::request::header_pairs::HeaderPairs;

/// A stream, between the callbacks of its request and of its response.
pub(super) struct Stream {
    /// The state of its configuration; `None` if its root context has none.
    root: Option<Rc<Shared>>,
    report: Cell<Option<Report>>,
    /// A charge that the end of the stream settles, once the response has not.
    reservation: Option<Box<Reservation>>,
}

/// What the response is to report.
pub(super) struct Report {
    pub(super) standing: Box<response_headers::Report>,
    pub(super) headers: HeaderOptions,
    /// Whether a script of another origin is to be allowed to read the headers.
    pub(super) expose_cors: bool,
    /// The request's charge, if the response or the end of the stream settles it.
    pub(super) reservation: Option<Box<Reservation>>,
}

impl Stream {
    pub(super) fn new(root: Option<Rc<Shared>>) -> Self {
        Self { root, report: Cell::new(None), reservation: None }
    }

    fn take_report(&self) -> Option<Report> {
        self.report.take()
    }

    /// Settles the charge by the response, as far as that decides it.
    #[cold]
    fn settle_by_response(&mut self, reservation: Box<Reservation>, report: &mut response_headers::Report) {
        let Some(root) = &self.root else { return };
        let headers = host::response_headers().map_err(log_error).unwrap_or_default();
        let settle = |state: &mut State| {
            state.limiter.settle_by_response(&mut Gateway, reservation, headers.as_ref(), report)
        };
        self.reservation = root.with(settle).flatten();
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        let Some(root) = self.root.clone() else { return Action::Continue };
        let headers = host::request_headers().map_err(log_error).ok();
        let headers = headers.as_ref().map_or(&[][..], AsRef::as_ref);
        let pairs = || HeaderPairs::parse(headers);
        let decided = root.with(|state| state.limiter.decide(&mut Gateway, headers));
        let Some(verdict) = decided else { return Action::Continue };
        match root.note(verdict, || has_origin(pairs()), &self.report) {
            Some(reply) if answer(&reply, pairs().is_some_and(HeaderPairs::is_grpc)) => Action::Pause,
            _ => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        if let Some(mut report) = self.take_report() {
            if let Some(reservation) = report.reservation.take() {
                self.settle_by_response(reservation, &mut report.standing);
            }
            log_failure(report.write());
        }
        Action::Continue
    }

    fn on_log(&mut self) {
        let reservation = self.reservation.take().or_else(|| self.take_report()?.reservation);
        if let (Some(root), Some(reservation)) = (&self.root, reservation) {
            root.with(|state| state.limiter.settle_at_end(&mut Gateway, &reservation));
        }
    }
}

impl Report {
    fn write(&self) -> Result<(), HostError> {
        let set = match self.headers.upstream {
            UpstreamHeaders::Replace => host::replace_response_header,
            UpstreamHeaders::Absent => host::add_response_header,
        };
        self.standing.write(&self.headers, set)?;
        if self.expose_cors {
            host::add_response_header("access-control-expose-headers", EXPOSED)?;
        }
        Ok(())
    }
}

fn has_origin(headers: Option<HeaderPairs<'_>>) -> bool {
    headers.is_some_and(|headers| headers.get("origin").is_some())
}
