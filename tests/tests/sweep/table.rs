//! What is asked: host calls, in the callbacks of requests that each are another case.

/// Properties that are the same in every run, by their parts.
const PROPERTIES: &str = "
    _ a a.b request request.path request.path.x request.url_path request.query request.host request.scheme request.method request.referer
    request.useragent request.id request.size request.total_size request.protocol request.nothing request.headers request.headers_bytes
    request.headers.:path request.headers.:authority request.headers.host request.headers.Host request.headers.x-many
    request.headers.accept request.headers.absent request.headers.x-many.x request.trailers request.trailers.x-trailer
    response response.code response.code_details response.flags response.size response.total_size response.grpc_status response.nothing
    response.headers response.headers_bytes response.headers.:status response.headers.x-up response.headers.absent response.trailers
    response.trailers.absent response.code.x
    connection connection.mtls connection.requested_server_name connection.tls_version connection.subject_local_certificate
    connection.subject_peer_certificate connection.uri_san_local_certificate connection.uri_san_peer_certificate
    connection.dns_san_local_certificate connection.dns_san_peer_certificate connection.sha256_peer_certificate_digest
    connection.transport_failure_reason connection.termination_details connection.nothing connection.mtls.x
    upstream upstream.locality upstream.transport_failure_reason upstream.request_attempt_count upstream.num_endpoints upstream.tls_version
    upstream.subject_local_certificate upstream.subject_peer_certificate upstream.uri_san_local_certificate
    upstream.uri_san_peer_certificate upstream.dns_san_local_certificate upstream.dns_san_peer_certificate
    upstream.sha256_peer_certificate_digest upstream.nothing upstream.num_endpoints.x
    source source.nothing destination destination.nothing
    metadata metadata.filter_metadata metadata.filter_metadata.none metadata.filter_metadata.none.x metadata.typed_filter_metadata
    metadata.nothing filter_state filter_state.none filter_state.none.x upstream_filter_state upstream_filter_state.none
    xds xds.node xds.node.id xds.node.nothing xds.cluster_name xds.cluster_metadata xds.cluster_metadata.filter_metadata xds.listener_direction
    xds.listener_metadata xds.listener_metadata.filter_metadata xds.route_name xds.route_metadata xds.route_metadata.filter_metadata
    xds.virtual_host_name xds.virtual_host_metadata xds.upstream_host_metadata xds.upstream_host_locality_metadata xds.filter_chain_name
    xds.nothing plugin_name plugin_name.x plugin_root_id plugin_root_id.x plugin_vm_id plugin_vm_id.x connection_id.x
    node cluster_name cluster_metadata route_name route_metadata listener_direction listener_metadata upstream_host_metadata";

/// Properties whose values are times, ports, or numbers of connections: of these the status and the size are compared.
const VARYING: &str = "request.time request.duration response.backend_latency source.address source.port destination.address destination.port
    connection.id connection_id upstream.address upstream.port upstream.local_address upstream.cx_pool_ready_duration";

