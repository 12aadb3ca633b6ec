(module
  ;; Sets a timer, and takes it back after three ticks.
  (import "env" "proxy_set_tick_period_milliseconds" (func $period (param i32) (result i32)))
  ;; prelude
  (global $ticks (mut i32) (i32.const 0))

  (func (export "proxy_on_configure") (param $root i32) (param $size i32) (result i32)
    (call $note (str "period") (call $period (i32.const 60)))
    (call $note (str "a shorter one") (call $period (i32.const 40)))
    (i32.const 1))
  (func (export "proxy_on_tick") (param $root i32)
    (global.set $ticks (i32.add (global.get $ticks) (i32.const 1)))
    (call $note (str "tick") (global.get $ticks))
    (if (i32.eq (global.get $ticks) (i32.const 3)) (then (call $note (str "no more") (call $period (i32.const 0))))))
)
