//! What a configuration of Envoy's says beside its Wasm filters, and matters to them.

use serde_json::Value;

use crate::{
    fields::{field, field_of},
    filters,
    way::{self, XdsValue},
};

/// Something that a gateway's configuration says of the gateway.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Surrounding {
    /// `per_connection_buffer_limit_bytes` of the first listener that has a Wasm filter.
    BufferLimit(usize),
    /// `node`, which `xds.node` gives.
    Node(Value),
    /// Of the way of requests, what `xds.<name>` gives.
    Xds {
        /// The property's name.
        name: &'static str,
        /// What it gives.
        value: XdsValue,
    },
}

/// What a document says of its gateway: nothing, if it is no configuration of Envoy's.
pub fn surroundings(bytes: &[u8]) -> Vec<Surrounding> {
    let json: Option<Value> = serde_json::from_slice(bytes).ok();
    let Some(document) = json.or_else(|| serde_saphyr::from_slice(bytes).ok()) else { return Vec::new() };
    if !filters::is_of_envoy(&document) {
        return Vec::new();
    }
    let node = field_of(Some(&document), "node").cloned().map(Surrounding::Node);
    let limit = buffer_limit(&document).map(Surrounding::BufferLimit);
    let way = way::of(&document).into_iter().map(|(name, value)| Surrounding::Xds { name, value });
    limit.into_iter().chain(node).chain(way).collect()
}

fn buffer_limit(document: &Value) -> Option<usize> {
    let listener = way::with_filter(document, "filter_chains")?;
    let limit = field(listener, "per_connection_buffer_limit_bytes")?.as_u64()?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bootstrap_tells_of_its_gateway() {
        let listener = |limit: &str| {
            format!(
                r#"{{"node": {{"id": "n"}}, "staticResources": {{"listeners": [{{{limit} "filter_chains":
                    [{{"@type": "x/envoy.extensions.filters.http.wasm.v3.Wasm", "config": {{}}}}]}}]}}}}"#
            )
        };
        let node = Surrounding::Node(serde_json::json!({"id": "n"}));
        let given = surroundings(listener(r#""perConnectionBufferLimitBytes": 1024,"#).as_bytes());
        assert_eq!(given[..2], [Surrounding::BufferLimit(1024), node.clone()]);
        let given = surroundings(listener("").as_bytes());
        assert_eq!(given[0], node);
        let direction = Surrounding::Xds { name: "listener_direction", value: XdsValue::Number(0) };
        assert_eq!(given[1], direction);
        assert!(surroundings(b"{\"node\": {\"id\": \"a filter's own\"}}").is_empty());
    }
}
