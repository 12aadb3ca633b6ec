//! What a guest asks for in a callback and the host does when it has returned.

use host_sim::{Host, Module, Outcome, Plugin, Request};

use crate::{guests, lines, ok};

/// Its streams wait until one comes with the path /reply or /resume, which answers all of them or lets them go on, the
/// last first.
const WAITING: &str = r#"(module
    (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
    (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
    (import "env" "proxy_send_local_response"
      (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
    ;; prelude
    (func $path_begins (param $ptr i32) (param $len i32) (result i32)
      (drop (call $get (i32.const 0) (str ":path") (i32.const 16) (i32.const 20)))
      (call $result_begins (local.get $ptr) (local.get $len)))
    (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
      (local $replies i32) (local $resumes i32)
      (local.set $replies (call $path_begins (str "/reply")))
      (local.set $resumes (call $path_begins (str "/resume")))
      (if (i32.eqz (i32.or (local.get $replies) (local.get $resumes))) (then (return (i32.const 1))))
      (loop $next
        (local.set $id (i32.sub (local.get $id) (i32.const 1)))
        (if (i32.gt_u (local.get $id) (i32.const 1))
          (then
            (drop (call $effective (local.get $id)))
            (if (local.get $replies)
              (then (drop (call $reply (i32.const 429) (str "") (str "") (str "") (i32.const -1))))
              (else (drop (call $continue (i32.const 0)))))
            (br $next))))
      (call $put (str "asked")) (call $say)
      (drop (call $effective (i32.const 0)))
      (i32.const 0))
    (func (export "proxy_on_request_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
      (call $note (str "body of") (local.get $id))
      (i32.const 0))
    (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
      (call $note (str "response of") (local.get $id))
      (i32.const 0)))"#;

/// So many streams wait, with these bytes of body, and one comes with this path: what became of them, and the host.
fn wait(streams: usize, body: &str, path: &'static str) -> (Vec<Outcome>, Host) {
    let module = Module::compile(guests::assemble(WAITING).unwrap()).unwrap();
    let mut host = Host::builder().build();
    host.load(&module, Plugin::default()).unwrap();
    let open = |_| {
        let mut stream = host.stream(&Request::post("/"), body.is_empty());
        if !body.is_empty() {
            stream.body(body.to_owned(), true);
        }
        stream
    };
    let waiting: Vec<_> = (0..streams).map(open).collect();
    host.logs().take();
    host.send(Request::get(path), ok);
    let outcomes = waiting.into_iter().map(|mut stream| {
        stream.poll();
        stream.finish()
    });
    (outcomes.collect(), host)
}

#[test]
fn replies_and_resumes_run_after_the_callback_in_the_order_in_which_the_guest_asked_for_them() {
    let (outcomes, host) = wait(3, "", "/reply");
    assert_eq!(outcomes.iter().map(Outcome::status).collect::<Vec<_>>(), [429; 3]);
    assert_eq!(lines(&host)[..4], ["asked", "response of 4", "response of 3", "response of 2"]);

    let (outcomes, host) = wait(3, "x", "/resume");
    assert!(outcomes.iter().all(|outcome| outcome.forwarded().is_some()));
    assert_eq!(lines(&host)[..4], ["asked", "body of 4", "body of 3", "body of 2"]);
}

#[test]
fn more_than_256_that_come_back_to_the_guest_in_one_callback_overflow_its_stack() {
    //  what they wait with, what is done with them, how many there are, whether the VM dies
    let rows = [
        ("", "/reply", 256, false),
        ("", "/reply", 257, true),
        ("x", "/resume", 256, false),
        ("x", "/resume", 257, true),
        // Without a body the guest hears nothing more of them.
        ("", "/resume", 1000, false),
    ];
    for (body, path, streams, dies) in rows {
        let (outcomes, host) = wait(streams, body, path);
        let failure = host.worker(0).vm_failure().map(|failure| failure.to_string()).unwrap_or_default();
        let what = format!("{path} of {streams} with {body:?}: {failure:?}");
        assert_eq!(!failure.is_empty(), dies, "{what}");
        if dies {
            let why =
                "Maximum call stack size exceeded: one callback asked for more than 256 replies or resumes";
            assert!(failure.contains(why), "{what}");
            assert!(outcomes.iter().any(|outcome| outcome.status() == 503), "{what}");
        }
        let at_least =
            outcomes.iter().filter(|outcome| outcome.status() == 429 || outcome.forwarded().is_some());
        assert!(at_least.count() >= streams.min(256), "{what}");
    }
}
