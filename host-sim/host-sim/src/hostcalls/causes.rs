//! Which of its causes an answer had. Looked for once the host call has answered, and only in a trace.

use crate::{
    abi::{BufferKind, LogLevel, MapKind, MetricKind, Numbered as _, Status, slice},
    lock::lock,
    parameter::{Given, Out32, Out64, Raw},
    state::{Context, VmState, callouts::CallKind},
    trace::record::CallAnswer,
    wire::{frame::Direction, headers::Headers, pairs},
};

/// Whether an author has to look at a call that answers so. The others are how a host says that something is not there.
pub(super) fn deserves_a_look(answer: CallAnswer) -> bool {
    match answer {
        CallAnswer::Status(status) => {
            !matches!(status, Status::NotFound | Status::Empty | Status::CasMismatch)
        }
        CallAnswer::Errno(_) | CallAnswer::Trapped => false,
    }
}

/// The cause of an answer: of any but Ok, and of an Ok that gives less than it seems to.
pub(super) fn why(
    call: &'static str,
    raw: &[Raw],
    (memory, state): (&[u8], &mut VmState),
    callback: &'static str,
    answer: CallAnswer,
) -> Option<String> {
    let CallAnswer::Status(status) = answer else { return None };
    let mut asked = Asked { call, raw, memory, state, callback, status };
    match (status, call) {
        (Status::Ok, "proxy_get_buffer_bytes") => empty_body(&mut asked),
        (Status::Ok, "proxy_get_header_map_pairs") => empty_map(&asked),
        (Status::Ok, _) => None,
        (Status::InvalidMemoryAccess, _) => Some(asked.bad_pointer()),
        _ => Some(of(&mut asked)),
    }
}

fn of(asked: &mut Asked<'_>) -> String {
    match asked.call {
        "proxy_get_header_map_value"
        | "proxy_add_header_map_value"
        | "proxy_replace_header_map_value"
        | "proxy_remove_header_map_value"
        | "proxy_set_header_map_pairs"
        | "proxy_get_header_map_pairs"
        | "proxy_get_header_map_size" => map(asked),
        "proxy_get_buffer_bytes" | "proxy_get_buffer_status" | "proxy_set_buffer_bytes" => buffer(asked),
        "proxy_http_call" => http_call(asked),
        "proxy_grpc_call" | "proxy_grpc_stream" => grpc_open(asked),
        "proxy_grpc_send" | "proxy_grpc_cancel" | "proxy_grpc_close" => grpc_step(asked),
        "proxy_get_shared_data" | "proxy_set_shared_data" => shared_data(asked),
        "proxy_register_shared_queue"
        | "proxy_resolve_shared_queue"
        | "proxy_dequeue_shared_queue"
        | "proxy_enqueue_shared_queue" => queue(asked),
        "proxy_define_metric" | "proxy_increment_metric" | "proxy_record_metric" | "proxy_get_metric" => {
            metric(asked)
        }
        "proxy_get_property" | "proxy_set_property" => property(asked),
        "proxy_call_foreign_function" => foreign(asked),
        "proxy_continue_stream" | "proxy_close_stream" => match asked.status {
            Status::Unimplemented => "a filter of HTTP has no upstream connection of its own".to_owned(),
            _ => format!("no stream has number {}: 0 is the request, 1 the response", asked.number("stream")),
        },
        "proxy_set_effective_context" => {
            let known: Vec<_> = asked.state.contexts.keys().map(ToString::to_string).collect();
            format!("no context {}; there are {}", asked.number("context"), known.join(", "))
        }
        "proxy_done" => "the context is not a root whose proxy_on_done answered false".to_owned(),
        "proxy_set_tick_period_milliseconds" => "there is no root context to tick".to_owned(),
        "proxy_log" => {
            let levels =
                [LogLevel::Trace, LogLevel::Critical].map(|level| format!("{} ({level})", level as u32));
            format!("no level {}: there are {}", asked.number("level"), levels.join(" to "))
        }
        _ => asked.status.to_string(),
    }
}

