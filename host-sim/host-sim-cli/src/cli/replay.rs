//! `host-sim replay`

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use clap::Args;
use host_sim::{Clock, LogLevel, stats_tags::StatsTags};
use host_sim_cli::replay::{self, Fields};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Error, Filter, load, print, print_warning};

/// Lines that are looked through for one that tells when the log begins.
const HEAD_LINES: usize = 1000;

/// The progress is told in steps of so many bytes.
const STEP: u64 = 1 << 16;

/// Tells what the filter would have refused in an access log
///
/// The log is Envoy's in JSON, a line a request, in the order of time; it is sent through the filter by its own clock.
/// The filter sees the headers that were logged and are named with --header.
#[derive(Debug, Args)]
#[command(after_help = "Example, for a log that has the key in a field \"authorization\":
  host-sim replay --wasm filter.wasm --config envoy.yaml --header authorization=authorization --html week.html access.log
An Envoy bootstrap brings its stats_tags: what they say of the filter's counters, such as plan and class, becomes a table.")]
pub(super) struct Replay {
    #[command(flatten)]
    filter: Filter,
    /// The log; - is standard input
    #[arg(value_name = "ACCESS.log")]
    log: PathBuf,
    /// A request header and the field that it was logged as; may be repeated
    #[arg(long = "header", value_name = "NAME=FIELD", value_parser = header)]
    headers: Vec<(String, String)>,
    /// A page with plots to write
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// An Envoy bootstrap whose stats_tags say what the parts of the filter's counters mean; --config, if it is one
    #[arg(long, value_name = "FILE")]
    stats_tags: Option<PathBuf>,
    /// How many workers take turns
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
    pub(super) fn run(self) -> Result<(), Error> {
        let chain = self.filter.chain()?;
        let tags = match self.stats_tags.as_deref().or(self.filter.config.first().map(PathBuf::as_path)) {
            Some(path) => tags_of(path)?,
            None => StatsTags::default(),
        };
        let fields = self
            .headers
            .into_iter()
            .fold(Fields::default(), |fields, (name, field)| fields.header(name, field));
        let path = self.log.display();
        let unreadable = |error| Error::Failed(format!("{path}: {error}"));
        let (log, size) = open(&self.log).map_err(unreadable)?;
        let mut log = BufReader::with_capacity(1 << 20, log);

        // The clock starts where the log does, so that the filter is configured at that time.
        let mut head = Vec::new();
        let mut begins = None;
        for _ in 0..HEAD_LINES {
            let start = head.len();
            if log.read_until(b'\n', &mut head).map_err(unreadable)? == 0 {
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
            return Err(Error::Failed(format!("{path}: no request in it ({why})")));
        };
        let mut host = self
            .filter
            .builder()?
            .workers(self.workers.into())
            .clock(Clock::at(SystemTime::from(begins)))
            .log_level(LogLevel::Warn)
            .log_capacity(100)
            .on_log(print_warning)
            .build();
        load(&mut host, &chain).map_err(|error| Error::Missed(error.to_string()))?;

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
        let mut summary = summary.map_err(|error| Error::failed(&error))?;
        summary.tags = tags;
        print(summary.to_string().trim_end());
        if let Some(html) = &self.html {
            let page = replay::page(&summary, &format!("Replay of {path}"));
            fs::write(html, page).map_err(|error| Error::Failed(format!("{}: {error}", html.display())))?;
        }
        for worker in 0..host.workers() {
            if let Some(failure) = host.worker(worker).vm_failure() {
                return Err(Error::Missed(format!("worker {worker}: {failure}")));
            }
        }
        Ok(())
    }
}

/// The tags that a file names, which need be no bootstrap.
fn tags_of(path: &Path) -> Result<StatsTags, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Failed(format!("{}: {error}", path.display()));
    let bytes = fs::read(path).map_err(|error| failed(&error))?;
    StatsTags::parse(&bytes).map_err(|error| failed(&error))
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
