//! HTTP calls of the filter to clusters.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    abi::{Status, slice},
    hostcalls::guest::{Answer, Guest},
    parameter::{Out32, Slice},
    state::{VmState, callouts::CallKind},
    wire::{
        callout::{CallId, Callout},
        headers::{Headers, Kind},
        message::Request,
        pairs,
    },
};

/// Tokens go up in steps of four, as the low bits tell the kind of call.
const TOKEN_STEP: u32 = 4;

/// A token that no call of this VM has had, or, after 2^30 calls, none has for long.
pub(super) fn next_token(state: &mut VmState, kind: CallKind) -> u32 {
    let last = &mut state.callouts.last_token[kind as usize];
    *last = last.wrapping_add(TOKEN_STEP).max(TOKEN_STEP);
    *last | kind as u32
}

/// What the gateway says of itself in a call.
pub(super) fn add_own(headers: &mut Headers, timeout: u64) {
    headers.set("x-envoy-internal", "true");
    if timeout > 0 {
        headers.set("x-envoy-expected-rq-timeout-ms", timeout.to_string());
    }
}

pub(super) fn http_call(
    guest: &mut Guest<'_>,
    cluster: Slice,
    headers: Slice,
    body: Slice,
    trailers: Slice,
    timeout: i32,
    Out32(token_out): Out32,
) -> Answer {
    let (memory, state) = guest.split();
    let cluster = String::from_utf8_lossy(cluster.of(memory)?).into_owned();
    let body = Bytes::copy_from_slice(body.of(memory)?);
    let headers: Headers = pairs::decode(headers.of(memory)?).into_iter().collect();
    let mut headers = headers.into_kind(Kind::Request);
    let trailers = pairs::decode(trailers.of(memory)?);
    // The token is written first, so that a bad pointer is found before anything is sent.
    slice(memory, token_out, 4)?;

    let known = state.shared.knows_cluster(&cluster);
    let complete = [":path", ":method", ":authority"].iter().all(|name| headers.get(name).is_some());
    let Some(timeout) = u64::try_from(timeout).ok().filter(|_| known && complete) else {
        guest.write_u32(token_out, 0)?;
        return Err(Status::BadArgument.into());
    };

    if !body.is_empty() {
        headers.set("content-length", body.len().to_string());
    }
    add_own(&mut headers, timeout);
    let mut request = Request::from_headers(headers).body(body);
    request.trailers = (!trailers.is_empty()).then(|| trailers.into_iter().collect());

    let token = next_token(state, CallKind::Http);
    let root = state.root_id();
    state.callouts.open.insert(token, root);
    state.callouts.started.push_back(Callout {
        call: CallId { generation: state.generation, token },
        is_grpc: false,
        cluster,
        request,
        timeout: (timeout > 0).then(|| Duration::from_millis(timeout)),
    });
    Ok(guest.write_u32(token_out, token)?)
}