fn metric(asked: &Asked<'_>) -> String {
    let (id, kind) = (asked.code("id"), MetricKind::of(asked.code("id") & 3));
    match (asked.call, asked.status, kind) {
        ("proxy_define_metric", ..) => {
            format!("no kind {}: 0 is a counter, 1 a gauge, 2 a histogram", asked.number("kind"))
        }
        (_, Status::NotFound, _) => format!("the VM has defined no metric {id}"),
        ("proxy_increment_metric", _, Ok(MetricKind::Counter)) => "a counter only goes up".to_owned(),
        ("proxy_increment_metric", ..) => "a histogram is recorded, not incremented".to_owned(),
        ("proxy_get_metric", _, Ok(MetricKind::Histogram)) => "a histogram has no one value".to_owned(),
        _ => format!("{id} is the number of no metric"),
    }
}

fn property(asked: &Asked<'_>) -> String {
    let path = asked.text("path").replace('\0', ".");
    let has_stream = asked.state.contexts.get(&asked.state.context_id());
    let of_stream = matches!(has_stream, Some(Context::Stream(_)));
    match (asked.call, asked.status) {
        ("proxy_set_property", Status::NotFound) => {
            format!("properties are set on a stream, and {} runs for a root context", asked.callback)
        }
        ("proxy_set_property", _) => format!("{path:?} was declared as read-only, or is of another type"),
        (_, Status::NotFound) if !of_stream => {
            format!("no property {path:?} outside of a stream; {} runs for a root context", asked.callback)
        }
        (_, Status::NotFound) => format!("no property {path:?} in {}", asked.callback),
        (_, Status::SerializationFailure) => format!("{path:?} has no value that could be handed over"),
        (_, status) => format!("{path:?}: {status}"),
    }
}

fn foreign(asked: &Asked<'_>) -> String {
    let name = asked.text("function");
    match (asked.status, name.as_str()) {
        (Status::NotFound, _) => format!("no foreign function is named {name:?}"),
        (Status::BadArgument, "declare_property") => {
            "the arguments are malformed, or the property is declared already".to_owned()
        }
        (Status::BadArgument, _) => format!("{name} does not take these arguments"),
        (Status::SerializationFailure, "uncompress") => {
            "the bytes are no zlib stream, or too long".to_owned()
        }
        (Status::SerializationFailure, _) => format!("the result of {name} could not be handed over"),
        (status, _) => format!("{name}: {status}"),
    }
}

/// A host call that has answered.
struct Asked<'a> {
    call: &'static str,
    raw: &'a [Raw],
    memory: &'a [u8],
    state: &'a mut VmState,
    /// The callback that runs.
    callback: &'static str,
    status: Status,
}

impl Asked<'_> {
    fn given(&self, name: &str) -> Option<Given> {
        self.raw.iter().find(|raw| raw.name == name).map(|raw| raw.given)
    }

    /// The number that was passed, or 0 if there is no such parameter.
    fn number(&self, name: &str) -> i128 {
        if let Some(Given::Number(number)) = self.given(name) { number } else { 0 }
    }

    /// The same of a number that has no sign.
    fn code(&self, name: &str) -> u32 {
        u32::try_from(self.number(name)).unwrap_or(u32::MAX)
    }

    /// The bytes of an argument; none where it lies outside the guest's memory.
    fn bytes(&self, name: &str) -> &[u8] {
        match self.given(name) {
            Some(Given::Slice(slice)) => slice.of(self.memory).unwrap_or_default(),
            _ => &[],
        }
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(self.bytes(name)).into_owned()
    }

    /// Whether the guest was given no bytes where it asked for some.
    fn gave_nothing(&self, name: &str) -> bool {
        matches!(self.given(name), Some(Given::SliceOut(out)) if slice(self.memory, out.length, 4) == Ok(&[0; 4]))
    }

    /// Which pointer leads outside the guest's memory.
    fn bad_pointer(&self) -> String {
        let outside = format!("outside the memory of {} bytes", self.memory.len());
        for Raw { name, given } in self.raw {
            let out = match given {
                Given::Slice(given) if given.of(self.memory).is_err() => {
                    return format!("{name} is {} bytes at {:#x}, {outside}", given.length, given.at);
                }
                Given::Slice(_) | Given::Number(_) => continue,
                Given::SliceOut(out) => [("_out", out.at), ("_out_size", out.length)],
                Given::Out32(Out32(at)) | Given::Out64(Out64(at)) => [("_out", *at); 2],
            };
            if let Some((end, at)) = out.into_iter().find(|(_, at)| slice(self.memory, *at, 4).is_err()) {
                return format!("{name}{end} is {at:#x}, {outside}");
            }
        }
        "the guest's allocator gave no memory, or an address outside it".to_owned()
    }
}

