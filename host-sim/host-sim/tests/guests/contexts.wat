(module
  ;; Which context calls, answers and timers belong to. The filters of a chain of these share a VM, and each logs under its
  ;; plugin's name. /call calls a cluster for the first filter's stream, from the second's, which waits for the answer;
  ;; /reply calls and replies at once; /choose chooses contexts; /tick sets a timer.
  (import "env" "proxy_get_property" (func $property (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_http_call"
    (func $call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
  (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
  (import "env" "proxy_set_tick_period_milliseconds" (func $period (param i32) (result i32)))
  (import "env" "proxy_send_local_response"
    (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  ;; prelude
  (global $first (mut i32) (i32.const 0))
  (global $waiting (mut i32) (i32.const 0))

  ;; Logs "<label> <the plugin's name>".
  (func $whose (param $ptr i32) (param $len i32)
    (call $note_result (local.get $ptr) (local.get $len)
      (call $property (str "plugin_name") (i32.const 16) (i32.const 20))))
  (func $ask
    (call $note (str "call") (call $call (str "auth")
      (str "\03\00\00\00\05\00\00\00\06\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\04\00\00\00:path\00/check\00:method\00GET\00:authority\00auth\00")
      (str "") (str "") (i32.const 5000) (i32.const 24))))
  (func $path_begins (param $ptr i32) (param $len i32) (result i32)
    (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
    (call $result_begins (local.get $ptr) (local.get $len)))
  (func $is_second (result i32)
    (drop (call $property (str "plugin_name") (i32.const 16) (i32.const 20)))
    (call $result_begins (str "second")))

  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (if (i32.eqz (call $is_second))
      (then
        (global.set $first (local.get $id))
        (if (call $path_begins (str "/reply"))
          (then
            (call $ask)
            (drop (call $reply (i32.const 403) (i32.const 0) (i32.const 0) (str "no") (i32.const 0) (i32.const 0) (i32.const -1)))))
        (if (call $path_begins (str "/tick")) (then (call $note (str "period") (call $period (i32.const 40)))))
        (return (i32.const 0))))
    (if (call $path_begins (str "/call"))
      (then
        (global.set $waiting (local.get $id))
        (call $note (str "choose") (call $effective (global.get $first)))
        (call $ask)
        (return (i32.const 1))))
    (if (call $path_begins (str "/choose"))
      (then
        (call $whose (str "at first"))
        (call $note (str "unknown") (call $effective (i32.const 999999)))
        (call $whose (str "still"))
        (call $note (str "known") (call $effective (global.get $first)))
        (call $whose (str "then"))
        (call $whose (str "and then"))))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $whose (str "response of"))
    (i32.const 0))
  (func (export "proxy_on_http_call_response") (param $root i32) (param $token i32) (param $n i32) (param $size i32) (param $t i32)
    (call $put (str "root ")) (call $put_number (local.get $root))
    (call $whose (str " is answered, of"))
    (if (global.get $waiting)
      (then
        (drop (call $effective (global.get $waiting)))
        (drop (call $continue (i32.const 0)))
        (global.set $waiting (i32.const 0)))))
  (func (export "proxy_on_tick") (param $root i32)
    (call $note (str "tick of") (local.get $root))
    (call $note (str "no more") (call $period (i32.const 0))))
)
