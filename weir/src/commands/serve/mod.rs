//! `weir serve`

mod line;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use host_sim::{Clock, Host, LogLevel};
use host_sim_cli::failure::Failure;
use host_sim_cli::gateway::{Ended, Gateway, GatewayError, Options, Recent};
use host_sim_cli::setup;
use host_sim_cli::stop::Stop;
use host_sim_cli::watch::Files;
use http::Uri;
use tokio::sync::Notify;

use super::check::{summary, warnings};
use crate::decision::Decision;
use crate::filter::{Filter, Ready, not_loaded};
use crate::keys::Keys;
use crate::output::{self, Format, say};

/// Serves the filter in front of an upstream, and prints a line for each decision
///
/// A line has the time in UTC, the method, the path without its query, the status, the subscriber, the plan, the class, the
/// remaining units and the limit of each quota, and the outcome unless the request was simply allowed. `-` marks a value that does
/// not apply. Lines go to standard output, and all else to standard error. A changed FILE is reloaded; if the filter refuses it,
/// the previous configuration keeps running. The admin address has /ready, /stats, /stats/prometheus and /requests, the last 100
/// requests with their decisions, headers and bodies. SIGINT (Ctrl-C), SIGTERM and a closed
/// standard output end the command after the requests in progress, and a second signal at once. Exit code
/// 0 then, 1 if the filter refuses FILE, 2 if a file cannot be read or an address is in use.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir serve limits.json --upstream http://127.0.0.1:3000
  weir serve envoy.yaml --upstream http://127.0.0.1:3000 --keys keys.json
  weir serve limits.yaml --upstream http://127.0.0.1:3000 --cluster backend=http://127.0.0.1:3001 --admin off
  weir serve limits.json --upstream http://127.0.0.1:3000 --format json | jq 'select(.status == 429)'")]
pub(crate) struct Serve {
    /// The configuration: JSON or YAML, an Envoy bootstrap, or a manifest of Istio or Envoy Gateway
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Where requests go
    #[arg(long, value_name = "URL")]
    upstream: Uri,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The address of /ready, /stats and /requests, or off
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901", value_parser = admin)]
    admin: Admin,
    /// Number of worker threads [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// A cluster that the filter can call, NAME=URL; may be repeated
    #[arg(long = "cluster", value_name = "NAME=URL", value_parser = setup::cluster)]
    clusters: Vec<(String, Uri)>,
    /// The form of the decisions
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// An admin address, or none.
type Admin = Option<SocketAddr>;

fn admin(text: &str) -> Result<Admin, String> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| format!("{error}, nor \"off\""))
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.serve())
    }

    /// Serves until it is asked to stop.
    async fn serve(self) -> Result<(), Failure> {
        // Signals are caught from before the first connection on, so that none ends the process unasked.
        let mut stop = Stop::new()?;
        // As the files are before they are read: what changes after that is read again.
        let files = [self.file.clone(), self.filter.module()?];
        let mut files = Files::new(files.into_iter().chain(self.filter.keys.clone()).collect());

        let ready = self.filter.ready(&self.file, true)?;
        let keys = self.filter.keys(&ready.config)?;
        let clusters: BTreeMap<_, _> = self.clusters.iter().cloned().collect();
        if let (Some(_), Some(directory)) = (&keys, &ready.config.settings.directory)
            && clusters.contains_key(&*directory.cluster)
        {
            let message = format!("--keys and --cluster both give cluster {:?}", &*directory.cluster);
            return Err(Failure::Unusable(message));
        }
        let unread = Arc::new(Notify::new());
        let recent = recent(self.format, Arc::clone(&unread));
        let host = self.host(&ready, keys.as_ref(), recent.clone());
        let (workers, upstream) = (host.workers(), self.upstream.clone());
        let options = Options {
            listen: self.listen,
            clusters,
            admin: self.admin,
            recent: Some(recent),
            ..Options::new(self.upstream.clone())
        };
        let filters = [(&ready.module, ready.plugin.clone())];
        let mut gateway = Gateway::start(host, filters, options).map_err(|error| match error {
            GatewayError::Load(error) => not_loaded(error),
            other => other.into(),
        })?;

        say(format_args!("{}\n{}", self.file.display(), summary(&ready.config)));
        warnings(&ready.config).iter().for_each(|warning| say(format_args!("warning: {warning}")));
        say(format_args!("serving http://{}, upstream {upstream}, {workers} workers", gateway.address()));
        if let Some(admin) = gateway.admin_address() {
            say(format_args!("admin on http://{admin}"));
        }
        if let Some(keys) = &keys {
            say(keys);
        }
        tokio::select! {
            () = stop.wait() => say("stopping after the requests in progress"),
            () = unread.notified() => {}
            () = self.follow(&mut files, ready, keys.as_ref(), &mut gateway) => {}
        }
        gateway.shutdown_unless(&mut stop).await;
        Ok(())
    }

    fn host(&self, ready: &Ready, keys: Option<&Keys>, recent: Recent) -> Host {
        let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.filter
            .builder(ready, keys)
            .workers(self.workers.map_or_else(processors, usize::from))
            .clock(Clock::real())
            .system_randomness()
            .log_level(LogLevel::Debug)
            .log_capacity(0)
            .on_log(move |line| {
                if line.level >= LogLevel::Warn {
                    say(line);
                } else if !line.by_host && Decision::read(&line.message).is_some() {
                    recent.log(line);
                }
            })
            .build()
    }

    /// Loads the files again whenever one of them changes.
    async fn follow(&self, files: &mut Files, mut ready: Ready, keys: Option<&Keys>, gateway: &mut Gateway) {
        loop {
            files.changed().await;
            match self.load(gateway) {
                Ok(new) => {
                    ready = new;
                    say(format_args!("{} reloaded\n{}", self.file.display(), summary(&ready.config)));
                }
                Err(failure) => {
                    say(format_args!("Reload failed; still running the previous configuration: {failure}"));
                }
            }
            // A new configuration may know others of the keys.
            match (keys, self.filter.keys(&ready.config)) {
                (Some(keys), Ok(Some(read))) => {
                    keys.replace(&read);
                    say(keys);
                }
                (None, _) | (_, Ok(None)) => {}
                (_, Err(failure)) => {
                    say(format_args!("Reload failed; still using the previous keys: {failure}"));
                }
            }
        }
    }

    fn load(&self, gateway: &mut Gateway) -> Result<Ready, Failure> {
        let ready = self.filter.ready(&self.file, true)?;
        let filters = [(&ready.module, ready.plugin.clone())];
        gateway.replace_chain(filters).map_err(not_loaded)?;
        Ok(ready)
    }
}

/// What the page of requests shows in its columns.
const COLUMNS: [&str; 5] = ["subscriber", "plan", "class", "quotas", "outcome"];

/// Prints the decisions of each request that has ended, and says when nobody reads them any more.
fn recent(format: Format, unread: Arc<Notify>) -> Recent {
    let decisions = |ended: &Ended| {
        let lines = ended.log.iter().map(|line| Decision::read(&line.message));
        lines.flatten().collect::<Vec<_>>()
    };
    let recent = Recent::on_end(move |ended| {
        for decision in decisions(ended) {
            let line = match format {
                Format::Json => line::json(ended, &decision).to_string(),
                Format::Text => line::text(ended, &decision),
            };
            // Serving goes on when a file cannot take more.
            if let Ok(false) = output::line(line) {
                unread.notify_one();
            }
        }
    });
    recent.columns(&COLUMNS, move |ended| {
        decisions(ended).last().map(|last| line::facts(last).to_vec()).unwrap_or_default()
    })
}