/// Calls that change nothing, beside those about properties, maps and buffers.
const OTHERS: &str = "
~proxy_get_current_time_nanoseconds
proxy_get_log_level
proxy_get_status
proxy_done
proxy_log 6 level
proxy_log 2 !
proxy_get_property !
proxy_set_property ! x
proxy_get_shared_data absent
proxy_get_shared_data !
proxy_set_shared_data ! x 0
~proxy_set_shared_data kept x 0
proxy_set_shared_data kept y 4294967295
~proxy_get_shared_data kept
proxy_resolve_shared_queue vm absent
proxy_resolve_shared_queue _ absent
proxy_resolve_shared_queue ! x
proxy_register_shared_queue !
proxy_dequeue_shared_queue 999
proxy_enqueue_shared_queue 999 x
proxy_enqueue_shared_queue 999 !
proxy_continue_stream 2
proxy_continue_stream 3
proxy_continue_stream 4
proxy_close_stream 2
proxy_close_stream 3
proxy_close_stream 4
proxy_set_effective_context 99999
proxy_http_call nowhere :method=GET;:path=/;:authority=a _ _ 1000
proxy_http_call web :method=GET;:path=/ _ _ 1000
proxy_http_call web :method=GET;:authority=a _ _ 1000
proxy_http_call web :path=/;:authority=a _ _ 1000
proxy_http_call web _ _ _ 1000
proxy_http_call web :method=GET;:path=/;:authority=a _ _ -1
proxy_http_call ! _ _ _ 1000
proxy_grpc_call nowhere s m _ x 1000
proxy_grpc_call ! s m _ x 1000
proxy_grpc_stream nowhere s m _
proxy_grpc_send 1 x 0
proxy_grpc_send 4000 x 0
proxy_grpc_send 4001 x 0
proxy_grpc_send 4002 x 0
proxy_grpc_send 4003 x 0
proxy_grpc_cancel 4000
proxy_grpc_cancel 4001
proxy_grpc_cancel 4002
proxy_grpc_cancel 4003
proxy_grpc_close 4000
proxy_grpc_close 4001
proxy_grpc_close 4002
proxy_grpc_close 4003
proxy_define_metric 3 m
proxy_define_metric 0 !
proxy_increment_metric 99999 1
proxy_record_metric 99999 1
proxy_get_metric 99999
proxy_call_foreign_function nothing x
proxy_call_foreign_function ! x
proxy_call_foreign_function compress x
proxy_call_foreign_function uncompress x
proxy_call_foreign_function uncompress _
proxy_call_foreign_function declare_property _
";

/// Names that are looked for in every map.
const NAMES: &str = ":path :authority :status :method host Host accept X-Many content-type absent _";

/// The words of a text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

/// A path of a property as the ABI has it.
fn path(written: &str) -> String {
    written.replace('.', "%00")
}

/// Questions that change nothing.
fn reads() -> String {
    let properties = words(PROPERTIES).map(|name| format!("proxy_get_property {}\n", path(name)));
    let varying = words(VARYING).map(|name| format!("~proxy_get_property {}\n", path(name)));
    let maps = (0..=8).flat_map(|map| {
        let values = words(NAMES).map(move |name| format!("proxy_get_header_map_value {map} {name}\n"));
        let whole = format!(
            "proxy_get_header_map_value {map} !\nproxy_get_header_map_pairs {map}\nproxy_get_header_map_size {map}\n"
        );
        values.chain([whole])
    });
    // The VM's configuration is the table itself.
    let buffers = (0..=9).map(|buffer| {
        let ranges = ["0 9", "1 2", "3 0", "100 9", "9999999 9", "4294967295 2"];
        let bytes = ranges.map(|range| format!("proxy_get_buffer_bytes {buffer} {range}\n")).concat();
        format!("{bytes}proxy_get_buffer_status {buffer}\n")
    });
    properties.chain(varying).chain(maps).chain(buffers).chain([OTHERS.trim_start().to_owned()]).collect()
}

/// What every set begins with: the client's address and the request's number differ from run to run.
const NORMALISED: &str =
    "proxy_remove_header_map_value 0 x-forwarded-for\nproxy_replace_header_map_value 0 x-request-id id\n";

const MAPS: [&str; 4] = [
    // Without `x-forwarded-proto`, Envoy finds no route.
    ":authority=h;:path=/x;:method=POST;:scheme=http;x-forwarded-proto=http;accept=a;x-r=1;accept=b;x-r=2",
    "x-r=1;x-r=2;grpc-status=1;grpc-status=2",
    ":status=200;vary=a;x-r=1;vary=b;x-r=2;host=h",
    "x-r=1;x-r=2;grpc-status=1;grpc-status=2",
];

