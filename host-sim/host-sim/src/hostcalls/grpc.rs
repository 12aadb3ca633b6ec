//! gRPC calls and streams of the filter to clusters.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::callouts::{add_own, next_token};
use crate::{
    abi::Status,
    hostcalls::guest::{Answer, Guest, Refusal},
    parameter::{Out32, Slice},
    state::{
        Deferred, VmState,
        callouts::{CallKind, OpenStream},
    },
    wire::{
        callout::{CallId, Callout, GrpcOrder, GrpcStep},
        grpc,
        headers::Headers,
        message::Request,
        pairs,
    },
};

/// `GrpcService`
#[derive(Message)]
struct GrpcService {
    #[prost(message, optional, tag = "1")]
    envoy_grpc: Option<EnvoyGrpc>,
}

/// `GrpcService.EnvoyGrpc`
#[derive(Message)]
struct EnvoyGrpc {
    #[prost(string, tag = "1")]
    cluster_name: String,
}

/// The cluster of a service: named in a `GrpcService` message, or by the bytes themselves.
fn cluster(state: &VmState, service: &[u8]) -> Result<String, Status> {
    match GrpcService::decode(service) {
        // A service without a cluster of Envoy's: there is no client for it.
        Ok(GrpcService { envoy_grpc }) => envoy_grpc
            .map(|service| service.cluster_name)
            .filter(|name| !name.is_empty())
            .ok_or(Status::BadArgument),
        Err(_) => {
            let name = String::from_utf8_lossy(service).into_owned();
            if state.shared.knows_cluster(&name) { Ok(name) } else { Err(Status::ParseFailure) }
        }
    }
}

fn request(cluster: &str, service: &[u8], method: &[u8], metadata: Vec<(Bytes, Bytes)>) -> Request {
    let path = [b"/", service, b"/", method].concat();
    let pseudo: [(&'static str, Bytes); 6] = [
        (":method", Bytes::from_static(b"POST")),
        (":path", path.into()),
        (":authority", cluster.to_owned().into()),
        (":scheme", Bytes::from_static(b"http")),
        ("te", Bytes::from_static(b"trailers")),
        ("content-type", Bytes::from_static(b"application/grpc")),
    ];
    let mut headers: Headers = pseudo.into_iter().collect();
    for (name, value) in metadata {
        headers.append(name, value);
    }
    Request::from_headers(headers)
}

/// What a call and a stream begin with: a token, the service's cluster, and the request to it. A cluster that there is not closes the
/// call. The slices are the service's target, its name, the method and the metadata.
fn open(guest: &mut Guest<'_>, kind: CallKind, slices: [Slice; 4]) -> Result<(u32, String, Request), Status> {
    let (memory, state) = guest.split();
    let [target, name, method, metadata] = slices.map(|slice| slice.of(memory));
    let (target, name, method) = (target?, name?, method?);
    let metadata = pairs::decode(metadata?);
    let cluster = cluster(state, target)?;
    let request = request(&cluster, name, method, metadata);
    let token = next_token(state, kind);
    if !state.shared.knows_cluster(&cluster) {
        let root = state.root_id();
        state.deferred.push_back(Deferred::CloseGrpc { root, token, why: "Cluster not available" });
        return Err(Status::InternalFailure);
    }
    Ok((token, cluster, request))
}

#[expect(clippy::too_many_arguments, reason = "the ABI's own")]
pub(super) fn grpc_call(
    guest: &mut Guest<'_>,
    service: Slice,
    name: Slice,
    method: Slice,
    metadata: Slice,
    message: Slice,
    timeout: u32,
    Out32(token_out): Out32,
) -> Answer {
    let message = grpc::frame(message.of(guest.split().0)?);
    let (token, cluster, request) = open(guest, CallKind::Grpc, [service, name, method, metadata])?;
    let mut request = request.body(message).header("grpc-timeout", format!("{timeout}m"));
    add_own(&mut request.headers, timeout.into());
    let state = guest.state();
    let root = state.root_id();
    state.callouts.open.insert(token, root);
    let timeout = (timeout > 0).then(|| Duration::from_millis(timeout.into()));
    let call = CallId { generation: state.generation, token };
    state.callouts.started.push_back(Callout { call, is_grpc: true, cluster, request, timeout });
    Ok(guest.write_u32(token_out, token)?)
}

pub(super) fn grpc_stream(
    guest: &mut Guest<'_>,
    service: Slice,
    name: Slice,
    method: Slice,
    metadata: Slice,
    Out32(token_out): Out32,
) -> Answer {
    let slices = [service, name, method, metadata];
    let (token, cluster, mut request) = open(guest, CallKind::GrpcStream, slices)?;
    add_own(&mut request.headers, 0);
    let state = guest.state();
    let root = state.root_id();
    state.callouts.streams.insert(token, OpenStream { root, local_closed: false, remote_closed: false });
    order(state, token, GrpcStep::Open { cluster, request: Box::new(request) });
    Ok(guest.write_u32(token_out, token)?)
}

fn order(state: &mut VmState, token: u32, step: GrpcStep) {
    let call = CallId { generation: state.generation, token };
    state.callouts.grpc_orders.push_back(GrpcOrder { call, step });
}

pub(super) fn grpc_send(guest: &mut Guest<'_>, token: u32, message: Slice, end: u32) -> Answer {
    let (memory, state) = guest.split();
    let message = grpc::frame(message.of(memory)?);
    if CallKind::of(token) != Some(CallKind::GrpcStream) {
        return Err(Status::BadArgument.into());
    }
    let stream = state.callouts.streams.get(&token).ok_or(Status::NotFound)?;
    if !stream.local_closed {
        order(state, token, GrpcStep::Send { message, end: end != 0 });
    }
    Ok(())
}

/// Takes a unary call away.
fn cancel_call(state: &mut VmState, token: u32) -> Answer {
    state.callouts.open.remove(&token).map(|_| ()).ok_or(Refusal::Status(Status::NotFound))
}

pub(super) fn grpc_cancel(guest: &mut Guest<'_>, token: u32) -> Answer {
    let state = guest.state();
    match CallKind::of(token) {
        Some(CallKind::Grpc) => cancel_call(state, token),
        Some(CallKind::GrpcStream) => {
            state.callouts.streams.remove(&token).ok_or(Status::NotFound)?;
            order(state, token, GrpcStep::Reset);
            Ok(())
        }
        Some(CallKind::Http) | None => Err(Status::BadArgument.into()),
    }
}

pub(super) fn grpc_close(guest: &mut Guest<'_>, token: u32) -> Answer {
    let state = guest.state();
    match CallKind::of(token) {
        Some(CallKind::Grpc) => cancel_call(state, token),
        Some(CallKind::GrpcStream) => {
            let stream = state.callouts.streams.get_mut(&token).ok_or(Status::NotFound)?;
            if stream.remote_closed {
                state.callouts.streams.remove(&token);
            } else {
                stream.local_closed = true;
            }
            order(state, token, GrpcStep::Close);
            Ok(())
        }
        Some(CallKind::Http) | None => Err(Status::BadArgument.into()),
    }
}
