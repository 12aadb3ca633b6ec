//! `host-sim bench`

use std::time::Duration;

use clap::Args;
use host_sim::{Clock, Host, LogLevel, Module, Plugin, Request, Response};
use host_sim_cli::{failure::Failure, setup::EMPTY};
use serde_json::{Map, Value as Json};

use super::{Filter, Form, log_level, print, print_warning};

/// Measures how many requests a second the filter decides
///
/// Requests go through the filter in memory, on one thread per worker; the clock that the filter sees is real. Before it, an empty filter is
/// measured for a fifth of the time: what the host takes by itself.
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
    /// Minimum log level that the filter sees: trace, debug, info, warn, error or critical
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    log_level: LogLevel,
    /// The form of the figures
    #[arg(long, value_enum, default_value = "text")]
    format: Form,
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

/// How many requests took how long: each power of two of nanoseconds in sixteen parts.
#[derive(Debug, Clone)]
struct Times(Vec<u64>);

impl Times {
    fn new() -> Self {
        Self(vec![0; 61 * 16])
    }

    fn add(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(16);
        let power = nanos.ilog2();
        let part = usize::try_from(u64::from(power - 4) * 16 + (nanos >> (power - 4)) - 16);
        if let Some(count) = part.ok().and_then(|part| self.0.get_mut(part)) {
            *count += 1;
        }
    }

    fn join(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(count, more)| *count += more);
        self
    }

    /// The time that this share of the requests, in thousandths, did not exceed, in microseconds; up to a sixteenth too little.
    #[expect(clippy::cast_precision_loss, reason = "figures to be read by people")]
    fn percentile(&self, share: u64) -> f64 {
        let rank = self.0.iter().sum::<u64>() * share / 1000;
        let mut seen = 0;
        let part = self.0.iter().position(|count| {
            seen += count;
            seen > rank
        });
        let part = part.unwrap_or(0) as u64;
        ((16 + part % 16) << (part / 16)) as f64 / 1000.0
    }
}

/// What a worker has done.
struct Round {
    sent: u64,
    refused: u64,
    times: Times,
}

/// What was measured.
struct Measured {
    round: Round,
    seconds: f64,
    calls: u64,
}

impl Bench {
    pub(super) fn run(self) -> Result<(), Failure> {
        let filter = self.filter.load()?;
        let empty = self.host(&(Module::compile(EMPTY)?, Plugin::default()))?;
        let base = self.measure(&empty, Duration::from_secs(self.seconds) / 5)?;
        let host = self.host(&filter)?;
        let measured = self.measure(&host, Duration::from_secs(self.seconds))?;
        let figures = figures(&measured, &base, &host);
        match self.format {
            Form::Text => {
                figures
                    .iter()
                    .for_each(|(name, value)| print(format_args!("{name:<40}{:>14}", value.to_string())));
            }
            Form::Json => {
                let member = |(name, value): &(String, Json)| {
                    (name.replace([' ', '/'], "_").replace(',', ""), value.clone())
                };
                let figures: Map<_, _> = figures.iter().map(member).collect();
                print(format_args!("{:#}", Json::Object(figures)));
            }
        }
        Ok(())
    }

    /// A host that has loaded a filter.
    fn host(&self, (module, plugin): &(Module, Plugin)) -> Result<Host, Failure> {
        let builder = self.filter.builder()?.workers(self.workers.into()).clock(Clock::real());
        let builder = builder.log_level(self.log_level).system_randomness();
        let mut host = builder.without_records().on_log(print_warning).build();
        host.load(module, plugin.clone()).map_err(|error| Failure::Missed(error.to_string()))?;
        Ok(host)
    }

