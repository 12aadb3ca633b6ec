(module
  ;; A filter that refuses requests without an x-tenant header, and tells the upstream nothing of it.
  (import "env" "proxy_get_header_map_value" (func $get_header (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_remove_header_map_value" (func $remove_header (param i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response" (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 256) "x-tenant")
  (data (i32.const 272) "no_tenant")
  (data (i32.const 288) "say who you are in x-tenant\n")
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "malloc") (param $size i32) (result i32) (i32.const 1024))

  (func (export "proxy_on_request_headers") (param $id i32) (param $headers i32) (param $end i32) (result i32)
    (if (call $get_header (i32.const 0) (i32.const 256) (i32.const 8) (i32.const 0) (i32.const 4))
      (then
        (drop (call $reply (i32.const 401) (i32.const 272) (i32.const 9) (i32.const 288) (i32.const 28)
          (i32.const 0) (i32.const 0) (i32.const -1)))
        (return (i32.const 1))))
    (drop (call $remove_header (i32.const 0) (i32.const 256) (i32.const 8)))
    (i32.const 0)))
