//! The HTTP context: one request and its response.

use core::cell::Cell;
use std::rc::{Rc, Weak};

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::config::{FleetSettings, HeaderOptions, UpstreamHeaders};
use crate::count::shared_data::HostError;
use crate::decide::limiter::{LeaseRequest, Reservation};
use crate::decide::paused::{FleetHost, LeaseOutcome};
use crate::decide::response_headers::{self, EXPOSED};
use crate::fleet::protocol;
use crate::host::{self, Gateway};
use crate::plugin::root::{Shared, State, answer, log_error, log_failure};
use crate::request::header_pairs::HeaderPairs;

/// A stream, between the callbacks of its request and of its response.
pub(super) struct Stream {
    id: u32,
    /// The state of its configuration; `None` if its root context has none.
    root: Option<Rc<Shared>>,
    report: Cell<Option<Report>>,
    /// A charge that the end of the stream settles, once the response has not.
    reservation: Option<Box<Reservation>>,
    paused: Option<Rc<Paused>>,
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

/// A stream that waits for a lease: all that resuming it in another context's callback needs.
pub(crate) struct Paused {
    pub(super) id: u32,
    pub(super) is_grpc: bool,
    pub(super) has_origin: bool,
    pub(super) report: Cell<Option<Report>>,
    /// The call that this stream has made.
    call: Cell<Option<u32>>,
}

impl Stream {
    pub(super) fn new(id: u32, root: Option<Rc<Shared>>) -> Self {
        Self { id, root, report: Cell::new(None), reservation: None, paused: None }
    }

    fn take_report(&self) -> Option<Report> {
        self.report.take().or_else(|| self.paused.as_ref()?.report.take())
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

    /// Sees to the lease that a decision asks for.
    #[cold]
    fn request_lease(
        &mut self,
        state: &mut State,
        lease: LeaseRequest,
        headers: Option<HeaderPairs<'_>>,
    ) -> LeaseOutcome {
        let paused = Rc::new(Paused {
            id: self.id,
            is_grpc: headers.is_some_and(HeaderPairs::is_grpc),
            has_origin: has_origin(headers),
            report: Cell::new(None),
            call: Cell::new(None),
        });
        let wanted =
            state.paused.request_lease(&mut Gateway, &mut state.limiter, lease, || Rc::downgrade(&paused));
        if let LeaseOutcome::Paused(call) = wanted {
            paused.call.set(call);
            self.paused = Some(paused);
        }
        wanted
    }
}

impl Context for Stream {
    fn on_http_call_response(&mut self, call: u32, headers: usize, body_size: usize, _trailers: usize) {
        if let Some(root) = &self.root {
            root.answer(call, headers > 0, body_size);
        }
    }
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        let Some(root) = self.root.clone() else { return Action::Continue };
        let headers = host::request_headers().map_err(log_error).ok();
        let headers = headers.as_ref().map_or(&[][..], AsRef::as_ref);
        let pairs = || HeaderPairs::parse(headers);
        let decided = root.with(|state| {
            let mut verdict = state.limiter.decide(&mut Gateway, headers);
            match verdict.lease.take() {
                None => Some((verdict, false)),
                Some(lease) => match self.request_lease(state, *lease, pairs()) {
                    LeaseOutcome::Decided(None) => Some((verdict, true)),
                    LeaseOutcome::Decided(Some(decided)) => Some((decided, true)),
                    LeaseOutcome::Paused(_) => None,
                },
            }
        });
        let Some(decided) = decided else { return Action::Continue };
        let Some((verdict, leases)) = decided else {
            root.pace();
            return Action::Pause;
        };
        if leases {
            root.pace();
        }
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

impl Drop for Stream {
    fn drop(&mut self) {
        let (Some(root), Some(paused)) = (&self.root, self.paused.take()) else { return };
        let call = paused.call.get();
        drop(paused);
        if let Some(call) = call {
            root.abandon(call);
        }
    }
}

impl Report {
    fn write(&self) -> Result<(), HostError> {
        let set = match self.headers.upstream {
            UpstreamHeaders::Replace => host::replace_response_header,
            UpstreamHeaders::Absent => host::add_response_header,
        };
        self.standing.write(self.headers, set)?;
        if self.expose_cors {
            host::add_response_header("access-control-expose-headers", EXPOSED)?;
        }
        Ok(())
    }
}

fn has_origin(headers: Option<HeaderPairs<'_>>) -> bool {
    headers.is_some_and(|headers| headers.get("origin").is_some())
}

impl FleetHost for Gateway {
    type Stream = Weak<Paused>;

    fn call(&mut self, fleet: &FleetSettings, message: &[u8], timeout: u32) -> Result<u32, HostError> {
        let headers = vec![
            (":method", "POST"),
            (":path", protocol::PATH),
            (":authority", fleet.cluster.as_str()),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        host::http_call(&fleet.cluster, headers, Some(message), timeout)
    }

    fn exists(&mut self, stream: &Weak<Paused>) -> bool {
        stream.strong_count() > 0
    }
}
