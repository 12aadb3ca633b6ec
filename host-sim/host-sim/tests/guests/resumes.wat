(module
  ;; Resumes a direction inside the callback that stops it.
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
  ;; prelude
  (global $mode (mut i32) (i32.const 0))

  ;; Stops, after it has asked to go on.
  (func $go_on_and_stop (param $stream i32) (result i32)
    (call $note (str "continue") (call $continue (local.get $stream)))
    (i32.const 1))
  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (global.set $mode (i32.load8_u (i32.add (i32.load (i32.const 16)) (i32.const 1))))
    ;; /headers
    (if (i32.eq (global.get $mode) (i32.const 104)) (then (return (call $go_on_and_stop (i32.const 0)))))
    (i32.const 0))
  (func (export "proxy_on_request_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $put (str "request body ")) (call $put_number (local.get $n)) (call $note (str " end") (local.get $end))
    ;; /body
    (if (i32.eq (global.get $mode) (i32.const 98)) (then (return (call $go_on_and_stop (i32.const 0)))))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $note (str "response headers, end") (local.get $end))
    ;; /response
    (if (i32.eq (global.get $mode) (i32.const 114)) (then (return (call $go_on_and_stop (i32.const 1)))))
    (i32.const 0))
  (func (export "proxy_on_response_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $put (str "response body ")) (call $put_number (local.get $n)) (call $note (str " end") (local.get $end))
    ;; /answer
    (if (i32.eq (global.get $mode) (i32.const 97)) (then (return (call $go_on_and_stop (i32.const 1)))))
    (i32.const 0))
)
