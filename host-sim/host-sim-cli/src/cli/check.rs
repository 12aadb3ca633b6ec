//! `host-sim check`

use clap::Args;
use host_sim::{Host, LoadError, LogLine, VmName};

use super::{Error, Filter, Level, load, print};

/// Configures the filter in a VM and prints what it logs
///
/// Exit code 0 when the filter takes its configuration, 1 when it refuses it, 2 when there is no filter to try.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-sim check --wasm filter.wasm --config limits.json
  host-sim check --wasm filter.wasm --config envoy.yaml --plugin limits")]
pub(super) struct Check {
    #[command(flatten)]
    filter: Filter,
    /// The least serious lines to print
    #[arg(long, value_enum, default_value = "info")]
    log_level: Level,
}

impl Check {
    pub(super) fn run(self) -> Result<(), Error> {
        let chain = self.filter.chain()?;
        let mut host = Host::builder().log_level(self.log_level.into()).build();
        match load(&mut host, &chain) {
            Ok(()) => {
                print_lines(host.logs().lines().iter().filter(|line| line.vm == VmName::Canary));
                match host.vm_failure(0) {
                    None => {
                        print("the filter takes its configuration");
                        Ok(())
                    }
                    Some(failure) => Err(Error::Missed(format!(
                        "the filter takes its configuration the first time and not the second: {failure}"
                    ))),
                }
            }
            Err(LoadError::Refused { plugin, vm, reason, log }) => {
                print_lines(log.iter());
                Err(Error::Missed(LoadError::Refused { plugin, vm, reason, log: Vec::new() }.to_string()))
            }
            Err(error) => Err(Error::failed(&error)),
        }
    }
}

fn print_lines<'a>(lines: impl Iterator<Item = &'a LogLine>) {
    for line in lines {
        print(format_args!("[{}] {}", line.level, line.message));
    }
}
