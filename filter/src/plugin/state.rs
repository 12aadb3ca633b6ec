//! The state of one configuration in this VM.

use core::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::fleet::{self, Ticking};
use super::log::logged;
use super::metrics::Metrics;
use super::poll::Poller;
use super::usage::Posting;
use crate::config::{Config, StrangerPolicy, UpstreamHeaders};
use crate::count::shared_data::HostError;
use crate::count::swap::CounterHost as _;
use crate::decide::counting::Charged;
use crate::decide::decision::{Answer, Decided, Wait};
use crate::decide::decision_log::{self, DecisionLog};
use crate::decide::headers::EXPOSED;
use crate::decide::host::{Host as _, LogLevel};
use crate::decide::limiter::Limiter;
use crate::decide::reply::Reply;
use crate::decide::settlement::Moment;
use crate::directory::Directory;
use crate::host::{self, Gateway};
use crate::quota::Mode;
use crate::request::header_pairs::HeaderPairs;
use crate::time::Timestamp;

/// Interval of the tick that flushes metrics to the host and states what the ledger is to know, in milliseconds.
const TICK: u32 = 250;
/// The same where a directory's rows are stored, or a fleet's counters are stated anew, a part on each tick. It is set once, because
/// ngx_wasm_module lets a VM set it but once.
const SHORT_TICK: u32 = 10;

thread_local! {
    /// The configurations of this VM: during an update several, all but one of which drain.
    static ACTIVE: RefCell<Vec<Weak<Active>>> = const { RefCell::new(Vec::new()) };
}

/// The state of a configuration. It lives as long as its root context or one of its streams.
pub(super) struct Active(RefCell<State>);

/// What becomes of a request's headers.
pub(super) enum Next {
    /// They go on to the upstream.
    GoOn,
    /// They stop until a call of the ledger has ended.
    Wait,
    /// The filter answers in the upstream's place.
    Answer(Reply),
}

pub(super) struct State {
    limiter: Limiter,
    poller: Option<Poller>,
    fleet: Option<Ticking>,
    usage: Option<Posting>,
    metrics: Metrics,
    /// Whether the host keeps a line for access logs, as far as is known.
    has_filter_state: bool,
    /// When the sums were flushed last.
    flushed: Timestamp,
}

impl Active {
    /// Puts a configuration into force. `identity` distinguishes it from the others of the process.
    pub(super) fn new(mut config: Config, identity: u64) -> Rc<Self> {
        for other in newest_first() {
            other.with(|state| {
                config.share_with(state.limiter.config());
                state.retire();
            });
        }
        let config = Arc::new(config);
        let has_work = config.settings.directory.is_some() || config.fleet.is_some();
        let tick = if has_work { SHORT_TICK } else { TICK };
        if let Err(error) = host::set_tick_period(tick) {
            let problem = format_args!("weir: no ticks, so neither metrics nor directory: {error}");
            Gateway.log(LogLevel::Warn, problem);
        }
        log_start(&config);
        let limiter = Limiter::new(Arc::clone(&config));
        let poller = config.settings.directory.clone().map(|settings| {
            let random = logged(Gateway.random());
            Poller::new(Directory::new(settings, &config.settings.namespace, identity, random))
        });
        let metrics = Metrics::define(&config);
        let fleet = config.fleet.map(|_| Ticking::default());
        let usage = config.settings.usage.as_ref().map(|_| Posting::default());
        let flushed = Timestamp::default();
        let state = State { limiter, poller, fleet, usage, metrics, has_filter_state: true, flushed };
        let active = Rc::new(Self(RefCell::new(state)));
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
        if let Some(poller) = &mut self.poller {
            poller.tick(&mut self.limiter, &mut self.metrics);
        }
        let is_due = self.poller.is_none() && self.fleet.is_none() || self.is_flush_due();
        if is_due {
            self.flush();
        }
        if let Some(fleet) = self.fleet.as_mut().filter(|_| is_due || self.limiter.is_busy()) {
            fleet.tick(&mut self.limiter);
        }
        if let Some(usage) = self.usage.as_mut().filter(|_| is_due) {
            usage.tick(&mut self.limiter);
        }
    }

    /// Whether sums are to be flushed on this tick, if ticks come more often.
    fn is_flush_due(&mut self) -> bool {
        let now = logged(Gateway.now());
        let since = now.duration_since(self.flushed);
        // A clock that has stepped back has this wait no longer than usual.
        let is_due = now < self.flushed || since.as_millis() >= u128::from(TICK - SHORT_TICK / 2);
        if is_due {
            self.flushed = now;
        }
        is_due
    }

    /// Takes the answer to a call of the root.
    pub(super) fn answer(&mut self, call: u32, answered: bool, body_size: usize) {
        if let Some(poller) = &mut self.poller {
            poller.answer(&self.limiter, call, answered, body_size);
        }
        if let Some(fleet) = &mut self.fleet {
            fleet.answer(&mut self.limiter, call, answered, body_size);
        }
        if let Some(usage) = &mut self.usage {
            usage.answer(&mut self.limiter, call, answered);
            if self.limiter.has_ended() {
                self.flush();
                logged(host::done());
            }
        }
    }

    /// Decides on a request, in place. `headers` is its header map, serialized.
    pub(super) fn decide(&mut self, headers: &[u8], decided: &mut Decided) -> Next {
        self.limiter.decide(&mut Gateway, headers, decided);
        if decided.answer.is_some() {
            return self.answer_request(headers, decided);
        }
        self.metrics.count(decided);
        self.log(headers, decided, None);
        Next::GoOn
    }

