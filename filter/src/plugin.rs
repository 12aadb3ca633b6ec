//! The contexts: callbacks to calls.

use std::sync::Arc;

use crate::config::{Config, DirectorySettings, Subscribers};
use crate::counters::CounterHost as _;
use crate::directory::{Directory, Update};
use crate::header_pairs::HeaderPairs;
use crate::headers::{EXPOSED, NAMES, Report};
use crate::host::{self, Action, Callbacks, Callout, Contexts, Gateway, Metric, Returned};
use crate::limiter::{Host as _, Limiter, LogLevel};
use crate::metrics::{Label, Tally};
use crate::outcome::{NO_PLAN, metric_name};
use crate::reply::Reply;
use crate::roster::Roster;
use crate::shared_data::HostError;
use crate::streams::Kept;
use crate::upstream::Upstream;

/// How often metrics are handed to the gateway, and it is looked whether the directory is to be polled.
const TICK_MILLISECONDS: u32 = 250;

host::export!(Vm);

/// All that is in a VM: during an update two configurations, one draining.
#[derive(Default)]
struct Vm {
    roots: Vec<Root>,
    /// What to tell clients, between request and response.
    pending: Kept<Pending>,
    upstream: Upstream,
}

/// One configuration in force.
struct Root {
    id: u32,
    /// The plugin's name: the root of a stream is the newest of its plugin's.
    plugin: Option<Vec<u8>>,
    limiter: Limiter,
    directory: Option<Directory>,
    /// The poll that is under way.
    poll: Option<Callout>,
    tally: Tally,
    metrics: Vec<Option<Metric>>,
    directory_metrics: Option<DirectoryMetrics>,
}

struct Pending {
    config: Arc<Config>,
    report: Box<Report>,
    expose_cors: bool,
}

