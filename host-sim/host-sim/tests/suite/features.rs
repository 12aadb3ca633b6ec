//! What the crate's features bring to guests.

use host_sim::{Host, Module, Plugin, Request, Status};

use crate::{guests, lines, ok};

#[test]
fn a_foreign_function_is_found_where_its_feature_is_on() {
    let (expressions, signatures) = (cfg!(feature = "expressions"), cfg!(feature = "signatures"));
    let rows = [
        ("compress", true),
        ("expr_create", expressions),
        ("expr_delete", expressions),
        ("expr_evaluate", expressions),
        ("sign", signatures),
        ("verify_signature", signatures),
        ("nothing", false),
    ];
    let calls = rows.map(|(name, _)| {
        format!(
            r#"(call $note (str "{name}") (call $call (str "{name}") (str "") (i32.const 0) (i32.const 0)))"#
        )
    });
    let text = format!(
        r#"(module
        (import "env" "proxy_call_foreign_function" (func $call (param i32 i32 i32 i32 i32 i32) (result i32)))
        ;; prelude
        (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
          {}
          (i32.const 0)))"#,
        calls.concat()
    );
    let mut host = Host::builder().build();
    host.load(&Module::compile(guests::assemble(&text).unwrap()).unwrap(), Plugin::default()).unwrap();
    host.send(Request::get("/"), ok);
    let expected = rows.map(|(name, found)| {
        // Empty bytes can be compressed; they are no expression, token, key or signature.
        let status = match (name, found) {
            (_, false) => Status::NotFound,
            ("compress", true) => Status::Ok,
            (_, true) => Status::BadArgument,
        };
        format!("{name} {}", status.code())
    });
    // The host's own line says why there is no expression.
    let told: Vec<_> = lines(&host).into_iter().filter(|line| !line.contains(" error: ")).collect();
    assert_eq!(told, expected);
}
