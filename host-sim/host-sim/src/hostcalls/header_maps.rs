//! Header maps: which one a guest may reach depends on the phase of its stream.

use bytes::Bytes;

use crate::{
    abi::{MapKind, Numbered as _, Status},
    hostcalls::guest::{Answer, Guest},
    parameter::{Out32, Slice, SliceOut},
    state::{VmState, stream::StreamContext},
    wire::{
        frame::Direction,
        headers::{Headers, Kind},
        pairs,
    },
};

/// The map to read. `None` where there is none in this phase.
fn readable(state: &mut VmState, kind: MapKind) -> Option<&Headers> {
    match kind {
        MapKind::RequestHeaders => state.current_stream()?.visible_request_headers(),
        MapKind::RequestTrailers => {
            let stream = &*state.current_stream()?;
            stream.request.trailers.as_ref().filter(|_| stream.request.trailers_open && !stream.logging)
        }
        MapKind::ResponseHeaders => state.current_stream()?.visible_response_headers(),
        MapKind::ResponseTrailers => state.current_stream()?.visible_response_trailers(),
        MapKind::GrpcInitialMetadata => state.current_root()?.grpc_initial_metadata.as_ref(),
        MapKind::GrpcTrailingMetadata => state.current_root()?.grpc_trailing_metadata.as_ref(),
        MapKind::CalloutHeaders => Some(&state.current_root()?.callout_response.as_ref()?.headers),
        MapKind::CalloutTrailers => state.current_root()?.callout_response.as_ref()?.trailers.as_ref(),
    }
}

/// The map to change. A stream whose last body callback runs gets trailers when it reaches for them.
fn writable(state: &mut VmState, kind: MapKind) -> Result<&mut Headers, Status> {
    fn of(stream: &mut StreamContext, kind: MapKind) -> Option<&mut Headers> {
        let end_of_stream = stream.end_of_stream;
        let trailers = |stream, direction| {
            let half = StreamContext::half(stream, direction);
            if half.trailers.is_none() && half.chunk.is_some() && half.chunk_open && end_of_stream {
                half.trailers = Some(Headers::of(Kind::of_trailers(direction)));
                half.trailers_open = true;
            }
            half.trailers.as_mut().filter(|_| half.trailers_open)
        };
        match kind {
            MapKind::RequestHeaders => {
                stream.request.headers.as_mut().filter(|_| stream.request.headers_open)
            }
            MapKind::ResponseHeaders => {
                stream.response.headers.as_mut().filter(|_| stream.response.headers_open)
            }
            MapKind::RequestTrailers => trailers(stream, Direction::Request),
            MapKind::ResponseTrailers => trailers(stream, Direction::Response),
            MapKind::CalloutHeaders
            | MapKind::CalloutTrailers
            | MapKind::GrpcInitialMetadata
            | MapKind::GrpcTrailingMetadata => None,
        }
    }
    state.current_stream().and_then(|stream| of(stream, kind)).ok_or(Status::BadArgument)
}

pub(super) fn get_header_map_value(guest: &mut Guest<'_>, map: u32, name: Slice, out: SliceOut) -> Answer {
    let kind = MapKind::of(map)?;
    let (memory, state) = guest.split();
    let name = name.of(memory)?;
    let Some(headers) = readable(state, kind) else {
        let logging = state.current_stream().is_some_and(|stream| stream.logging);
        return Err(if logging { Status::NotFound } else { Status::BadArgument }.into());
    };
    let value = headers.get(name).cloned().ok_or(Status::NotFound)?;
    guest.give(&value, out)
}

/// A change of one entry: its map, name and value.
fn change(
    guest: &mut Guest<'_>,
    map: u32,
    name: Slice,
    value: Slice,
    apply: impl FnOnce(&mut Headers, Bytes, Bytes),
) -> Answer {
    let kind = MapKind::of(map)?;
    let (memory, state) = guest.split();
    let name = Bytes::copy_from_slice(name.of(memory)?);
    let value = Bytes::copy_from_slice(value.of(memory)?);
    apply(writable(state, kind)?, name, value);
    Ok(())
}

pub(super) fn add_header_map_value(guest: &mut Guest<'_>, map: u32, name: Slice, value: Slice) -> Answer {
    change(guest, map, name, value, Headers::append)
}

pub(super) fn replace_header_map_value(guest: &mut Guest<'_>, map: u32, name: Slice, value: Slice) -> Answer {
    change(guest, map, name, value, Headers::set)
}

pub(super) fn remove_header_map_value(guest: &mut Guest<'_>, map: u32, name: Slice) -> Answer {
    change(guest, map, name, Slice::NONE, |headers, name, _| headers.remove(name))
}

fn encode<'a>(pairs: impl ExactSizeIterator<Item = (&'a Bytes, &'a Bytes)>) -> Vec<u8> {
    let pairs: Vec<_> = pairs.map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
    pairs::encode(pairs.into_iter())
}

/// A map that is not available is an empty one here.
pub(super) fn get_header_map_pairs(guest: &mut Guest<'_>, map: u32, out: SliceOut) -> Answer {
    let kind = MapKind::of(map)?;
    let flavour = guest.state().shared.flavour;
    let (as_written, most) = (flavour.keeps_names(), flavour.most_pairs());
    let blob = match readable(guest.state(), kind) {
        Some(headers) if headers.is_empty() => Vec::new(),
        Some(headers) if as_written => encode(headers.as_written().take(most)),
        Some(headers) => encode(headers.iter().take(most)),
        None => Vec::new(),
    };
    guest.give(&blob, out)
}

pub(super) fn set_header_map_pairs(guest: &mut Guest<'_>, map: u32, pairs: Slice) -> Answer {
    let kind = MapKind::of(map)?;
    let (memory, state) = guest.split();
    let pairs = pairs::decode(pairs.of(memory)?);
    let headers = writable(state, kind)?;
    headers.clear();
    pairs.into_iter().for_each(|(name, value)| headers.append(name, value));
    Ok(())
}

pub(super) fn get_header_map_size(guest: &mut Guest<'_>, map: u32, Out32(out): Out32) -> Answer {
    let kind = MapKind::of(map)?;
    let size = writable(guest.state(), kind)?.byte_size();
    Ok(guest.write_u32(out, u32::try_from(size).unwrap_or(u32::MAX))?)
}
