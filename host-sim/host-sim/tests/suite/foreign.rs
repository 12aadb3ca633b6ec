//! Functions that Envoy offers by name and this host does not.

use host_sim::{Host, Module, Plugin, Request, VmError};

use crate::{guests, ok};

#[test]
fn a_function_that_is_not_supported_ends_the_guest_with_its_name() {
    for name in
        ["expr_create", "expr_delete", "expr_evaluate", "set_envoy_filter_state", "sign", "verify_signature"]
    {
        let text = format!(
            r#"(module
            (import "env" "proxy_call_foreign_function" (func $call (param i32 i32 i32 i32 i32 i32) (result i32)))
            ;; prelude
            (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
              (call $call (str "{name}") (str "") (i32.const 0) (i32.const 0))))"#
        );
        let mut host = Host::builder().build();
        host.load(&Module::compile(guests::assemble(&text).unwrap()).unwrap(), Plugin::default()).unwrap();
        let outcome = host.send(Request::get("/"), ok);
        let told = outcome.failure().map(VmError::to_string).unwrap_or_default();
        assert!(told.contains(&format!("host function not supported: {name}")), "{name}: {told:?}");
    }
}
