//! What a filter does to its stream: reply, go on, cut.

use bytes::Bytes;

use crate::{
    abi::{Numbered as _, Status, StreamKind},
    hostcalls::guest::{Answer, Guest},
    parameter::Slice,
    state::Deferred,
    wire::{frame::Direction, local_reply::LocalReply, pairs},
};

/// The highest gRPC status that there is (`UNAUTHENTICATED`).
const MAX_GRPC_STATUS: u32 = 16;

pub(super) fn continue_stream(guest: &mut Guest<'_>, stream: u32) -> Answer {
    let kind = StreamKind::of(stream)?;
    let state = guest.state();
    let id = state.context_id();
    let direction = match kind {
        StreamKind::Request => Direction::Request,
        StreamKind::Response => Direction::Response,
        // No connection to go on with.
        StreamKind::Downstream => return Ok(()),
        StreamKind::Upstream => return Err(Status::Unimplemented.into()),
    };
    // Envoy closes the request's maps and body to the guest at once, in whichever direction it continues.
    if let Some(stream) = state.stream(id) {
        stream.request.headers_open = false;
        stream.request.chunk_open = false;
        stream.request.trailers_open = false;
        state.deferred.push_back(Deferred::Continue { stream: id, direction });
    }
    Ok(())
}

pub(super) fn close_stream(guest: &mut Guest<'_>, stream: u32) -> Answer {
    let kind = StreamKind::of(stream)?;
    let state = guest.state();
    let id = state.context_id();
    if matches!(kind, StreamKind::Request | StreamKind::Response) && state.stream(id).is_some() {
        state.deferred.push_back(Deferred::Reset { stream: id });
    }
    Ok(())
}

/// The reply is sent when the callback has returned, and the callback counts as one that stops its stream.
pub(super) fn send_local_response(
    guest: &mut Guest<'_>,
    code: u32,
    details: Slice,
    body: Slice,
    headers: Slice,
    grpc_status: i32,
) -> Answer {
    let (memory, state) = guest.split();
    let details = details.of(memory)?;
    let body = Bytes::copy_from_slice(body.of(memory)?);
    let headers = pairs::decode(headers.of(memory)?);
    let details = String::from_utf8_lossy(details).replace(|c: char| c.is_ascii_whitespace(), "_");
    let (id, flavour) = (state.context_id(), state.shared.flavour);
    let sent = |action: &Deferred| matches!(action, Deferred::LocalReply { stream, .. } if *stream == id);
    let waits = state.deferred.iter().any(sent);
    let (is_grpc, replied) =
        state.stream(id).map_or((false, false), |stream| (stream.is_grpc, stream.replied));
    flavour.check_reply(is_grpc, grpc_status, waits || replied)?;
    state.stop_iteration = true;
    if state.stream(id).is_some() {
        let reply = LocalReply {
            status: code,
            headers,
            body,
            grpc_status: u32::try_from(grpc_status).ok().filter(|status| *status <= MAX_GRPC_STATUS),
            details,
        };
        state.deferred.push_back(Deferred::LocalReply { stream: id, reply });
    }
    Ok(())
}