    fn measure(&self, host: &Host, time: Duration) -> Result<Measured, Failure> {
        let clock = host.clock();
        let mut request = Request::new(self.method.clone(), self.path.clone());
        for (name, value) in self.headers.clone() {
            request = request.header(name, value);
        }
        let round = |worker, until: Duration| {
            let mut round = Round { sent: 0, refused: 0, times: Times::new() };
            let mut now = clock.monotonic();
            while now < until {
                let outcome = host.worker(worker).send(request.clone(), |_| Response::ok());
                round.sent += 1;
                round.refused += u64::from(outcome.is_local_reply());
                let after = clock.monotonic();
                round.times.add(after.saturating_sub(now));
                now = after;
            }
            round
        };
        // Caches fill and the branch predictor learns before the measured time begins.
        let warm = clock.monotonic() + Duration::from_millis(200);
        host.threads(|worker| round(worker, warm));
        let (calls, start) = (host.host_calls(), clock.monotonic());
        let rounds = host.threads(|worker| round(worker, start + time));
        let (seconds, calls) = ((clock.monotonic() - start).as_secs_f64(), host.host_calls() - calls);
        for worker in 0..host.workers() {
            if let Some(failure) = host.worker(worker).vm_failure() {
                return Err(Failure::Missed(format!("worker {worker}: {failure}")));
            }
        }
        let nothing = Round { sent: 0, refused: 0, times: Times::new() };
        let round = rounds.into_iter().fold(nothing, |all, round| Round {
            sent: all.sent + round.sent,
            refused: all.refused + round.refused,
            times: all.times.join(&round.times),
        });
        Ok(Measured { round, seconds, calls })
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures to be read by people")]
fn figures(measured: &Measured, base: &Measured, host: &Host) -> Vec<(String, Json)> {
    let Measured { round: Round { sent, refused, times }, seconds, calls } = measured;
    let workers = host.workers() as f64;
    let rounded = |value: f64| Json::from((value * 100.0).round() / 100.0);
    let micros = |measured: &Measured| workers * 1e6 * measured.seconds / measured.round.sent as f64;
    let percentile =
        |share: u64, name: &str| (format!("microseconds, {name}"), rounded(times.percentile(share)));
    let named = |name: &str, value: Json| (name.to_owned(), value);
    let rate = *sent as f64 / seconds;
    vec![
        named("requests", (*sent).into()),
        named("refused", (*refused).into()),
        named("requests per second", (rate as u64).into()),
        named("requests per second and worker", ((rate / workers) as u64).into()),
        named("microseconds per request", rounded(micros(measured))),
        named("microseconds per request, empty filter", rounded(micros(base))),
        percentile(500, "p50"),
        percentile(900, "p90"),
        percentile(990, "p99"),
        percentile(999, "p99.9"),
        named("host calls per request", rounded(*calls as f64 / *sent as f64)),
        named("guest memory per VM, KiB", (host.guest_memory() / 1024).into()),
        named("shared data, bytes", host.shared_data().bytes().into()),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        bench: Bench,
    }

    /// Workers share the records of requests, and would be measured by their lock.
    #[test]
    fn what_is_measured_keeps_no_records() {
        let text = r#"(module (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
            (memory (export "memory") 1) (data (i32.const 0) "hello") (func (export "proxy_abi_version_0_2_1"))
            (func (export "malloc") (param i32) (result i32) (i32.const 64))
            (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
              (call $log (i32.const 2) (i32.const 0) (i32.const 5))))"#;
        let filter = (Module::compile(wat::parse_str(text).unwrap()).unwrap(), Plugin::default());
        let Only { bench } = Only::parse_from(["bench", "--workers", "2"]);
        let host = bench.host(&filter).unwrap();
        let outcome = host.send(Request::get("/"), |_| Response::ok());
        assert!(host.logs().contains("hello") && outcome.log().is_empty(), "{outcome:?}");
    }

    #[test]
    fn a_percentile_is_less_than_a_sixteenth_below_the_time_that_it_stands_for() {
        let mut times = Times::new();
        (1..=1000).for_each(|micros| times.add(Duration::from_micros(micros)));
        for (share, micros) in [(500, 500.0), (900, 900.0), (990, 990.0), (999, 999.0)] {
            let found = times.percentile(share);
            assert!(found <= micros + 1.0 && found > micros * 15.0 / 16.0, "{share}: {found}");
        }
        assert_eq!(Times::new().percentile(500), 0.016);
    }
}
