//! `host-sim check`

use clap::{Args, ValueEnum};
use host_sim::{Flavour, Host, LoadError, LogLevel, LogLine, Module, Plugin, Request, Response, VmName};
use host_sim_cli::failure::Failure;

use super::{Filter, Trace, log_level, print, print_warning};

/// Configures the filter in a VM, sends it a request, and prints what it logs
///
/// Exit code 0 if the filter accepts its configuration and the request, 1 if it does not, 2 if the filter or the
/// configuration cannot be read. With `--hosts all`, 1 if any of the hosts does not accept the filter.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-sim check --wasm filter.wasm --config limits.json
  host-sim check --wasm filter.wasm --config envoy.yaml --plugin limits
  host-sim check --wasm filter.wasm --config limits.json --trace
  host-sim check --wasm filter.wasm --config limits.json --hosts all")]
pub(super) struct Check {
    #[command(flatten)]
    filter: Filter,
    /// Tries the filter in every supported host, and prints a table
    #[arg(long, value_enum, conflicts_with = "host")]
    hosts: Option<Hosts>,
    /// Minimum log level to print: trace, debug, info, warn, error or critical
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    log_level: LogLevel,
    #[command(flatten)]
    trace: Trace,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Hosts {
    /// Every one
    All,
}

impl Check {
    pub(super) fn run(self) -> Result<(), Failure> {
        let filter = self.filter.load()?;
        match self.hosts {
            None => self.try_one(&filter),
            Some(Hosts::All) => self.try_all(&filter),
        }
    }

    /// Configures the filter in a host, which is given back with it.
    fn start(
        &self,
        flavour: Flavour,
        (module, plugin): &(Module, Plugin),
    ) -> Result<Result<Host, LoadError>, Failure> {
        let mut builder = self.filter.builder_of(flavour)?.any_cluster().log_level(self.log_level);
        if let Some(form) = self.trace.trace {
            builder = builder.on_trace(move |callback| {
                // The other VMs get the same callbacks as these.
                if matches!(callback.vm, VmName::Canary | VmName::Worker(_)) {
                    print(form.of(callback));
                }
            });
        }
        let mut host = builder.build();
        Ok(host.load(module, plugin.clone()).map(|()| host))
    }

    fn try_one(&self, filter: &(Module, Plugin)) -> Result<(), Failure> {
        match self.start(self.filter.host, filter)? {
            Ok(host) => {
                print_lines(host.logs().lines().iter().filter(|line| line.vm == VmName::Canary));
                if let Some(failure) = host.worker(0).vm_failure() {
                    return Err(Failure::Missed(format!(
                        "the filter accepts its configuration the first time and not the second: {failure}"
                    )));
                }
                print("OK: configuration accepted");
                let answers = answers(&host);
                host.logs().lines().iter().for_each(print_warning);
                answers.map_err(Failure::Missed)
            }
            Err(LoadError::Refused { plugin, vm, reason, log }) => {
                print_lines(log.iter());
                Err(Failure::Missed(LoadError::Refused { plugin, vm, reason, log: Vec::new() }.to_string()))
            }
            Err(error @ LoadError::Module(_)) => Err(Failure::from(error).of_filter()),
            Err(error) => Err(error.into()),
        }
    }

    fn try_all(&self, filter: &(Module, Plugin)) -> Result<(), Failure> {
        let mut refused = 0;
        for flavour in Flavour::ALL {
            let verdict = match self.start(flavour, filter)? {
                Ok(host) => match host.worker(0).vm_failure() {
                    Some(failure) => Err(failure.to_string()),
                    None => answers(&host),
                },
                Err(LoadError::Refused { reason, .. }) => Err(reason.to_string()),
                Err(error) => Err(Failure::from(error).into_message()),
            };
            print_verdict(&flavour.to_string(), &verdict);
            refused += usize::from(verdict.is_err());
        }
        if refused > 0 {
            return Err(Failure::Missed(format!(
                "{refused} of {} hosts do not take the filter",
                Flavour::ALL.len()
            )));
        }
        Ok(())
    }
}

/// Prints a row of the table of hosts.
fn print_verdict(host: &str, verdict: &Result<(), String>) {
    let (word, why) = match verdict {
        Ok(()) => ("yes", ""),
        Err(why) => ("no", why.as_str()),
    };
    print(format!("{host:<11} {word:<4} {why}").trim_end());
}

/// Whether the filter lives through a request.
fn answers(host: &Host) -> Result<(), String> {
    host.send(Request::get("/"), |_| Response::ok().body("ok"));
    host.worker(0).vm_failure().map_or(Ok(()), |failure| {
        Err(format!("the filter accepts its configuration and fails a request, GET /: {failure}"))
    })
}

fn print_lines<'a>(lines: impl Iterator<Item = &'a LogLine>) {
    for line in lines {
        print(format_args!("[{}] {}", line.level, line.message));
    }
}
