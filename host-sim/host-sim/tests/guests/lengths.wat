(module
  ;; Changes bodies, and leaves their content-length as it is.
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_remove_header_map_value" (func $remove (param i32 i32 i32) (result i32)))
  (import "env" "proxy_set_buffer_bytes" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  ;; prelude
  ;; The path's first and second letters: what is done, and to which message.
  (global $what (mut i32) (i32.const 0))
  (global $whose (mut i32) (i32.const 0))

  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (global.set $what (i32.load8_u (i32.add (i32.load (i32.const 16)) (i32.const 1))))
    (global.set $whose (i32.load8_u (i32.add (i32.load (i32.const 16)) (i32.const 2))))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    ;; /removed
    (if (i32.eq (global.get $what) (i32.const 114))
      (then (drop (call $remove (i32.const 2) (str "content-length")))))
    (i32.const 0))
  (func $body (param $buffer i32) (param $n i32) (param $whose i32) (result i32)
    (if (i32.or (i32.eqz (local.get $n)) (i32.ne (global.get $whose) (local.get $whose)))
      (then (return (i32.const 0))))
    ;; /longer, /removed
    (if (i32.or (i32.eq (global.get $what) (i32.const 108)) (i32.eq (global.get $what) (i32.const 114)))
      (then (drop (call $set (local.get $buffer) (i32.const 9999) (i32.const 0) (str ", and what the filter has to say of it")))))
    ;; /shorter
    (if (i32.eq (global.get $what) (i32.const 115))
      (then (drop (call $set (local.get $buffer) (i32.const 0) (i32.const 9999) (str "ab")))))
    (i32.const 0))
  (func (export "proxy_on_request_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $body (i32.const 0) (local.get $n) (i32.const 117)))
  (func (export "proxy_on_response_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $body (i32.const 1) (local.get $n) (i32.const 100)))
)
