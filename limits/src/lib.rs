//! Turns the filter's configuration into a rate-limit service's.
//!
//! A fleet of gateways leases its quotas from such a service (the configuration's field `fleet`). envoyproxy/ratelimit may take each
//! quota with the request that asks for it; where it is to have them itself, and for Limitador, which always does, this makes the
//! service's file from the one that all gateways have.

mod envoyproxy;
mod error;
mod limitador;
mod quotas;

use envoy_config::configuration;
use filter::config::{Config, FleetSettings, Limits};

pub use self::error::Error;
use self::quotas::Quotas;

/// A service whose configuration is wanted, as arguments name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// envoyproxy/ratelimit, on Redis
    Envoyproxy,
    /// Kuadrant's Limitador, which needs "limits": "configured" and "window_index": true
    Limitador,
}

/// Makes the service's YAML.
///
/// `document` is the filter's configuration in JSON or YAML, or whatever of an Envoy's configuration holds it; where that has several
/// Wasm filters, `plugin` names the one that is meant.
///
/// # Errors
/// When there is no such configuration in `document`, the filter would refuse it, or the service cannot keep what it says.
pub fn convert(service: Service, document: &[u8], plugin: Option<&str>) -> Result<String, Error> {
    let found = configuration::parse(document, plugin)?;
    let config = Config::from_json(&found.configuration)?;
    let fleet = config.fleet.as_ref().ok_or(Error::NoFleet)?;
    match (service, fleet.limits) {
        (Service::Envoyproxy, Limits::Sent) => envoyproxy::domain_only(fleet),
        (Service::Envoyproxy, Limits::Configured) => {
            envoyproxy::tree(fleet, &config, &Quotas::of(&config, fleet))
        }
        (Service::Limitador, Limits::Sent) => Err(Error::LimitsNotSent),
        (Service::Limitador, Limits::Configured) if !fleet.window_index => Err(Error::NoWindowIndex),
        (Service::Limitador, Limits::Configured) => {
            limitador::limits(fleet, &config, &Quotas::of(&config, fleet))
        }
    }
}

/// What every file starts with.
fn heading(fleet: &FleetSettings, service: &str) -> String {
    format!(
        "# {service}: the quotas of Weir's domain {:?}. Made by weir-limits; make it again when the filter's configuration changes.\n",
        fleet.domain
    )
}

/// What a file cannot hold, for those who read it.
fn remarks(config: &Config) -> &'static str {
    if config.directory.is_some() {
        "# Subscribers of the directory that have limits of their own are counted by their plan's: only the configuration's own are here.\n"
    } else {
        ""
    }
}