/// Sequences of changes to a map, after each of which the map is read.
fn changes(map: usize) -> String {
    let rest = "_";
    let pairs = MAPS.get(map).unwrap_or(&rest);
    let mut changes: Vec<String> = [
        "add x-r 1",
        "add X-R 2",
        "replace x-r 3",
        "add x-s 1",
        "replace x-r 4",
        "add accept c",
        "add accept d",
        "replace accept e",
        "add vary c",
        "add vary d",
        "replace vary e",
        "add host h",
        "replace host i",
        "remove host",
        "add :authority j",
        "replace :authority k",
        "add :new l",
        "replace :new m",
        "remove :new",
        "replace x-t _",
        "add x-t n",
        "remove X-S",
        "remove absent",
        "add _ o",
        "replace _ p",
        "remove _",
        "replace x-r %ff",
        "add ! x",
        "replace ! x",
        "remove !",
        "add x !",
    ]
    .map(|change| {
        let (act, arguments) = change.split_once(' ').unwrap_or((change, ""));
        format!("proxy_{act}_header_map_value {map} {arguments}")
    })
    .into();
    changes.push(format!("proxy_set_header_map_pairs {map} {pairs}"));
    changes.push(format!("proxy_add_header_map_value {map} accept z"));
    changes.push(format!("proxy_add_header_map_value {map} vary z"));
    changes.push(format!("proxy_set_header_map_pairs {map} !"));
    changes
        .iter()
        .enumerate()
        .map(|(index, change)| {
            format!("# {map}.{index}\n{change}\nproxy_get_header_map_pairs {map}\nproxy_get_header_map_size {map}\n")
        })
        .collect()
}

/// Changes to a buffer, after each of which it is read.
fn buffer_changes(buffer: usize) -> String {
    ["0 0 p", "0 2 r", "100 0 a", "1 1 x", "1 0 x", "0 1 _", "100 5 e", "0 9999 whole", "0 0 !"]
        .map(|change| {
            format!("# {buffer} {change}\nproxy_set_buffer_bytes {buffer} {change}\nproxy_get_buffer_bytes {buffer} 0 99\n")
        })
        .concat()
}

/// Properties that are set, and what is found of them.
const OWN_PROPERTIES: &str = "
proxy_set_property mine x
proxy_get_property mine
proxy_get_property mine%00x
proxy_get_property filter_state%00wasm.mine
proxy_get_property filter_state%00wasm.mine%00x
proxy_get_property upstream_filter_state%00wasm.mine
proxy_set_property two%00parts x
proxy_get_property two%00parts
proxy_get_property two
proxy_get_property filter_state%00wasm.two%00parts
proxy_set_property _ x
proxy_get_property _
proxy_set_property request%00path x
proxy_get_property request%00path
proxy_set_property plugin_name x
proxy_get_property plugin_name
proxy_set_property mine _
proxy_get_property mine
proxy_set_property mine%00 y
proxy_get_property mine%00
";

const STREAM: &str = "request_headers request_body request_trailers response_headers response_body response_trailers log done delete";

/// A call to a cluster that answers.
const CALL: &str = "proxy_http_call web :method=GET;:path=/;:authority=web _ _ 3000\n";

/// A call and a stream to a service that answers each with one message.
const GRPC: &str = "proxy_grpc_call greeter s m a=b x 3000
proxy_grpc_stream greeter s m a=b
proxy_grpc_send $token x 1
proxy_grpc_send $token x 0
";

/// Metrics of each kind, and what becomes of them.
fn metrics() -> String {
    ["0 counter", "1 gauge", "2 histogram", "0 counter"]
        .map(|metric| {
            let uses = [
                "increment 3",
                "increment 0",
                "increment -1",
                "record 7",
                "record 0",
                "record 18446744073709551615",
            ];
            let uses = uses.map(|used| {
                let (act, by) = used.split_once(' ').unwrap_or((used, ""));
                format!("proxy_{act}_metric $metric {by}\nproxy_get_metric $metric\n")
            });
            format!("# {metric}\n~proxy_define_metric {metric}\nproxy_get_metric $metric\n{}", uses.concat())
        })
        .concat()
}

