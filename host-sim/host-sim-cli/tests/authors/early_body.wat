(module
  ;; Reads the body in the callback of the headers, and cannot do without it.
  (import "env" "proxy_get_buffer_bytes" (func $bytes (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "malloc") (param i32) (result i32) (i32.const 1024))
  (func $read_body
    (drop (call $bytes (i32.const 0) (i32.const 0) (i32.const 100) (i32.const 16) (i32.const 20)))
    (if (i32.eqz (i32.load (i32.const 16)))
      (then (unreachable))))
  (func $on_request (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (call $read_body)
    (i32.const 0))
)
