//! `host-sim check`

use clap::{Args, ValueEnum};
use host_sim::{Flavour, Host, LoadError, LogLevel, LogLine, Module, Plugin, Request, Response, VmName};
use host_sim_cli::failure::Failure;

use serde_json::json;

use super::{Filter, Form, Trace, log_level, print, print_warning};

/// Configures the filter in a VM, sends it a request, and prints what it logs
///
/// Before that it prints the module's ABI, what the module imports and what it exports.
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
    /// The form of what is found
    #[arg(long, value_enum, default_value = "text")]
    format: Form,
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
        let (log, error) = match self.start(self.filter.host, filter)? {
            Ok(host) => {
                let lines = || host.logs().lines().into_iter();
                let log = lines().filter(|line| line.vm == VmName::Canary).collect();
                let error = match host.worker(0).vm_failure() {
                    Some(failure) => Some(format!(
                        "the filter accepts its configuration the first time and not the second: {failure}"
                    )),
                    None => answers(&host).err(),
                };
                lines().for_each(|line| print_warning(&line));
                (log, error)
            }
            Err(LoadError::Refused { plugin, vm, reason, log }) => {
                let error = LoadError::Refused { plugin, vm, reason, log: Vec::new() }.to_string();
                (log, Some(error))
            }
            Err(error @ LoadError::Module(_)) => return Err(Failure::from(error).of_filter()),
            Err(error) => return Err(error.into()),
        };
        self.tell(&filter.0, &log, error.as_deref());
        error.map_or(Ok(()), |error| Err(Failure::Missed(error)))
    }

    /// Prints what the module is, what it has logged, and what is wrong.
    fn tell(&self, module: &Module, log: &[LogLine], error: Option<&str>) {
        let (imports, exports) = (module.imports(), module.exports());
        if self.format == Form::Json {
            let line = |line: &LogLine| json!({ "level": line.level.name(), "message": line.message });
            let log: Vec<_> = log.iter().map(line).collect();
            let (abi, ok) = (module.abi().to_string(), error.is_none());
            return print(format_args!(
                "{:#}",
                json!({ "ok": ok, "error": error, "abi": abi, "imports": imports, "exports": exports, "log": log })
            ));
        }
        print(format_args!("ABI {}", module.abi()));
        print(format_args!("imports: {}", imports.join(", ")));
        print(format_args!("exports: {}", exports.join(", ")));
        for line in log {
            print(format_args!("[{}] {}", line.level, line.message));
        }
        if error.is_none() {
            print("OK: configuration accepted");
        }
    }

    fn try_all(&self, filter: &(Module, Plugin)) -> Result<(), Failure> {
        let mut verdicts = Vec::new();
        for flavour in Flavour::ALL {
            let verdict = match self.start(flavour, filter)? {
                Ok(host) => match host.worker(0).vm_failure() {
                    Some(failure) => Err(failure.to_string()),
                    None => answers(&host),
                },
                Err(LoadError::Refused { reason, .. }) => Err(reason.to_string()),
                Err(error) => Err(Failure::from(error).into_message()),
            };
            verdicts.push((flavour.to_string(), verdict.err()));
        }
        let refused = verdicts.iter().filter(|(_, why)| why.is_some()).count();
        if self.format == Form::Json {
            let host = |(host, why): &(String, Option<String>)| json!({ "host": host, "ok": why.is_none(), "error": why });
            let hosts: Vec<_> = verdicts.iter().map(host).collect();
            print(format_args!("{:#}", json!({ "ok": refused == 0, "hosts": hosts })));
        } else {
            for (host, why) in &verdicts {
                let word = if why.is_none() { "yes" } else { "no" };
                print(format!("{host:<11} {word:<4} {}", why.as_deref().unwrap_or_default()).trim_end());
            }
        }
        if refused > 0 {
            return Err(Failure::Missed(format!(
                "{refused} of {} hosts do not take the filter",
                verdicts.len()
            )));
        }
        Ok(())
    }
}

/// Whether the filter lives through a request.
fn answers(host: &Host) -> Result<(), String> {
    host.send(Request::get("/"), |_| Response::ok().body("ok"));
    host.worker(0).vm_failure().map_or(Ok(()), |failure| {
        Err(format!("the filter accepts its configuration and fails a request, GET /: {failure}"))
    })
}
