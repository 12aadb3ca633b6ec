//! Random bytes as modules, configurations and arguments of host calls: errors, never a panic.

use host_sim::{Host, Module, Plugin, Request, configuration};

use crate::{guests, ok};

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
                host.send(0, Request::post("/").body("x"), ok);
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

/// Every host call with the types of its arguments.
const CALLS: [(&str, &str); 39] = [
    ("proxy_log", "iii"),
    ("proxy_get_log_level", "i"),
    ("proxy_get_current_time_nanoseconds", "i"),
    ("proxy_set_tick_period_milliseconds", "i"),
    ("proxy_set_effective_context", "i"),
    ("proxy_done", ""),
    ("proxy_get_status", "iii"),
    ("proxy_get_property", "iiii"),
    ("proxy_set_property", "iiii"),
    ("proxy_get_shared_data", "iiiii"),
    ("proxy_set_shared_data", "iiiii"),
    ("proxy_register_shared_queue", "iii"),
    ("proxy_resolve_shared_queue", "iiiii"),
    ("proxy_dequeue_shared_queue", "iii"),
    ("proxy_enqueue_shared_queue", "iii"),
    ("proxy_get_header_map_value", "iiiii"),
    ("proxy_add_header_map_value", "iiiii"),
    ("proxy_replace_header_map_value", "iiiii"),
    ("proxy_remove_header_map_value", "iii"),
    ("proxy_get_header_map_pairs", "iii"),
    ("proxy_set_header_map_pairs", "iii"),
    ("proxy_get_header_map_size", "ii"),
    ("proxy_get_buffer_bytes", "iiiii"),
    ("proxy_get_buffer_status", "iii"),
    ("proxy_set_buffer_bytes", "iiiii"),
    ("proxy_continue_stream", "i"),
    ("proxy_close_stream", "i"),
    ("proxy_send_local_response", "iiiiiiii"),
    ("proxy_http_call", "iiiiiiiiii"),
    ("proxy_grpc_call", "iiiiiiiiiiii"),
    ("proxy_grpc_stream", "iiiiiiiii"),
    ("proxy_grpc_send", "iiii"),
    ("proxy_grpc_cancel", "i"),
    ("proxy_grpc_close", "i"),
    ("proxy_call_foreign_function", "iiiiii"),
    ("proxy_define_metric", "iiii"),
    ("proxy_increment_metric", "iI"),
    ("proxy_record_metric", "iI"),
    ("proxy_get_metric", "ii"),
];

/// Bytes of a call: its number, and up to twelve arguments.
const RECORD: usize = 52;

/// A guest that makes the calls which a request's body spells.
fn caller() -> Vec<u8> {
    let mut imports = String::new();
    let mut cases = String::new();
    for (index, (name, types)) in CALLS.iter().enumerate() {
        let parameters: String = types.chars().map(|of| if of == 'I' { " i64" } else { " i32" }).collect();
        imports +=
            &format!("(import \"env\" \"{name}\" (func $c{index} (param{parameters}) (result i32)))\n");
        let arguments: String = types
            .chars()
            .enumerate()
            .map(|(at, of)| {
                let load = if of == 'I' { "i64.load" } else { "i32.load" };
                format!(" ({load} (i32.add (local.get $at) (i32.const {})))", 4 + 4 * at)
            })
            .collect();
        cases += &format!(
            "(if (i32.eq (i32.load (local.get $at)) (i32.const {index})) (then (drop (call $c{index}{arguments}))))\n"
        );
    }
    let text = format!(
        r#"(module {imports} ;; prelude
        (func (export "proxy_on_request_body") (param $id i32) (param $n i32) (param $end i32) (result i32)
          (local $at i32) (local $last i32)
          (drop (call $c22 (i32.const 0) (i32.const 0) (local.get $n) (i32.const 16) (i32.const 20)))
          (local.set $at (i32.load (i32.const 16)))
          (local.set $last (i32.add (local.get $at) (i32.load (i32.const 20))))
          (loop $next
            (if (i32.lt_u (local.get $at) (local.get $last))
              (then
                {cases}
                (local.set $at (i32.add (local.get $at) (i32.const {RECORD})))
                (br $next))))
          (call $free_all)
          (i32.const 0)))"#
    );
    guests::assemble(&text).unwrap()
}

#[test]
fn as_arguments_of_host_calls() {
    let mut rng = fastrand::Rng::with_seed(3);
    let module = Module::compile(caller()).unwrap();
    let builder =
        || Host::builder().log_capacity(0).memory_limit(16 << 20).cluster("c", |_| host_sim::Response::ok());
    let mut host = builder().build();
    host.load(&module, Plugin::default()).unwrap();
    let (mut tried, mut answered, mut calls, mut made) = (0, 0, 0, 0);
    while tried < BYTES {
        let mut body = Vec::new();
        for _ in 0..64 {
            body.extend(rng.u32(..39).to_le_bytes());
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
        host.send(0, Request::post("/").body(body), ok);
        answered += 1;
        calls += 64;
        if host.vm_failure(0).is_some() || answered % 500 == 0 {
            // What the guest has stored and defined goes with its host.
            made += host.host_calls();
            host = builder().build();
            host.load(&module, Plugin::default()).unwrap();
        }
    }
    assert!(made > calls / 2, "{made} host calls of {calls} were made");
}
