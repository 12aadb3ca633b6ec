//! The callbacks.

use crate::{answer, ask, begin, create};

/// What a headers or body callback is called, by whether its message ends with it.
fn named(callback: &str, end: u32) -> String {
    format!("{callback}+{}", if end == 0 { "more" } else { "end" })
}

macro_rules! exports {
    ($($export:ident ($($argument:ident),*) $(-> $type:ty)? $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $export($($argument: u32),*) $(-> $type)? $body
        )*
    };
}

exports! {
    proxy_abi_version_0_2_1() {}
    proxy_on_context_create(context, parent) { create(context, parent); }
    proxy_on_vm_start(root, _size) -> u32 { ask("vm_start", root, root, 1) }
    proxy_on_configure(root, _size) -> u32 { ask("configure", root, root, 1) }
    proxy_on_tick(root) { ask("tick", root, root, 0); }
    proxy_on_queue_ready(root, _token) { ask("queue_ready", root, root, 0); }
    proxy_on_http_call_response(root, token, _headers, _body, _trailers) { answer("http_call_response", root, token); }
    proxy_on_grpc_receive_initial_metadata(root, token, _entries) { answer("grpc_receive_initial_metadata", root, token); }
    proxy_on_grpc_receive(root, token, _size) { answer("grpc_receive", root, token); }
    proxy_on_grpc_receive_trailing_metadata(root, token, _entries) { answer("grpc_receive_trailing_metadata", root, token); }
    proxy_on_grpc_close(root, token, status) { answer(&format!("grpc_close {status}"), root, token); }
    proxy_on_request_headers(stream, _entries, end) -> u32 {
        begin(stream);
        ask(&named("request_headers", end), stream, stream, 0)
    }
    proxy_on_request_body(stream, _size, end) -> u32 { ask(&named("request_body", end), stream, stream, 0) }
    proxy_on_request_trailers(stream, _entries) -> u32 { ask("request_trailers", stream, stream, 0) }
    proxy_on_response_headers(stream, _entries, end) -> u32 { ask(&named("response_headers", end), stream, stream, 0) }
    proxy_on_response_body(stream, _size, end) -> u32 { ask(&named("response_body", end), stream, stream, 0) }
    proxy_on_response_trailers(stream, _entries) -> u32 { ask("response_trailers", stream, stream, 0) }
    proxy_on_log(context) { ask("log", context, context, 0); }
    proxy_on_done(context) -> u32 { ask("done", context, context, 1) }
    proxy_on_delete(context) { ask("delete", context, context, 0); }
}
