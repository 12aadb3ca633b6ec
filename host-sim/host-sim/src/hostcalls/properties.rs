//! Properties of the stream, the connection and the plugin.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::gateway_properties;
use crate::{
    abi::Status,
    hostcalls::guest::{Answer, Guest},
    parameter::{Slice, SliceOut},
    state::{VmState, stream::StateObject, stream::StreamContext},
    wire::{
        grpc::grpc_status_of,
        headers::Headers,
        property::{Value, parts},
    },
};

/// What the names of properties that filters set begin with in the filter state.
pub(super) const OWN: &[u8] = b"wasm.";

/// Maps that do not list their names, so that the whole of one has no encoding.
pub(super) const LISTLESS: [&[u8]; 8] =
    [b"connection", b"destination", b"filter_state", b"request", b"response", b"source", b"upstream", b"xds"];

pub(super) fn get_property(guest: &mut Guest<'_>, path: Slice, out: SliceOut) -> Answer {
    let (memory, state) = guest.split();
    let path = path.of(memory)?;
    let value = find(state, path)?;
    guest.give(&value, out)
}

/// Becomes filter state named `wasm.<path>`, the path taken as it is.
pub(super) fn set_property(guest: &mut Guest<'_>, path: Slice, value: Slice) -> Answer {
    let (memory, state) = guest.split();
    let path = path.of(memory)?;
    if !state.shared.flavour.sets_properties() {
        return Err(Status::NotFound.into());
    }
    let name = [OWN, path].concat();
    let path = path.to_vec();
    let value = Bytes::copy_from_slice(value.of(memory)?);
    let declared = state.current_root().and_then(|root| root.declared_properties.get(&path));
    let readonly = declared.copied().unwrap_or_default();
    let stream = state.current_stream().ok_or(Status::NotFound)?;
    if !stream.filter_state.set(name, StateObject { value, readonly }) {
        return Err(Status::BadArgument.into());
    }
    Ok(())
}

fn find(state: &mut VmState, path: &[u8]) -> Result<Bytes, Status> {
    let value = look_up(state, path).inspect_err(|status| {
        if *status == Status::NotFound {
            gateway_properties::tell_unknown(state, &parts(path));
        }
    })?;
    value.encode()
}

pub(super) fn look_up(state: &mut VmState, path: &[u8]) -> Result<Value, Status> {
    let parts = parts(path);
    // No part selects nothing, and nothing has no encoding.
    let Some((first, rest)) = parts.split_first() else { return Err(Status::SerializationFailure) };
    let shared = Arc::clone(&state.shared);
    let now = shared.clock.monotonic_nanos();
    let vm_plugin = shared.flavour.tells_vm_id().then(|| Arc::clone(&state.plugin));
    let plugin = state.current_root().map(|root| Arc::clone(&root.plugin));

    let stream = state.current_stream();
    let has_stream = stream.is_some();
    if rest.is_empty() && LISTLESS.contains(first) && (has_stream || *first == b"xds") {
        return Err(Status::SerializationFailure);
    }
    let given = stream
        .as_ref()
        .and_then(|stream| given(&stream.peer.properties, path, &parts))
        .or_else(|| given(&shared.properties, path, &parts).filter(|_| has_stream || is_of_roots(&parts)));
    let value = match (given, *first) {
        (Some(value), _) => Some(value),
        (None, _) if gateway_properties::is_undecided(&shared, &parts) => None,
        // Texts have no parts.
        (None, b"plugin_name") if rest.is_empty() => plugin.map(|plugin| plugin.name.clone().into()),
        (None, b"plugin_root_id") if rest.is_empty() => plugin.map(|plugin| plugin.root_id.clone().into()),
        (None, b"plugin_vm_id") if rest.is_empty() => vm_plugin.map(|plugin| plugin.vm_id.clone().into()),
        (None, _) => stream.and_then(|stream| {
            let of_uri = stream.nginx_uri.as_ref().and_then(|uri| uri.property(path));
            of_uri.or_else(|| of_stream(stream, first, rest, now))
        }),
    };
    value.ok_or(Status::NotFound)
}

