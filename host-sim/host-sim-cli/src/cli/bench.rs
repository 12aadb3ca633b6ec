//! `host-sim bench`

use std::time::Duration;

use clap::Args;
use host_sim::{Clock, Host, LogLevel, Request, Response};
use host_sim_cli::failure::Failure;

use super::{Filter, print, print_warning};

/// Requests between two looks at the clock.
const BATCH: u64 = 1000;

/// Measures how many requests a second the filter decides
///
/// Requests go through the filter in memory, on one thread per worker; the clock that the filter sees is real.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-sim bench --wasm filter.wasm --config limits.json --path /links --header 'authorization: Bearer k'")]
pub(super) struct Bench {
    #[command(flatten)]
    filter: Filter,
    /// How many workers decide at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// For how many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// The request's method
    #[arg(long, default_value = "GET")]
    method: String,
    /// The request's path
    #[arg(long, default_value = "/")]
    path: String,
    /// A header of the request, NAME:VALUE; may be repeated
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME:VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl Bench {
    pub(super) fn run(self) -> Result<(), Failure> {
        let (module, plugin) = self.filter.load()?;
        let clock = Clock::real();
        let builder = self.filter.builder()?.workers(self.workers.into()).clock(clock.clone());
        // Envoy's level unless another one is chosen.
        let builder = builder.log_level(LogLevel::Info);
        let mut host = builder.system_randomness().without_records().on_log(print_warning).build();
        host.load(&module, plugin).map_err(|error| Failure::Missed(error.to_string()))?;
        let mut request = Request::new(self.method.clone(), self.path.clone());
        for (name, value) in self.headers.clone() {
            request = request.header(name, value);
        }
        let upstream = |_: &Request| Response::ok();
        let round = |worker, until: Duration| {
            let (mut sent, mut refused) = (0_u64, 0_u64);
            while clock.monotonic() < until {
                for _ in 0..BATCH {
                    refused +=
                        u64::from(host.worker(worker).send(request.clone(), upstream).is_local_reply());
                }
                sent += BATCH;
            }
            (sent, refused)
        };
        // Caches fill and the branch predictor learns before the measured time begins.
        let warm = clock.monotonic() + Duration::from_millis(200);
        host.threads(|worker| round(worker, warm));
        let (calls, start) = (host.host_calls(), clock.monotonic());
        let rounds = host.threads(|worker| round(worker, start + Duration::from_secs(self.seconds)));
        let elapsed = (clock.monotonic() - start).as_secs_f64();
        let calls = host.host_calls() - calls;
        for worker in 0..host.workers() {
            if let Some(failure) = host.worker(worker).vm_failure() {
                return Err(Failure::Missed(format!("worker {worker}: {failure}")));
            }
        }
        let sent: u64 = rounds.iter().map(|(sent, _)| sent).sum();
        let refused: u64 = rounds.iter().map(|(_, refused)| refused).sum();
        print(report(sent, refused, calls, elapsed, &host));
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures to be read by people")]
fn report(sent: u64, refused: u64, calls: u64, elapsed: f64, host: &Host) -> String {
    let workers = host.workers() as f64;
    let rate = sent as f64 / elapsed;
    let row = |name: &str, value: String| format!("{name:<32}{value:>14}\n");
    [
        row("requests", sent.to_string()),
        row("refused", refused.to_string()),
        row("requests per second", format!("{rate:.0}")),
        row("requests per second and worker", format!("{:.0}", rate / workers)),
        row("microseconds per request", format!("{:.2}", workers * 1e6 / rate)),
        row("host calls per request", format!("{:.1}", calls as f64 / sent as f64)),
        row("guest memory per VM, KiB", (host.guest_memory() / 1024).to_string()),
        row("shared data, bytes", host.shared_data().bytes().to_string()),
    ]
    .concat()
    .trim_end()
    .to_owned()
}
