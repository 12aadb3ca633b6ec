(module
  ;; Ends its VM in the way that the path names.
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_send" (func $grpc_send (param i32 i32 i32 i32) (result i32)))
  ;; prelude
  (global $late (mut i32) (i32.const 0))

  (func $overflow (param $n i32) (result i32) (i32.add (i32.const 1) (call $overflow (local.get $n))))

  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (if (call $result_begins (str "/unreachable")) (then (unreachable)))
    (if (call $result_begins (str "/loop")) (then (loop $forever (br $forever))))
    (if (call $result_begins (str "/overflow")) (then (drop (call $overflow (i32.const 0)))))
    (if (call $result_begins (str "/pause")) (then (return (i32.const 1))))
    (if (call $result_begins (str "/response")) (then (global.set $late (i32.const 1))))
    (if (call $result_begins (str "/body")) (then (global.set $late (i32.const 2))))
    (if (call $result_begins (str "/grow"))
      (then (loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) 
            (call $note (str "pages") (memory.size))))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (if (i32.eq (global.get $late) (i32.const 1)) (then (unreachable)))
    (i32.const 0))
  (func (export "proxy_on_response_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (if (i32.eq (global.get $late) (i32.const 2)) (then (unreachable)))
    (i32.const 0))
  (func (export "proxy_on_log") (param $id i32) (call $note (str "log") (local.get $id)))
)
