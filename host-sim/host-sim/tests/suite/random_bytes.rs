//! Random bytes as modules, configurations and arguments of host calls: errors, never a panic.

use host_sim::{Host, Module, Plugin, Request, configuration};

use crate::{
    guests::{self, caller},
    ok,
};

/// Bytes for each of the three kinds.
const BYTES: usize = 8 << 20;

fn random(rng: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// A copy with a few bytes, or a whole stretch, made up anew.
fn mutated(rng: &mut fastrand::Rng, original: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..rng.usize(1..8) {
        let at = rng.usize(..bytes.len());
        bytes[at] = rng.u8(..);
    }
    if rng.bool() {
        let (at, len) = (rng.usize(..bytes.len()), rng.usize(..16));
        let end = (at + len).min(bytes.len());
        bytes.splice(at..end, random(rng, len));
    }
    bytes
}

#[test]
fn as_modules() {
    let mut rng = fastrand::Rng::with_seed(1);
    let originals = ["limiter", "bodies", "phases"].map(guests::guest);
    let mut tried = 0;
    let (mut loaded, mut refused) = (0, 0);
    while tried < BYTES {
        let original = &originals[rng.usize(..originals.len())];
        // Most bytes are far from any module and are refused at once.
        let bytes = if rng.u8(..) < 8 {
            mutated(&mut rng, original)
        } else {
            let len = rng.usize(..65_536);
            [&b"\0asm\x01\0\0\0"[..], &random(&mut rng, len)].concat()
        };
        tried += bytes.len();
        let mut host = Host::builder().log_capacity(0).memory_limit(16 << 20).build();
        let module = Module::compile(&bytes).ok();
        match module.map(|module| host.load(&module, Plugin::default())) {
            Some(Ok(())) => {
                loaded += 1;
                host.send(Request::post("/").body("x"), ok);
            }
            Some(Err(_)) | None => refused += 1,
        }
    }
    assert!(refused > 100, "{loaded} loaded, {refused} refused");
}

#[test]
fn as_configurations() {
    const TEXT: &str =
        "static_resources:\n- \"@type\": x.v3.Wasm\n  config: {vm_config: {vm_id: v}, configuration: [1]}\n";
    let mut rng = fastrand::Rng::with_seed(2);
    let module = Module::compile(guests::guest("configuration")).unwrap();
    let mut host = Host::builder().log_capacity(0).build();
    host.load(&module, Plugin::default()).unwrap();
    let (mut tried, mut taken) = (0, 0);
    while tried < BYTES {
        let bytes = if rng.bool() {
            mutated(&mut rng, TEXT.as_bytes())
        } else {
            let len = rng.usize(..16_384);
            random(&mut rng, len)
        };
        tried += bytes.len();
        // Errors are fine; so is a file that happens to be a configuration.
        taken += usize::from(configuration::parse(&bytes, None).is_ok());
        if rng.u8(..) == 0 {
            host.update(bytes).unwrap();
        }
    }
    assert!(taken > 0);
}

#[test]
fn as_arguments_of_host_calls() {
    let mut rng = fastrand::Rng::with_seed(3);
    let module = Module::compile(caller::caller()).unwrap();
    let builder =
        || Host::builder().log_capacity(0).memory_limit(16 << 20).cluster("c", |_| host_sim::Response::ok());
    let mut host = builder().build();
    host.load(&module, Plugin::default()).unwrap();
    let (mut tried, mut answered, mut calls, mut made) = (0, 0, 0, 0);
    while tried < BYTES {
        let mut body = Vec::new();
        for _ in 0..64 {
            body.extend(rng.u32(..caller::CALLS.len() as u32).to_le_bytes());
            for _ in 0..12 {
                // Addresses and lengths within the memory, numbers of maps and buffers, and anything at all.
                let argument = match rng.u8(..4) {
                    0 => rng.u32(..10),
                    1 => rng.u32(..4096),
                    2 => rng.u32(..140_000),
                    _ => rng.u32(..),
                };
                body.extend(argument.to_le_bytes());
            }
        }
        tried += body.len();
        host.send(Request::post("/").body(body), ok);
        answered += 1;
        calls += 64;
        if host.worker(0).vm_failure().is_some() || answered % 500 == 0 {
            // What the guest has stored and defined goes with its host.
            made += host.host_calls();
            host = builder().build();
            host.load(&module, Plugin::default()).unwrap();
        }
    }
    assert!(made > calls / 2, "{made} host calls of {calls} were made");
}
