//! The host, seen from guests: one file per family of calls.

#[path = "../guests/mod.rs"]
mod guests;

mod callouts;
mod chain;
mod deferred;
mod foreign;
mod grpc;
mod headers;
mod interleaving;
mod lifecycle;
mod load;
mod memory_safety;
mod module_build;
mod ngx;
mod outcomes;
mod phases;
mod properties;
mod queues;
mod random_bytes;
mod replies;
mod timers;
mod trace;
mod wasi;

use host_sim::{Builder, Host, Module, Plugin, Request, Response};

/// A host that runs a guest, made as `builder` says.
fn host_of(guest: &str, builder: Builder, plugin: Plugin) -> Host {
    let module = Module::compile(guests::guest(guest)).unwrap();
    let mut host = builder.build();
    host.load(&module, plugin).unwrap();
    host.logs().take();
    host
}

/// A host with one worker that runs a guest.
fn host(guest: &str) -> Host {
    host_of(guest, Host::builder(), Plugin::default())
}

/// An upstream that answers 200.
fn ok(_: &Request) -> Response {
    Response::ok()
}

/// What the guest has logged since the last time.
fn lines(host: &Host) -> Vec<String> {
    host.logs().take().into_iter().map(|line| line.message).collect()
}
