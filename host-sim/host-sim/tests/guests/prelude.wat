  ;; What every guest needs: memory, an allocator, and ways to tell the log what a call answered.
  (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 65536))
  (func (export "proxy_abi_version_0_2_1"))

  ;; Gives memory and never takes it back; the last stream of a VM frees all of it.
  (func $malloc (export "malloc") (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.and (i32.add (i32.add (local.get $at) (local.get $size)) (i32.const 7)) (i32.const -8)))
    (block $room
      (loop $grow
        (br_if $room (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
        (br_if $room (i32.eq (memory.grow (i32.const 1)) (i32.const -1)))
        (br $grow)))
    (local.get $at))
  (func $free_all (global.set $heap (i32.const 65536)))

  ;; A line that is put together at 1024 and logged at info.
  (global $line (mut i32) (i32.const 1024))
  (func $put (param $ptr i32) (param $len i32)
    (memory.copy (global.get $line) (local.get $ptr) (local.get $len))
    (global.set $line (i32.add (global.get $line) (local.get $len))))
  (func $put_number (param $n i32)
    (if (i32.ge_u (local.get $n) (i32.const 10))
      (then (call $put_number (i32.div_u (local.get $n) (i32.const 10)))))
    (i32.store8 (global.get $line) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
    (global.set $line (i32.add (global.get $line) (i32.const 1))))
  (func $say
    (drop (call $log (i32.const 2) (i32.const 1024) (i32.sub (global.get $line) (i32.const 1024))))
    (global.set $line (i32.const 1024)))

  ;; Logs "<label> <number>".
  (func $note (param $ptr i32) (param $len i32) (param $n i32)
    (call $put (local.get $ptr) (local.get $len))
    (call $put (str " "))
    (call $put_number (local.get $n))
    (call $say))

  ;; Logs "<label> <text>", the text being what a call left at 16 (address) and 20 (length).
  (func $note_result (param $ptr i32) (param $len i32) (param $status i32)
    (if (local.get $status)
      (then (call $put (local.get $ptr) (local.get $len)) (call $put (str " status "))
            (call $put_number (local.get $status)) (call $say))
      (else (call $put (local.get $ptr) (local.get $len)) (call $put (str " "))
            (call $put (i32.load (i32.const 16)) (i32.load (i32.const 20))) (call $say))))

  ;; Whether what a call left at 16 and 20 begins with a text.
  (func $result_begins (param $ptr i32) (param $len i32) (result i32)
    (local $i i32)
    (if (i32.lt_u (i32.load (i32.const 20)) (local.get $len)) (then (return (i32.const 0))))
    (block $differs
      (loop $next
        (if (i32.eq (local.get $i) (local.get $len)) (then (return (i32.const 1))))
        (br_if $differs (i32.ne
          (i32.load8_u (i32.add (i32.load (i32.const 16)) (local.get $i)))
          (i32.load8_u (i32.add (local.get $ptr) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    (i32.const 0))
