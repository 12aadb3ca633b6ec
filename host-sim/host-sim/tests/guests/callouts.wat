(module
  ;; Asks the cluster "auth" about each request and lets it go on when the answer is 200. /unknown asks a cluster that
  ;; does not exist, /incomplete leaves a header out, /negative gives a time-out below zero, /empty posts nothing.
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_header_map_size" (func $size (param i32 i32) (result i32)))
  (import "env" "proxy_get_buffer_bytes" (func $bytes (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_http_call"
    (func $call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
  (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
  (import "env" "proxy_get_status" (func $status (param i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response"
    (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  ;; prelude
  (global $waiting (mut i32) (i32.const 0))

  ;; Configured with anything, it asks while it is configured, too.
  (func (export "proxy_on_configure") (param $root i32) (param $size i32) (result i32)
    (if (local.get $size)
      (then
        (call $note (str "call while it is configured") (call $call (str "auth")
          (str "\03\00\00\00\05\00\00\00\06\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\04\00\00\00:path\00/check\00:method\00GET\00:authority\00auth\00")
          (str "") (str "") (i32.const 5000) (i32.const 24)))))
    (i32.const 1))
  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (if (call $result_begins (str "/unknown"))
      (then
        (call $note (str "unknown cluster")
          (call $call (str "nobody") (str "") (str "") (str "") (i32.const 1000) (i32.const 24)))
        (return (i32.const 0))))
    (if (call $result_begins (str "/incomplete"))
      (then
        (call $note (str "incomplete") (call $call (str "auth")
          (str "\01\00\00\00\05\00\00\00\01\00\00\00:path\00/\00")
          (str "") (str "") (i32.const 1000) (i32.const 24)))
        (return (i32.const 0))))
    (if (call $result_begins (str "/negative"))
      (then
        (call $note (str "negative") (call $call (str "auth") (str "") (str "") (str "") (i32.const -1) (i32.const 24)))
        (return (i32.const 0))))
    (global.set $waiting (local.get $id))
    (if (call $result_begins (str "/empty"))
      (then
        (call $note (str "empty") (call $call (str "auth")
          (str "\03\00\00\00\05\00\00\00\06\00\00\00\07\00\00\00\04\00\00\00\0a\00\00\00\04\00\00\00:path\00/check\00:method\00POST\00:authority\00auth\00")
          (str "") (str "") (i32.const 5000) (i32.const 24)))
        (return (i32.const 1))))
    (call $note (str "call") (call $call (str "auth")
      (str "\03\00\00\00\05\00\00\00\06\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\04\00\00\00:path\00/check\00:method\00GET\00:authority\00auth\00")
      (str "ask") (str "") (i32.const 5000) (i32.const 24)))
    (i32.const 1))

  (func (export "proxy_on_http_call_response") (param $root i32) (param $token i32) (param $n i32) (param $size i32) (param $t i32)
    (call $put (str "answer of ")) (call $put_number (local.get $n)) (call $put (str " headers and "))
    (call $put_number (local.get $size)) (call $note (str " bytes under") (local.get $root))
    (if (i32.eqz (global.get $waiting)) (then (return)))
    (drop (call $status (i32.const 24) (i32.const 28) (i32.const 32)))
    (call $note (str "get_status") (i32.load (i32.const 24)))
    (call $note_result (str "body")
      (call $bytes (i32.const 4) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
    (call $note (str "unknown context") (call $effective (i32.const 999)))
    (call $note (str "context") (call $effective (global.get $waiting)))
    (drop (call $get (i32.const 6) (str ":status") (i32.const 16) (i32.const 20)))
    (if (i32.and (i32.ne (local.get $n) (i32.const 0)) (call $result_begins (str "200")))
      (then (call $note (str "continue") (call $continue (i32.const 0))))
      (else (drop (call $reply (i32.const 403) (str "denied") (str "denied") (str "") (i32.const -1))))))
  (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $note (str "response for") (local.get $id))
    (i32.const 0))
)
