//! `weir replay`

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use host_sim::{Clock, LogLevel};
use host_sim_cli::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use weir::replay::{self, Fields};

use crate::filter::{Filter, not_loaded, said};
use crate::output::{print, say};

/// The log's beginning is read from one of the first lines, of which this many are looked at.
const HEAD_LINES: usize = 1000;

/// The progress bar moves in steps of this number of bytes.
const STEP: u64 = 1 << 16;

/// Time before and after the log, in which the filter fetches the keys of its directory, and hands over what it has counted.
const AROUND: Duration = Duration::from_secs(1);

/// Replays an access log and reports which requests the filter would have refused
///
/// The log is Envoy's in JSON: one JSON object per line, in time order; timestamps come from the log. The filter sees the headers
/// that were logged and are named with --header. Quotas in flight are not judged, because each request ends before the next one. Exit code 0 if the log was replayed, 1 if the filter refuses the configuration or
/// fails, 2 if a file cannot be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples, for a log that has the key in a field \"authorization\":
  weir replay --config limits.json --header authorization=authorization access.log
  weir replay --config envoy.yaml --keys keys.json --header authorization=authorization --html week.html access.log")]
pub(crate) struct Replay {
    /// The configuration: JSON or YAML, an Envoy bootstrap, or a manifest of Istio or Envoy Gateway
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// The log; - is standard input
    #[arg(value_name = "ACCESS.log")]
    log: PathBuf,
    /// A request header and the field that it was logged as; may be repeated
    #[arg(long = "header", value_name = "NAME=FIELD", value_parser = header)]
    headers: Vec<(String, String)>,
    /// File to write a page with plots to
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Number of workers, which take turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, field) = text.split_once('=').ok_or("expected NAME=FIELD, as in authorization=api_key")?;
    Ok((name.to_owned(), field.to_owned()))
}

/// The log, and its size where that is known.
fn open(path: &Path) -> io::Result<(Box<dyn Read>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    Ok((Box::new(file), Some(size)))
}

impl Replay {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let ready = self.filter.ready(&self.config, false)?;
        let headers = self.headers.iter();
        let fields = headers.fold(Fields::default(), |fields, (name, field)| fields.header(name, field));
        let unreadable = || Failure::file(&self.log);
        let (log, size) = open(&self.log).map_err(unreadable())?;
        let mut log = BufReader::with_capacity(1 << 20, log);

        // The clock starts where the log does, so that the filter is configured at that time.
        let mut head = Vec::new();
        let mut begins = None;
        for _ in 0..HEAD_LINES {
            let start = head.len();
            if log.read_until(b'\n', &mut head).map_err(unreadable())? == 0 {
                break;
            }
            begins = fields.read(&head[start..]).ok().map(|entry| entry.time);
            if begins.is_some() {
                break;
            }
        }
        let Some(begins) = begins else {
            let why = head.split(|byte| *byte == b'\n').next().and_then(|line| fields.read(line).err());
            let why = why.map_or_else(|| "it is empty".to_owned(), |error| format!("line 1: {error}"));
            return Err(Failure::Unusable(format!("{}: no request in it ({why})", self.log.display())));
        };
        let begins = Duration::try_from(begins.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default();
        let mut host = self
            .filter
            .builder(&ready, self.filter.keys(&ready.config)?.as_ref())
            .workers(self.workers.into())
            .clock(Clock::at(UNIX_EPOCH + begins.saturating_sub(AROUND)))
            .log_level(LogLevel::Warn)
            .log_capacity(100)
            .on_log(|line| {
                // What the filter logs of requests would be as long as the log.
                if line.by_host && line.level == LogLevel::Warn {
                    say(line);
                }
            })
            .build();
        host.load(&ready.module, ready.plugin).map_err(not_loaded)?;
        host.advance(AROUND);
        said(&host).iter().filter(|line| !line.by_host).for_each(say);

        let bar = progress(size);
        let mut unseen = 0;
        let log = io::Read::chain(head.as_slice(), log);
        let summary = replay::replay(&host, log, &fields, |bytes| {
            unseen += bytes;
            if unseen >= STEP {
                bar.inc(std::mem::take(&mut unseen));
            }
        });
        bar.finish_and_clear();
        let mut summary = summary.map_err(|error| Failure::from(error).about("cannot read the log"))?;
        host.advance(AROUND);
        summary.metrics = host.metrics().all();
        print(summary.to_string().trim_end())?;
        if ready.config.with_quota(|quota| quota.window.is_in_flight()).is_some() {
            print(
                "\nQuotas in flight are not judged: a log does not say which requests were under way at the same time.",
            )?;
        }
        if let Some(html) = &self.html {
            let page = replay::page(&summary, &format!("Replay of {}", self.log.display()));
            fs::write(html, page).map_err(Failure::file(html))?;
        }
        for worker in 0..host.workers() {
            if let Some(failure) = host.worker(worker).vm_failure() {
                return Err(Failure::Missed(format!("worker {worker}: {failure}")));
            }
        }
        Ok(())
    }
}

/// A bar on a terminal, and nothing elsewhere.
fn progress(size: Option<u64>) -> ProgressBar {
    let bar = size.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = if size.is_some() {
        "{bar:40} {percent}% {bytes_per_sec}, {eta} left"
    } else {
        "{spinner} {bytes} {bytes_per_sec}"
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
