//! The contexts: callbacks to calls.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

use crate::config::Config;
use crate::header_pairs::HeaderPairs;
use crate::headers::{EXPOSED, Report};
use crate::host::{self, Gateway, Metric};
use crate::limiter::{Host as _, Limiter, LogLevel};
use crate::metrics::{Label, Tally};
use crate::outcome::{NO_PLAN, metric_name};
use crate::shared_data::HostError;

/// How often metrics are handed to the gateway.
const TICK_MILLISECONDS: u32 = 1000;

proxy_wasm::main! {{
    std::panic::set_hook(Box::new(|panic| Gateway.log(LogLevel::Error, format_args!("{panic}"))));
    proxy_wasm::set_root_context(|_| Box::new(Root::default()));
}}

/// One configuration in one VM.
struct Plugin {
    limiter: Limiter,
    tally: Tally,
    metrics: Vec<Option<Metric>>,
}

#[derive(Default)]
struct Root {
    plugin: Option<Rc<RefCell<Plugin>>>,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _: usize) -> bool {
        let config = match host::configuration() {
            Ok(json) => Config::from_json(&json).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match config {
            Ok(config) => {
                self.plugin = Some(Rc::new(RefCell::new(Plugin::new(Arc::new(config)))));
                true
            }
            Err(error) => {
                Gateway.log(LogLevel::Error, format_args!("weir: configuration refused: {error}"));
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(mut plugin) = self.plugin.as_ref().and_then(|plugin| plugin.try_borrow_mut().ok()) {
            plugin.flush();
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        let plugin = self.plugin.clone()?;
        Some(Box::new(Stream { plugin, report: None, expose_cors: false }))
    }
}

impl Plugin {
    fn new(config: Arc<Config>) -> Self {
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
        Self { limiter: Limiter::new(config), tally, metrics }
    }

    fn flush(&mut self) {
        for (place, sum) in self.tally.drain() {
            if let Some(metric) = self.metrics.get(place).copied().flatten() {
                report_failure(metric.add(sum));
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

fn report_failure(result: Result<(), HostError>) {
    if let Err(error) = result {
        Gateway.log(LogLevel::Error, format_args!("weir: {error}"));
    }
}

/// One request and its response.
struct Stream {
    plugin: Rc<RefCell<Plugin>>,
    report: Option<Report>,
    expose_cors: bool,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let Ok(mut plugin) = self.plugin.try_borrow_mut() else { return Action::Continue };
        let headers = host::request_headers().unwrap_or_else(|error| {
            report_failure(Err(error));
            Vec::new()
        });
        let verdict = plugin.limiter.decide(&mut Gateway, &headers);
        for outcome in verdict.outcomes {
            plugin.tally.add(Label { plan: verdict.plan, class: verdict.class, outcome });
        }
        let headers = HeaderPairs::parse(&headers);
        self.expose_cors = plugin.limiter.config().headers.expose_cors
            && headers.is_some_and(|headers| headers.get("origin").is_some());
        self.report = verdict.report;
        let Some(reply) = verdict.reply else { return Action::Continue };
        let is_grpc = headers.is_some_and(HeaderPairs::is_grpc);
        report_failure(host::send(&reply, is_grpc));
        Action::Pause
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        if let (Some(report), Ok(plugin)) = (&self.report, self.plugin.try_borrow()) {
            let options = plugin.limiter.config().headers;
            let set = report
                .fields(options)
                .try_for_each(|(name, value)| host::replace_response_header(name, &value))
                .and_then(|()| match self.expose_cors {
                    true => host::add_response_header("access-control-expose-headers", EXPOSED),
                    false => Ok(()),
                });
            report_failure(set);
        }
        Action::Continue
    }
}
