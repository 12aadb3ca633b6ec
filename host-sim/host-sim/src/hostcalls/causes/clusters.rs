//! Calls to clusters.

use crate::{
    abi::Status,
    hostcalls::causes::asked::Asked,
    lock::lock,
    state::callouts::CallKind,
    wire::{headers::Headers, pairs},
};

/// What a call has to be made with.
const REQUIRED: [&str; 3] = [":method", ":path", ":authority"];

/// What there is instead of a cluster.
fn no_cluster(asked: &Asked<'_>, name: &str) -> String {
    let clusters = lock(&asked.state.shared.clusters);
    let known: Vec<_> = clusters.iter().map(|name| format!("`{name}`")).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("no cluster `{name}`; known: {known}")
}

pub(super) fn http_call(asked: &Asked<'_>) -> String {
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

pub(super) fn grpc_open(asked: &Asked<'_>) -> String {
    match asked.status {
        Status::ParseFailure => no_cluster(asked, &asked.text("service")),
        Status::InternalFailure => {
            "no cluster has the name in the GrpcService; proxy_on_grpc_close follows with UNAVAILABLE (14)"
                .to_owned()
        }
        _ => "the service is a GrpcService without the cluster_name of an envoy_grpc".to_owned(),
    }
}

pub(super) fn grpc_step(asked: &Asked<'_>) -> String {
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
