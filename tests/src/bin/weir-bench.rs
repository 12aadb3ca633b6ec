//! `make bench`: what filters add to a request in a real Envoy, all in one process, one worker and one run.
//!
//! Every variant is a listener of its own that answers 200 itself. They are loaded in alternation, and what counts is the CPU time of
//! the Envoy process per request, so that neither the client nor a busy machine is measured. Within a sample the variants take short
//! turns, so that all of them see the same of a machine whose speed changes; of a variant's samples the lower quartile is kept.
//!
//! Ratios are what lasts, because microseconds belong to the machine that they were measured on. One is to Envoy's own `local_ratelimit`. The
//! other is to the floor, a guest that makes Weir's host calls and decides nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tests::artifacts;
use tests::bench;
use tests::policy::hash;
use tests::process::Process;

/// Measures what filters add to a request in a real Envoy.
#[derive(Debug, Parser)]
#[command(after_help = "Example: weir-bench --alternations 9 --runs 5")]
struct Options {
    /// Samples of each variant in a run, taken in turn
    #[arg(long, default_value_t = 9)]
    alternations: usize,
    /// Runs, each with a new Envoy; the table shows their median
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Requests in a sample
    #[arg(long, default_value_t = 40_000)]
    requests: usize,
    /// Connections that send them
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Keys that send them in turn, each a subscriber's
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    keys: u32,
    /// Another build of the filter to measure beside this one, with the X- headers; may be repeated
    #[arg(long, value_name = "FILE")]
    module: Vec<PathBuf>,
}

/// A filter that is measured.
struct Variant {
    name: String,
    /// Envoy's filter; `None` for no filter.
    filter: Option<Value>,
}

/// The places of the variants that the others are compared with.
const NONE: usize = 0;
const NATIVE: usize = 1;
const FLOOR: usize = 3;

/// What is compared.
fn variants(modules: &[PathBuf], keys: u32) -> anyhow::Result<Vec<Variant>> {
    let variant = |name: &str, filter| Variant { name: name.to_owned(), filter };
    let weir =
        |module: &Path, headers: &Value| Some(wasm_filter(module, &bench::configuration(keys, headers)));
    let guest = |package| anyhow::Ok(Some(wasm_filter(&artifacts::guest_wasm(package)?, &json!({}))));
    let ours = artifacts::filter_wasm();
    let mut variants = vec![
        variant("none", None),
        variant("local_ratelimit (native)", Some(local_ratelimit(keys))),
        variant("empty filter (Rust SDK)", guest("empty-filter")?),
        variant("floor (calls, no decision)", guest("floor")?),
        variant("weir, X-RateLimit-*, absent", weir(ours, &bench::three_headers())),
        variant("weir, X-RateLimit-*, replace", weir(ours, &json!({"ietf": false, "upstream": "replace"}))),
        variant("weir, all headers, absent", weir(ours, &json!({"upstream": "absent"}))),
    ];
    variants.extend(
        modules
            .iter()
            .map(|module| variant(&module.display().to_string(), weir(module, &json!({"ietf": false})))),
    );
    Ok(variants)
}

/// Turns in which a sample's requests are sent.
const TURNS: usize = 10;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    ensure!(
        Path::new("/proc/self/schedstat").exists(),
        "CPU time is read from /proc, so this runs on Linux only"
    );
    let variants = variants(&options.module, options.keys)?;
    let progress = ProgressBar::new((options.runs * options.alternations * TURNS) as u64);
    let mut runs = Vec::new();
    for _ in 0..options.runs {
        runs.push(run(&options, &variants, &progress)?);
    }
    progress.finish_and_clear();

    println!("{:<28} {:>12} {:>10} {:>10} {:>10}", "filter", "CPU µs", "adds", "× native", "× floor");
    for (place, Variant { name, .. }) in variants.iter().enumerate() {
        let median =
            |figure: &dyn Fn(&[f64]) -> f64| quantile(runs.iter().map(|run| figure(run)).collect(), 2);
        let added = |run: &[f64], place: usize| run[place] - run[NONE];
        let times = |rival: usize| median(&|run| added(run, place) / added(run, rival));
        println!(
            "{name:<28} {:>12.2} {:>10.2} {:>10.2} {:>10.2}",
            median(&|run| run[place]),
            median(&|run| added(run, place)),
            times(NATIVE),
            times(FLOOR),
        );
    }
    Ok(())
}

/// CPU microseconds per request of each variant, in one Envoy.
fn run(options: &Options, variants: &[Variant], progress: &ProgressBar) -> anyhow::Result<Vec<f64>> {
    let envoy = Rivals::start(variants)?;
    let mut samples = vec![Vec::new(); variants.len()];
    for address in &envoy.listeners {
        load(*address, options.connections, options.requests / 4, options.keys)?;
    }
    let requests = options.requests / TURNS;
    for _ in 0..options.alternations {
        let mut spent = vec![Duration::ZERO; variants.len()];
        for _ in 0..TURNS {
            for (spent, address) in spent.iter_mut().zip(&envoy.listeners) {
                let before = envoy.process.cpu_time()?;
                load(*address, options.connections, requests, options.keys)?;
                *spent += envoy.process.cpu_time()? - before;
            }
            progress.inc(1);
        }
        for (samples, spent) in samples.iter_mut().zip(spent) {
            samples.push(spent.as_secs_f64() * 1e6 / (TURNS * requests) as f64);
        }
    }
    Ok(samples.into_iter().map(|samples| quantile(samples, 4)).collect())
}

