//! The contexts: callbacks to calls.

use std::sync::Arc;

use crate::config::roster::Roster;
use crate::config::{Config, DirectorySettings, Subscribers, UpstreamHeaders};
use crate::count::counters::CounterHost as _;
use crate::count::shared_data::HostError;
use crate::decide::fleet::{Event, Fleet, Waiting, Wanted};
use crate::decide::limiter::{Host as _, Limiter, LogLevel, Verdict};
use crate::decide::outcome::{NO_PLAN, metric_name};
use crate::decide::reply::Reply;
use crate::decide::response_headers::{EXPOSED, Report};
use crate::decide::tally::{Label, Tally};
use crate::directory::{Directory, Poll, Update};
use crate::fleet::protocol::{Response, Unusable};
use crate::host::{self, Action, Callbacks, Callout, Contexts, Gateway, HttpCall, Metric, Returned};
use crate::request::header_pairs::HeaderPairs;
use crate::streams::Kept;

/// How often metrics are handed to the gateway, and it is looked whether the directory is to be polled.
const TICK_MILLISECONDS: u32 = 250;

host::export!(Vm);

/// All that is in a VM: during an update two configurations, one draining.
#[derive(Default)]
struct Vm {
    roots: Vec<Root>,
    /// What to tell clients, between request and response.
    pending: Kept<Pending>,
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
    fleet: Fleet,
    /// In the order of [`Event::ALL`]; none without a fleet.
    fleet_metrics: Vec<Option<Metric>>,
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
                for mut replaced in self.roots.extract_if(.., |other| other.id == root) {
                    replaced.fleet.end(&mut Gateway, &mut replaced.limiter);
                    replaced.resume_decided(&mut self.pending);
                }
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
            root.fleet.tick(&mut Gateway, &mut root.limiter);
            root.resume_decided(&mut self.pending);
        }
    }

    fn on_http_call_response(&mut self, root: u32, callout: Callout, headers: u32, body_size: usize) {
        let Some(root) = self.roots.iter_mut().find(|other| other.id == root) else { return };
        if root.poll == Some(callout) {
            root.poll = None;
            root.answer(headers > 0, body_size);
        } else if root.fleet.has_made(callout.0) {
            let response = fleet_response(headers > 0, body_size);
            root.fleet.answer(&mut Gateway, &mut root.limiter, callout.0, response);
            root.resume_decided(&mut self.pending);
        }
    }

    fn on_request_headers(&mut self, stream: u32) -> Action {
        let Some(root) = root_of_stream(&mut self.roots) else { return Action::Continue };
        let headers = host::request_headers().map_err(log_error).ok();
        let headers = headers.as_ref().map_or(&[][..], AsRef::as_ref);
        let mut verdict = root.limiter.decide(&mut Gateway, headers);
        let headers = || HeaderPairs::parse(headers);
        if let Some(wanted) = verdict.lease.take() {
            match root.want(stream, *wanted, headers()) {
                Some(decided) => verdict = decided.unwrap_or(verdict),
                None => return Action::Stop,
            }
        }
        match root.take_note(&mut self.pending, stream, verdict, || has_origin(headers())) {
            Some(reply) => answer(&reply, headers().is_some_and(HeaderPairs::is_grpc)),
            None => Action::Continue,
        }
    }

    fn on_response_headers(&mut self, stream: u32) {
        let Some(Pending { config, report, expose_cors }) = self.pending.take(stream) else { return };
        let set = match config.headers.upstream {
            UpstreamHeaders::Replace => host::replace_response_header,
            UpstreamHeaders::Absent => host::add_response_header,
        };
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
        let ticks = host::set_tick_period(TICK_MILLISECONDS);
        if let Err(error) = &ticks {
            Gateway.log(
                LogLevel::Warn,
                format_args!("weir: no ticks, so neither metrics nor directory: {error}"),
            );
        }
        Gateway.log(
            LogLevel::Info,
            format_args!(
                "weir {}: {} plans, {} classes, {} subscribers, directory {}, fleet {}",
                env!("CARGO_PKG_VERSION"),
                catalog.plans.len(),
                catalog.classes.len(),
                config.subscribers.roster().subscribers(),
                if config.directory.is_some() { "on" } else { "off" },
                if config.fleet.is_some() { "on" } else { "off" },
            ),
        );
        let directory_metrics = config.directory.as_ref().map(|_| DirectoryMetrics::define());
        let events = config.fleet.iter().flat_map(|_| Event::ALL);
        let fleet_metrics = events.map(|event| counter(event.metric())).collect();
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
            fleet: Fleet::new(ticks.is_ok()),
            fleet_metrics,
        };
        root.resolve();
        root
    }

    /// Keeps what the response to a request is to say, and counts what became of it. The reply is to be sent.
    fn take_note(
        &mut self,
        pending: &mut Kept<Pending>,
        stream: u32,
        verdict: Verdict,
        has_origin: impl FnOnce() -> bool,
    ) -> Option<Box<Reply>> {
        for &outcome in &verdict.outcomes {
            self.tally.add(Label { plan: verdict.plan, class: verdict.class, outcome });
        }
        if let Some(report) = verdict.report {
            let config = Arc::clone(self.limiter.config());
            let expose_cors = config.headers.expose_cors && has_origin();
            pending.keep(stream, Pending { config, report, expose_cors }, || {
                let contexts = Contexts::seen_from(stream);
                move |stream| contexts.exists(stream)
            });
        }
        verdict.reply
    }

    /// Sees to the lease that a decision wants. `None` if the request waits for it; otherwise what was decided after all, if its own
    /// decision does not stand.
    #[cold]
    fn want(
        &mut self,
        stream: u32,
        wanted: Wanted,
        headers: Option<HeaderPairs<'_>>,
    ) -> Option<Option<Verdict>> {
        let waits = wanted.waits;
        let is_grpc = headers.is_some_and(HeaderPairs::is_grpc);
        let waiting = Waiting { stream, is_grpc, has_origin: has_origin(headers) };
        self.fleet.want(&mut Gateway, &mut self.limiter, wanted, Some(waiting));
        match self.fleet.decided().pop() {
            Some((_, verdict)) => Some(Some(verdict)),
            None if waits => None,
            None => Some(None),
        }
    }

    /// Lets those go on, or answers them, who were decided on after they had waited.
    fn resume_decided(&mut self, pending: &mut Kept<Pending>) {
        for (Waiting { stream, is_grpc, has_origin }, verdict) in self.fleet.decided() {
            // It was alive when it was decided on.
            host::enter(stream);
            let reply = self.take_note(pending, stream, verdict, || has_origin);
            let action = reply.map_or(Action::Continue, |reply| answer(&reply, is_grpc));
            if action == Action::Continue {
                log_failure(host::continue_request());
            }
        }
    }

    fn flush(&mut self) {
        for (metric, sum) in self.fleet_metrics.iter().zip(self.fleet.drain()) {
            if let (Some(metric), 1..) = (metric, sum) {
                log_failure(metric.add(sum));
            }
        }
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
            match send(&poll) {
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

/// Polls the directory.
fn send(poll: &Poll<'_>) -> Result<Callout, HostError> {
    let mut headers: Vec<(&str, &[u8])> = vec![
        (":method", b"GET"),
        (":path", poll.path.as_bytes()),
        (":authority", poll.cluster.as_bytes()),
        ("accept", b"application/json"),
    ];
    headers.extend(poll.authorization.as_ref().map(|value| ("authorization", value.as_bytes())));
    headers.extend(poll.if_none_match.map(|etag| ("if-none-match", etag)));
    HttpCall { cluster: poll.cluster, headers: &headers, body: &[], timeout: poll.timeout }.send()
}

/// What the rate-limit service answered to the current callout.
fn fleet_response(answered: bool, body_size: usize) -> Result<Response, Unusable> {
    if !answered {
        return Err(Unusable::None);
    }
    let read = |part: Result<Returned, HostError>| part.map_err(log_error).unwrap_or_default();
    let headers = read(host::http_call_response_headers());
    let body = read(host::http_call_response_body(body_size));
    let trailers = read(host::http_call_response_trailers());
    Response::read(headers.as_ref(), body.as_ref(), trailers.as_ref())
}

fn has_origin(headers: Option<HeaderPairs<'_>>) -> bool {
    headers.is_some_and(|headers| headers.get("origin").is_some())
}

/// Answers the request itself.
#[cold]
fn answer(reply: &Reply, is_grpc: bool) -> Action {
    match host::send(reply, is_grpc) {
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
