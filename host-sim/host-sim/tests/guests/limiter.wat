(module
  ;; Lets five requests of each path pass. A path that begins with /broken is counted as a careless limiter does: it
  ;; creates its counter with cas 0, which on Envoy overwrites one that another worker has created meanwhile.
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_shared_data" (func $load (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_shared_data" (func $store (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response"
    (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  ;; prelude

  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (local $broken i32) (local $key i32) (local $size i32) (local $cas i32) (local $used i32) (local $status i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (local.set $broken (call $result_begins (str "/broken")))
    (local.set $key (i32.load (i32.const 16)))
    (local.set $size (i32.load (i32.const 20)))
    (loop $again
      (local.set $status
        (call $load (local.get $key) (local.get $size) (i32.const 16) (i32.const 20) (i32.const 24)))
      (if (i32.eqz (local.get $status))
        (then
          (local.set $used (i32.load (i32.load (i32.const 16))))
          (local.set $cas (i32.load (i32.const 24))))
        (else
          (if (i32.ne (local.get $status) (i32.const 1)) (then (unreachable)))
          (local.set $used (i32.const 0))
          ;; Never the number of a write, so that it inserts only.
          (local.set $cas (select (i32.const 0) (i32.const -1) (local.get $broken)))))
      (if (i32.ge_u (local.get $used) (i32.const 5))
        (then
          (drop (call $reply (i32.const 429) (str "limited") (str "") (str "") (i32.const -1)))
          (return (i32.const 1))))
      (i32.store (i32.const 28) (i32.add (local.get $used) (i32.const 1)))
      (br_if $again (i32.eq (i32.const 8)
        (call $store (local.get $key) (local.get $size) (i32.const 28) (i32.const 4) (local.get $cas)))))
    (i32.const 0))
  (func (export "proxy_on_delete") (param $id i32) (call $free_all))
)
