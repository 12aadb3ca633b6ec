//! The operators' listener of `envoy/operators.yaml` beside a public one.

use serde_json::{Value, json};

use crate::artifacts;
use crate::client::Client;
use crate::envoy::{Envoy, Setup};
use crate::policy::{self, Policy};

/// Starts an Envoy with both listeners. `policy` makes the operators' configuration of the public one. Returns a client of the operators'
/// listener, too.
///
/// # Panics
/// When the file lacks what is to be replaced, or Envoy does not start.
#[must_use]
pub fn start(setup: Setup, policy: impl FnOnce(Policy) -> Policy) -> (Envoy, Client) {
    let file = policy::yaml("envoy/operators.yaml").unwrap();
    let mut listener = file["static_resources"]["listeners"][0].clone();
    let mut set = |pointer: &str, value: Value| *listener.pointer_mut(pointer).unwrap() = value;
    let wasm = "/filter_chains/0/filters/0/typed_config/http_filters/0/typed_config/config";
    set("/address/socket_address/port_value", json!(0));
    set(&format!("{wasm}/vm_config/code/local/filename"), json!(artifacts::filter_wasm()));
    let public: Value = serde_json::from_str(&setup.configuration()).unwrap();
    set(&format!("{wasm}/configuration/value"), json!(policy(Policy::from(public)).to_string()));
    let envoy = Envoy::start_amended(setup, |bootstrap, _| {
        let listeners = bootstrap.pointer_mut("/static_resources/listeners").unwrap();
        listeners.as_array_mut().unwrap().push(listener);
        Ok(())
    });
    let envoy = envoy.unwrap();
    let operators = Client::to(envoy.listener("operators").unwrap()).unwrap();
    (envoy, operators)
}
