//! Functions that Envoy offers by name (`source/extensions/common/wasm/foreign.cc`).

use std::{
    collections::btree_map::Entry,
    io::{Read as _, Write as _},
};

use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use prost::Message;

use crate::{
    abi::Status,
    hostcalls::guest::{Answer, Guest},
    parameter::{Slice, SliceOut},
    state::Context,
};

/// Names that do their work.
#[cfg(test)]
pub(super) const SUPPORTED: &[&str] = &["clear_route_cache", "compress", "declare_property", "uncompress"];

/// Names that Envoy knows, and that trap here.
pub(super) const UNSUPPORTED: &[&str] =
    &["expr_create", "expr_delete", "expr_evaluate", "set_envoy_filter_state", "sign", "verify_signature"];

pub(super) fn call_foreign_function(
    guest: &mut Guest<'_>,
    name: Slice,
    arguments: Slice,
    out: SliceOut,
) -> Answer {
    let (memory, state) = guest.split();
    let name = String::from_utf8_lossy(name.of(memory)?).into_owned();
    let arguments = arguments.of(memory)?;
    let result = match name.as_str() {
        // There are no routes here, so their cache is always clear.
        "clear_route_cache" => Vec::new(),
        "compress" => compress(arguments).map_err(|_| Status::SerializationFailure)?,
        "uncompress" => {
            uncompress(arguments, state.shared.memory_limit).ok_or(Status::SerializationFailure)?
        }
        "declare_property" => {
            let arguments = arguments.to_vec();
            declare_property(guest, &arguments)?;
            Vec::new()
        }
        name if UNSUPPORTED.contains(&name) => {
            return Err(wasmtime::Error::msg(format!("host function not supported: {name}")).into());
        }
        _ => return Err(Status::NotFound.into()),
    };
    // A guest that wants no result gives no pointers.
    let size = u32::try_from(result.len()).map_err(|_| Status::InvalidMemoryAccess)?;
    if out.at != 0 {
        let address = if result.is_empty() { 0 } else { guest.place(&result)? };
        guest.write_u32(out.at, address)?;
    }
    if out.length != 0 {
        guest.write_u32(out.length, size)?;
    }
    Ok(())
}

fn compress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// `None` for what is no zlib stream, or more than a guest could take.
fn uncompress(bytes: &[u8], limit: usize) -> Option<Vec<u8>> {
    let limit = u64::try_from(limit).ok()?;
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(bytes).take(limit.saturating_add(1)).read_to_end(&mut plain).ok()?;
    (u64::try_from(read).ok()? <= limit).then_some(plain)
}

/// `DeclarePropertyArguments`. Whatever its kind, a property is bytes here, and the stream is the only span that there is.
#[derive(Message)]
struct DeclareProperty {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bool, tag = "2")]
    readonly: bool,
}

/// Says, once for each context, whether a property can be set again. Only what
/// a root context says counts.
fn declare_property(guest: &mut Guest<'_>, arguments: &[u8]) -> Result<(), Status> {
    let DeclareProperty { name, readonly } =
        DeclareProperty::decode(arguments).map_err(|_| Status::BadArgument)?;
    let state = guest.state();
    let properties = match state.contexts.get_mut(&state.context_id()) {
        Some(Context::Root(root)) => &mut root.declared_properties,
        Some(Context::Stream(stream)) => &mut stream.declared_properties,
        None => return Err(Status::InternalFailure),
    };
    match properties.entry(name) {
        Entry::Occupied(_) => Err(Status::BadArgument),
        Entry::Vacant(entry) => {
            entry.insert(readonly);
            Ok(())
        }
    }
}