/// The questions of all callbacks.
pub(crate) fn table() -> String {
    let reads = reads();
    let maps: String = (0..8).map(changes).collect();
    let buffers: String = (0..=9).map(buffer_changes).collect();
    let section = |heading: &str, questions: &[&str]| format!("= {heading}\n{}", questions.concat());
    let after_continue = ["# continued\nproxy_continue_stream 0\n", &reads, "# written\n", &buffers].concat();
    [
        section("any context_create", &[&reads]),
        section("root context_create vm_start configure", &[&reads, &buffers, &maps, &OWN_PROPERTIES[1..]]),
        section("root configure", &["proxy_set_tick_period_milliseconds 50\n"]),
        section("root tick", &["proxy_set_tick_period_milliseconds 0\n", CALL, &reads]),
        section("root http_call_response done delete", &[&reads, &buffers, &maps]),
        section("plain request_headers", &[NORMALISED]),
        section(&format!("plain {STREAM}"), &[&reads]),
        section("held request_headers", &[NORMALISED, CALL, "return 1\n"]),
        section(
            "held http_call_response",
            &[&reads, "# of the stream\nproxy_set_effective_context $stream\n", &reads, &after_continue],
        ),
        section("held request_body request_trailers response_headers", &[&reads]),
        section("buffered request_headers", &[NORMALISED]),
        section("buffered request_body+more response_body+more", &[&reads, "return 1\n"]),
        section("buffered request_body+end response_body+end", &[&reads]),
        section("resumed request_headers", &[NORMALISED]),
        section("resumed request_body response_body", &[&after_continue]),
        section("resumed response_headers", &["proxy_continue_stream 1\n", &reads]),
        section(
            "reply request_headers",
            &[NORMALISED, "proxy_send_local_response 418 d body x-up=1 -1\n", &reads],
        ),
        section("reply response_headers response_body log done", &[&reads]),
        section("changes request_headers", &[NORMALISED]),
        section(&format!("changes {STREAM}"), &[&maps, &buffers, &OWN_PROPERTIES[1..]]),
        section("trailers request_trailers", &[&maps]),
        section("grpc request_headers", &[NORMALISED, GRPC]),
        section(
            "grpc grpc_receive_initial_metadata grpc_receive grpc_receive_trailing_metadata grpc_close",
            &[&reads, &buffers, &maps],
        ),
        section(
            "queue request_headers",
            &["proxy_register_shared_queue q\nproxy_enqueue_shared_queue 1 item\n"],
        ),
        section(
            "root queue_ready",
            &["proxy_dequeue_shared_queue 1\nproxy_dequeue_shared_queue 1\n", &reads],
        ),
        section("metrics request_headers", &[&metrics()]),
        // Whatever has become of them, the request and the response go on as such.
        section("changes request_headers", &[&format!("proxy_set_header_map_pairs 0 {}\n", MAPS[0])]),
        section("changes response_headers", &["proxy_set_header_map_pairs 2 :status=200\n"]),
    ]
    .concat()
}

/// What upstream and clusters answer. The update that there is in a scenario lets the filter be updated.
pub(crate) const UPSTREAM: &str = "
upstream: {headers: {x-up: up, vary: [a, b], x-many: ['1', '2']}, body: answer, chunked: true}
clusters:
  web: {headers: {x-web: '1', vary: [a, b]}, body: of the cluster}
  greeter: {grpc_message: hello}
steps: [{update: another}]";

pub(crate) const REQUESTS: &str = "
# So that there is a connection to the upstream.
- {path: /}
- {method: POST, path: '/plain?q=1', headers: {x-many: ['1', '2'], accept: [a, b], user-agent: u, referer: r}, body: abc,
   trailers: {x-trailer: t}, http2: true}
- {method: POST, path: /held, headers: {x-many: ['1', '2']}, body: abc}
- {method: POST, path: /buffered, body: abcdef}
- {method: POST, path: /resumed, body: abcdef, chunked: true}
- {method: POST, path: /reply, body: abc}
- {method: POST, path: /changes, headers: {x-many: ['1', '2']}, body: abc, chunked: true}
- {path: /grpc}
- {path: /queue}
- {path: /metrics}
- {method: POST, path: /trailers, body: abc, trailers: {x-trailer: t}, http2: true}";
