(module
  ;; Reads and writes one key in every way there is, and tells the numbers of its writes.
  (import "env" "proxy_get_shared_data" (func $load (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_shared_data" (func $store (param i32 i32 i32 i32 i32) (result i32)))
  ;; prelude

  (func $read (param $ptr i32) (param $len i32)
    (i32.store (i32.const 24) (i32.const 0))
    (call $note_result (str "read") (call $load (local.get $ptr) (local.get $len) (i32.const 16) (i32.const 20) (i32.const 24)))
    (call $note (str "number") (i32.load (i32.const 24))))

  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $read (str "k"))
    (call $note (str "create with any number") (call $store (str "k") (str "one") (i32.const -1)))
    (call $read (str "k"))
    (call $note (str "another number") (call $store (str "k") (str "no") (i32.const 4000000)))
    (call $note (str "its number") (call $store (str "k") (str "two") (i32.load (i32.const 24))))
    (call $note (str "its old number") (call $store (str "k") (str "no") (i32.load (i32.const 24))))
    (call $note (str "no number") (call $store (str "k") (str "three") (i32.const 0)))
    (call $read (str "k"))
    (call $note (str "nothing") (call $store (str "k") (i32.const 0) (i32.const 0) (i32.const 0)))
    (call $read (str "k"))
    (call $note (str "no name") (call $store (str "") (str "named nothing") (i32.const 0)))
    (call $read (str ""))
    (call $read (str "absent"))
    (i32.const 0))
)
