(module
  ;; Calls the cluster "greeter" by gRPC, as the path says: /call once, /stream with two messages, /unknown a cluster that
  ;; does not exist, /no-client none at all, /cancel takes its call back.
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_buffer_bytes" (func $bytes (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_status" (func $status (param i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_call"
    (func $call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_stream" (func $stream (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_send" (func $send (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_close" (func $close (param i32) (result i32)))
  (import "env" "proxy_grpc_cancel" (func $cancel (param i32) (result i32)))
  ;; prelude
  (func $token (result i32) (i32.load (i32.const 24)))

  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (if (call $result_begins (str "/call"))
      (then
        (call $note (str "call") (call $call (str "greeter") (str "g.Greeter") (str "Hello")
          (str "\01\00\00\00\03\00\00\00\01\00\00\00x-m\001\00") (str "Ada") (i32.const 5000) (i32.const 24)))
        (call $note (str "kind") (i32.and (call $token) (i32.const 3)))))
    (if (call $result_begins (str "/cancel"))
      (then
        (drop (call $call (str "greeter") (str "g.Greeter") (str "Hello") (str "") (str "Ada") (i32.const 0) (i32.const 24)))
        (call $note (str "cancel") (call $cancel (call $token)))
        (call $note (str "cancel again") (call $cancel (call $token)))
        (call $note (str "cancel no gRPC") (call $cancel (i32.const 4)))))
    (if (call $result_begins (str "/unknown"))
      (then
        (call $note (str "unknown") (call $call (str "nobody") (str "s") (str "m") (str "") (str "") (i32.const 0) (i32.const 24)))))
    (if (call $result_begins (str "/no-client"))
      (then
        ;; A GrpcService message that names no cluster of Envoy's.
        (call $note (str "no client") (call $call (str "") (str "s") (str "m") (str "") (str "") (i32.const 0) (i32.const 24)))))
    (if (call $result_begins (str "/message"))
      (then
        ;; A GrpcService message: envoy_grpc { cluster_name: "greeter" }.
        (call $note (str "by message") (call $call (str "\0a\09\0a\07greeter") (str "g.Greeter") (str "Hello") (str "")
          (str "Ada") (i32.const 0) (i32.const 24)))))
    (if (call $result_begins (str "/stream"))
      (then
        (call $note (str "stream") (call $stream (str "greeter") (str "g.Greeter") (str "Chat") (str "") (i32.const 24)))
        (call $note (str "send") (call $send (call $token) (str "one") (i32.const 0)))
        (call $note (str "send") (call $send (call $token) (str "two") (i32.const 0)))
        (call $note (str "close") (call $close (call $token)))
        (call $note (str "send to a call") (call $send (i32.const 5) (str "x") (i32.const 0)))
        (call $note (str "send to nothing") (call $send (i32.const 94) (str "x") (i32.const 0)))))
    (i32.const 0))

  (func (export "proxy_on_grpc_receive_initial_metadata") (param $root i32) (param $token i32) (param $n i32)
    (call $note (str "initial metadata") (local.get $n))
    (call $note_result (str "content-type")
      (call $get (i32.const 4) (str "content-type") (i32.const 16) (i32.const 20))))
  (func (export "proxy_on_grpc_receive") (param $root i32) (param $token i32) (param $size i32)
    (call $note_result (str "received")
      (call $bytes (i32.const 5) (i32.const 0) (local.get $size) (i32.const 16) (i32.const 20))))
  (func (export "proxy_on_grpc_receive_trailing_metadata") (param $root i32) (param $token i32) (param $n i32)
    (call $note_result (str "trailing metadata")
      (call $get (i32.const 5) (str "grpc-status") (i32.const 16) (i32.const 20))))
  (func (export "proxy_on_grpc_close") (param $root i32) (param $token i32) (param $status i32)
    (drop (call $status (i32.const 32) (i32.const 16) (i32.const 20)))
    (call $note (str "closed") (local.get $status))
    (call $note_result (str "because") (i32.const 0)))
)
