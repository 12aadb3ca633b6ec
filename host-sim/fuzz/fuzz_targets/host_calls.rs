//! Whatever a guest gives the host as arguments, pointers among them, the host answers with a status or ends the guest.
#![no_main]

#[path = "../../host-sim/tests/guests/mod.rs"]
#[expect(dead_code, reason = "one guest of them all is fuzzed")]
mod guests;

use std::sync::LazyLock;

use host_sim::{Host, Module, Plugin, Request, Response};
use libfuzzer_sys::fuzz_target;

static MODULE: LazyLock<Module> =
    LazyLock::new(|| Module::compile(guests::caller::caller()).expect("the guest"));

fuzz_target!(|bytes: &[u8]| {
    let mut body = bytes.to_vec();
    body.resize(bytes.len().next_multiple_of(guests::caller::RECORD), 0);
    for record in body.chunks_exact_mut(guests::caller::RECORD) {
        // So that most records name a call that there is.
        let call = u32::from(record[0]) % guests::caller::CALLS.len() as u32;
        record[..4].copy_from_slice(&call.to_le_bytes());
    }
    let builder = Host::builder().log_capacity(0).memory_limit(16 << 20);
    let mut host = builder.cluster("c", |_| Response::ok()).build();
    host.load(&MODULE, Plugin::default()).expect("the guest takes any configuration");
    host.send(Request::post("/").body(body), |_| Response::ok().body("an answer"));
});
