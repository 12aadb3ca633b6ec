//! The state of one configuration in this VM.

use core::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::log::{log_error, log_failure};
use super::metrics::Metrics;
use super::poll::Poller;
use crate::config::{Config, DirectorySettings, StrangerPolicy, UpstreamHeaders};
use crate::count::shared_data::HostError;
use crate::decide::counting::Charged;
use crate::decide::decision::{Decided, Decision};
use crate::decide::headers::EXPOSED;
use crate::decide::host::{Host as _, LogLevel};
use crate::decide::limiter::Limiter;
use crate::decide::log_fields;
use crate::decide::reply::Reply;
use crate::decide::settlement::Moment;
use crate::directory::Directory;
use crate::host::{self, Gateway};
use crate::quota::Mode;
use crate::request::header_pairs::HeaderPairs;

/// Interval of the tick that flushes metrics to the host and polls the directory when a poll is due, in milliseconds.
const TICK: u32 = 250;

thread_local! {
    /// The configurations of this VM: during an update several, all but one of which drain.
    static ACTIVE: RefCell<Vec<Weak<Active>>> = const { RefCell::new(Vec::new()) };
}

/// The state of a configuration. It lives as long as its root context or one of its streams.
pub(super) struct Active(RefCell<State>);

pub(super) struct State {
    limiter: Limiter,
    poller: Option<Poller>,
    metrics: Metrics,
    /// Whether the host keeps a line for access logs, as far as is known.
    has_filter_state: bool,
}

/// What the response is to report.
pub(super) struct Response {
    pub(super) charged: Charged,
    /// Whether a script of another origin is to be allowed to read the headers.
    pub(super) has_origin: bool,
}

impl Active {
    /// Puts a configuration into force.
    pub(super) fn new(mut config: Config) -> Rc<Self> {
        for other in others() {
            other.with(|state| {
                config.share_with(state.limiter.config());
                state.retire();
            });
        }
        let config = Arc::new(config);
        if let Err(error) = host::set_tick_period(TICK) {
            Gateway.log(
                LogLevel::Warn,
                format_args!("weir: no ticks, so neither metrics nor directory: {error}"),
            );
        }
        log_start(&config);
        let poller = config.settings.directory.as_ref().map(|settings| {
            let directory = taken_over(settings);
            Poller::new(directory.unwrap_or_else(|| Directory::new(settings.clone(), jitter())))
        });
        let mut limiter = Limiter::new(Arc::clone(&config));
        if let Some(poller) = &poller {
            poller.resolve(&mut limiter);
        }
        let metrics = Metrics::define(&config);
        let active = Rc::new(Self(RefCell::new(State { limiter, poller, metrics, has_filter_state: true })));
        ACTIVE.with_borrow_mut(|all| {
            all.retain(|other| other.strong_count() > 0);
            all.push(Rc::downgrade(&active));
        });
        active
    }

    /// Runs `step` on the state. A callback never runs within another, so the state is never borrowed twice.
    pub(super) fn with<T>(&self, step: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.0.try_borrow_mut().ok().map(|mut state| step(&mut state))
    }
}

impl State {
    pub(super) fn tick(&mut self) {
        self.flush();
        if let Some(poller) = &mut self.poller {
            poller.poll(&mut self.limiter);
        }
    }

    /// Takes the answer to a call.
    pub(super) fn answer(&mut self, call: u32, answered: bool, body_size: usize) {
        if let Some(poller) = self.poller.as_mut().filter(|poller| poller.has_made(call)) {
            poller.answer(&mut self.limiter, answered, body_size);
        }
    }

    /// Decides on a request. `headers` is its header map, serialized. Returns the reply to send, if the request does not go on, and leaves in
    /// `response` what its response needs.
    pub(super) fn decide(&mut self, headers: &[u8], response: &mut Option<Response>) -> Option<Reply> {
        let mut decided = self.limiter.decide(&mut Gateway, headers);
        self.metrics.count(&decided);
        let reply = match &decided.decision {
            Decision::Pass => None,
            Decision::Answer(answer) => {
                let origin = HeaderPairs::parse(headers).and_then(|headers| headers.get("origin"));
                Some(Reply::new(self.limiter.config(), &decided, answer, origin))
            }
        };
        self.log(headers, &decided, reply.as_ref());
        *response =
            decided.charged.take().map(|charged| Response { charged, has_origin: decided.has_origin });
        reply
    }

    /// Logs a decision where the configuration says so.
    fn log(&mut self, headers: &[u8], decided: &Decided, reply: Option<&Reply>) {
        if self.has_filter_state
            && let Some(line) = log_fields::line(self.limiter.config(), decided)
        {
            match host::set_property(log_fields::NAME, line.as_bytes()) {
                // ngx_wasm_module takes no property of this name.
                Err(error) if error.is_not_found() => self.has_filter_state = false,
                result => log_failure(result),
            }
        }
        if self.limiter.config().settings.log_decisions {
            let reply = reply.map(|reply| (reply.status, reply.details));
            self.limiter.explain(&mut Gateway, headers, decided, reply);
        }
    }

    /// Settles a charge that is still open.
    pub(super) fn settle(&mut self, response: &mut Response, moment: Moment<'_>) {
        self.limiter.settle(&mut Gateway, &mut response.charged, moment);
    }

    /// Writes the rate-limit headers of a response.
    pub(super) fn write_headers(&self, response: &Response) -> Result<(), HostError> {
        let config = self.limiter.config();
        if config.settings.enforcement == Mode::Shadow && !config.settings.headers.in_shadow {
            return Ok(());
        }
        let set = match config.settings.headers.upstream {
            UpstreamHeaders::Replace => host::replace_response_header,
            UpstreamHeaders::Absent => host::add_response_header,
        };
        response.charged.write_headers(&config.settings.headers, set)?;
        if config.settings.headers.expose_cors && response.has_origin {
            host::add_response_header("access-control-expose-headers", EXPOSED)?;
        }
        Ok(())
    }

    /// Gives back what a configuration that a newer one follows does not need to end its streams.
    fn retire(&mut self) {
        self.flush();
        self.limiter.retire();
    }

    fn flush(&mut self) {
        self.metrics.flush(&mut self.limiter);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The other configurations of this VM, the newest first.
fn others() -> Vec<Rc<Active>> {
    ACTIVE.with_borrow(|all| all.iter().rev().filter_map(Weak::upgrade).collect())
}

/// What another configuration of this VM knows of the same directory.
fn taken_over(settings: &DirectorySettings) -> Option<Directory> {
    others().iter().find_map(|other| other.with(|state| state.poller.as_ref()?.take_over(settings)).flatten())
}

/// A random number that spreads the retries of a gateway's VMs.
fn jitter() -> u8 {
    match Gateway.random() {
        Ok([jitter, ..]) => jitter,
        Err(error) => {
            log_error(error);
            0
        }
    }
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
            if config.settings.directory.is_some() { "on" } else { "off" },
            if config.settings.operators.is_some() { "; answers operators only" } else { "" },
        ),
    );
    if config.not_ready == Some(StrangerPolicy::Pass) {
        Gateway.log(
            LogLevel::Warn,
            format_args!("weir: directory.not_ready: until the directory answers, requests with unknown keys are not limited"),
        );
    }
}
