//! The contexts: callbacks to calls.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use nohash_hasher::NoHashHasher;

use crate::config::Config;
use crate::header_pairs::HeaderPairs;
use crate::headers::{EXPOSED, Report};
use crate::host::{self, Action, Callbacks, Gateway, Metric};
use crate::limiter::{Host as _, Limiter, LogLevel};
use crate::metrics::{Label, Tally};
use crate::outcome::{NO_PLAN, metric_name};
use crate::shared_data::HostError;

/// How often metrics are handed to the gateway.
const TICK_MILLISECONDS: u32 = 1000;

host::export!(Vm);

/// A map by the host's context ids, which count up.
type ByContext<T> = HashMap<u32, T, BuildHasherDefault<NoHashHasher<u32>>>;

/// All that is in a VM: during an update two configurations, one draining.
#[derive(Default)]
struct Vm {
    roots: Vec<Root>,
    /// Roots of streams, if there is more than one root.
    roots_of_streams: ByContext<u32>,
    /// What to tell clients, between request and response.
    pending: ByContext<Pending>,
}

/// One configuration in force.
struct Root {
    id: u32,
    limiter: Limiter,
    tally: Tally,
    metrics: Vec<Option<Metric>>,
}

struct Pending {
    config: Arc<Config>,
    report: Report,
    expose_cors: bool,
}

impl Callbacks for Vm {
    fn on_stream_create(&mut self, stream: u32, root: u32) {
        if self.roots.len() > 1 {
            self.roots_of_streams.insert(stream, root);
        }
    }

    fn on_configure(&mut self, root: u32) -> bool {
        let config = match host::configuration() {
            Ok(json) => Config::from_json(&json).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match config {
            Ok(config) => {
                self.roots.retain(|other| other.id != root);
                self.roots.push(Root::new(root, Arc::new(config)));
                true
            }
            Err(error) => {
                Gateway.log(LogLevel::Error, format_args!("weir: configuration refused: {error}"));
                false
            }
        }
    }

    fn on_tick(&mut self, root: u32) {
        if let Some(root) = self.roots.iter_mut().find(|other| other.id == root) {
            root.flush();
        }
    }

    fn on_request_headers(&mut self, stream: u32) -> Action {
        let root = match self.roots_of_streams.remove(&stream) {
            None => self.roots.last_mut(),
            Some(root) => self.roots.iter_mut().find(|other| other.id == root),
        };
        let Some(root) = root else { return Action::Continue };
        let headers = host::request_headers().unwrap_or_else(|error| {
            log_failure(Err(error));
            Vec::new()
        });
        let verdict = root.limiter.decide(&mut Gateway, &headers);
        for outcome in verdict.outcomes {
            root.tally.add(Label { plan: verdict.plan, class: verdict.class, outcome });
        }
        let headers = HeaderPairs::parse(&headers);
        if let Some(report) = verdict.report {
            let config = Arc::clone(root.limiter.config());
            let expose_cors =
                config.headers.expose_cors && headers.is_some_and(|headers| headers.get("origin").is_some());
            self.pending.insert(stream, Pending { config, report, expose_cors });
        }
        let Some(reply) = verdict.reply else { return Action::Continue };
        let is_grpc = headers.is_some_and(HeaderPairs::is_grpc);
        log_failure(host::send(&reply, is_grpc));
        Action::Stop
    }

    fn on_response_headers(&mut self, stream: u32) {
        let Some(Pending { config, report, expose_cors }) = self.pending.remove(&stream) else { return };
        let set = report
            .fields(config.headers)
            .try_for_each(|(name, value)| host::replace_response_header(name, &value))
            .and_then(|()| match expose_cors {
                true => host::add_response_header("access-control-expose-headers", EXPOSED),
                false => Ok(()),
            });
        log_failure(set);
    }

    fn on_delete(&mut self, context: u32) {
        self.pending.remove(&context);
        self.roots_of_streams.remove(&context);
        if let Some(place) = self.roots.iter().position(|root| root.id == context) {
            self.roots.swap_remove(place).flush();
        }
    }
}

impl Root {
    fn new(id: u32, config: Arc<Config>) -> Self {
        let tally = Tally::new(config.plans.len(), config.classes.len());
        let metrics = tally.labels().map(|label| define(&config, label)).collect();
        if let Err(error) = host::set_tick_period(TICK_MILLISECONDS) {
            Gateway.log(LogLevel::Warn, format_args!("weir: metrics stay at zero: {error}"));
        }
        Gateway.log(
            LogLevel::Info,
            format_args!(
                "weir {}: {} plans, {} classes, {} subscribers, fleet off",
                env!("CARGO_PKG_VERSION"),
                config.plans.len(),
                config.classes.len(),
                config.subscribers.len()
            ),
        );
        Self { id, limiter: Limiter::new(config), tally, metrics }
    }

    fn flush(&mut self) {
        for (place, sum) in self.tally.drain() {
            if let Some(metric) = self.metrics.get(place).copied().flatten() {
                log_failure(metric.add(sum));
            }
        }
    }
}

fn define(config: &Config, label: Label) -> Option<Metric> {
    if !label.outcome.is_of(label.plan.is_some()) {
        return None;
    }
    let plan = label.plan.and_then(|plan| config.plans.get(plan)).map_or(NO_PLAN, String::as_str);
    let class = config.classes.get(label.class)?;
    Metric::counter(&metric_name(plan, &class.name, label.outcome))
        .map_err(|error| Gateway.log(LogLevel::Warn, format_args!("weir: {error}")))
        .ok()
}

fn log_failure(result: Result<(), HostError>) {
    if let Err(error) = result {
        Gateway.log(LogLevel::Error, format_args!("weir: {error}"));
    }
}
