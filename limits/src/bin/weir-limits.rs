//! The command `weir-limits`: a rate-limit service's configuration, made from the filter's.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use limits::{Service, convert};

/// Prints the configuration of the rate-limit service that a fleet of gateways leases its quotas from.
///
/// It is made from the filter's configuration, which has to have the field `fleet`. All enforced quotas of all plans are in it, and
/// those that subscribers have of their own; with "limits": "sent" only the domain, since the quotas come with the requests.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  weir-limits envoyproxy envoy/fleet/envoy.yaml > config/weir.yaml
  weir-limits limitador envoy.yaml --plugin weir > limits.yaml
  kubectl get wasmplugin weir -o jsonpath='{.spec.pluginConfig}' | weir-limits envoyproxy -

Exit status: 0 when it was printed, 1 when the configuration does not allow it (standard error says why), 2 for wrong arguments.")]
struct Options {
    /// Whose configuration
    service: Service,
    /// The filter's configuration, in JSON or YAML, or an Envoy's that holds it; - for standard input
    file: PathBuf,
    /// Which filter, where the file configures several
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without standard error there is nobody left to tell.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let mut document = Vec::new();
    if options.file == Path::new("-") {
        io::stdin().read_to_end(&mut document).context("standard input")?;
    } else {
        document = std::fs::read(&options.file).with_context(|| options.file.display().to_string())?;
    }
    let yaml = convert(options.service, &document, options.plugin.as_deref())
        .with_context(|| options.file.display().to_string())?;
    io::stdout().write_all(yaml.as_bytes()).context("standard output")
}