    /// Decides on a request that has waited, now that its call has ended.
    #[cold]
    pub(super) fn decide_later(
        &mut self,
        headers: &[u8],
        decided: &mut Decided,
        answered: bool,
        body_size: usize,
    ) -> Next {
        self.limiter.go_on(&mut Gateway, headers, decided, fleet::response(answered, body_size));
        self.answer_request(headers, decided)
    }

    /// Has a request wait that has to, and otherwise counts and logs the decision on it.
    #[cold]
    fn answer_request(&mut self, headers: &[u8], decided: &mut Decided) -> Next {
        let limiter = &mut self.limiter;
        while let Some(Answer::Later(wait)) = decided.answer.as_deref_mut() {
            let Some(call) = wait.waiting.take_call() else { return Next::Wait };
            match fleet::send(limiter, call) {
                Ok(number) => {
                    wait.call = Some(number);
                    return Next::Wait;
                }
                Err(error) => limiter.go_on(&mut Gateway, headers, decided, Err(error)),
            }
        }
        self.metrics.count(decided);
        let reply = decided.answer.as_ref().map(|answer| {
            let headers = HeaderPairs::parse(headers).filter(|_| decided.has_origin);
            let origin = headers.and_then(|headers| headers.get("origin"));
            Reply::new(self.limiter.config(), decided, answer, origin)
        });
        self.log(headers, decided, reply.as_ref());
        reply.map_or(Next::GoOn, Next::Answer)
    }

    /// Forgets a request that has ended while it waited.
    #[cold]
    pub(super) fn abandon(&mut self, wait: &Wait) {
        self.limiter.ended(&mut Gateway, &wait.waiting);
    }

    /// Logs a decision where the configuration says so.
    fn log(&mut self, headers: &[u8], decided: &Decided, reply: Option<&Reply>) {
        if self.has_filter_state
            && let Some(line) = DecisionLog::line(self.limiter.config(), decided)
        {
            match host::set_property(decision_log::NAME, line.as_bytes()) {
                // ngx_wasm_module takes no property of this name.
                Err(error) if error.is_not_found() => self.has_filter_state = false,
                result => logged(result),
            }
        }
        if self.limiter.config().settings.log_decisions {
            let reply = reply.map(|reply| (reply.status, reply.details));
            self.limiter.explain(&mut Gateway, headers, decided, reply);
        }
    }

    /// Settles a charge that is still open.
    pub(super) fn settle(&mut self, charged: &mut Charged, moment: Moment<'_>) {
        self.limiter.settle(&mut Gateway, charged, moment);
    }

    /// Writes the rate-limit headers of a response.
    pub(super) fn write_headers(&self, decided: &Decided) -> Result<(), HostError> {
        let config = self.limiter.config();
        let is_silent = config.settings.enforcement == Mode::Shadow && !config.settings.headers.in_shadow;
        let Some(charged) = decided.charged.as_ref().filter(|_| !is_silent) else { return Ok(()) };
        let replaces = config.settings.headers.upstream == UpstreamHeaders::Replace;
        charged.write_headers(&config.settings.headers, |name, value| {
            host::set_response_header(name, value, replaces)
        })?;
        if config.settings.headers.expose_cors && decided.has_origin {
            host::set_response_header("access-control-expose-headers", EXPOSED, false)?;
        }
        Ok(())
    }

    /// Gives back what a configuration that a newer one follows does not need to end its streams.
    fn retire(&mut self) {
        self.flush();
        self.limiter.retire();
        if let Some(poller) = &mut self.poller {
            poller.retire();
        }
    }

    /// Gives up what others of the process may take over. Returns whether something is left that nobody does, and that is reported before the end.
    pub(super) fn done(&mut self) -> bool {
        if let Some(poller) = &mut self.poller {
            poller.give_up();
        }
        self.hand_over();
        let has_left = self.limiter.end_reports();
        if let Some(usage) = &mut self.usage {
            usage.tick(&mut self.limiter);
        }
        has_left && !self.limiter.has_ended()
    }

    fn hand_over(&mut self) {
        // This configuration is borrowed, or ends, and so is not among them.
        let _is_taken_over = newest_first()
            .into_iter()
            .any(|other| other.with(|state| state.limiter.take_over(&mut self.limiter)).unwrap_or(false));
    }

    fn flush(&mut self) {
        self.metrics.flush(&mut self.limiter);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Streams may have ended after the root context has.
        self.hand_over();
        self.flush();
    }
}

/// The configurations of this VM.
fn newest_first() -> Vec<Rc<Active>> {
    ACTIVE.with_borrow(|all| all.iter().rev().filter_map(Weak::upgrade).collect())
}

fn log_start(config: &Config) {
    Gateway.log(
        LogLevel::Info,
        format_args!(
            "weir {}: {} plans, {} classes, {} subscribers, directory {}{}{}{}",
            env!("CARGO_PKG_VERSION"),
            config.catalog.plans.len(),
            config.catalog.classes.len(),
            config.subscribers.roster().subscribers(),
            if config.settings.directory.is_some() { "on" } else { "off" },
            if config.settings.operators.is_some() { "; answers operators only" } else { "" },
            if config.lost_with_process().is_some() {
                "; without a fleet, counts of a day or longer are lost when this process ends"
            } else {
                ""
            },
            if config.apart_in_fleet().is_some() {
                "; each gateway of the fleet counts rates and requests in flight by itself"
            } else {
                ""
            },
        ),
    );
    if config.not_ready == Some(StrangerPolicy::Pass) {
        Gateway.log(
            LogLevel::Warn,
            format_args!("weir: directory.not_ready: until the directory answers, requests with unknown keys are not limited"),
        );
    }
}
