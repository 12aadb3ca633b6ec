//! A guest that makes whatever host calls a request's body spells.

/// Every host call with the types of its arguments.
pub(crate) const CALLS: [(&str, &str); 39] = [
    ("proxy_log", "iii"),
    ("proxy_get_log_level", "i"),
    ("proxy_get_current_time_nanoseconds", "i"),
    ("proxy_set_tick_period_milliseconds", "i"),
    ("proxy_set_effective_context", "i"),
    ("proxy_done", ""),
    ("proxy_get_status", "iii"),
    ("proxy_get_property", "iiii"),
    ("proxy_set_property", "iiii"),
    ("proxy_get_shared_data", "iiiii"),
    ("proxy_set_shared_data", "iiiii"),
    ("proxy_register_shared_queue", "iii"),
    ("proxy_resolve_shared_queue", "iiiii"),
    ("proxy_dequeue_shared_queue", "iii"),
    ("proxy_enqueue_shared_queue", "iii"),
    ("proxy_get_header_map_value", "iiiii"),
    ("proxy_add_header_map_value", "iiiii"),
    ("proxy_replace_header_map_value", "iiiii"),
    ("proxy_remove_header_map_value", "iii"),
    ("proxy_get_header_map_pairs", "iii"),
    ("proxy_set_header_map_pairs", "iii"),
    ("proxy_get_header_map_size", "ii"),
    ("proxy_get_buffer_bytes", "iiiii"),
    ("proxy_get_buffer_status", "iii"),
    ("proxy_set_buffer_bytes", "iiiii"),
    ("proxy_continue_stream", "i"),
    ("proxy_close_stream", "i"),
    ("proxy_send_local_response", "iiiiiiii"),
    ("proxy_http_call", "iiiiiiiiii"),
    ("proxy_grpc_call", "iiiiiiiiiiii"),
    ("proxy_grpc_stream", "iiiiiiiii"),
    ("proxy_grpc_send", "iiii"),
    ("proxy_grpc_cancel", "i"),
    ("proxy_grpc_close", "i"),
    ("proxy_call_foreign_function", "iiiiii"),
    ("proxy_define_metric", "iiii"),
    ("proxy_increment_metric", "iI"),
    ("proxy_record_metric", "iI"),
    ("proxy_get_metric", "ii"),
];

/// Bytes of a call: its number, and up to twelve arguments.
pub(crate) const RECORD: usize = 52;

/// A guest that makes the calls which a request's body spells.
pub(crate) fn caller() -> Vec<u8> {
    let mut imports = String::new();
    let mut cases = String::new();
    for (index, (name, types)) in CALLS.iter().enumerate() {
        let parameters: String = types.chars().map(|of| if of == 'I' { " i64" } else { " i32" }).collect();
        imports +=
            &format!("(import \"env\" \"{name}\" (func $c{index} (param{parameters}) (result i32)))\n");
        let arguments: String = types
            .chars()
            .enumerate()
            .map(|(at, of)| {
                let load = if of == 'I' { "i64.load" } else { "i32.load" };
                format!(" ({load} (i32.add (local.get $at) (i32.const {})))", 4 + 4 * at)
            })
            .collect();
        cases += &format!(
            "(if (i32.eq (i32.load (local.get $at)) (i32.const {index})) (then (drop (call $c{index}{arguments}))))\n"
        );
    }
    let text = format!(
        r#"(module {imports} ;; prelude
        (func (export "proxy_on_request_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
          (local $at i32) (local $last i32)
          (drop (call $c22 (i32.const 0) (i32.const 0) (local.get $n) (i32.const 16) (i32.const 20)))
          (local.set $at (i32.load (i32.const 16)))
          (local.set $last (i32.add (local.get $at) (i32.load (i32.const 20))))
          (loop $next
            (if (i32.lt_u (local.get $at) (local.get $last))
              (then
                {cases}
                (local.set $at (i32.add (local.get $at) (i32.const {RECORD})))
                (br $next))))
          (call $free_all)
          (i32.const 0)))"#
    );
    super::assemble(&text).unwrap()
}
