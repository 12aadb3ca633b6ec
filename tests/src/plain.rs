//! An Envoy without the filter, in front of a gateway or of the directory.

use std::net::SocketAddr;

use anyhow::Context as _;
use serde_json::Value;

use crate::envoy::{Envoy, Setup, Upstream};
use crate::policy::{HTTP_FILTERS, Policy};

/// JSON pointer to the action of the bootstrap's only route.
pub const ROUTE: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes/0/route";

/// Starts it in front of `upstream`. Its route has the fields of `route` as well.
///
/// # Errors
/// As [`Envoy::start`].
pub fn envoy(upstream: SocketAddr, route: &Value) -> anyhow::Result<Envoy> {
    let setup = Setup::new(Policy::contract()?, Upstream::At(upstream)).workers(1);
    Envoy::start_amended(setup, |bootstrap, _| {
        let filters = bootstrap.pointer_mut(HTTP_FILTERS).and_then(Value::as_array_mut);
        filters.context("no filters")?.retain(|filter| filter["name"] == "envoy.filters.http.router");
        add_to_route(bootstrap, route)
    })
}

/// Adds fields to the action of the bootstrap's only route.
///
/// # Errors
/// When there is no such route.
pub fn add_to_route(bootstrap: &mut Value, fields: &Value) -> anyhow::Result<()> {
    let route = bootstrap.pointer_mut(ROUTE).and_then(Value::as_object_mut).context("no route")?;
    route.extend(fields.as_object().cloned().unwrap_or_default());
    Ok(())
}
