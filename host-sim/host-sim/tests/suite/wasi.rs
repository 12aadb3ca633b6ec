//! WASI.

use std::time::Duration;

use host_sim::{Clock, EnvoyVersion, Flavour, Host, LogLevel, Module, ModuleError, Plugin};

use crate::guests;

#[test]
fn a_filter_uses_wasi_from_its_start_and_its_callbacks() {
    let module = Module::compile(guests::guest("wasi")).unwrap();
    let mut host = Host::builder().seed(7).clock(Clock::at_unix(Duration::from_secs(1234))).build();
    let plugin = Plugin::default().environment("A", "b=c");
    host.load(&module, plugin).unwrap();

    let log = host.logs().take();
    let of_worker = |line: &&host_sim::LogLine| line.vm == host_sim::VmName::Worker(0);
    let lines: Vec<_> =
        log.iter().filter(of_worker).map(|line| (line.level, line.message.as_str())).collect();
    let random = lines.iter().find(|(_, message)| message.starts_with("random bytes")).copied();
    use LogLevel::{Error, Info, Trace};
    assert_eq!(
        lines,
        [
            (Info, "to standard output"),
            (Info, "write 0"),
            (Info, "written 19"),
            (Error, "to standard error"),
            (Info, "write elsewhere 8"),
            (Info, "vectors outside 21"),
            (Info, "wall 0"),
            (Info, "seconds 1234"),
            (Info, "monotonic 0"),
            (Info, "other clock 58"),
            (Info, "random 0"),
            random.unwrap(),
            (Info, "too much random 28"),
            (Info, "variables 1"),
            (Info, "variable A=b=c"),
            (Info, "arguments 0"),
            (Info, "read 52"),
            (Info, "open 44"),
            (Info, "fdstat 0"),
            (Info, "rights 64"),
            (Info, "prestat 8"),
            (Info, "prestat name 52"),
            (Info, "seek 0"),
            (Info, "close 0"),
            (Info, "set flags 52"),
            (Info, "arguments 0"),
            (Info, "yield 0"),
            (Info, "poll 0"),
            (Info, "events 0"),
            (Info, "poll nowhere 21"),
            (Trace, "proc_exit(0)"),
            (Info, "after exit 0"),
        ]
    );
}

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
