//! `weir replay`

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use flate2::bufread::MultiGzDecoder;
use host_sim::{Clock, LogLevel};
use host_sim_cli::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use weir::replay::{self, Callers, Fields, Log, Report, Side, since_epoch};

use super::pair;
use crate::filter::{Filter, fields, not_loaded, said};
use crate::keys::Keys;
use crate::output::{print, say};

/// Bytes of a file that are read at once.
const CHUNK: usize = 1 << 18;

/// Time before the log, in which the filter fetches the keys of its directory.
const BEFORE: Duration = Duration::from_secs(1);

/// Rows of a table on a terminal, on a page, and in a comment on a pull request.
const ROWS: usize = 10;
const PAGE_ROWS: usize = 20;
const MARKDOWN_ROWS: usize = 50;

/// Exit code if somebody is refused more than by the baseline.
const WORSE: u8 = 3;

/// Replays access logs and reports which requests the filter would have refused
///
/// Logs are those of Envoy, Istio, Envoy Gateway and nginx, as JSON or in their default text formats, also gzipped; lines are taken in the
/// order of their time. The caller of a request is known by a header that was logged and is named with --header, as the key or as its
/// SHA-256, or by the field weir. Exit code 0 if the log was replayed, 1 if the filter refuses the configuration or fails, 2 if a file
/// cannot be read or does not say who its callers are, 3 if with --baseline a caller is refused more than before.
#[derive(Debug, Args)]
#[command(after_help = "Examples, for a log that has the key in a field \"authorization\":
  weir replay limits.json --header authorization=authorization access.log
  weir replay envoy.yaml --keys keys.json --header authorization=authorization --html week.html a.log.gz b.log.gz
  weir replay --baseline old.json new.json --format markdown access.log")]
pub(crate) struct Replay {
    /// The configuration, unless --config names it, and the logs; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The configuration: JSON or YAML, an Envoy bootstrap, or a manifest of Istio or Envoy Gateway; all other files are logs then
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The configuration before, to report who is refused more or less than by it
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    /// A request header and the field that it was logged as; may be repeated
    #[arg(long = "header", value_name = "NAME=FIELD", value_parser = pair)]
    headers: Vec<(String, String)>,
    /// The field that has the time, duration, method, path, client, forwarded_for, status, details or weir of a request; may be
    /// repeated
    #[arg(long = "field", value_name = "WHAT=FIELD", value_parser = pair)]
    fields: Vec<(String, String)>,
    /// Takes the class of a request from the field weir, and not from its path
    #[arg(long)]
    class_from_log: bool,
    /// File to write a page with a plot to
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One object
    Json,
    /// For a comment on a pull request
    Markdown,
}

/// Opens a log, which moves the bar as it is read.
fn open(path: &Path, bar: &ProgressBar) -> io::Result<Box<dyn BufRead>> {
    let file: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let file = File::open(path)?;
        bar.inc_length(file.metadata()?.len());
        Box::new(file)
    };
    let mut reader = BufReader::with_capacity(CHUNK, bar.wrap_read(file));
    if reader.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(reader))));
    }
    Ok(Box::new(reader))
}

impl Replay {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (config, logs) = match (&self.config, self.files.split_first()) {
            (Some(config), _) => (config, &*self.files),
            (None, Some((config, logs))) => (config, logs),
            (None, None) => return Err(Failure::Unusable("no configuration".to_owned())),
        };
        if logs.is_empty() {
            let config = config.display();
            return Err(Failure::Unusable(format!("no access log beside the configuration {config}")));
        }
        let title = logs.iter().map(|log| log.display().to_string()).collect::<Vec<_>>().join(", ");
        let of_log = |failure: Failure| failure.about(&title);
        let bar = ProgressBar::new(0);
        let template = ProgressStyle::with_template("{bar:40} {bytes} {bytes_per_sec}, {eta} left");
        bar.set_style(template.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut log = self.log(logs, &bar)?;
        let begins = log.begins().map_err(Failure::from).map_err(of_log)?;
        let configurations = self.baseline.iter().chain([config]);
        let sides = configurations.map(|file| self.side(file, since_epoch(begins)));
        let mut sides = sides.collect::<Result<Vec<_>, _>>()?;
        let report = replay::replay(&mut sides, &mut log);
        bar.finish_and_clear();
        if let Some(failure) = sides.iter().find_map(|side| side.host.worker(0).vm_failure()) {
            return Err(Failure::Missed(failure.to_string()));
        }
        self.print(&report.map_err(Failure::from).map_err(of_log)?, &title)
    }

    fn log(&self, files: &[PathBuf], bar: &ProgressBar) -> Result<Log, Failure> {
        let fields =
            self.headers.iter().fold(Fields::default(), |fields, (name, of)| fields.header(name, of));
        let fields = self.fields.iter().try_fold(fields, |fields, (what, of)| fields.field(what, of));
        let open = |file: &PathBuf| Ok((file.clone(), open(file, bar).map_err(Failure::file(file))?));
        let files = files.iter().map(open).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Log::new(fields.map_err(Failure::Unusable)?, files)?)
    }

    /// The filter with a configuration, from when the log begins.
    fn side(&self, file: &Path, begins: Duration) -> Result<Side, Failure> {
        let mut ready = self.filter.ready(file, false)?;
        let configuration = fields(&ready.plugin);
        let keys = self.filter.keys(&ready.config)?;
        let callers = Callers::new(&ready.config, &configuration, keys.as_ref().map(Keys::value).as_ref());
        let keys = keys.map(|keys| keys.answering(&Callers::document(keys.value())));
        ready.plugin.configuration =
            Callers::for_replay(configuration, self.class_from_log).to_string().into();
        let mut host = self
            .filter
            .builder(&ready, keys.as_ref())
            .clock(Clock::at(UNIX_EPOCH + begins.saturating_sub(BEFORE)))
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
        host.advance(BEFORE);
        said(&host).iter().filter(|line| !line.by_host).for_each(say);
        Ok(Side::new(host, callers, self.class_from_log))
    }

    fn print(&self, report: &Report, title: &str) -> Result<ExitCode, Failure> {
        let text = match self.format {
            Format::Text => report.text(ROWS),
            Format::Json => format!("{:#}", report.json()),
            Format::Markdown => report.markdown(MARKDOWN_ROWS),
        };
        if let Some(html) = &self.html {
            let page = report.page(&format!("Replay of {title}"), PAGE_ROWS);
            fs::write(html, page).map_err(Failure::file(html))?;
        }
        print(text.trim_end())?;
        Ok(if report.is_worse { ExitCode::from(WORSE) } else { ExitCode::SUCCESS })
    }
}
