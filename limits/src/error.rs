//! Why there is no configuration of a service.

use envoy_config::ConfigurationError;
use filter::config::ConfigError;

/// Why there is no configuration of a service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The document holds no filter's configuration, or several.
    #[error(transparent)]
    Document(#[from] ConfigurationError),
    /// The filter would refuse its configuration.
    #[error("the filter's configuration: {0}")]
    Filter(#[from] ConfigError),
    /// There is no field `fleet`.
    #[error("the filter's configuration has no field \"fleet\", so the gateways ask no rate-limit service")]
    NoFleet,
    /// Limitador's limits are its own.
    #[error("fleet.limits: Limitador takes no limits from requests; set \"limits\": \"configured\"")]
    LimitsNotSent,
    /// Limitador's windows start anywhere.
    #[error(
        "fleet.window_index: Limitador's windows start at their first hit and not on the minute; set \"window_index\": true, and each window is a counter of its own"
    )]
    NoWindowIndex,
    /// The service's configuration could not be written.
    #[error("YAML: {0}")]
    Yaml(String),
}
