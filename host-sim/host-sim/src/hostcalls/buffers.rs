//! Buffers: bodies, configurations, callout responses.

use bytes::{Bytes, BytesMut};

use crate::{
    abi::{BufferKind, Numbered as _, Status},
    hostcalls::guest::{Answer, Guest},
    parameter::{Out32, Slice, SliceOut},
    state::{VmState, stream::StreamContext},
    wire::frame::Direction,
};

/// The body that a stream's guest may see: all that is held where it asked for that, else what is new.
fn body(stream: &mut StreamContext, direction: Direction) -> Option<&mut BytesMut> {
    let half = stream.half(direction);
    if half.sees_held { Some(&mut half.held) } else { half.chunk.as_mut().filter(|_| half.chunk_open) }
}

/// The bytes of a buffer. Where no body is at hand it is empty.
fn contents(state: &mut VmState, kind: BufferKind) -> Result<Bytes, Status> {
    match kind {
        BufferKind::RequestBody | BufferKind::ResponseBody => {
            let direction =
                if kind == BufferKind::RequestBody { Direction::Request } else { Direction::Response };
            let body = state.current_stream().and_then(|stream| body(stream, direction));
            Ok(body.map_or_else(Bytes::new, |body| Bytes::copy_from_slice(body)))
        }
        BufferKind::VmConfiguration => Ok(state.plugin.vm_configuration.clone()),
        BufferKind::PluginConfiguration => state
            .current_root()
            .filter(|root| root.configuration_open)
            .map(|root| root.plugin.configuration.clone())
            .ok_or(Status::NotFound),
        BufferKind::CalloutBody => state
            .current_root()
            .and_then(|root| root.callout_response.as_ref())
            .map(|response| response.body.clone())
            .ok_or(Status::NotFound),
        BufferKind::GrpcMessage => {
            Ok(state.current_root().and_then(|root| root.grpc_message.clone()).unwrap_or_default())
        }
        // Streams of connections do not exist here, and neither do calls that pass data.
        BufferKind::DownstreamData | BufferKind::UpstreamData | BufferKind::CallData => Ok(Bytes::new()),
    }
}

pub(super) fn get_buffer_bytes(
    guest: &mut Guest<'_>,
    buffer: u32,
    start: u32,
    size: u32,
    out: SliceOut,
) -> Answer {
    let kind = BufferKind::of(buffer)?;
    let bytes = contents(guest.state(), kind)?;
    let at = |position: u32| usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
    guest.give(&bytes.slice(at(start)..at(start.saturating_add(size))), out)
}

pub(super) fn get_buffer_status(
    guest: &mut Guest<'_>,
    buffer: u32,
    Out32(length): Out32,
    Out32(flags): Out32,
) -> Answer {
    let kind = BufferKind::of(buffer)?;
    let size = contents(guest.state(), kind)?.len();
    guest.write_u32(length, u32::try_from(size).unwrap_or(u32::MAX))?;
    Ok(guest.write_u32(flags, 0)?)
}

/// At start 0 the data takes the place of the first `size` bytes; at the end or beyond it is appended. Nothing else can
/// be done.
pub(super) fn set_buffer_bytes(
    guest: &mut Guest<'_>,
    buffer: u32,
    start: u32,
    size: u32,
    data: Slice,
) -> Answer {
    let kind = BufferKind::of(buffer)?;
    let (memory, state) = guest.split();
    contents(state, kind)?;
    let data = data.of(memory)?;
    let direction = match kind {
        BufferKind::RequestBody => Direction::Request,
        BufferKind::ResponseBody => Direction::Response,
        _ => return Err(Status::BadArgument.into()),
    };
    let body =
        state.current_stream().and_then(|stream| body(stream, direction)).ok_or(Status::BadArgument)?;
    let at = usize::try_from(start).unwrap_or(usize::MAX);
    if start == 0 {
        let replaced = usize::try_from(size).unwrap_or(usize::MAX).min(body.len());
        let mut joined = BytesMut::with_capacity(data.len() + body.len() - replaced);
        joined.extend_from_slice(data);
        joined.extend_from_slice(&body[replaced..]);
        *body = joined;
    } else if at >= body.len() {
        body.extend_from_slice(data);
    } else {
        return Err(Status::BadArgument.into());
    }
    Ok(())
}