/// The value below which a `part`th of the values lies.
fn quantile(mut values: Vec<f64>, part: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / part).copied().unwrap_or(f64::NAN)
}

/// An Envoy with a listener for each variant.
struct Rivals {
    process: Process,
    listeners: Vec<SocketAddr>,
    _folder: tempfile::TempDir,
}

impl Rivals {
    fn start(variants: &[Variant]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let listeners: Vec<_> = variants
            .iter()
            .enumerate()
            .map(|(place, variant)| listener(place, variant.filter.clone()))
            .collect();
        let bootstrap = json!({
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
            "static_resources": {"listeners": listeners},
        });
        let config = folder.path().join("envoy.json");
        std::fs::write(&config, bootstrap.to_string())?;
        let process = Process::start(
            "envoy",
            Command::new(artifacts::envoy())
                .arg("--config-path")
                .arg(&config)
                .arg("--admin-address-path")
                .arg(folder.path().join("admin"))
                .args(["--disable-hot-restart", "--log-level", "info", "--concurrency", "1"]),
        )?;
        process.wait_for(|line| line.contains("starting main dispatch loop").then_some(()))?;
        let admin: SocketAddr = std::fs::read_to_string(folder.path().join("admin"))?.trim().parse()?;
        let bound = tests::client::Client::to(admin)?
            .send(&tests::exchange::get("/listeners?format=json"))?
            .json()?;
        let mut listeners = Vec::new();
        for status in bound["listener_statuses"].as_array().context("no listeners")? {
            let port = status.pointer("/local_address/socket_address/port_value").and_then(Value::as_u64);
            let place: usize =
                status["name"].as_str().and_then(|name| name.parse().ok()).context("a listener's name")?;
            listeners
                .push((place, SocketAddr::from(([127, 0, 0, 1], u16::try_from(port.context("no port")?)?))));
        }
        listeners.sort_unstable();
        let listeners = listeners.into_iter().map(|(_, address)| address).collect();
        Ok(Self { process, listeners, _folder: folder })
    }
}

fn listener(place: usize, filter: Option<Value>) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    });
    let filters: Vec<_> = filter.into_iter().chain([router]).collect();
    json!({
        "name": place.to_string(),
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": format!("bench{place}"),
                "http_filters": filters,
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "direct_response": {"status": 200}},
                ]}]},
            },
        }]}],
    })
}

/// Envoy's own limiter as it comes nearest: one bucket for each key, told apart at run time, and its three headers.
fn local_ratelimit(keys: u32) -> Value {
    let bucket = json!({"max_tokens": 4_000_000_000_u32, "tokens_per_fill": 4_000_000_000_u32, "fill_interval": "60s"});
    let always = json!({"default_value": {"numerator": 100, "denominator": "HUNDRED"}});
    json!({
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "native",
            "token_bucket": bucket,
            "filter_enabled": always,
            "filter_enforced": always,
            "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
            "max_dynamic_descriptors": keys.max(1000),
            "rate_limits": [{"actions": [{"request_headers": {"header_name": "authorization", "descriptor_key": "key"}}]}],
            "descriptors": [{"entries": [{"key": "key"}], "token_bucket": bucket}],
        },
    })
}

fn wasm_filter(wasm: &Path, configuration: &Value) -> Value {
    let name = hash(&format!("{} {configuration}", wasm.display()));
    json!({
        "name": name,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": name,
                "root_id": name,
                "failure_policy": "FAIL_RELOAD",
                "vm_config": {
                    "vm_id": name,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": wasm}},
                },
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": configuration.to_string(),
                },
            },
        },
    })
}

/// Sends `requests` requests over `connections` connections, all of which are busy all the time, with each of the keys in turn.
fn load(server: SocketAddr, connections: usize, requests: usize, keys: u32) -> anyhow::Result<()> {
    let request = |key: String| {
        format!("GET {} HTTP/1.1\r\nhost: {server}\r\nauthorization: Bearer {key}\r\n\r\n", bench::PATH)
    };
    let requests_by_key: Vec<_> = (0..keys).map(bench::key).map(request).collect();
    let mut in_turn = requests_by_key.iter().cycle();
    let mut streams = (0..connections)
        .map(|_| {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            Ok(stream)
        })
        .collect::<std::io::Result<Vec<_>>>()?;
    for stream in &mut streams {
        stream.write_all(in_turn.next().context("no key")?.as_bytes())?;
    }
    let mut answer = [0; 4096];
    for sent in connections..requests + connections {
        let stream = &mut streams[sent % connections];
        let mut read = 0;
        while !answer[..read].ends_with(b"\r\n\r\n") {
            let more = stream.read(&mut answer[read..])?;
            ensure!(
                more > 0,
                "Envoy closed a connection after {:?}",
                String::from_utf8_lossy(&answer[..read])
            );
            read += more;
        }
        ensure!(
            answer.starts_with(b"HTTP/1.1 200 "),
            "Envoy answered {:?}",
            String::from_utf8_lossy(&answer[..read])
        );
        if sent < requests {
            stream.write_all(in_turn.next().context("no key")?.as_bytes())?;
        }
    }
    Ok(())
}