/// Whether root contexts know what a test gives for a path.
fn is_of_roots(parts: &[&[u8]]) -> bool {
    parts.starts_with(&[&b"xds"[..], b"node"])
}

/// A value that the test gave: for this path, for a shorter one that leads to it, or for longer ones that form a map.
pub(super) fn given(properties: &BTreeMap<Vec<u8>, Value>, path: &[u8], parts: &[&[u8]]) -> Option<Value> {
    if properties.is_empty() {
        return None;
    }
    for length in (1..=parts.len()).rev() {
        if let Some(value) = properties.get(&parts[..length].join(&0)) {
            return value.descend(&parts[length..]).cloned();
        }
    }
    let prefix = [path, &[0]].concat();
    let below = properties.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
    let mut map = BTreeMap::new();
    for (path, value) in below {
        let mut level = &mut map;
        let mut rest = crate::wire::property::parts(&path[prefix.len()..]).into_iter().peekable();
        while let Some(part) = rest.next() {
            let part = Bytes::copy_from_slice(part);
            if rest.peek().is_none() {
                level.insert(part, value.clone());
                break;
            }
            let entry = level.entry(part).or_insert_with(|| Value::Map(BTreeMap::new()));
            let Value::Map(next) = entry else { break };
            level = next;
        }
    }
    (!map.is_empty()).then_some(Value::Map(map))
}

fn of_stream(stream: &StreamContext, first: &[u8], rest: &[&[u8]], now: u64) -> Option<Value> {
    let found = match (first, rest) {
        (b"connection_id", []) => Some(stream.peer.connection_id.into()),
        (b"request", [b"headers", name]) => header(stream.visible_request_headers()?, name),
        (b"response", [b"headers", name]) => header(stream.visible_response_headers()?, name),
        (b"response", [b"trailers", name]) => header(stream.visible_response_trailers()?, name),
        (b"request", [name, rest @ ..]) => {
            of_request(stream, name, now).and_then(|value| value.descend(rest).cloned())
        }
        (b"response", [name, rest @ ..]) => {
            of_response(stream, name).and_then(|value| value.descend(rest).cloned())
        }
        // There is one once there is a connection to the upstream; filters put nothing into it, and it does not list its names.
        (b"upstream_filter_state", []) => stream.progress.sent.map(|_| Value::Null),
        (b"upstream", [name]) => gateway_properties::of_upstream(stream, name),
        (b"xds", [name, rest @ ..]) => {
            gateway_properties::of_configuration(stream, name).and_then(|value| value.descend(rest).cloned())
        }
        (b"connection", [name]) => match *name {
            b"id" => Some(stream.peer.connection_id.into()),
            b"mtls" => Some(false.into()),
            b"requested_server_name" => Some("".into()),
            _ => None,
        },
        (b"metadata", rest) => {
            let empty = |name| (Bytes::from_static(name), Value::Map(BTreeMap::new()));
            let fields = [empty(b"filter_metadata"), empty(b"typed_filter_metadata")];
            Value::Message(Bytes::new(), BTreeMap::from(fields)).descend(rest).cloned()
        }
        (b"source", [name]) => of_address(&stream.peer.source, name),
        (b"destination", [name]) => of_address(&stream.peer.destination, name),
        (b"filter_state", [name, rest @ ..]) => of_state(stream, name, rest),
        _ => None,
    };
    // Any other first name is looked for among what filters have set.
    found.or_else(|| of_state(stream, &[OWN, first].concat(), rest))
}

/// An object of the filter state. It is bytes, which have no fields.
fn of_state(stream: &StreamContext, name: &[u8], rest: &[&[u8]]) -> Option<Value> {
    rest.is_empty().then(|| stream.filter_state.get(name).map(Value::Bytes))?
}

/// `ip:port` and, as an integer, the port.
fn of_address(address: &str, name: &[u8]) -> Option<Value> {
    match name {
        b"address" => Some(address.into()),
        b"port" => Some(address.rsplit_once(':')?.1.parse::<i64>().ok()?.into()),
        _ => None,
    }
}

/// All values of a header, by a name in any case.
fn header(headers: &Headers, name: &[u8]) -> Option<Value> {
    headers.get_joined(name).map(Value::Bytes)
}

