//! Envoy's own `envoy.filters.http.ratelimit`, which asks the service once for each request: what leases are measured against.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tests::policy;

use crate::gateways::CLUSTER;

/// Where the limit lies that goes with a descriptor.
const METADATA: &str = "fleet.native";
const VIRTUAL_HOST: &str =
    "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0";

/// How the native filter asks. Its descriptors are those of the filter's leases, except for who it is: the header, not a hash.
#[derive(Clone, Debug)]
pub struct Native {
    /// The domain.
    pub domain: String,
    /// Whether a request waits for no service longer than this; Envoy's own default is 20 ms.
    pub timeout: Duration,
    /// Hits in a minute that go with the descriptor, overriding what the service has configured; Envoy reads them from metadata only.
    pub limit: Option<u32>,
}

impl Native {
    /// Asks in `domain`, waiting 250 ms, for limits that the service has.
    #[must_use]
    pub fn of_domain(domain: &str) -> Self {
        Self { domain: domain.to_owned(), timeout: Duration::from_millis(250), limit: None }
    }

    /// With a limit that goes with each descriptor.
    #[must_use]
    pub fn sending(self, requests_per_minute: u32) -> Self {
        Self { limit: Some(requests_per_minute), ..self }
    }

    /// Puts the filter into the place of ours, and has requests described by the route: their class, their window, and their key.
    pub(crate) fn install(&self, bootstrap: &mut Value) -> anyhow::Result<()> {
        let filters = bootstrap.pointer_mut(policy::HTTP_FILTERS).and_then(Value::as_array_mut);
        let filters = filters.context("the bootstrap has no HTTP filters")?;
        let ours = filters.iter().position(|filter| filter["name"] == "weir");
        let ours = ours.context("the bootstrap has no filter named weir")?;
        filters.splice(ours..=ours, self.metadata().into_iter().chain([self.filter()]));
        let host = bootstrap.pointer_mut(VIRTUAL_HOST).context("the bootstrap has no virtual host")?;
        host["rate_limits"] = json!([self.description()]);
        Ok(())
    }

    /// The filter's entry in `http_filters`.
    fn filter(&self) -> Value {
        json!({
            "name": "envoy.filters.http.ratelimit",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
                "domain": self.domain,
                "failure_mode_deny": true,
                "timeout": format!("{}s", self.timeout.as_secs_f64()),
                "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
                "rate_limit_service": {
                    "transport_api_version": "V3",
                    "grpc_service": {"envoy_grpc": {"cluster_name": CLUSTER}},
                },
            },
        })
    }

    /// A filter that puts the limit where the route's `rate_limits` find it.
    fn metadata(&self) -> Option<Value> {
        let limit = self.limit?;
        Some(json!({
            "name": "envoy.filters.http.set_metadata",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
                "metadata": [{
                    "metadata_namespace": METADATA,
                    "value": {"limit": {"requests_per_unit": limit, "unit": "MINUTE"}},
                }],
            },
        }))
    }

    fn description(&self) -> Value {
        let constant = |key: &str, value: &str| json!({"generic_key": {"descriptor_key": key, "descriptor_value": value}});
        let mut description = json!({"actions": [
            constant("class", "standard"),
            constant("window", "minute"),
            {"request_headers": {"header_name": "authorization", "descriptor_key": "who"}},
        ]});
        if self.limit.is_some() {
            let metadata = json!({"metadata_key": {"key": METADATA, "path": [{"key": "limit"}]}});
            description["limit"] = json!({"dynamic_metadata": metadata});
        }
        description
    }
}
