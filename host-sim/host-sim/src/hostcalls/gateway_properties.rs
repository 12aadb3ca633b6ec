//! Properties of the upstream and of the gateway's configuration.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    abi::LogLevel,
    lock::lock,
    shared::Shared,
    state::{VmState, stream::StreamContext},
    wire::property::Value,
};

/// A property of the upstream. Of the server itself there is none before the request has gone there.
pub(super) fn of_upstream(stream: &StreamContext, name: &[u8]) -> Option<Value> {
    let progress = stream.progress;
    match name {
        b"address" => Some(progress.upstream?.address.to_string().into()),
        b"port" => Some(i64::from(progress.upstream?.address.port()).into()),
        b"local_address" => Some(progress.upstream?.local_address?.to_string().into()),
        b"locality" => progress.sent.map(|_| Value::Message(Bytes::new(), BTreeMap::new())),
        b"transport_failure_reason" => progress.sent.map(|_| "".into()),
        b"request_attempt_count" => Some(u64::from(progress.sent.is_some()).into()),
        // Each cluster is one server.
        b"num_endpoints" => Some(1_u64.into()),
        _ => None,
    }
}

/// From the request's first byte that went to the upstream to the last that came back.
pub(super) fn backend_latency(stream: &StreamContext) -> Option<Value> {
    let latency = stream.progress.answered?.saturating_sub(stream.progress.sent?);
    Some(Value::Duration(i64::try_from(latency).unwrap_or(i64::MAX)))
}

/// What the configuration of a gateway says where it says nothing: there is one listener, one route, one cluster, none of
/// which has metadata. The cluster and the virtual host always have names, which are not known here.
pub(super) fn of_configuration(stream: &StreamContext, name: &[u8]) -> Option<Value> {
    match name {
        b"route_name" | b"filter_chain_name" => Some("".into()),
        b"listener_direction" => Some(0_i64.into()),
        b"cluster_metadata" | b"route_metadata" | b"virtual_host_metadata" | b"listener_metadata" => {
            let filters = (Bytes::from_static(b"filter_metadata"), Value::Map(BTreeMap::new()));
            Some(Value::Message(Bytes::new(), BTreeMap::from([filters])))
        }
        b"upstream_host_metadata" | b"upstream_host_locality_metadata" => {
            stream.progress.sent.map(|_| Value::Null)
        }
        _ => None,
    }
}

/// Whether a gateway knows a property of this name, which the host does not, by its configuration or by what it stands in
/// front of.
fn is_of_the_gateway(stream: Option<&StreamContext>, first: &[u8], name: &[u8]) -> bool {
    let Some(stream) = stream else { return first == b"xds" && name == b"node" };
    let routed = stream.progress.sent.is_some();
    match first {
        b"upstream" => {
            routed && matches!(name, b"address" | b"port" | b"local_address" | b"cx_pool_ready_duration")
        }
        b"xds" => matches!(name, b"node" | b"cluster_name" | b"virtual_host_name"),
        _ => false,
    }
}

/// Whether a property depends on what the host was told that it does not know.
pub(super) fn is_undecided(shared: &Shared, parts: &[&[u8]]) -> bool {
    parts.get(..2).is_some_and(|name| shared.undecided.contains(&name.join(&0)))
}

/// Warns, once for each, of a property that a gateway knows and the host does not.
pub(super) fn tell_unknown(state: &mut VmState, parts: &[&[u8]]) {
    let [first, name, ..] = parts else { return };
    let undecided = is_undecided(&state.shared, parts);
    let stream = state.current_stream();
    let undecided = undecided && stream.is_some();
    if !undecided && !is_of_the_gateway(stream.as_deref(), first, name) {
        return;
    }
    let name = parts.iter().map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join(".");
    let mut told = lock(&state.shared.unknown_properties);
    if told.insert(name.clone()) {
        let message = format!(
            "the property {name} is a gateway's and not known here: give it a value (--property, `properties` of a \
             scenario, Builder::property, Request::property)"
        );
        state.shared.logs.tell(LogLevel::Warn, state.name, message);
    }
}
