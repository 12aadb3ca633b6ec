(module
  ;; Tells the bytes of its configuration.
  (import "env" "proxy_get_buffer_bytes" (func $bytes (param i32 i32 i32 i32 i32) (result i32)))
  ;; prelude
  (func (export "proxy_on_configure") (param $root i32) (param $n i32) (result i32)
    (local $i i32)
    (drop (call $bytes (i32.const 7) (i32.const 0) (local.get $n) (i32.const 16) (i32.const 20)))
    (call $put (str "configured with"))
    (block $end
      (loop $next
        (br_if $end (i32.eq (local.get $i) (local.get $n)))
        (call $put (str " "))
        (call $put_number (i32.load8_u (i32.add (i32.load (i32.const 16)) (local.get $i))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    (call $say)
    (i32.const 1))
)