impl Callbacks for Vm {
    fn on_configure(&mut self, root: u32) -> bool {
        let config = match host::configuration() {
            Ok(json) => Config::from_json(json.as_ref()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match config {
            Ok(config) => {
                let before = config.directory.as_ref().and_then(|settings| self.directory(settings));
                self.roots.retain(|other| other.id != root);
                self.roots.push(Root::new(root, Arc::new(config), before));
                true
            }
            Err(error) => {
                Gateway.log(LogLevel::Error, format_args!("weir: configuration refused: {error}"));
                false
            }
        }
    }

    fn on_tick(&mut self, root: u32) {
        self.drop_ended_roots(root);
        if let Some(root) = self.roots.iter_mut().find(|other| other.id == root) {
            root.flush();
            root.poll();
        }
    }

    fn on_http_call_response(&mut self, root: u32, callout: Callout, headers: u32, body_size: usize) {
        let root = self.roots.iter_mut().find(|other| other.id == root);
        if let Some(root) = root.filter(|root| root.poll == Some(callout)) {
            root.poll = None;
            root.answer(headers > 0, body_size);
        }
    }

    fn on_request_headers(&mut self, stream: u32) -> Action {
        let Some(root) = root_of_stream(&mut self.roots) else { return Action::Continue };
        let headers = host::request_headers().map_err(log_error).ok();
        let headers = headers.as_ref().map_or(&[][..], AsRef::as_ref);
        let verdict = root.limiter.decide(&mut Gateway, headers);
        for &outcome in &verdict.outcomes {
            root.tally.add(Label { plan: verdict.plan, class: verdict.class, outcome });
        }
        let headers = || HeaderPairs::parse(headers);
        if let Some(report) = verdict.report {
            let config = Arc::clone(root.limiter.config());
            let expose_cors = config.headers.expose_cors
                && headers().is_some_and(|headers| headers.get("origin").is_some());
            self.pending.keep(stream, Pending { config, report, expose_cors }, || {
                let contexts = Contexts::seen_from(stream);
                move |stream| contexts.exists(stream)
            });
        }
        match verdict.reply {
            Some(reply) => answer(&reply, headers()),
            None => Action::Continue,
        }
    }

    fn on_response_headers(&mut self, stream: u32) {
        let Some(Pending { config, report, expose_cors }) = self.pending.take(stream) else { return };
        let replaces = self.upstream.replaces(|| {
            NAMES
                .into_iter()
                .any(|name| host::has_response_header(name).map_err(log_error).unwrap_or_default())
        });
        let set = if replaces { host::replace_response_header } else { host::add_response_header };
        let set = report.write(config.headers, set).and_then(|()| match expose_cors {
            true => host::add_response_header("access-control-expose-headers", EXPOSED),
            false => Ok(()),
        });
        log_failure(set);
    }
}

impl Vm {
    /// Drops the roots that a tick of the root `current` cannot find any more: configurations that have drained.
    fn drop_ended_roots(&mut self, current: u32) {
        if self.roots.len() > 1 {
            let contexts = Contexts::seen_from(current);
            for mut ended in self.roots.extract_if(.., |root| !contexts.exists(root.id)) {
                ended.flush();
            }
        }
    }

    /// What a configuration before this one knows of the same directory.
    fn directory(&self, settings: &DirectorySettings) -> Option<Directory> {
        let directories = self.roots.iter().filter_map(|root| root.directory.as_ref());
        let mut same = directories.filter(|directory| {
            let before = directory.settings();
            (&before.cluster, &before.path, &before.bearer)
                == (&settings.cluster, &settings.path, &settings.bearer)
        });
        same.find(|directory| directory.roster().is_some())
            .map(|directory| directory.take_over(settings.clone()))
    }
}

impl Root {
    fn new(id: u32, config: Arc<Config>, before: Option<Directory>) -> Self {
        let catalog = &config.catalog;
        let tally = Tally::new(catalog.plans.len(), catalog.classes.len());
        let metrics = tally.labels().map(|label| define(&config, label)).collect();
        if let Err(error) = host::set_tick_period(TICK_MILLISECONDS) {
            Gateway.log(
                LogLevel::Warn,
                format_args!("weir: no ticks, so neither metrics nor directory: {error}"),
            );
        }
        Gateway.log(
            LogLevel::Info,
            format_args!(
                "weir {}: {} plans, {} classes, {} subscribers, directory {}, fleet off",
                env!("CARGO_PKG_VERSION"),
                catalog.plans.len(),
                catalog.classes.len(),
                config.subscribers.roster().subscribers(),
                if config.directory.is_some() { "on" } else { "off" },
            ),
        );
        let directory_metrics = config.directory.as_ref().map(|_| DirectoryMetrics::define());
        let directory = before.or_else(|| config.directory.clone().map(Directory::new));
        let mut root = Self {
            id,
            plugin: plugin_name(),
            limiter: Limiter::new(config),
            directory,
            poll: None,
            tally,
            metrics,
            directory_metrics,
        };
        root.resolve();
        root
    }

    fn flush(&mut self) {
        for (place, sum) in self.tally.drain() {
            if let Some(metric) = self.metrics.get(place).copied().flatten() {
                log_failure(metric.add(sum));
            }
        }
    }

    /// Sends the poll that is due.
    fn poll(&mut self) {
        let Some(directory) = &mut self.directory else { return };
        let Ok(now) = Gateway.now() else { return };
        if directory.expire(now) {
            Gateway.log(
                LogLevel::Error,
                format_args!("weir: directory: too stale, its keys are not known any more"),
            );
            self.limiter.set_directory(None);
        }
        if self.poll.is_some() {
            return;
        }
        let Some(directory) = &mut self.directory else { return };
        if let Some(poll) = directory.poll(now) {
            match host::http_call(&poll) {
                Ok(callout) => self.poll = Some(callout),
                Err(error) => {
                    log_failure(Err(error));
                    self.answer(false, 0);
                }
            }
        }
    }

    /// Takes the poll's answer, if there is one.
    fn answer(&mut self, answered: bool, body_size: usize) {
        let (Some(directory), Ok(now)) = (&mut self.directory, Gateway.now()) else { return };
        let (head, body) = match answered {
            true => (host::http_call_response_headers(), host::http_call_response_body(body_size)),
            false => (Ok(Returned::default()), Ok(Returned::default())),
        };
        let (Ok(head), Ok(body)) = (head.map_err(log_error), body.map_err(log_error)) else { return };
        let head = HeaderPairs::parse(head.as_ref());
        let head = head.and_then(|head| Some((head.get(":status")?, head.get("etag"))));
        let config = self.limiter.config();
        let reserved = config.subscribers.records(config.count_by);
        let needs = |roster: &Arc<Roster>| {
            reserved + Subscribers::new(Arc::clone(roster), &config.catalog).records(config.count_by)
        };
        let update = directory.answer(head, body.as_ref(), now, config.counters.known, needs);
        let turns = directory.turns(update.is_err());
        match update {
            Ok(update) => {
                if turns {
                    Gateway.log(LogLevel::Info, format_args!("weir: directory: answers again"));
                }
                match update {
                    Update::Unchanged => self.count_directory(|metrics| metrics.unchanged, 1),
                    Update::Replaced { skipped } => {
                        self.count_directory(|metrics| metrics.updated, 1);
                        let without_agreement = self.resolve();
                        self.count_directory(|metrics| metrics.skipped, skipped + without_agreement);
                    }
                }
            }
            Err(error) => {
                if turns {
                    let kept = if directory.roster().is_some() {
                        "its last keys stay known"
                    } else {
                        "no keys are known"
                    };
                    Gateway.log(LogLevel::Error, format_args!("weir: directory: {error}; {kept}"));
                }
                self.count_directory(|metrics| metrics.failed, 1);
            }
        }
    }

    /// Brings what the directory knows into force; the number of keys whose plan or classes are not configured.
    fn resolve(&mut self) -> usize {
        let roster = self.directory.as_ref().and_then(Directory::roster);
        let Some(roster) = roster else { return 0 };
        let subscribers = Subscribers::new(Arc::clone(roster), &self.limiter.config().catalog);
        let without_agreement = subscribers.without_agreement();
        self.limiter.set_directory(Some(Arc::new(subscribers)));
        without_agreement
    }

    fn count_directory(&self, which: impl Fn(&DirectoryMetrics) -> Option<Metric>, amount: usize) {
        let metric = self.directory_metrics.as_ref().and_then(which);
        if let (Some(metric), Ok(amount @ 1..)) = (metric, u32::try_from(amount)) {
            log_failure(metric.add(amount));
        }
    }
}

/// Polls of the directory, by what they came to.
struct DirectoryMetrics {
    updated: Option<Metric>,
    unchanged: Option<Metric>,
    failed: Option<Metric>,
    /// Keys that were left out of an answer.
    skipped: Option<Metric>,
}

impl DirectoryMetrics {
    fn define() -> Self {
        let [updated, unchanged, failed, skipped] = ["updated", "unchanged", "failed", "skipped"]
            .map(|outcome| counter(&format!("weir.directory.{outcome}")));
        Self { updated, unchanged, failed, skipped }
    }
}

/// The root of the stream that the current callback is about.
///
/// `proxy_on_context_create` would say which it is, but a host enters the VM for that on each stream, which costs every request a
/// quarter of what counting does. Nearly always there is one root. During an update there are two of one name: streams that begin
/// are the newer one's. Plugins that share a VM have different names (Envoy's `PluginConfig.name` is unique in a VM).
fn root_of_stream(roots: &mut [Root]) -> Option<&mut Root> {
    let newest = roots.len().checked_sub(1)?;
    let place = match newest {
        0 => 0,
        newest => {
            let name = plugin_name();
            roots.iter().rposition(|root| root.plugin == name).unwrap_or(newest)
        }
    };
    roots.get_mut(place)
}

/// The name of the plugin that the current callback is about.
fn plugin_name() -> Option<Vec<u8>> {
    Gateway.property(b"plugin_name").map_err(log_error).ok().flatten()
}

/// Answers the request itself.
#[cold]
fn answer(reply: &Reply, request: Option<HeaderPairs<'_>>) -> Action {
    match host::send(reply, request.is_some_and(HeaderPairs::is_grpc)) {
        Ok(()) => Action::Stop,
        Err(error) => {
            // Without a reply a stopped request would hang for ever.
            log_error(error);
            Action::Continue
        }
    }
}

fn define(config: &Config, label: Label) -> Option<Metric> {
    if !label.outcome.is_of(label.plan.is_some()) {
        return None;
    }
    let plan = label.plan.map_or(NO_PLAN, |plan| config.plan_name(plan));
    counter(&metric_name(plan, config.class_name(label.class), label.outcome))
}

fn counter(name: &str) -> Option<Metric> {
    Metric::counter(name).map_err(log_error).ok()
}

fn log_failure(result: Result<(), HostError>) {
    if let Err(error) = result {
        log_error(error);
    }
}

#[cold]
fn log_error(error: HostError) {
    Gateway.log(LogLevel::Error, format_args!("weir: {error}"));
}
