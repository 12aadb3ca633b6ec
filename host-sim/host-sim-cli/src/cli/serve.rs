//! `host-sim serve`

use std::{collections::BTreeMap, fs, io, net::SocketAddr, path::PathBuf};

use clap::Args;
use host_sim::{Clock, Framing, LoadError, LogLevel};
use host_sim_cli::{
    failure::Failure,
    gateway::{AccessLog, Gateway, GatewayError, Options, Recent},
    setup,
    stop::Stop,
    watch::Files,
};
use http::Uri;

use super::{Filter, Trace, echo, log_level, print, print_beside, print_log};

/// Serves the filter in front of an upstream
///
/// Each worker is a thread with its own VM, as in Envoy. HTTP/1.1 and h2c are served. Prints `listening on
/// http://ADDRESS` and `admin on http://ADDRESS` once it accepts connections. SIGTERM and SIGINT end it after the
/// requests in progress, and a second one at once. With --admin, `http://ADDRESS/requests` shows the last 100 requests with their headers and
/// bodies, and with --trace also what the filter did. Without options, it listens on 127.0.0.1:8080, lets all requests pass, and answers
/// each with what it said.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-sim serve
  host-sim serve --wasm filter.wasm --config limits.json --watch --trace
  host-sim serve --wasm filter.wasm --config limits.json --listen 127.0.0.1:8080 --upstream http://127.0.0.1:3000
  host-sim serve --wasm filter.wasm --config envoy.yaml --listen 127.0.0.1:0 --upstream http://127.0.0.1:3000 \\
      --workers 4 --cluster backend=http://127.0.0.1:3001 --admin 127.0.0.1:0
  host-sim serve --wasm filter.wasm --config limits.json --listen 127.0.0.1:8080 --upstream http://127.0.0.1:3000 \\
      --watch --trace --admin 127.0.0.1:9901 --access-log -")]
pub(super) struct Serve {
    #[command(flatten)]
    filter: Filter,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where requests go; unless given, each is answered with what it said
    #[arg(long, value_name = "URL")]
    upstream: Option<Uri>,
    /// How many workers serve; the processors' number unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// A cluster that the filter can call, NAME=URL; may be repeated
    #[arg(long = "cluster", value_name = "NAME=URL", value_parser = setup::cluster)]
    clusters: Vec<(String, Uri)>,
    /// The address of /ready, /requests, /stats and /stats/prometheus
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// In which pieces bodies come to the filter: envoy, http1, http2, or a number of bytes
    #[arg(long, value_name = "FRAMING", default_value_t)]
    framing: Framing,
    /// Minimum log level to print: trace, debug, info, warn, error or critical
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    log_level: LogLevel,
    /// Loads the module and the configuration again when their files change; a filter that does not load leaves the one before
    /// in place
    #[arg(long)]
    watch: bool,
    /// The file that an access log in Envoy's default format is appended to; - prints it
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    #[command(flatten)]
    trace: Trace,
}

fn access_log(path: &PathBuf) -> Result<AccessLog, Failure> {
    if path.as_os_str() == "-" {
        return Ok(AccessLog::to(io::stdout()));
    }
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    file.map(AccessLog::to).map_err(Failure::file(path))
}

fn not_loaded(error: LoadError) -> Failure {
    match error {
        // The lines were printed as they were written.
        LoadError::Refused { plugin, vm, reason, .. } => {
            Failure::Missed(LoadError::Refused { plugin, vm, reason, log: Vec::new() }.to_string())
        }
        other => other.into(),
    }
}

/// Loads the filter again whenever its files change.
async fn follow(filter: &Filter, mut files: Files, gateway: &mut Gateway) {
    loop {
        files.changed().await;
        let loaded = filter
            .load()
            .and_then(|(module, plugin)| gateway.replace_chain([(&module, plugin)]).map_err(not_loaded));
        match loaded {
            Ok(()) => print("reloaded"),
            Err(error) => {
                print_beside(format_args!(
                    "Reload failed; still running the previous filter: {}",
                    error.into_message()
                ));
            }
        }
    }
}

impl Serve {
    pub(super) fn run(self) -> Result<(), Failure> {
        // As they are before they are read: what changes after that is read again.
        let files = self.watch.then(|| Files::new(self.filter.files()));
        let (module, plugin) = self.filter.load_or_empty()?;
        let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let access_log = self.access_log.as_ref().map(access_log).transpose()?;
        let recent = self.admin.map(|_| Recent::default());
        let mut builder = self.filter.builder()?;
        if let Some(form) = self.trace.trace {
            let recent = recent.clone();
            builder = builder.on_trace(move |callback| {
                print_beside(form.of(callback));
                if let Some(recent) = &recent {
                    recent.trace(callback);
                }
            });
        }
        let host = builder
            .framing(self.framing)
            .workers(self.workers.map_or_else(processors, usize::from))
            .clock(Clock::real())
            .system_randomness()
            .log_level(self.log_level)
            .log_capacity(0)
            .on_log(print_log)
            .build();
        let clusters: BTreeMap<_, _> = self.clusters.into_iter().collect();
        let echo = self.upstream.is_none();
        let upstream = match self.upstream {
            Some(upstream) => upstream,
            None => format!("http://{}", echo::start()?).parse()?,
        };
        let options = Options {
            listen: self.listen,
            clusters,
            admin: self.admin,
            access_log,
            recent,
            ..Options::new(upstream)
        };

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Signals are caught from before the first connection on, so that none ends the process unasked.
        let mut signal = runtime.block_on(async { Stop::new() })?;
        let mut gateway =
            Gateway::start(host, [(&module, plugin)], options).map_err(|error| match error {
                GatewayError::Load(error) => not_loaded(error),
                other => other.into(),
            })?;
        print(format_args!("listening on http://{}", gateway.address()));
        if !self.filter.is_given() {
            print("no --wasm: all requests pass");
        }
        if echo {
            print("no --upstream: requests are answered with what they said");
        }
        if let Some(admin) = gateway.admin_address() {
            print(format_args!("admin on http://{admin}"));
        }
        runtime.block_on(async {
            match files {
                Some(files) => tokio::select! {
                    () = signal.wait() => {}
                    () = follow(&self.filter, files, &mut gateway) => {}
                },
                None => signal.wait().await,
            }
            gateway.shutdown_unless(&mut signal).await;
        });
        Ok(())
    }
}
