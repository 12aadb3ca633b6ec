//! Buffers: bodies, configurations, callout responses.

use bytes::{Bytes, BytesMut};

use crate::{
    abi::{BufferKind, Status},
    memory::{Answer, Guest, slice},
    state::{Direction, StreamContext, VmState},
};

/// The body that a stream's guest may see: all that is held where it asked for that, else what is new.
fn body(stream: &mut StreamContext, direction: Direction) -> Option<&mut BytesMut> {
    let half = stream.half(direction);
    if half.sees_held { Some(&mut half.held) } else { half.chunk.as_mut() }
}

/// The bytes of a buffer. A stream without a body at hand has an empty one.
fn contents(state: &mut VmState, kind: BufferKind) -> Result<Bytes, Status> {
    match kind {
        BufferKind::RequestBody | BufferKind::ResponseBody => {
            let direction =
                if kind == BufferKind::RequestBody { Direction::Request } else { Direction::Response };
            let stream = state.current_stream().ok_or(Status::NotFound)?;
            Ok(body(stream, direction).map_or_else(Bytes::new, |body| Bytes::copy_from_slice(body)))
        }
        BufferKind::VmConfiguration => Ok(state.plugin.vm_configuration.clone()),
        BufferKind::PluginConfiguration => state
            .current_root()
            .filter(|root| root.configuring)
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
    ptr: u32,
    len: u32,
) -> Answer {
    let kind = BufferKind::from_code(buffer)?;
    let bytes = contents(guest.state(), kind)?;
    let end = start.checked_add(size).ok_or(Status::BadArgument)?;
    let at = |position: u32| usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
    guest.give(&bytes.slice(at(start)..at(end)), ptr, len)
}

pub(super) fn get_buffer_status(guest: &mut Guest<'_>, buffer: u32, len: u32, flags: u32) -> Answer {
    let kind = BufferKind::from_code(buffer)?;
    let size = contents(guest.state(), kind)?.len();
    guest.write_u32(len, u32::try_from(size).unwrap_or(u32::MAX))?;
    Ok(guest.write_u32(flags, 0)?)
}

/// Start 0 and size 0 prepends, start 0 and at least the whole size replaces, a start at the end or beyond appends;
/// nothing else can be done.
pub(super) fn set_buffer_bytes(
    guest: &mut Guest<'_>,
    buffer: u32,
    start: u32,
    size: u32,
    data: u32,
    data_size: u32,
) -> Answer {
    let kind = BufferKind::from_code(buffer)?;
    let (memory, state) = guest.split();
    let direction = match kind {
        BufferKind::RequestBody => Direction::Request,
        BufferKind::ResponseBody => Direction::Response,
        _ => {
            contents(state, kind)?;
            return Err(Status::BadArgument.into());
        }
    };
    let stream = state.current_stream().ok_or(Status::NotFound)?;
    let data = slice(memory, data, data_size)?;
    let body = body(stream, direction).ok_or(Status::BadArgument)?;
    let beyond = |position: u32| usize::try_from(position).is_ok_and(|position| position >= body.len());
    if start == 0 && size == 0 {
        let mut joined = BytesMut::with_capacity(data.len() + body.len());
        joined.extend_from_slice(data);
        joined.extend_from_slice(body);
        *body = joined;
    } else if start == 0 && beyond(size) {
        body.clear();
        body.extend_from_slice(data);
    } else if start > 0 && beyond(start) {
        body.extend_from_slice(data);
    } else {
        return Err(Status::BadArgument.into());
    }
    Ok(())
}