/// What a call has to be made with.
const REQUIRED: [&str; 3] = [":method", ":path", ":authority"];

/// What there is instead of a cluster.
fn no_cluster(asked: &Asked<'_>, name: &str) -> String {
    let clusters = lock(&asked.state.shared.clusters);
    let known: Vec<_> = clusters.iter().map(|name| format!("`{name}`")).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("no cluster `{name}`; known: {known}")
}

fn http_call(asked: &Asked<'_>) -> String {
    let name = asked.text("cluster");
    let headers: Headers = pairs::decode(asked.bytes("headers")).into_iter().collect();
    let missing: Vec<_> = REQUIRED.into_iter().filter(|name| headers.get(name).is_none()).collect();
    if !asked.state.shared.knows_cluster(&name) {
        no_cluster(asked, &name)
    } else if headers.is_empty() {
        format!("the headers are empty or malformed: a call needs {}", REQUIRED.join(", "))
    } else if !missing.is_empty() {
        format!("the headers lack {}", missing.join(", "))
    } else {
        format!("the time-out is {} ms", asked.number("timeout"))
    }
}

fn grpc_open(asked: &Asked<'_>) -> String {
    match asked.status {
        Status::ParseFailure => no_cluster(asked, &asked.text("service")),
        Status::InternalFailure => {
            "no cluster has the name in the GrpcService; proxy_on_grpc_close follows with UNAVAILABLE (14)"
                .to_owned()
        }
        _ => "the service is a GrpcService without the cluster_name of an envoy_grpc".to_owned(),
    }
}

fn grpc_step(asked: &Asked<'_>) -> String {
    let token = asked.code("token");
    let is_sent = asked.call == "proxy_grpc_send";
    match (asked.status, CallKind::of(token)) {
        (Status::NotFound, _) => {
            format!("no gRPC call or stream {token} is open: it has ended, or was never opened")
        }
        (_, Some(CallKind::Grpc)) if is_sent => {
            format!("{token} is a unary call, whose one message went with it")
        }
        _ => format!("{token} is the token of no gRPC call"),
    }
}

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

fn map(asked: &Asked<'_>) -> String {
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
fn empty_map(asked: &Asked<'_>) -> Option<String> {
    let kind = MapKind::of(asked.code("map")).ok().filter(|_| asked.gave_nothing("pairs"))?;
    Some(format!("nothing: the map is empty, or {}", unreachable_map(asked, kind)))
}

fn buffer(asked: &mut Asked<'_>) -> String {
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
fn empty_body(asked: &mut Asked<'_>) -> Option<String> {
    let kind = BufferKind::of(asked.code("buffer")).ok()?;
    if !matches!(kind, BufferKind::RequestBody | BufferKind::ResponseBody) {
        return None;
    }
    no_body(asked, kind).map(|why| format!("nothing: {why}"))
}

fn shared_data(asked: &Asked<'_>) -> String {
    let key = asked.text("key");
    let stored = || asked.state.namespace.get(asked.bytes("key")).map(|(_, cas)| cas);
    match asked.status {
        Status::NotFound => format!("no key {key:?} under this vm_id"),
        Status::CasMismatch => {
            let cas = asked.number("cas");
            match (stored(), cas) {
                (Ok(stored), 0) => {
                    format!("{key:?} exists, with cas {stored}: this host overwrites nothing without its cas")
                }
                (Ok(stored), _) => {
                    format!("{key:?} was changed since it was read: its cas is {stored}, not {cas}")
                }
                (Err(_), _) => {
                    format!("there is no {key:?}, and cas is {cas}: this host creates with cas 0 alone")
                }
            }
        }
        Status::Unimplemented => "this host has no shared data".to_owned(),
        status => status.to_string(),
    }
}

fn queue(asked: &Asked<'_>) -> String {
    let token = asked.number("token");
    match (asked.status, asked.call) {
        (Status::NotFound, "proxy_resolve_shared_queue") => {
            format!(
                "no queue {:?} of vm_id {:?}: none has registered it",
                asked.text("name"),
                asked.text("vm_id")
            )
        }
        (Status::NotFound, _) => format!("no queue has token {token}"),
        (Status::Empty, _) => format!("queue {token} holds nothing"),
        (Status::Unimplemented, _) => "this host has no shared queues".to_owned(),
        (status, _) => status.to_string(),
    }
}
