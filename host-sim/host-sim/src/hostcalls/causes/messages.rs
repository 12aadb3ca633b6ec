//! Headers, trailers and bodies: what a guest may reach depends on the callback that runs.

use crate::{
    abi::{BufferKind, MapKind, Numbered as _, Status},
    hostcalls::causes::asked::Asked,
    state::Context,
    wire::direction::Direction,
};

/// When a guest may reach a map.
fn reachable(kind: MapKind) -> &'static str {
    match kind {
        MapKind::RequestHeaders => {
            "from proxy_on_request_headers until the filter lets them go on, and in proxy_on_log"
        }
        MapKind::RequestTrailers => {
            "in proxy_on_request_trailers, and to be made in the last proxy_on_request_body"
        }
        MapKind::ResponseHeaders => {
            "from proxy_on_response_headers until the filter lets them go on, and in proxy_on_log"
        }
        MapKind::ResponseTrailers => {
            "in proxy_on_response_trailers and proxy_on_log, and to be made in the last proxy_on_response_body"
        }
        MapKind::GrpcInitialMetadata => "in proxy_on_grpc_receive_initial_metadata, to be read",
        MapKind::GrpcTrailingMetadata => "in proxy_on_grpc_receive_trailing_metadata, to be read",
        MapKind::CalloutHeaders => "in proxy_on_http_call_response, to be read",
        MapKind::CalloutTrailers => {
            "in proxy_on_http_call_response where the answer has trailers, to be read"
        }
    }
}

/// Why nothing of a stream is there, where that is because of the context.
fn no_stream(asked: &Asked<'_>) -> Option<String> {
    let id = asked.state.context_id();
    match asked.state.contexts.get(&id) {
        Some(Context::Stream(_)) => None,
        Some(Context::Root(_)) => Some(format!(
            "{} runs for root context {id}, which has no stream: choose one with proxy_set_effective_context",
            asked.callback
        )),
        None => Some(format!("the stream of context {id} is gone")),
    }
}

fn unreachable_map(asked: &Asked<'_>, kind: MapKind) -> String {
    let of_stream = !matches!(
        kind,
        MapKind::CalloutHeaders
            | MapKind::CalloutTrailers
            | MapKind::GrpcInitialMetadata
            | MapKind::GrpcTrailingMetadata
    );
    no_stream(asked).filter(|_| of_stream).unwrap_or_else(|| {
        format!("no {} in {} now; they are there {}", kind.name(), asked.callback, reachable(kind))
    })
}

pub(super) fn map(asked: &Asked<'_>) -> String {
    let code = asked.code("map");
    let Ok(kind) = MapKind::of(code) else {
        return format!("no map has number {code}: there are 0 to {}", MapKind::ALL.len() - 1);
    };
    match asked.status {
        Status::NotFound => {
            format!("no {:?} in the {}", asked.text("name"), kind.name())
        }
        _ => unreachable_map(asked, kind),
    }
}

/// A map that is not there gives no pairs.
pub(super) fn empty_map(asked: &Asked<'_>) -> Option<String> {
    let kind = MapKind::of(asked.code("map")).ok().filter(|_| asked.gave_nothing("pairs"))?;
    Some(format!("nothing: the map is empty, or {}", unreachable_map(asked, kind)))
}

pub(super) fn buffer(asked: &mut Asked<'_>) -> String {
    let code = asked.code("buffer");
    let Ok(kind) = BufferKind::of(code) else {
        return format!("no buffer has number {code}: there are 0 to {}", BufferKind::ALL.len() - 1);
    };
    let (name, callback) = (kind.name(), asked.callback);
    match (kind, asked.status) {
        (BufferKind::PluginConfiguration, Status::NotFound) => {
            format!(
                "the {name} is there in a root's proxy_on_context_create and proxy_on_configure; this is {callback}"
            )
        }
        (BufferKind::CalloutBody, Status::NotFound) => {
            format!(
                "the {name} is there in proxy_on_http_call_response alone, of an answer that came; this is {callback}"
            )
        }
        (BufferKind::RequestBody | BufferKind::ResponseBody, _) => match no_body(asked, kind) {
            Some(why) => why,
            None => "a body is replaced from 0, or appended to at its end; nothing is put into its middle"
                .to_owned(),
        },
        _ => format!("the {name} cannot be changed"),
    }
}

/// Why there is no body at hand, if there is none.
fn no_body(asked: &mut Asked<'_>, kind: BufferKind) -> Option<String> {
    let direction = if kind == BufferKind::RequestBody { Direction::Request } else { Direction::Response };
    let callback = asked.callback;
    if let Some(why) = no_stream(asked) {
        return Some(why);
    }
    let stream = asked.state.current_stream()?;
    let half = stream.half(direction);
    let message = direction.message();
    if half.sees_held || half.chunk_open && half.chunk.is_some() {
        return None;
    }
    if half.chunk.is_some() {
        return Some(format!("no {message} body in {callback} any more: the filter has let it go on"));
    }
    let whole = if half.ended && half.headers.is_some() && half.held.is_empty() && !half.headers_released {
        format!("; this {message} has none")
    } else {
        String::new()
    };
    Some(format!("no {message} body in {callback}: it is there in proxy_on_{message}_body{whole}"))
}

/// A body that is not there gives no bytes.
pub(super) fn empty_body(asked: &mut Asked<'_>) -> Option<String> {
    let kind = BufferKind::of(asked.code("buffer")).ok()?;
    if !matches!(kind, BufferKind::RequestBody | BufferKind::ResponseBody) {
        return None;
    }
    no_body(asked, kind).map(|why| format!("nothing: {why}"))
}
