(module
  ;; Tells every header of a request and of its response, line by line.
  (import "env" "proxy_get_header_map_pairs" (func $pairs (param i32 i32 i32) (result i32)))
  ;; prelude

  (func $tell (param $map i32) (param $ptr i32) (param $len i32)
    (local $blob i32) (local $count i32) (local $size i32) (local $text i32) (local $i i32)
    (drop (call $pairs (local.get $map) (i32.const 16) (i32.const 20)))
    (local.set $blob (i32.load (i32.const 16)))
    (local.set $count (i32.load (local.get $blob)))
    ;; The lengths of name and value, eight bytes for each pair, then their texts, each with a zero byte behind it.
    (local.set $size (i32.add (local.get $blob) (i32.const 4)))
    (local.set $text (i32.add (local.get $size) (i32.mul (local.get $count) (i32.const 8))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (local.get $count)))
        (call $put (local.get $ptr) (local.get $len))
        (call $put (local.get $text) (i32.load (local.get $size)))
        (local.set $text (i32.add (local.get $text) (i32.add (i32.load (local.get $size)) (i32.const 1))))
        (call $put (str ": "))
        (call $put (local.get $text) (i32.load offset=4 (local.get $size)))
        (local.set $text (i32.add (local.get $text) (i32.add (i32.load offset=4 (local.get $size)) (i32.const 1))))
        (call $say)
        (local.set $size (i32.add (local.get $size) (i32.const 8)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next))))

  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $tell (i32.const 0) (str "request "))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $tell (i32.const 2) (str "response "))
    (i32.const 0))
  (func (export "proxy_on_delete") (param $id i32) (call $free_all))
)
