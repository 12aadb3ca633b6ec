//! A rate-limit service to try a fleet with, without Go and without a container.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use fleet::gateways::{Service, serve_at};

/// A stand-in for a rate-limit service, made for tests: do not run it where a quota matters.
///
/// It counts in Redis and answers Envoy's rate limit service protocol (gRPC without TLS), as envoyproxy/ratelimit or Limitador
/// would, but has no statistics, no health checks and no reloading.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  redis-server --port 6379 --appendonly yes &
  weir-limits envoyproxy envoy.yaml > ratelimit.yaml
  weir-ratelimit --service envoyproxy --config ratelimit.yaml

  weir-limits limitador envoy.yaml > limits.yaml
  weir-ratelimit --service limitador --redis redis://127.0.0.1:6379/1 --config limits.yaml --listen 127.0.0.1:8081

Exit status: 0 after an interrupt, 1 when it cannot start, 2 for wrong arguments.")]
struct Options {
    /// Whose decisions it makes
    #[arg(long)]
    service: limits::Service,
    /// Where it counts
    #[arg(long, value_name = "URL", default_value = "redis://127.0.0.1:6379")]
    redis: String,
    /// The service's own configuration, in YAML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where it listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let path = &options.config;
    let yaml = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let service = match options.service {
        limits::Service::Envoyproxy => Service::Envoyproxy(yaml),
        limits::Service::Limitador => Service::Limitador(yaml),
    };
    let server = serve_at(options.listen, &service, &options.redis)?;
    println!("listening on {}, a stand-in for tests", server.address());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::signal::ctrl_c())?;
    println!("{} calls", server.calls());
    Ok(())
}
