(module
  ;; Reads and changes parts of a response's body.
  (import "env" "proxy_get_buffer_bytes" (func $bytes (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_buffer_bytes" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  ;; prelude

  (func $read (param $start i32) (param $size i32)
    (call $put (str "from ")) (call $put_number (local.get $start))
    (call $put (str " at most ")) (call $put_number (local.get $size))
    (call $note_result (str ":")
      (call $bytes (i32.const 1) (local.get $start) (local.get $size) (i32.const 16) (i32.const 20))))
  (func (export "proxy_on_response_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (if (i32.eqz (local.get $n)) (then (return (i32.const 0))))
    (call $read (i32.const 1) (i32.const 0xffffffff))
    (call $read (i32.const 3) (i32.const 2))
    (call $read (i32.const 0) (i32.const 0))
    (call $note (str "the first five") (call $set (i32.const 1) (i32.const 0) (i32.const 5) (str "Hello, world")))
    (call $note (str "in between") (call $set (i32.const 1) (i32.const 2) (i32.const 1) (str "x")))
    (call $note (str "at the end") (call $set (i32.const 1) (i32.const 9999) (i32.const 1) (str "!")))
    (call $note (str "nothing for one") (call $set (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0)))
    (call $read (i32.const 0) (i32.const 9999))
    (i32.const 0))
)
