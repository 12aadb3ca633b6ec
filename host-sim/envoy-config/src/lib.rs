//! Finds proxy-wasm filters and their configuration in whatever holds them: Envoy bootstraps, files of xDS resources, manifests of
//! Istio and Envoy Gateway, or plain JSON and YAML.
//!
//! ```
//! let document = r#"
//! name: limits
//! vm_config: {vm_id: limits}
//! configuration: {"@type": type.googleapis.com/google.protobuf.StringValue, value: '{"rules": {}}'}
//! "#;
//! let plugin = envoy_config::configuration::parse(document.as_bytes(), None)?;
//! assert_eq!((plugin.name.as_str(), plugin.vm_id.as_str()), ("limits", "limits"));
//! assert_eq!(plugin.configuration, r#"{"rules": {}}"#);
//! # Ok::<(), envoy_config::ConfigurationError>(())
//! ```

mod any;
pub mod configuration;
mod error;
mod fields;
mod filters;
mod manifest;
pub mod places;
mod plugin;
mod surroundings;
pub mod syntax;
mod way;

pub use error::ConfigurationError;
pub use plugin::{FailurePolicy, Plugin};
pub use surroundings::{Surrounding, surroundings};
pub use way::XdsValue;
