//! The root context: one configuration in this VM.

use core::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use crate::config::{Config, DirectorySettings};
use crate::count::counters::CounterHost as _;
use crate::count::shared_data::HostError;
use crate::decide::host::{Host as _, LogLevel};
use crate::decide::limiter::Limiter;
use crate::decide::log_limiter::LogLimiter;
use crate::decide::reply::Reply;
use crate::decide::tally::Label;
use crate::decide::verdict::Verdict;
use crate::directory::Directory;
use crate::host::{self, Gateway};
use crate::plugin::metrics::Metrics;
use crate::plugin::poll::Poller;
use crate::plugin::stream::{Report, Stream};

/// Interval of the tick that flushes metrics to the host and polls the directory when a poll is due, in milliseconds.
const TICK: u32 = 250;

thread_local! {
    /// The configurations of this VM: during an update two, one of which drains.
    static ROOTS: RefCell<Vec<Weak<Shared>>> = const { RefCell::new(Vec::new()) };
}

/// A root context, and its configuration once it is in force.
#[derive(Default)]
pub(super) struct Root {
    shared: Option<Rc<Shared>>,
}

/// The state of a configuration in this VM. It lives as long as its root context or one of its streams.
pub(super) struct Shared {
    state: RefCell<State>,
    has_log_level: bool,
    /// Whether decisions are logged, as the host's log level was at the last tick.
    explains: Cell<bool>,
}

pub(super) struct State {
    pub(super) limiter: Limiter,
    poller: Option<Poller>,
    metrics: Metrics,
}

impl Context for Root {
    fn on_http_call_response(&mut self, call: u32, headers: usize, body_size: usize, _trailers: usize) {
        if let Some(shared) = &self.shared {
            shared.answer(call, headers > 0, body_size);
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let config = match host::configuration() {
            Ok(json) => Config::from_json(json.as_ref()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match config {
            Ok(config) => {
                self.shared = Some(Shared::new(config));
                true
            }
            Err(error) => {
                Gateway.log(LogLevel::Error, format_args!("weir: configuration refused: {error}"));
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(shared) = &self.shared {
            shared.tick();
        }
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream::new(self.shared.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Shared {
    fn new(config: Config) -> Rc<Self> {
        let config = Arc::new(config);
        let ticks = host::set_tick_period(TICK);
        if let Err(error) = &ticks {
            Gateway.log(
                LogLevel::Warn,
                format_args!("weir: no ticks, so neither metrics nor directory: {error}"),
            );
        }
        log_start(&config);
        let directory = config.directory.as_ref();
        let directory = directory
            .map(|settings| known(settings).unwrap_or_else(|| Directory::new(settings.clone(), jitter())));
        let poller = directory.map(Poller::new);
        let mut limiter = Limiter::new(Arc::clone(&config));
        if let Some(poller) = &poller {
            poller.resolve(&mut limiter);
        }
        let metrics = Metrics::define(&limiter);
        let state = State { limiter, poller, metrics };
        let has_log_level = host::has_log_level();
        let explains = Cell::new(has_log_level && host::logs_debug());
        let state = RefCell::new(state);
        let shared = Rc::new(Self { state, has_log_level, explains });
        ROOTS.with_borrow_mut(|roots| {
            roots.retain(|root| root.strong_count() > 0);
            roots.push(Rc::downgrade(&shared));
        });
        shared
    }

    /// Runs `step` on the state. A callback never runs within another, so the state is never borrowed twice.
    pub(super) fn with<T>(&self, step: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.state.try_borrow_mut().ok().map(|mut state| step(&mut state))
    }

    fn tick(&self) {
        self.with(|state| {
            state.flush();
            self.explains.set(self.has_log_level && host::logs_debug());
            if let Some(poller) = &mut state.poller {
                poller.poll(&mut state.limiter);
            }
        });
    }

    /// Takes the answer to a call.
    fn answer(&self, call: u32, answered: bool, body_size: usize) {
        self.with(|state| {
            if let Some(poller) = state.poller.as_mut().filter(|poller| poller.has_made(call)) {
                poller.answer(&mut state.limiter, answered, body_size);
                state.metrics.define_settlements(&state.limiter);
            }
        });
    }

    /// Counts what became of a request, and leaves in `report` what its response is to report. Returns the reply to send.
    pub(super) fn note(
        &self,
        verdict: Verdict,
        has_origin: impl FnOnce() -> bool,
        report: &Cell<Option<Report>>,
    ) -> Option<Box<Reply>> {
        self.with(|state| {
            if self.explains.get() {
                explain(state, &verdict);
            }
            for &outcome in &verdict.outcomes {
                state.metrics.count(Label { plan: verdict.plan, class: verdict.class, outcome });
            }
            let reservation = verdict.reservation;
            report.set(verdict.report.map(|standing| {
                let headers = state.limiter.config().headers.clone();
                let expose_cors = headers.expose_cors && has_origin();
                Report { standing, headers, expose_cors, reservation }
            }));
            verdict.reply
        })
        .flatten()
    }
}

impl State {
    fn flush(&mut self) {
        self.metrics.flush(&mut self.limiter);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Logs why the request of the context in effect was decided as it was.
#[cold]
fn explain(state: &State, verdict: &Verdict) {
    let headers = host::request_headers().map_err(log_error).unwrap_or_default();
    state.limiter.explain(&mut Gateway, headers.as_ref(), verdict);
}

/// What another configuration of this VM knows of the same directory.
fn known(settings: &DirectorySettings) -> Option<Directory> {
    ROOTS.with_borrow(|roots| {
        roots
            .iter()
            .rev()
            .filter_map(Weak::upgrade)
            .find_map(|root| root.with(|state| state.poller.as_ref()?.take_over(settings)).flatten())
    })
}

/// A random number that spreads the retries of a gateway's VMs.
fn jitter() -> u8 {
    Gateway.random().map_or(0, |[jitter, ..]| jitter)
}

fn log_start(config: &Config) {
    Gateway.log(
        LogLevel::Info,
        format_args!(
            "weir {}: {} plans, {} classes, {} subscribers, directory {}{}",
            env!("CARGO_PKG_VERSION"),
            config.catalog.plans.len(),
            config.catalog.classes.len(),
            config.subscribers.roster().subscribers(),
            if config.directory.is_some() { "on" } else { "off" },
            if config.operators.is_some() { "; answers operators only" } else { "" },
        ),
    );
}

/// Answers the request of the context in effect. `false` if the host refuses: without a reply a paused request would hang.
#[cold]
pub(super) fn answer(reply: &Reply, is_grpc: bool) -> bool {
    host::send(reply, is_grpc).map_err(log_error).is_ok()
}

pub(super) fn log_failure(result: Result<(), HostError>) {
    if let Err(error) = result {
        log_error(error);
    }
}

thread_local! {
    /// The errors of host calls in this VM. A VM runs on one thread.
    static ERRORS: Cell<LogLimiter<HostError>> = Cell::default();
}

/// Logs an error, but each at most once a second.
#[cold]
pub(super) fn log_error(error: HostError) {
    let mut errors = ERRORS.take();
    if let Some(left_out) = errors.admit(error, Gateway.now().ok()) {
        Gateway.log(LogLevel::Error, format_args!("weir: {error}{left_out}"));
    }
    ERRORS.set(errors);
}
