//! Tests a filter as its author would: `cargo run -p host-sim --example tenant_header`.
//!
//! The filter is `tenant_header.wat` beside this file. A filter in Rust, C++ or Go is tested the same way, from its
//! built module.

use host_sim::{Host, Module, Plugin, Request, Response};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wasm = wat::parse_str(include_str!("tenant_header.wat"))?;
    let mut host = Host::builder().build();
    host.load(&Module::compile(wasm)?, Plugin::default())?;
    let upstream = |request: &Request| Response::ok().body(format!("hello from {}", request.path()));

    let unnamed = host.send(Request::get("/inbox"), upstream);
    assert_eq!((unnamed.status(), unnamed.details()), (401, "no_tenant"));
    assert_eq!(unnamed.text(), "say who you are in x-tenant\n");

    let named = host.send(Request::get("/inbox").header("X-Tenant", "acme"), upstream);
    assert_eq!((named.status(), named.text().as_str()), (200, "hello from /inbox"));
    let forwarded = named.forwarded().ok_or("the request went on")?;
    assert_eq!(forwarded.headers().get("x-tenant"), None, "the upstream hears nothing of tenants");
    Ok(())
}

#[test]
fn the_example_holds() {
    main().unwrap();
}
