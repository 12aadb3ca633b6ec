//! What a stream does once.

use tests::differential::{VERSIONS, scenario};
use tests::sweep::compare;

/// What a stream does once, and what client, upstream and log see of it: the set of each request is its path.
const ONCE: &str = "
= root queue_ready
proxy_dequeue_shared_queue 1
= host request_headers
proxy_replace_header_map_value 0 host other
= host_added request_headers
proxy_add_header_map_value 0 host other
= authority request_headers
proxy_replace_header_map_value 0 :authority other
= whole request_headers
return 3
= status request_headers
proxy_send_local_response 418 _ body :status=503 -1
= status_empty request_headers
proxy_send_local_response 418 _ _ x=1;:status=503 -1
= reply_body request_body
proxy_send_local_response 403 of%20body body x=1 -1
= reply_trailers request_trailers
proxy_send_local_response 403 d body x=1 -1
= reply_response response_headers
proxy_send_local_response 403 d body x=1 -1
= reply_response_body response_body
proxy_send_local_response 403 d body x=1 -1
= reply_twice request_headers
proxy_send_local_response 403 d first _ -1
proxy_send_local_response 404 d second _ -1
= reply_continued request_headers
proxy_send_local_response 403 d first _ -1
proxy_continue_stream 0
= close request_headers
proxy_close_stream 0
= close_response response_headers
proxy_close_stream 1
= trailers request_trailers
return 1
= trailers log
proxy_get_header_map_pairs 1
proxy_get_header_map_value 1 x-trailer
= resumed request_body+more
proxy_continue_stream 0
proxy_set_buffer_bytes 0 0 99 changed
= written request_body+more
proxy_set_buffer_bytes 0 0 99 changed
= empty request_headers
proxy_grpc_call silent s m _ x 1000
return 1
= empty grpc_close
proxy_get_status
proxy_set_effective_context $stream
proxy_continue_stream 0
= unknown request_headers
proxy_grpc_call %0a%09%0a%07nowhere s m _ x 1000
proxy_grpc_stream %0a%09%0a%07nowhere s m _
= root grpc_close
proxy_get_status
= register request_headers
proxy_register_shared_queue q
= trap request_headers
unreachable
= enqueue request_headers
proxy_enqueue_shared_queue 1 x
";

const STEPS: &str = "
failure_policy: FAIL_RELOAD
clusters: {silent: {grpc_status: 0}}
steps:
- {name: host is the authority, request: {path: /host}, expect: {forwarded_headers: {':authority': other}}}
- {request: {path: /host_added}}
- {request: {path: /authority}}
- {request: {path: /status}}
- {request: {path: /status_empty}}
- {request: {method: POST, path: /reply_body, body: abc}}
- {request: {method: POST, path: /reply_trailers, body: abc, trailers: {x-trailer: t}, http2: true}}
- {request: {path: /reply_response}, upstream: {body: answer}}
- {request: {path: /reply_response_body}, upstream: {body: answer}}
- {request: {path: /reply_twice}}
- {request: {path: /reply_continued}}
- {request: {path: /close}, expect: {reset: true}}
- {request: {path: /close_response}, expect: {reset: true}}
- {request: {method: POST, path: /resumed, body: abcdefg, chunked: true}}
- {request: {method: POST, path: /written, body: abcdefg, chunked: true}}
- {request: {path: /empty}}
- {request: {path: /unknown}}
- {name: trailers that wait, request: {method: POST, path: /trailers, body: abc, trailers: {x-trailer: t}, http2: true}, expect: {ends: false}}
- {request: {path: /register}}
- {request: {path: /trap}, expect: {status: 503}}
- {advance: 2s}
- {name: the queue of a VM that has failed, request: {path: /enqueue}, expect: {log: ['root queue_ready | proxy_dequeue_shared_queue 1 | 0']}}
";

#[test]
fn what_a_stream_does_once_is_seen_as_behind_envoy() {
    let mut scenario = scenario(STEPS).expect("a scenario");
    let whole = "{request: {method: POST, path: /whole}, expect: {status: 413}}";
    let mut whole: Vec<_> =
        tests::differential::scenario(&format!("steps: [{whole}]")).expect("a step").steps;
    for step in &mut whole {
        if let Some(call) = &mut step.request {
            call.body = "x".repeat(2 << 20);
        }
    }
    scenario.steps.splice(0..0, whole);
    for version in VERSIONS {
        if let Err(error) = compare(version, ONCE, &scenario) {
            panic!("beside Envoy {version}: {error:#}");
        }
    }
}
