//! What names stand for in expressions: the properties that there are at the time.

use std::collections::BTreeMap;

use bytes::Bytes;
use cel::Value as Cel;

use super::{
    expression_values::{map_of, to_cel},
    properties::{OWN, given, look_up},
};
use crate::{
    state::{VmState, filter_state::StateValue},
    wire::property::Value,
};

/// An object of the filter state, as expressions see it.
fn cel_of_state(value: StateValue) -> Option<Cel> {
    Some(match value {
        StateValue::Bytes(bytes) => bytes.to_vec().into(),
        StateValue::Text(bytes) => to_cel(Value::Bytes(bytes)),
        StateValue::Address(address) => map_of([
            (Bytes::from_static(b"ip"), address.ip().to_string().into()),
            (Bytes::from_static(b"port"), Cel::Int(address.port().into())),
        ]),
        StateValue::Hidden => return None,
    })
}

/// Properties that expressions find by name under the first; all that there are at the time.
const NAMES: [(&str, &str); 7] = [
    ("connection", "id mtls"),
    ("destination", "address port"),
    (
        "request",
        "duration headers host id method path protocol query referer scheme size time total_size url_path \
         useragent",
    ),
    ("response", "backend_latency code code_details flags grpc_status headers size trailers"),
    ("source", "address port"),
    (
        "upstream",
        "address local_address locality num_endpoints port request_attempt_count transport_failure_reason",
    ),
    (
        "xds",
        "cluster_metadata cluster_name filter_chain_name listener_direction listener_metadata node \
         route_metadata route_name upstream_host_metadata virtual_host_metadata virtual_host_name",
    ),
];

/// What a name stands for in an expression, for the context whose callback runs.
pub(super) fn variable(state: &mut VmState, name: &str) -> Option<Cel> {
    let effective = std::mem::take(&mut state.effective);
    let value = variable_of_current(state, name);
    state.effective = effective;
    value
}

fn variable_of_current(state: &mut VmState, name: &str) -> Option<Cel> {
    let stream = state.current_stream();
    let filter_state = stream.as_ref().map(|stream| stream.filter_state.clone());
    let given = stream.and_then(|stream| given(&stream.peer.properties, name.as_bytes(), &[name.as_bytes()]));
    let mut found = BTreeMap::new();
    if let Some(Value::Map(given)) = given {
        found = given;
    } else if let Some(given) = given {
        return Some(to_cel(given));
    }
    if let Some((_, names)) = NAMES.iter().find(|(first, _)| *first == name) {
        filter_state?;
        for part in names.split(' ') {
            if let Ok(value) = look_up(state, &[name.as_bytes(), part.as_bytes()].join(&0)) {
                found.entry(Bytes::from_static(part.as_bytes())).or_insert(value);
            }
        }
        return Some(to_cel(Value::Map(found)));
    }
    match name {
        "filter_state" => {
            let objects = filter_state?.all().into_iter();
            Some(map_of(objects.filter_map(|(name, value)| Some((name, cel_of_state(value)?)))))
        }
        "metadata" => {
            filter_state?;
            found.entry(Bytes::from_static(b"filter_metadata")).or_insert(Value::Map(BTreeMap::new()));
            Some(to_cel(Value::Map(found)))
        }
        "plugin_name" | "plugin_root_id" | "plugin_vm_id" | "connection_id" => {
            look_up(state, name.as_bytes()).ok().map(to_cel)
        }
        _ if !found.is_empty() => Some(to_cel(Value::Map(found))),
        _ => cel_of_state(filter_state?.get(&[OWN, name.as_bytes()].concat())?),
    }
}