/// The names of a map with their values; none where the guest may not see it.
fn map_of(headers: Option<&Headers>) -> Value {
    let names = headers.into_iter().flat_map(Headers::iter).map(|(name, _)| name.clone());
    Value::Map(
        names.filter_map(|name| Some((name.clone(), Value::Bytes(headers?.get_joined(&name)?)))).collect(),
    )
}

/// Bytes of a map; 0 where the guest may not see it.
fn byte_size(headers: Option<&Headers>) -> Value {
    signed(headers.map_or(0, Headers::byte_size) as u64).into()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn of_request(stream: &StreamContext, name: &[u8], now: u64) -> Option<Value> {
    match name {
        b"time" => return Some(Value::Timestamp(signed(stream.started))),
        b"size" => {
            let declared = stream.visible_request_headers().and_then(|headers| headers.get("content-length"));
            return match declared {
                Some(length) => std::str::from_utf8(length).ok()?.parse::<i64>().ok().map(Value::from),
                None => Some(signed(stream.received).into()),
            };
        }
        b"headers" => return Some(map_of(stream.visible_request_headers())),
        b"headers_bytes" => return Some(byte_size(stream.visible_request_headers())),
        b"total_size" => {
            let headers = stream.visible_request_headers().map_or(0, Headers::byte_size);
            return Some(signed(stream.received.saturating_add(headers as u64)).into());
        }
        b"protocol" => return Some(stream.peer.protocol.into()),
        b"duration" => {
            let elapsed = now.saturating_sub(stream.started_monotonic);
            return stream.complete.then(|| Value::Duration(signed(elapsed)));
        }
        _ => {}
    }
    // Everything else is read from the headers, and ends when the guest may no longer reach them.
    let headers = stream.visible_request_headers()?;
    let header = |name: &str| headers.get(name).cloned().map(Value::Bytes);
    match name {
        b"path" => header(":path"),
        b"url_path" => {
            let path = headers.get(":path")?;
            let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
            Some(Value::Bytes(path.slice(..end)))
        }
        b"query" => {
            let path = headers.get(":path")?;
            let end = path.iter().position(|byte| *byte == b'#').unwrap_or(path.len());
            let start = path[..end].iter().position(|byte| *byte == b'?').map_or(end, |at| at + 1);
            Some(Value::Bytes(path.slice(start..end)))
        }
        b"host" => header(":authority"),
        b"scheme" => header(":scheme"),
        b"method" => header(":method"),
        b"referer" => header("referer"),
        b"useragent" => header("user-agent"),
        b"id" => header("x-request-id"),
        _ => None,
    }
}

fn response_code(stream: &StreamContext) -> Option<u16> {
    stream.code.or_else(|| stream.response.headers.as_ref().map(Headers::status))
}

fn of_response(stream: &StreamContext, name: &[u8]) -> Option<Value> {
    match name {
        b"code" => Some(i64::from(response_code(stream)?).into()),
        b"backend_latency" => gateway_properties::backend_latency(stream),
        b"code_details" => stream.details.clone().map(Value::from),
        b"flags" => Some(0_i64.into()),
        b"size" => Some(signed(stream.sent).into()),
        b"total_size" => {
            let of = |headers: Option<&Headers>| headers.map_or(0, Headers::byte_size) as u64;
            let headers = of(stream.visible_response_headers()) + of(stream.visible_response_trailers());
            Some(signed(stream.sent.saturating_add(headers)).into())
        }
        b"headers" => Some(map_of(stream.visible_response_headers())),
        b"headers_bytes" => Some(byte_size(stream.visible_response_headers())),
        b"trailers" => Some(map_of(stream.visible_response_trailers())),
        b"grpc_status" => {
            let of =
                |headers: Option<&Headers>| headers.and_then(|headers| headers.get("grpc-status").cloned());
            let told =
                of(stream.visible_response_trailers()).or_else(|| of(stream.visible_response_headers()));
            match told {
                Some(status) => Some(std::str::from_utf8(&status).ok()?.parse::<i64>().ok()?.into()),
                None => Some(i64::from(grpc_status_of(response_code(stream)?.into())).into()),
            }
        }
        _ => None,
    }
}
