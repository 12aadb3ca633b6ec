(module
  ;; Counts its ticks in a metric and tells the time; one tick a second.
  (import "env" "proxy_set_tick_period_milliseconds" (func $period (param i32) (result i32)))
  (import "env" "proxy_define_metric" (func $define (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
  (import "env" "proxy_get_current_time_nanoseconds" (func $now (param i32) (result i32)))
  ;; prelude
  (global $ticks (mut i32) (i32.const 0))

  (func (export "proxy_on_configure") (param $root i32) (param $size i32) (result i32)
    (drop (call $define (i32.const 0) (str "ticks") (i32.const 24)))
    (global.set $ticks (i32.load (i32.const 24)))
    (drop (call $period (i32.const 1000)))
    (i32.const 1))
  (func (export "proxy_on_tick") (param $root i32)
    (drop (call $increment (global.get $ticks) (i64.const 1)))
    (drop (call $now (i32.const 32)))
    (call $note (str "second") (i32.wrap_i64 (i64.div_u (i64.load (i32.const 32)) (i64.const 1000000000)))))
)
