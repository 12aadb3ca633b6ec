//! WASI.

use host_sim::{EnvoyVersion, Flavour, Host, Module, ModuleError, Plugin};

use crate::guests;

#[test]
fn random_bytes_come_from_the_seed_and_differ_between_vms() {
    let drawn = |seed| {
        let mut host = Host::builder().workers(2).seed(seed).build();
        host.load(&Module::compile(guests::guest("wasi")).unwrap(), Plugin::default()).unwrap();
        let lines: Vec<_> = host.logs().take().into_iter().map(|line| line.message).collect();
        lines.into_iter().filter(|line| line.starts_with("random bytes")).collect::<Vec<_>>()
    };
    let first = drawn(1);
    assert_eq!((&first, first.len()), (&drawn(1), 4));
    assert!(first != drawn(2) && first.iter().collect::<std::collections::BTreeSet<_>>().len() == 4);
}

#[test]
fn a_module_loads_only_where_its_imports_exist() {
    let module = |import: &str| {
        let text = format!(
            r#"(module {import} (memory (export "memory") 1) (func (export "proxy_abi_version_0_2_0"))
                (func (export "malloc") (param i32) (result i32) (i32.const 0)))"#
        );
        Module::compile(guests::assemble(&text).unwrap())
    };
    let tell = r#"(import "wasi_snapshot_preview1" "fd_tell" (func (param i32 i32) (result i32)))"#;
    for (version, loads) in [(EnvoyVersion::V1_38, false), (EnvoyVersion::V1_39, true)] {
        let mut host = Host::builder().flavour(Flavour::Envoy(version)).build();
        assert_eq!(host.load(&module(tell).unwrap(), Plugin::default()).is_ok(), loads, "{version:?}");
    }
    for import in [
        r#"(import "env" "proxy_clear_route_cache" (func (result i32)))"#,
        r#"(import "env" "proxy_log" (func (param i32) (result i32)))"#,
        r#"(import "env" "proxy_get_log_level" (func (param i32) (result i32)))"#,
    ] {
        assert!(matches!(module(import), Err(ModuleError::Import(_))), "{import}");
    }
}
