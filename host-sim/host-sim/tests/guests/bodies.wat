(module
  ;; Holds, changes and makes up bodies, as the path says.
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_buffer_bytes" (func $bytes (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_buffer_status" (func $status (param i32 i32 i32) (result i32)))
  (import "env" "proxy_set_buffer_bytes" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  ;; prelude
  (global $mode (mut i32) (i32.const 0))

  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (global.set $mode (i32.load8_u (i32.add (i32.load (i32.const 16)) (i32.const 1))))
    (call $note (str "body in the headers callback")
      (call $bytes (i32.const 0) (i32.const 0) (i32.const 9) (i32.const 16) (i32.const 20)))
    ;; /stop-all
    (if (i32.eq (global.get $mode) (i32.const 115)) (then (return (i32.const 1))))
    (i32.const 0))
  (func $body (param $buffer i32) (param $n i32) (param $end i32) (result i32)
    (call $put (str "body ")) (call $put_number (local.get $buffer)) (call $put (str " of "))
    (call $put_number (local.get $n))
    (call $note_result (str ":") (call $bytes (local.get $buffer) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
    (drop (call $status (local.get $buffer) (i32.const 24) (i32.const 28)))
    (if (i32.ne (i32.load (i32.const 24)) (local.get $n)) (then (unreachable)))
    ;; /buffer: hold until the end, then replace what is short
    (if (i32.eq (global.get $mode) (i32.const 98))
      (then
        (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
        (if (i32.gt_u (local.get $n) (i32.const 16)) (then (return (i32.const 0))))
        (call $note (str "replace") (call $set (local.get $buffer) (i32.const 0) (local.get $n) (str "new")))))
    ;; /watermark: hold what is new
    (if (i32.and (i32.eq (global.get $mode) (i32.const 119)) (i32.eqz (local.get $end))) (then (return (i32.const 2))))
    ;; /drop: take it away
    (if (i32.and (i32.eq (global.get $mode) (i32.const 100)) (i32.eqz (local.get $end))) (then (return (i32.const 3))))
    ;; /around: put something before and behind each chunk
    (if (i32.eq (global.get $mode) (i32.const 97))
      (then
        (call $note (str "prepend") (call $set (local.get $buffer) (i32.const 0) (i32.const 0) (str "<")))
        (call $note (str "append") (call $set (local.get $buffer) (i32.const 9999) (i32.const 0) (str ">")))
        (call $note (str "in between") (call $set (local.get $buffer) (i32.const 1) (i32.const 1) (str "x")))
        (call $note (str "of callout") (call $set (i32.const 4) (i32.const 0) (i32.const 0) (str "x")))
        (call $note (str "of configuration") (call $set (i32.const 6) (i32.const 0) (i32.const 0) (str "x")))
        (call $note (str "no such buffer") (call $set (i32.const 9) (i32.const 0) (i32.const 0) (str "x")))))
    ;; /trailers: make some up at the end
    (if (i32.eq (global.get $mode) (i32.const 116))
      (then (call $note (str "trailers")
        (call $add (i32.add (local.get $buffer) (i32.add (local.get $buffer) (i32.const 1))) (str "x-made") (str "up")))))
    (i32.const 0))
  (func (export "proxy_on_request_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $body (i32.const 0) (local.get $n) (local.get $end)))
  (func (export "proxy_on_response_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $body (i32.const 1) (local.get $n) (local.get $end)))
)
