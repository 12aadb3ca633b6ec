//! Which of its causes an answer had. Looked for once the host call has answered, and only in a trace.

mod asked;
mod clusters;
mod messages;
mod stores;

use crate::{
    abi::{LogLevel, MetricKind, Numbered as _, Status},
    hostcalls::causes::asked::Asked,
    parameter::Raw,
    state::{Context, VmState},
    trace::record::CallAnswer,
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
        (Status::Ok, "proxy_get_buffer_bytes") => messages::empty_body(&mut asked),
        (Status::Ok, "proxy_get_header_map_pairs") => messages::empty_map(&asked),
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
        | "proxy_get_header_map_size" => messages::map(asked),
        "proxy_get_buffer_bytes" | "proxy_get_buffer_status" | "proxy_set_buffer_bytes" => {
            messages::buffer(asked)
        }
        "proxy_http_call" => clusters::http_call(asked),
        "proxy_grpc_call" | "proxy_grpc_stream" => clusters::grpc_open(asked),
        "proxy_grpc_send" | "proxy_grpc_cancel" | "proxy_grpc_close" => clusters::grpc_step(asked),
        "proxy_get_shared_data" | "proxy_set_shared_data" => stores::shared_data(asked),
        "proxy_register_shared_queue"
        | "proxy_resolve_shared_queue"
        | "proxy_dequeue_shared_queue"
        | "proxy_enqueue_shared_queue" => stores::queue(asked),
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
