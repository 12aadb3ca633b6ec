//! Whatever bytes are given as a module, they are refused or run; the host never panics.
#![no_main]

#[path = "../../host-sim/tests/guests/mod.rs"]
#[expect(dead_code, reason = "the guest of random host calls has a target of its own")]
mod guests;

use std::{sync::LazyLock, time::Duration};

use host_sim::{Host, Module, Plugin, Request, Response};
use libfuzzer_sys::fuzz_target;

const MAGIC: &[u8] = b"\0asm\x01\0\0\0";

/// Modules that load, to be changed a little: what is made up from nothing hardly ever gets that far.
static GUESTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    ["limiter", "bodies", "phases", "callouts", "grpc", "wasi", "chain"].map(guests::guest).into()
});

/// The module that the bytes stand for: themselves, or a guest and what is changed in it, four bytes a change.
fn module(bytes: &[u8]) -> Option<Vec<u8>> {
    let (first, rest) = bytes.split_first()?;
    if *first >= 0x80 {
        return Some([MAGIC, rest].concat());
    }
    let mut module = GUESTS.get(usize::from(*first) % GUESTS.len())?.clone();
    for change in rest.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % module.len();
        match change[2] % 3 {
            0 => module[at] = change[3],
            1 => module.insert(at, change[3]),
            _ => drop(module.remove(at)),
        }
        if module.is_empty() {
            return None;
        }
    }
    Some(module)
}

fuzz_target!(|bytes: &[u8]| {
    let Some(Ok(module)) = module(bytes).map(Module::compile) else { return };
    let builder = Host::builder().log_capacity(0).memory_limit(16 << 20);
    let mut host = builder.callback_limit(Duration::from_millis(100)).build();
    if host.load(&module, Plugin::default()).is_ok() {
        host.send(Request::post("/").body("x"), |_| Response::ok());
    }
});
