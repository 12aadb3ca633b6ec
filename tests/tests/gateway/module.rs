//! What the built module asks of a host and offers to it.

use std::collections::BTreeSet;

use host_sim::Flavour;
use tests::artifacts;
use wasmparser::{ExternalKind, Parser, Payload, TypeRef};

/// The host functions of ABI 0.2.1, without their `proxy_` prefix:
/// <https://github.com/proxy-wasm/spec/tree/main/abi-versions/v0.2.1>.
const ABI_0_2_1: &[&str] = &[
    "add_header_map_value",
    "call_foreign_function",
    "close_stream",
    "continue_stream",
    "define_metric",
    "dequeue_shared_queue",
    "done",
    "enqueue_shared_queue",
    "get_buffer_bytes",
    "get_buffer_status",
    "get_current_time_nanoseconds",
    "get_header_map_pairs",
    "get_header_map_size",
    "get_header_map_value",
    "get_log_level",
    "get_metric",
    "get_property",
    "get_shared_data",
    "get_status",
    "grpc_call",
    "grpc_cancel",
    "grpc_close",
    "grpc_send",
    "grpc_stream",
    "http_call",
    "increment_metric",
    "log",
    "record_metric",
    "register_shared_queue",
    "remove_header_map_value",
    "replace_header_map_value",
    "resolve_shared_queue",
    "send_local_response",
    "set_buffer_bytes",
    "set_effective_context",
    "set_header_map_pairs",
    "set_property",
    "set_shared_data",
    "set_tick_period_milliseconds",
];

/// What is imported from elsewhere, which every host has: random bytes for the salt, and the variables that a token may be in.
const WASI: &str = "wasi_snapshot_preview1";
const OF_WASI: [&str; 3] = ["environ_get", "environ_sizes_get", "random_get"];

struct Module {
    imports: BTreeSet<(String, String)>,
    exports: BTreeSet<String>,
}

fn built_module() -> Module {
    let bytes = std::fs::read(artifacts::filter_wasm()).unwrap();
    let mut module = Module { imports: BTreeSet::new(), exports: BTreeSet::new() };
    for payload in Parser::new(0).parse_all(&bytes) {
        match payload.unwrap() {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.unwrap();
                    assert!(
                        matches!(import.ty, TypeRef::Func(_)),
                        "{}.{} is no function",
                        import.module,
                        import.name
                    );
                    module.imports.insert((import.module.to_owned(), import.name.to_owned()));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.unwrap();
                    if export.kind == ExternalKind::Func {
                        module.exports.insert(export.name.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    module
}

#[test]
fn the_module_imports_nothing_but_the_abi_random_bytes_and_variables() {
    let imports = built_module().imports;
    let is_allowed = |(module, name): &(String, String)| {
        let of_the_abi = module == "env"
            && name.strip_prefix("proxy_").is_some_and(|name| ABI_0_2_1.binary_search(&name).is_ok());
        of_the_abi || module == WASI && OF_WASI.contains(&name.as_str())
    };
    let others: Vec<_> = imports.iter().filter(|import| !is_allowed(import)).collect();
    assert!(others.is_empty(), "no host promises {others:?}");
    assert!(
        imports.contains(&("env".to_owned(), "proxy_set_shared_data".to_owned())),
        "counters live in shared data, but the module imports {imports:?}"
    );
}

/// A host refuses a module whose import has another type than the host's own declaration. ngx_wasm_module declares
/// `proxy_get_log_level` with two parameters where Envoy has one, so no module can import it for both.
#[test]
fn every_host_declares_each_import_with_the_type_that_the_module_gives_it() {
    let module = host_sim::Module::compile(std::fs::read(artifacts::filter_wasm()).unwrap()).unwrap();
    let imports: Vec<_> = module.imported_functions().collect();
    assert!(!imports.is_empty());
    let mut differences = Vec::new();
    for host in Flavour::ALL {
        for import in &imports {
            let declared = host.declares(&import.module, &import.name);
            if declared.as_ref() != Some(&import.signature) {
                let declared = declared.map_or_else(|| "nothing".to_owned(), |declared| declared.to_string());
                differences.push(format!(
                    "{host} declares {declared} as {}.{}, the module imports {}",
                    import.module, import.name, import.signature
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_table_of_declarations_knows_what_hosts_differ_in() {
    let ngx = |name: &str| Flavour::Ngx.declares("env", name).map(|declared| declared.to_string());
    let envoys = || Flavour::ALL.into_iter().filter(|host| matches!(host, Flavour::Envoy(_)));
    let envoy = |name: &str| {
        let declared = envoys().map(|host| host.declares("env", name).map(|declared| declared.to_string()));
        let different: BTreeSet<_> = declared.collect();
        assert_eq!(different.len(), 1, "{name}: {different:?}");
        different.into_iter().next().flatten()
    };
    for name in ABI_0_2_1 {
        let name = format!("proxy_{name}");
        let (envoy, ngx) = (envoy(&name), ngx(&name));
        assert!(envoy.is_some(), "{name}");
        match name.as_str() {
            "proxy_get_log_level" => {
                assert_eq!(envoy.as_deref(), Some("(func (param i32) (result i32))"));
                assert_eq!(ngx.as_deref(), Some("(func (param i32 i32) (result i32))"));
            }
            "proxy_get_header_map_size" | "proxy_get_buffer_status" => assert_eq!(ngx, None, "{name}"),
            _ => assert_eq!(ngx, envoy, "{name}"),
        }
    }
    assert_eq!(ngx("proxy_no_such_call"), None);
    // WASI grew in Envoy 1.39.
    let tell = |host: Flavour| host.declares("wasi_snapshot_preview1", "fd_tell").is_some();
    assert_eq!(Flavour::ALL.map(tell), [false, false, false, true, true, true]);
}

#[test]
fn the_module_speaks_abi_0_2_1_only() {
    let exports = built_module().exports;
    let versions: Vec<_> = exports.iter().filter(|name| name.starts_with("proxy_abi_version_")).collect();
    assert_eq!(versions, ["proxy_abi_version_0_2_1"]);
}

/// What Envoy calls of an HTTP filter (proxy-wasm-cpp-host, src/wasm.cc), and what ngx_wasm_module calls, partly without a check
/// (src/common/proxy_wasm/ngx_proxy_wasm.c): without the first three it refuses the module, without some of the others its worker crashes.
#[test]
fn the_module_exports_what_envoy_and_nginx_call() {
    let exports = built_module().exports;
    let called = [
        "proxy_on_context_create",
        "proxy_on_vm_start",
        "proxy_on_configure",
        "proxy_on_request_headers",
        "proxy_on_request_body",
        "proxy_on_request_trailers",
        "proxy_on_response_headers",
        "proxy_on_response_body",
        "proxy_on_response_trailers",
        "proxy_on_http_call_response",
        "proxy_on_tick",
        "proxy_on_done",
        "proxy_on_log",
        "proxy_on_delete",
        "_initialize",
        "malloc",
    ];
    let absent: Vec<_> = called.into_iter().filter(|name| !exports.contains(*name)).collect();
    assert!(absent.is_empty(), "the module does not export {absent:?}");
}
