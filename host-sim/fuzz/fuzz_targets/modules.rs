//! Whatever bytes are given as a module, they are refused or run; the host never panics.
#![no_main]

use host_sim::{Host, Module, Plugin, Request, Response};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The fuzzer finds its way from the version number on; anything else is refused at once.
    let wasm = [&b"\0asm\x01\0\0\0"[..], bytes].concat();
    let Ok(module) = Module::compile(&wasm) else { return };
    let limit = std::time::Duration::from_millis(100);
    let mut host = Host::builder().log_capacity(0).memory_limit(16 << 20).callback_limit(limit).build();
    if host.load(&module, Plugin::default()).is_ok() {
        host.send(0, Request::post("/").body("x"), |_| Response::ok());
    }
});
