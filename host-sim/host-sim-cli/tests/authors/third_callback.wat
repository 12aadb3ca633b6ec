(module
  ;; Traps in its third callback, below a function of its own.
  (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "a request arrives")
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "malloc") (param i32) (result i32) (i32.const 1024))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $log (i32.const 2) (i32.const 0) (i32.const 17)))
    (i32.const 0))
  (func $divide (param $by i32) (result i32)
    (i32.div_u
      (i32.const 1)
      (local.get $by)))
  (func $on_response (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (call $divide (i32.const 0)))
)
